//! Builds a real control plane from the Go module proxy, once.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

/// The one place where versions are pinned; `writ-testenv` reads the same file.
const VERSIONS: &str = include_str!("../../crates/testenv/versions.txt");

/// What is built of Kubernetes, each from its own package.
const KUBERNETES_BINARIES: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kubectl"];

/// Fills the cache folder; the second run finds everything there.
pub fn build() -> Result<()> {
    control_plane()?;
    older_kubectl()
}

fn control_plane() -> Result<()> {
    let target = cache_folder()?.join(format!("control-plane-{}", version("kubernetes")?));
    let wanted: Vec<_> = KUBERNETES_BINARIES
        .iter()
        .chain(&["etcd"])
        .map(|name| target.join(name))
        .collect();
    if wanted.iter().all(|binary| binary.is_file()) {
        println!("{} is complete", target.display());
        return Ok(());
    }
    ensure_go("the control plane").context(
        "or set KUBEBUILDER_ASSETS to a folder that holds etcd, kube-apiserver, kube-controller-manager and kubectl",
    )?;
    // Built beside the target and moved at the end, so that an interrupted build leaves nothing half done.
    let work = target.with_extension(format!("build-{}", std::process::id()));
    fs::create_dir_all(&work).with_context(|| format!("create {}", work.display()))?;
    let built = etcd(&work).and_then(|()| kubernetes(&work));
    if built.is_ok() {
        fs::create_dir_all(&target)?;
        for binary in &wanted {
            let name = binary.file_name().unwrap_or_default();
            fs::rename(work.join("bin").join(name), binary)
                .with_context(|| format!("move {}", binary.display()))?;
        }
        println!("built {}", target.display());
    }
    fs::remove_dir_all(&work).with_context(|| format!("remove {}", work.display()))?;
    built
}

/// A kubectl ten minors older: people keep theirs for years. It is its library with a `main`, without the rest of Kubernetes.
fn older_kubectl() -> Result<()> {
    let version = version("kubectl-older")?;
    let target = cache_folder()?.join(format!("kubectl-{version}"));
    if target.join("kubectl").is_file() {
        println!("{} is complete", target.display());
        return Ok(());
    }
    ensure_go("an older kubectl")?;
    println!("building kubectl {version}");
    let work = target.with_extension(format!("build-{}", std::process::id()));
    fs::create_dir_all(&work).with_context(|| format!("create {}", work.display()))?;
    let built = kubectl_module(&work, version);
    if built.is_ok() {
        fs::create_dir_all(&target)?;
        fs::rename(work.join("kubectl"), target.join("kubectl"))?;
        println!("built {}", target.display());
    }
    fs::remove_dir_all(&work).with_context(|| format!("remove {}", work.display()))?;
    built
}

fn kubectl_module(work: &Path, version: &str) -> Result<()> {
    let (_, rest) = version
        .split_once('.')
        .context("a Kubernetes version has a minor")?;
    let required = ["client-go", "component-base", "kubectl"]
        .map(|module| format!("require k8s.io/{module} v0.{rest}\n"))
        .concat();
    fs::write(
        work.join("go.mod"),
        format!("module kubectl\n\ngo 1.26\n\n{required}"),
    )?;
    fs::write(
        work.join("main.go"),
        "package main\n\nimport (\n\t\"k8s.io/component-base/cli\"\n\t\"k8s.io/kubectl/pkg/cmd\"\n\
         \t\"k8s.io/kubectl/pkg/cmd/util\"\n)\n\nfunc main() {\n\
         \tif err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {\n\t\tutil.CheckErr(err)\n\t}\n}\n",
    )?;
    go(work, &["mod", "tidy", "-e"])?;
    go(
        work,
        &[
            "build",
            "-trimpath",
            &link_flags(version)?,
            "-o",
            &path(&work.join("kubectl")),
            ".",
        ],
    )
}

/// What `kubectl version` and `/version` say.
fn link_flags(version: &str) -> Result<String> {
    let minor = version
        .split('.')
        .nth(1)
        .context("a Kubernetes version has a minor")?;
    let about = "k8s.io/component-base/version";
    Ok(format!(
        "-ldflags=-s -w -X {about}.gitVersion=v{version} -X {about}.gitMajor=1 -X {about}.gitMinor={minor}"
    ))
}

fn etcd(work: &Path) -> Result<()> {
    let module = work.join("etcd");
    fs::create_dir_all(&module)?;
    fs::write(
        module.join("go.mod"),
        format!(
            "module etcd\n\ngo 1.26\n\nrequire go.etcd.io/etcd/server/v3 v{}\n",
            version("etcd")?
        ),
    )?;
    fs::write(
        module.join("main.go"),
        "package main\n\nimport (\n\t\"os\"\n\n\t\"go.etcd.io/etcd/server/v3/etcdmain\"\n)\n\n\
         func main() { etcdmain.Main(os.Args) }\n",
    )?;
    go(&module, &["mod", "tidy", "-e"])?;
    go(
        &module,
        &[
            "build",
            "-trimpath",
            "-ldflags=-s -w",
            "-o",
            &path(&work.join("bin/etcd")),
            ".",
        ],
    )
}

