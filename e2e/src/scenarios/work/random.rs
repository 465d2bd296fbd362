//! Random edits of RBAC. Once they have settled, the gate says what a fresh SubjectAccessReview says; and nothing is
//! written under a permission that was gone before the revision came.

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::{
    authorization::v1::ResourceAttributes,
    core::v1::ConfigMap,
    rbac::v1::{ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use writ_api::work::ManifestWork;

use super::support::{agent, change, condition, config_map, config_maps, create, spoke, works};
use crate::{Cluster, Fleet, wait};

/// How many rounds of edits.
const ROUNDS: usize = 60;

/// Two accounts, one name the beginning of the other's; each has a work of its own.
const ACCOUNTS: [&str; 2] = ["a", "ab"];
const OBJECTS: [&str; 2] = ["one", "two"];
const VERBS: [&str; 5] = ["create", "update", "patch", "get", "delete"];
const GROUP: &str = "rbac.authorization.k8s.io";

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or_default() % bound
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Result<T> {
        let at = self.below(from.len());
        from.get(at).cloned().context("nothing to pick from")
    }
}

async fn replace<K>(api: &Api<K>, name: &str, object: Option<Value>) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        other => {
            other?;
        }
    }
    if let Some(object) = object {
        let object: K = serde_json::from_value(object)?;
        api.create(&PostParams::default(), &object).await?;
    }
    Ok(())
}

fn role(random: &mut Random, name: &str) -> Value {
    let mut verbs = VERBS.to_vec();
    if random.one_in(3) {
        verbs.remove(random.below(verbs.len()));
    }
    let mut names: Vec<String> = Vec::new();
    if random.one_in(3) {
        names = ACCOUNTS
            .iter()
            .flat_map(|account| OBJECTS.map(|object| format!("{account}-{object}")))
            .collect();
        names.truncate(names.len() - random.below(2));
    }
    let rule =
        json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs, "resourceNames": names});
    json!({"metadata": {"name": name}, "rules": [rule]})
}

fn subjects(random: &mut Random, namespaced: bool) -> Result<Value> {
    let account = random.pick(&ACCOUNTS)?;
    let mut choices = vec![
        json!({"kind": "ServiceAccount", "namespace": "default", "name": account}),
        json!({"kind": "User", "apiGroup": GROUP, "name": format!("system:serviceaccount:default:{account}")}),
        json!({"kind": "Group", "apiGroup": GROUP, "name": "system:serviceaccounts:default"}),
        json!({"kind": "Group", "apiGroup": GROUP, "name": "system:serviceaccounts"}),
        json!({"kind": "ServiceAccount", "namespace": "kube-system", "name": account}),
    ];
    if namespaced {
        // Without a namespace it is the binding's own; a server that checks strictly may refuse to store it.
        choices.push(json!({"kind": "User", "apiGroup": GROUP, "name": "somebody"}));
    }
    Ok(json!([random.pick(&choices)?]))
}

/// One edit of what the accounts may do in `default`.
async fn edit(random: &mut Random, client: &Client) -> Result<()> {
    let roles: Api<Role> = Api::namespaced(client.clone(), "default");
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), "default");
    let everywhere: Api<ClusterRoleBinding> = Api::all(client.clone());
    let name = random.pick(&["random-0", "random-1"])?;
    let gone = random.one_in(3);
    match random.below(5) {
        0 => {
            let object = role(random, name);
            replace(&roles, name, (!gone).then_some(object)).await
        }
        4 => {
            let object = json!({"metadata": {"name": name}, "subjects": subjects(random, false)?,
                "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "edit"}});
            replace(&everywhere, name, random.one_in(3).then_some(object)).await
        }
        _ => {
            let target = random.pick(&["random-0", "random-1"])?;
            let object = json!({"metadata": {"name": name}, "subjects": subjects(random, true)?,
                "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": target}});
            replace(&bindings, name, (!gone).then_some(object)).await
        }
    }
}

