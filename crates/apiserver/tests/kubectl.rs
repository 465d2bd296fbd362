//! `kubectl` itself, driven against the embedded server: the pinned one, which comes with the real control plane, and one ten
//! minors older.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use writ_apiserver::Server;
use writ_testenv::{Assets, assets, harness};

const WIDGETS: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, minimum: 1, default: 3, description: How large it is.}
              color: {type: string}
          status:
            type: object
            properties: {size: {type: integer}}
";

fn widget(color: &str) -> String {
    format!("apiVersion: example.com/v1\nkind: Widget\nmetadata: {{name: w}}\nspec: {{color: {color}}}\n")
}

/// How old a kubectl is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    Pinned,
    Older,
}

struct Kubectl {
    program: PathBuf,
    folder: PathBuf,
}

impl Kubectl {
    fn run(&self, arguments: &str, input: &str) -> Result<(bool, String)> {
        let mut child = Command::new(&self.program)
            .args(arguments.split(' '))
            .env("KUBECONFIG", self.folder.join("kubeconfig"))
            .env("HOME", &self.folder)
            .env("EDITOR", "sed -i s/blue/pink/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("stdin")?.write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        let mut text = String::from_utf8(output.stdout)?;
        text.push_str(&String::from_utf8(output.stderr)?);
        Ok((output.status.success(), text))
    }

    /// The command succeeds and prints each of these.
    fn says(&self, arguments: &str, input: &str, wanted: &[&str]) -> Result<()> {
        let (success, text) = self.run(arguments, input)?;
        ensure!(success, "kubectl {arguments}: {text}");
        for wanted in wanted {
            ensure!(
                text.contains(wanted),
                "kubectl {arguments} does not say {wanted:?}: {text}"
            );
        }
        Ok(())
    }

    /// The command fails and prints this.
    fn fails(&self, arguments: &str, input: &str, wanted: &str) -> Result<()> {
        let (success, text) = self.run(arguments, input)?;
        ensure!(!success, "kubectl {arguments} should fail: {text}");
        ensure!(
            text.contains(wanted),
            "kubectl {arguments} does not say {wanted:?}: {text}"
        );
        Ok(())
    }
}

async fn everyday_commands(program: &Path, age: Age) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let server = Server::builder().port(0).start().await?;
    std::fs::write(folder.path().join("kubeconfig"), server.kubeconfig()?)?;
    let kubectl = Kubectl {
        program: program.to_owned(),
        folder: folder.path().to_owned(),
    };
    tokio::task::spawn_blocking(move || {
        let k = &kubectl;
        k.says("version", "", &["Server Version"])?;
        k.says("get namespaces", "", &["NAME", "STATUS", "kube-system", "Active"])?;
        k.says("apply -f -", WIDGETS, &["created"])?;
        k.says(
            "wait --for=condition=established crd/widgets.example.com --timeout=10s",
            "",
            &["condition met"],
        )?;
        k.says(
            "api-resources --api-group=example.com",
            "",
            &["widgets", "wd", "example.com/v1"],
        )?;
        k.says("apply -f -", &widget("red"), &["widget.example.com/w created"])?;
        k.says("apply -f -", &widget("red"), &["unchanged"])?;
        k.says("get wd", "", &["NAME", "SIZE", "w", "3"])?;
        k.says("describe wd w", "", &["Color:", "red"])?;
        k.says("explain widget.spec.size", "", &["How large it is."])?;
        k.says("scale wd/w --replicas=5", "", &["scaled"])?;
        k.says("get wd w -o jsonpath={.spec.size}", "", &["5"])?;
        k.fails(
            "patch wd w --type=merge -p {\"spec\":{\"size\":0}}",
            "",
            "should be greater than or equal to 1",
        )?;
        k.says(
            "patch wd w --type=merge -p {\"spec\":{\"color\":\"blue\"}}",
            "",
            &["patched"],
        )?;
        k.says("edit wd w", "", &["edited"])?;
        k.says("label wd w a=b", "", &["labeled"])?;
        k.says("annotate wd w c=d", "", &["annotated"])?;
        k.says("get wd -l a=b -o name", "", &["widget.example.com/w"])?;
        k.fails("diff -f -", &widget("green"), "color: green")?;
        k.fails(
            "apply --server-side -f -",
            &widget("green"),
            "conflict with \"kubectl-edit\"",
        )?;
        k.says(
            "apply --server-side --force-conflicts -f -",
            &widget("green"),
            &["serverside-applied"],
        )?;
        k.fails(
            "apply -f -",
            &widget("green\n  colour: x").replace("{color: green\n  colour: x}", "\n  colour: x"),
            "unknown field",
        )?;
        k.says(
            "create configmap m --from-literal=a=b --dry-run=server",
            "",
            &["created (server dry run)"],
        )?;
        k.fails("get configmap m", "", "not found")?;
        k.says("create deployment d --image=x --replicas=2", "", &["created"])?;
        k.says("set image deployment/d x=y", "", &["image updated"])?;
        k.says("get deployment d", "", &["0/2"])?;
        // It was still on trial ten minors ago, and asked for an API that is served no more.
        if age == Age::Pinned {
            k.says("auth whoami", "", &["kubernetes-admin", "system:masters"])?;
        }
        k.says("describe deployment d", "", &["Name:", "d", "Replicas:"])?;
        k.says("describe namespace default", "", &["Status:", "Active"])?;
        k.says("explain deployment.spec.replicas", "", &["replicas", "integer"])?;
        k.says("api-resources", "", &["configmaps", "deployments", "clusterroles"])?;
        k.says("api-versions", "", &["apps/v1", "example.com/v1"])?;
        k.says("get all", "", &["deployment.apps/d"])?;
        k.says("get configmaps -A -o wide", "", &["NAMESPACE", "kube-root-ca.crt"])?;
        k.says("get deployment d -o yaml", "", &["kind: Deployment"])?;
        k.says("annotate deployment d a=b --overwrite", "", &["annotated"])?;
        k.says(
            "patch deployment d -p {\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"x\",\"tty\":true}]}}}}",
            "",
            &["patched"],
        )?;
        k.says("get deployment d -o jsonpath={.spec.template.spec.containers[0].image}", "", &["y"])?;
        k.says("delete deployment d --wait=false", "", &["deleted"])?;
        k.says("wait --for=delete deployment/d --timeout=10s", "", &[])?;
        k.says(
            "create role reader --verb=get,list --resource=configmaps",
            "",
            &["created"],
        )?;
        k.says(
            "create rolebinding reader --role=reader --serviceaccount=default:default",
            "",
            &["created"],
        )?;
        let robot = "--as=system:serviceaccount:default:default";
        k.says(&format!("auth can-i get configmaps {robot}"), "", &["yes"])?;
        k.fails(&format!("auth can-i get secrets {robot}"), "", "no")?;
        k.says(&format!("auth can-i --list {robot}"), "", &["configmaps"])?;
        k.says(&format!("get configmaps {robot}"), "", &["kube-root-ca.crt"])?;
        k.fails(
            &format!("get secrets {robot}"),
            "",
            "cannot list resource \"secrets\"",
        )?;
        k.says("create token default --duration=10m", "", &["ey"])?;
        k.says("get --raw /readyz", "", &["ok"])?;
        k.says("create namespace n", "", &["created"])?;
        k.says("delete namespace n --timeout=10s", "", &["deleted"])?;
        k.says("delete wd w --timeout=10s", "", &["deleted"])?;
        k.says("delete crd widgets.example.com --timeout=10s", "", &["deleted"])?;
        k.fails("get wd", "", "could not find the requested resource")
    })
    .await??;
    server.stop().await;
    Ok(())
}

fn main() {
    let older = assets::older_kubectl();
    if older.is_none() {
        eprintln!("an older kubectl is not there: `cargo xtask control-plane` builds it");
    }
    let missing = older.is_none() && !harness::real_required();
    harness::run(vec![
        harness::real("everyday_commands_of_kubectl_work", || async {
            everyday_commands(&Assets::find()?.binary("kubectl"), Age::Pinned).await
        }),
        harness::plain("everyday_commands_of_an_older_kubectl_work", "real", || async move {
            everyday_commands(&older.context("there is no older kubectl")?, Age::Older).await
        })
        .with_ignored_flag(missing),
    ]);
}