fn kubernetes(work: &Path) -> Result<()> {
    let version = version("kubernetes")?;
    let module = work.join("kubernetes");
    fs::create_dir_all(&module)?;
    fs::write(
        module.join("go.mod"),
        go_mod(version, &upstream_go_mod(work, version)?),
    )?;
    fs::write(
        module.join("main.go"),
        "package main\n\nimport (\n\t_ \"k8s.io/kubectl/pkg/cmd\"\n\
         \t_ \"k8s.io/kubernetes/cmd/kube-apiserver/app\"\n\
         \t_ \"k8s.io/kubernetes/cmd/kube-controller-manager/app\"\n)\n\nfunc main() {}\n",
    )?;
    go(&module, &["mod", "tidy", "-e"])?;
    let flags = link_flags(version)?;
    for name in KUBERNETES_BINARIES {
        println!("building {name}");
        let out = path(&work.join("bin").join(name));
        go(
            &module,
            &[
                "build",
                "-trimpath",
                &flags,
                "-o",
                &out,
                &format!("k8s.io/kubernetes/cmd/{name}"),
            ],
        )?;
    }
    Ok(())
}

/// Kubernetes' own go.mod replaces its libraries by folders of its repository; ours, by their published modules.
fn go_mod(version: &str, upstream: &str) -> String {
    let (_, rest) = version.split_once('.').unwrap_or_default();
    let go = upstream
        .lines()
        .find(|line| line.starts_with("go "))
        .unwrap_or("go 1.26");
    let replaced = upstream
        .lines()
        .filter_map(|line| line.trim().split_once(" => ./staging/"))
        .map(|(module, _)| format!("replace {module} => {module} v0.{rest}"));
    let required = format!("module control-plane\n\n{go}\n\nrequire k8s.io/kubernetes v{version}\n");
    std::iter::once(required)
        .chain(replaced)
        .collect::<Vec<_>>()
        .join("\n")
        + "\n"
}

fn upstream_go_mod(work: &Path, version: &str) -> Result<String> {
    let file = downloaded(work, &format!("k8s.io/kubernetes@v{version}"), "GoMod")?;
    fs::read_to_string(&file).with_context(|| format!("read {file}"))
}

/// Downloads a module and tells one of the paths that Go names then: `GoMod`, `Dir`.
pub fn downloaded(folder: &Path, module: &str, what: &str) -> Result<String> {
    let json = go_output(folder, &["mod", "download", "-json", module])?;
    let key = format!("\"{what}\": \"");
    let named = json
        .lines()
        .find_map(|line| line.trim().strip_prefix(&key)?.split('"').next());
    named
        .map(str::to_owned)
        .with_context(|| format!("go mod download named no {what} of {module}"))
}

/// Says so if there is no Go here, or one that is too old to fetch the version that is needed.
pub fn ensure_go(what: &str) -> Result<()> {
    let output = Command::new("go").arg("version").output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        bail!("building {what} needs Go 1.26 or later, and there is no `go` here: install it");
    };
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        minor_of_go(&said).is_some_and(|minor| minor >= FETCHES_ITSELF),
        "building {what} needs Go 1.26 or later (one from 1.{FETCHES_ITSELF} on fetches it), and this is {}",
        said.trim()
    );
    Ok(())
}

/// From this minor version on, Go fetches the version of itself that a module asks for.
const FETCHES_ITSELF: u32 = 21;

/// The 26 of `go version go1.26.8 linux/amd64`.
fn minor_of_go(said: &str) -> Option<u32> {
    let (_, rest) = said.split_once(" go1.")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

pub fn go(folder: &Path, args: &[&str]) -> Result<()> {
    let status = Command::new("go")
        .args(args)
        .current_dir(folder)
        .envs(go_env())
        .status()
        .context("run go")?;
    if !status.success() {
        bail!("go {} ended with {status}", args.first().unwrap_or(&""));
    }
    Ok(())
}

/// What a command of Go prints.
pub fn go_output(folder: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new("go")
        .args(args)
        .current_dir(folder)
        .envs(go_env())
        .stderr(Stdio::inherit())
        .output()
        .context("run go")?;
    ensure!(
        output.status.success(),
        "go {} ended with {}",
        args.first().unwrap_or(&""),
        output.status
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// The checksum database is not asked: the versions are pinned, and the proxy is the only source.
fn go_env() -> [(&'static str, &'static str); 4] {
    [
        ("CGO_ENABLED", "0"),
        ("GOFLAGS", "-mod=mod -buildvcs=false"),
        ("GONOSUMDB", "*"),
        ("GOTOOLCHAIN", "auto"),
    ]
}

pub fn version(of: &str) -> Result<&'static str> {
    VERSIONS
        .lines()
        .filter_map(|line| line.split_once('='))
        .find(|(name, _)| *name == of)
        .map(|(_, version)| version)
        .with_context(|| format!("no version of {of} is pinned"))
}

pub fn cache_folder() -> Result<PathBuf> {
    let set = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("WRIT_CACHE_DIR")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("writ")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/writ")))
        .context("neither WRIT_CACHE_DIR nor HOME is set: there is no cache folder")
}

pub fn path(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_go_is_told_from_a_new_one() {
        for (said, minor) in [
            ("go version go1.26.8 linux/amd64\n", Some(26)),
            ("go version go1.19 linux/amd64", Some(19)),
            ("go version go1.27rc1 darwin/arm64", Some(27)),
            ("go version devel", None),
        ] {
            assert_eq!(minor_of_go(said), minor, "{said}");
        }
    }

    #[test]
    fn staged_libraries_become_published_modules() {
        let upstream = "module k8s.io/kubernetes\n\ngo 1.26.0\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n)\n";
        let ours = go_mod("1.36.3", upstream);
        assert!(
            ours.contains("\ngo 1.26.0\n") && ours.contains("require k8s.io/kubernetes v1.36.3\n"),
            "{ours}"
        );
        assert!(
            ours.ends_with("replace k8s.io/api => k8s.io/api v0.36.3\n"),
            "{ours}"
        );
    }
}