/// Whether fresh reviews allow everything that the work of this account needs.
async fn allowed(cluster: &Cluster, account: &str) -> Result<bool> {
    let user = format!("system:serviceaccount:default:{account}");
    let groups = [
        "system:serviceaccounts",
        "system:authenticated",
        "system:serviceaccounts:default",
    ];
    for object in OBJECTS {
        for verb in VERBS {
            let what = ResourceAttributes {
                verb: Some(verb.into()),
                resource: Some("configmaps".into()),
                namespace: Some("default".into()),
                name: Some(format!("{account}-{object}")),
                version: Some("v1".into()),
                ..ResourceAttributes::default()
            };
            if !cluster.allows(&user, &groups, what).await? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn spec(account: &str, value: &str) -> Value {
    let manifests: Vec<_> = OBJECTS
        .iter()
        .map(|object| config_map("default", &format!("{account}-{object}"), value))
        .collect();
    json!({"workload": {"manifests": manifests}, "executor": {"subject": {"type": "ServiceAccount",
        "serviceAccount": {"namespace": "default", "name": account}}}})
}

async fn value(maps: &Api<ConfigMap>, account: &str) -> Result<Vec<Option<String>>> {
    let mut values = Vec::new();
    for object in OBJECTS {
        let map = maps.get_opt(&format!("{account}-{object}")).await?;
        values.push(map.and_then(|map| map.data?.remove("key")));
    }
    Ok(values)
}

/// Waits until the gate and fresh reviews agree about this account.
async fn settled(cluster: &Cluster, works: &Api<ManifestWork>, account: &str) -> Result<bool> {
    wait::until(&format!("the gate agrees about {account}"), || async {
        let allowed = allowed(cluster, account).await?;
        let work = works.get(account).await?;
        let says = work
            .status
            .iter()
            .flat_map(|status| &status.conditions)
            .find(|c| c.type_ == "Applied" && c.observed_generation == work.metadata.generation)
            .map(|c| c.status.as_str());
        if says != Some(if allowed { "True" } else { "False" }) {
            bail!(
                "a fresh review allows: {allowed}, the gate says {:?}",
                work.status
            );
        }
        Ok(Some(allowed))
    })
    .await
}

/// The property.
pub async fn edits(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let (cluster, maps) = (fleet.cluster(1)?, config_maps(&client, "default"));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for account in ACCOUNTS {
        create(&works, account, spec(account, "0")).await?;
        condition(&works, account, "Applied", "False").await?;
    }
    let (mut yes, mut no, mut refused_revisions) = (0, 0, 0);
    for round in 1..=ROUNDS {
        let revised = random.pick(&ACCOUNTS)?;
        // Before a new revision there is one edit: after several, the API server's own view may pass through a state
        // that allows.
        let revise = random.one_in(2);
        let edits = if revise { 1 } else { 1 + random.below(4) };
        for _ in 0..edits {
            edit(&mut random, &client).await?;
        }
        let new = round.to_string();
        // The edit is over for the API server, not yet for the agent: what is refused now stays unwritten.
        let refused = !allowed(cluster, revised).await?;
        if revise {
            change(&works, revised, json!({"spec": spec(revised, &new)})).await?;
        }
        for account in ACCOUNTS {
            let allowed = settled(cluster, &works, account).await?;
            *(if allowed { &mut yes } else { &mut no }) += 1;
            let values = value(&maps, account).await?;
            // An edit that the API server hears of only now may allow what was just written.
            let still = async || anyhow::Ok(!self::allowed(cluster, account).await?);
            if account == revised && revise && refused && !allowed && still().await? {
                refused_revisions += 1;
                ensure!(
                    !values.contains(&Some(new.clone())),
                    "round {round}: {account} wrote {values:?} without permission"
                );
            }
            if account == revised && revise && allowed {
                let wanted = vec![Some(new.clone()); OBJECTS.len()];
                ensure!(values == wanted, "round {round}: {account} holds {values:?}");
            }
        }
    }
    ensure!(
        yes >= ROUNDS / 10 && no >= ROUNDS / 10 && refused_revisions > 0,
        "the edits were not telling: {yes} allowed, {no} refused, {refused_revisions} revisions refused"
    );
    Ok(())
}
