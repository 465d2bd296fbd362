//! The handlers for clusters, sets and bindings: read what the decision needs, live, and decide.

use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::{DynamicObject, PartialObjectMeta},
};
use serde::{Serialize, de::DeserializeOwned};
use writ_api::cluster::{
    CLUSTER_NAME_LABEL, DEFAULT_SET, ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding,
};
use writ_controller::{Error, error::Context as _};

use super::{
    Request,
    access::{Access, Decision},
    cluster_webhooks::{Answer, allows, requester},
    managed_cluster, managed_cluster_set, managed_cluster_set_binding,
    pairs::{CONFIG_MAP, NAMESPACE, Pairs},
};
use crate::{
    Context,
    cluster_set::membership::{CONFIRMED_ANNOTATION, Selection},
};

/// The old and the new object of a request.
struct Objects<K> {
    old: Option<K>,
    new: Option<K>,
}

impl<K: DeserializeOwned> Objects<K> {
    fn of(request: &Request) -> Result<Self, Error> {
        let read = |object: &Option<DynamicObject>| {
            object
                .as_ref()
                .map(|object| {
                    let mut object = object.clone();
                    // An agent that reports what nobody can read must not keep people from denying it.
                    if let Some(data) = object.data.as_object_mut() {
                        data.remove("status");
                    }
                    serde_json::to_value(object)
                        .and_then(serde_json::from_value)
                        .map_err(|e| Error::Invalid(format!("the object cannot be read: {e}")))
                })
                .transpose()
        };
        Ok(Self {
            old: read(&request.old_object)?,
            new: read(&request.object)?,
        })
    }
}

fn patch<K: Serialize>(before: &K, after: &K) -> Result<Option<json_patch::Patch>, Error> {
    let value = |object: &K| {
        serde_json::to_value(object).map_err(|e| Error::Invalid(format!("cannot be written as JSON: {e}")))
    };
    Ok(Some(json_patch::diff(&value(before)?, &value(after)?)))
}

/// Completes a ManagedCluster.
pub(super) async fn mutate_cluster(context: Context, request: Request) -> Result<Answer, Error> {
    let objects: Objects<ManagedCluster> = Objects::of(&request)?;
    let Some(before) = objects.new else {
        return Ok(Decision::ALLOW.into());
    };
    let user = requester(&request.user_info);
    let mut after = before.clone();
    let guards = &context.options.guards;
    let change = managed_cluster::Change {
        user: &user,
        old: objects.old.as_ref(),
        new: Some(&before),
    };
    let mut names = managed_cluster::sets_to_read(&change);
    if guards.default_key {
        // The label may be filled in below.
        names.insert(DEFAULT_SET.into());
    }
    let sets = read_sets(&context.client, names.into_iter()).await?;
    if let Err(message) =
        managed_cluster::mutate(objects.old.as_ref(), &mut after, &sets, guards, Timestamp::now())
    {
        return Ok(Decision::invalid(message).into());
    }
    Ok(Answer {
        decision: Decision::ALLOW,
        patch: patch(&before, &after)?,
    })
}

/// Decides about a ManagedCluster.
pub(super) async fn validate_cluster(context: Context, request: Request) -> Result<Answer, Error> {
    let objects: Objects<ManagedCluster> = Objects::of(&request)?;
    let user = requester(&request.user_info);
    let guards = &context.options.guards;
    let change = managed_cluster::Change {
        user: &user,
        old: objects.old.as_ref(),
        new: objects.new.as_ref(),
    };
    let sets = if managed_cluster::needs_every_set(&change, guards) {
        let all: Api<ManagedClusterSet> = Api::all(context.client.clone());
        all.list(&ListParams::default())
            .await
            .context(|| "list ManagedClusterSets".into())?
            .items
    } else {
        read_sets(
            &context.client,
            managed_cluster::sets_to_read(&change).into_iter(),
        )
        .await?
    };
    let accepts = objects.new.as_ref().is_some_and(|c| c.spec.hub_accepts_client);
    let namespace = if accepts {
        read_namespace(&context.client, &request.name).await?
    } else {
        None
    };
    let observed = managed_cluster::Observed {
        sets,
        namespace_terminating: namespace
            .as_ref()
            .is_some_and(|n| n.metadata.deletion_timestamp.is_some()),
        namespace_of_others: namespace
            .is_some_and(|n| n.labels().get(CLUSTER_NAME_LABEL) != Some(&request.name)),
    };
    Ok(managed_cluster::decide(&change, &observed, guards).into())
}

