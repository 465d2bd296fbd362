//! An admin narrows what the agent may deliver: to namespaces, and to less than it needs to see changes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    authorization::v1::ResourceAttributes,
    rbac::v1::{ClusterRoleBinding, RoleBinding},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use writ_agent::options::WorkOptions;
use writ_api::work::ManifestWork;
use writ_controller::condition::find;

use super::{
    count::Requests,
    outage::counted_agent,
    support::{agent, condition, config_map, config_maps, create, holds, spoke, status_of, works},
};
use crate::{Cluster, Fleet, at_once, fleet::AGENT_NAMESPACE, wait, yaml};

/// The role to narrow, and the name of its binding.
const DELIVER: &str = "writ:agent:deliver";

/// Lets the agent deliver in no namespace; returns the binding that let it deliver in all.
async fn unbind(client: &Client) -> Result<ClusterRoleBinding> {
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let mut binding = bindings.get(DELIVER).await?;
    bindings.delete(DELIVER, &DeleteParams::default()).await?;
    binding.metadata.resource_version = None;
    binding.metadata.uid = None;
    Ok(binding)
}

/// Gives the agent this role in one namespace, and waits until the server knows.
async fn bind(cluster: &Cluster, namespace: &str, role: &str, may_list: bool) -> Result<()> {
    let text = format!(
        r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: "{role}", namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "{role}"}}
subjects:
- {{kind: ServiceAccount, name: writ-agent, namespace: {AGENT_NAMESPACE}}}
"#
    );
    cluster.namespace(namespace).await?;
    yaml::apply(&cluster.admin().await?, &text).await?;
    agent_may(cluster, "patch", namespace, true).await?;
    agent_may(cluster, "list", namespace, may_list).await
}

/// Waits until the server knows whether the agent may do this with ConfigMaps of a namespace (all, if it is empty).
async fn agent_may(cluster: &Cluster, verb: &str, namespace: &str, may: bool) -> Result<()> {
    let user = format!("system:serviceaccount:{AGENT_NAMESPACE}:writ-agent");
    wait::until_true(
        &format!("the agent may {verb} in {namespace:?}: {may}"),
        || async {
            let what = ResourceAttributes {
                verb: Some(verb.into()),
                resource: Some("configmaps".into()),
                namespace: Some(namespace.into()).filter(|namespace: &String| !namespace.is_empty()),
                ..ResourceAttributes::default()
            };
            Ok(cluster.allows(&user, &["system:authenticated"], what).await? == may)
        },
    )
    .await
}

/// What is spoilt in a namespace is repaired.
async fn repaired(client: &Client, namespace: &str) -> Result<()> {
    let maps = config_maps(client, namespace);
    let started = Instant::now();
    maps.delete("map", &DeleteParams::default()).await?;
    holds(&maps, "map", "1").await?;
    let edit = json!({"data": {"key": "drift"}});
    maps.patch("map", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    holds(&maps, "map", "1").await?;
    at_once(&format!("repair in {namespace}"), started.elapsed())
}

fn in_each(namespaces: &[&str]) -> Value {
    let maps: Vec<Value> = namespaces
        .iter()
        .map(|namespace| config_map(namespace, "map", "1"))
        .collect();
    json!({"workload": {"manifests": maps}})
}

/// What a work says of what is not watched.
fn unwatched(work: &ManifestWork) -> Option<String> {
    let conditions = status_of(work).conditions;
    let found = find(&conditions, "Watched").filter(|c| c.status == "False");
    found.map(|c| c.message.clone())
}

/// Bound in two namespaces instead of all: drift is repaired in both, and still is when the role is bound for all again.
pub async fn to_namespaces(fleet: Fleet) -> Result<()> {
    let (client, cluster) = (spoke(&fleet).await?, fleet.cluster(1)?);
    let everywhere = unbind(&client).await?;
    let namespaces = ["one", "two"];
    for namespace in namespaces {
        bind(cluster, namespace, DELIVER, true).await?;
    }
    agent_may(cluster, "list", "", false).await?;
    let requests = Requests::default();
    let _agent = counted_agent(&fleet, &requests).await?;
    let works = works(&fleet).await?;
    create(&works, "web", in_each(&namespaces)).await?;
    let applied = condition(&works, "web", "Available", "True").await?;
    for namespace in namespaces {
        repaired(&client, namespace).await?;
    }
    ensure!(unwatched(&applied).is_none());
    ensure!(unwatched(&works.get("web").await?).is_none(), "all is watched");

    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    bindings.create(&PostParams::default(), &everywhere).await?;
    wait::until_true("the whole kind is watched", || async {
        let asked = requests.holding("/api/v1/configmaps?");
        Ok(asked.iter().any(|asked| asked.contains("watch=true")))
    })
    .await?;
    for namespace in namespaces {
        let narrow: Api<RoleBinding> = Api::namespaced(client.clone(), namespace);
        narrow.delete(DELIVER, &DeleteParams::default()).await?;
        repaired(&client, namespace).await?;
    }
    Ok(())
}

/// May write what it may not list and watch.
const WRITER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: writer}
rules:
- {apiGroups: [''], resources: [configmaps], verbs: [get, create, patch, delete]}
";

/// What may be written and not watched: the work says so as long as it is so, and it is looked at from time to time.
pub async fn to_less_than_a_watch(fleet: Fleet) -> Result<()> {
    let (client, cluster) = (spoke(&fleet).await?, fleet.cluster(1)?);
    unbind(&client).await?;
    yaml::apply(&client, WRITER).await?;
    bind(cluster, "seen", DELIVER, true).await?;
    bind(cluster, "unseen", "writer", false).await?;
    let options = writ_agent::Options {
        work: WorkOptions {
            status_sync_interval: Some(Duration::from_secs(1)),
            ..WorkOptions::default()
        },
        ..writ_agent::Options::default()
    };
    let _agent = agent(&fleet, options).await?;
    let works = works(&fleet).await?;
    create(&works, "web", in_each(&["seen", "unseen"])).await?;
    condition(&works, "web", "Available", "True").await?;
    let said = wait::until("the work says what is not watched", || async {
        Ok(unwatched(&works.get("web").await?))
    })
    .await?;
    ensure!(
        said.contains("list and watch configmaps in namespace unseen:"),
        "{said}"
    );
    ensure!(said.contains(DELIVER) && said.contains("every 1s"), "{said}");
    condition(&works, "web", "Applied", "True").await?;
    for namespace in ["seen", "unseen"] {
        repaired(&client, namespace).await?;
    }

    bind(cluster, "unseen", DELIVER, true).await?;
    wait::until_true("the work says so no longer", || async {
        Ok(unwatched(&works.get("web").await?).is_none())
    })
    .await?;
    repaired(&client, "unseen").await
}
