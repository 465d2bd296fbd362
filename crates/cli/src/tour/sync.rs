//! A RootSync whose roles end at its tenant's namespace.

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use writ_api::configsync::RootSync;
use writ_fleet::{fleet::SYNC_NAMESPACE, git::Repository};

use super::{
    guide::Guide,
    proof::{
        Claim,
        Expected::{Allowed, Refused},
        try_create,
    },
};

const TENANT: &str = "tour-tenant";
const ACCOUNT: (&str, &str) = (SYNC_NAMESPACE, "root-reconciler-tour-tenant");

const ROLE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: tour-tenant}
rules:
- {apiGroups: [\"\"], resources: [configmaps], verbs: [get, list, watch, create, update, patch, delete]}
";

fn root_sync(repository: &str) -> String {
    format!(
        "
apiVersion: configsync.gke.io/v1beta1
kind: RootSync
metadata:
  name: tour-tenant
  namespace: config-management-system
  annotations: {{configsync.gke.io/deletion-propagation-policy: Foreground}}
spec:
  sourceFormat: unstructured
  git: {{repo: \"{repository}\", branch: main, auth: none}}
  override:
    roleRefs:
    - {{kind: ClusterRole, name: tour-tenant, namespace: tour-tenant}}
"
    )
}

fn config_map(namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: tour-from-git, namespace: {namespace}}}\ndata: {{from: git}}\n"
    )
}

pub async fn show(guide: &mut Guide<'_>) -> Result<()> {
    let cluster = guide.first()?;
    let repository = Repository::new()?;
    let text = root_sync(&repository.url());
    guide.start_clean(&[(cluster, ROLE), (cluster, &text)]).await?;
    guide.namespace(cluster, TENANT).await?;
    repository.commit("main", &[("tenant.yaml", config_map(TENANT))])?;
    let probe: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "tour-probe"}}))?;
    let inside = Claim::account(cluster, ACCOUNT, "create", "configmaps", TENANT);
    let outside = Claim::account(cluster, ACCOUNT, "create", "configmaps", "default");

    guide
        .say("A RootSync applies a Git repository with a ServiceAccount of its own. Before there is one, that account has\nno rights.")
        .await?;
    let groups: Vec<&str> = inside.identity.groups.iter().map(AsRef::as_ref).collect();
    let before = cluster.user(&inside.identity.user, &groups).await?;
    guide
        .prove(&inside, Refused, || try_create(&before, TENANT, &probe))
        .await?;

    guide
        .say("The RootSync names its roles: one ClusterRole, in one namespace. writ makes the RoleBinding, and no other.")
        .await?;
    guide.write(cluster, ROLE).await?;
    guide.write(cluster, &text).await?;
    let tenant: Api<ConfigMap> = Api::namespaced(cluster.admin().await?, TENANT);
    let default: Api<ConfigMap> = Api::namespaced(cluster.admin().await?, "default");
    guide
        .see("the ConfigMap from Git is in the tenant's namespace", || async {
            Ok(tenant.get_opt("tour-from-git").await?.map(|_| String::new()))
        })
        .await?;
    let account = cluster.service_account(ACCOUNT.0, ACCOUNT.1).await?;
    guide
        .prove(&inside, Allowed, || try_create(&account, TENANT, &probe))
        .await?;
    guide
        .prove(&outside, Refused, || try_create(&account, "default", &probe))
        .await?;

    guide
        .say("A commit adds a file for another namespace. The API server refuses it; the status says so; the rest stays.")
        .await?;
    println!("\n  a commit adds ConfigMap default/tour-from-git to the repository\n");
    repository.commit(
        "main",
        &[
            ("tenant.yaml", config_map(TENANT)),
            ("stranger.yaml", config_map("default")),
        ],
    )?;
    let syncs: Api<RootSync> = Api::namespaced(cluster.admin().await?, SYNC_NAMESPACE);
    guide
        .see("the RootSync reports what was refused", || async {
            let sync = serde_json::to_value(syncs.get("tour-tenant").await?.status)?;
            let errors = sync
                .pointer("/sync/errors")
                .and_then(|errors| errors.as_array().cloned())
                .unwrap_or_default();
            let refused = errors.iter().find(|error| {
                let about = error.get("errorResources").and_then(serde_json::Value::as_array);
                let mut about = about.into_iter().flatten();
                about.any(|object| {
                    object.get("name").and_then(serde_json::Value::as_str) == Some("tour-from-git")
                })
            });
            let message = refused.and_then(|error| error.get("errorMessage")?.as_str());
            Ok(message.map(str::to_owned))
        })
        .await?;
    anyhow::ensure!(
        default.get_opt("tour-from-git").await?.is_none() && tenant.get_opt("tour-from-git").await?.is_some(),
        "NOT SEEN: only the tenant's namespace was written"
    );

    guide
        .say("The RootSync is deleted, its objects first. Its account has nothing again.")
        .await?;
    guide
        .delete(cluster, "RootSync config-management-system/tour-tenant", &text)
        .await?;
    guide
        .see("the ConfigMap is gone", || async {
            Ok(tenant.get_opt("tour-from-git").await?.is_none().then(String::new))
        })
        .await?;
    guide
        .prove(&inside, Refused, || try_create(&before, TENANT, &probe))
        .await
}