/// Brings a ManagedClusterSet into its stored form.
pub(super) async fn mutate_set(context: Context, request: Request) -> Result<Answer, Error> {
    let objects: Objects<ManagedClusterSet> = Objects::of(&request)?;
    let Some(before) = objects.new else {
        return Ok(Decision::ALLOW.into());
    };
    let annotation = |set: &ManagedClusterSet| set.annotations().get(CONFIRMED_ANNOTATION).cloned();
    // The question is asked only where the answer matters: where a key is taken, and when somebody confirms.
    let asked = objects
        .old
        .as_ref()
        .is_none_or(|old| annotation(old) != annotation(&before) || old.spec.key() != before.spec.key());
    let may_update_all = asked
        && allows(
            &context.client,
            &request.user_info,
            &Access::update_all_clusters(),
        )
        .await?;
    let mut after = before.clone();
    let guards = &context.options.guards;
    if let Err(message) =
        managed_cluster_set::mutate(objects.old.as_ref(), &mut after, may_update_all, guards)
    {
        return Ok(Decision::invalid(message).into());
    }
    Ok(Answer {
        decision: Decision::ALLOW,
        patch: patch(&before, &after)?,
    })
}

/// Decides about a ManagedClusterSet.
pub(super) async fn validate_set(context: Context, request: Request) -> Result<Answer, Error> {
    let objects: Objects<ManagedClusterSet> = Objects::of(&request)?;
    let user = requester(&request.user_info);
    let change = managed_cluster_set::Change {
        user: &user,
        old: objects.old.as_ref(),
        new: objects.new.as_ref(),
    };
    let before = objects.old.as_ref().map(Selection::of);
    let after = objects.new.as_ref().map(Selection::of);
    // A set that is wrong in itself is told so: its clusters could not even be counted.
    if before != after
        && let Some(Err(message)) = objects.new.as_ref().map(managed_cluster_set::check_object)
    {
        return Ok(Decision::invalid(message).into());
    }
    let (gained, lost) = if before == after {
        (0, 0)
    } else {
        count(&context.client, before.as_ref(), after.as_ref()).await?
    };
    // Pairs restrict who takes a key: on create, and where a selector becomes the default key.
    let key = |set: &Option<ManagedClusterSet>| set.as_ref().map(|s| s.spec.key().map(str::to_owned));
    let pairs = if objects.new.is_some() && key(&objects.old) != key(&objects.new) {
        read_pairs(&context.client).await?
    } else {
        None
    };
    let observed = managed_cluster_set::Observed { pairs, gained, lost };
    Ok(managed_cluster_set::decide(&change, &observed, &context.options.guards).into())
}

/// Decides about a ManagedClusterSetBinding.
pub(super) fn validate_binding(request: &Request) -> Result<Answer, Error> {
    let objects: Objects<ManagedClusterSetBinding> = Objects::of(request)?;
    let user = requester(&request.user_info);
    Ok(match &objects.new {
        Some(new) => managed_cluster_set_binding::decide(&user, objects.old.as_ref(), new),
        None => Decision::ALLOW,
    }
    .into())
}

async fn read_sets(
    client: &Client,
    names: impl Iterator<Item = String>,
) -> Result<Vec<ManagedClusterSet>, Error> {
    let api: Api<ManagedClusterSet> = Api::all(client.clone());
    let reads = names.map(|name| {
        let api = api.clone();
        async move {
            api.get_opt(&name)
                .await
                .context(|| format!("read ManagedClusterSet {name}"))
        }
    });
    Ok(try_join_all(reads).await?.into_iter().flatten().collect())
}

async fn read_namespace(client: &Client, name: &str) -> Result<Option<PartialObjectMeta<Namespace>>, Error> {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    api.get_opt(name)
        .await
        .context(|| format!("read Namespace {name}"))
}

/// How many clusters a change of selection brings in, and how many it drops, counted live.
async fn count(
    client: &Client,
    before: Option<&Selection>,
    after: Option<&Selection>,
) -> Result<(usize, usize), Error> {
    let params = match (before, after) {
        // One label decides: the server counts.
        (None, Some(Selection::Label { key, value })) | (Some(Selection::Label { key, value }), None) => {
            ListParams::default().labels(&format!("{key}={value}"))
        }
        _ => ListParams::default(),
    };
    let api: Api<PartialObjectMeta<ManagedCluster>> = Api::all(client.clone());
    let clusters = api
        .list(&params)
        .await
        .context(|| "list ManagedClusters".into())?;
    let matches = |selection: Option<&Selection>, cluster: &PartialObjectMeta<ManagedCluster>| {
        selection.is_some_and(|s| s.matches(cluster.labels()))
    };
    let moves = clusters.items.iter().fold((0, 0), |(gained, lost), cluster| {
        match (matches(before, cluster), matches(after, cluster)) {
            (false, true) => (gained + 1, lost),
            (true, false) => (gained, lost + 1),
            _ => (gained, lost),
        }
    });
    Ok(moves)
}

async fn read_pairs(client: &Client) -> Result<Option<Result<Pairs, String>>, Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let found = api
        .get_opt(CONFIG_MAP)
        .await
        .context(|| format!("read ConfigMap {NAMESPACE}/{CONFIG_MAP}"))?;
    Ok(found.map(|map| Pairs::parse(&map.data.unwrap_or_default())))
}
