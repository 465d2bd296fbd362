//! ManagedClusters: reads what the decision depends on, live, and decides.

pub mod decision;

use futures::{FutureExt as _, future::try_join_all};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt, api::ListParams, core::PartialObjectMeta};
use writ_api::cluster::{CLUSTER_NAME_LABEL, DEFAULT_SET, ManagedCluster, ManagedClusterSet};
use writ_controller::{Error, error::Context as _};
use writ_process::admission::{Decision, OldAndNew, Operation, Request, Rule, Webhook, patch_between};

use crate::{
    admission::context::{AdmissionContext, CLUSTERS_CONFIGURATION},
    agent_identity::Requester,
};

const RULE: Rule = Rule {
    group: writ_api::cluster::GROUP,
    version: "*",
    resources: &["managedclusters"],
    operations: &[Operation::Create, Operation::Update],
    scope: "*",
};

/// Completes clusters.
pub const MUTATING: Webhook<AdmissionContext> = Webhook {
    name: "managedclustermutators.admission.cluster.open-cluster-management.io",
    configuration: CLUSTERS_CONFIGURATION,
    path: "/mutate-cluster-open-cluster-management-io-v1-managedcluster",
    mutating: true,
    rule: RULE,
    only_if: None,
    handler: |context, request| mutate(context, request).boxed(),
};

/// Decides about clusters.
pub const VALIDATING: Webhook<AdmissionContext> = Webhook {
    name: "managedclustervalidators.admission.cluster.open-cluster-management.io",
    configuration: CLUSTERS_CONFIGURATION,
    path: "/validate-cluster-open-cluster-management-io-v1-managedcluster",
    mutating: false,
    rule: Rule {
        operations: &[Operation::Create, Operation::Update, Operation::Delete],
        ..RULE
    },
    only_if: None,
    handler: |context, request| validate(context, request).boxed(),
};

async fn mutate(context: AdmissionContext, request: Request) -> Result<Decision, Error> {
    let objects: OldAndNew<ManagedCluster> = OldAndNew::of(&request)?;
    let Some(before) = objects.new else {
        return Ok(Decision::ALLOW);
    };
    let requester = Requester::from(&request.user_info);
    let guards = &context.options.guards;
    let change = decision::Change {
        user: &requester,
        old: objects.old.as_ref(),
        new: Some(&before),
    };
    let mut names = decision::sets_to_read(&change);
    if guards.default_key {
        // `mutate` may add the label.
        names.insert(DEFAULT_SET.into());
    }
    let sets = read_sets(&context.client, names.into_iter()).await?;
    let mut after = before.clone();
    let completed = decision::mutate(objects.old.as_ref(), &mut after, &sets, guards, Timestamp::now());
    Ok(match completed {
        Ok(()) => Decision::patched(patch_between(&before, &after)?),
        Err(message) => Decision::invalid(message),
    })
}

async fn validate(context: AdmissionContext, request: Request) -> Result<Decision, Error> {
    let objects: OldAndNew<ManagedCluster> = OldAndNew::of(&request)?;
    let requester = Requester::from(&request.user_info);
    let guards = &context.options.guards;
    let change = decision::Change {
        user: &requester,
        old: objects.old.as_ref(),
        new: objects.new.as_ref(),
    };
    let sets = if decision::needs_every_set(&change, guards) {
        let all: Api<ManagedClusterSet> = Api::all(context.client.clone());
        all.list(&ListParams::default())
            .await
            .context(|| "list ManagedClusterSets".into())?
            .items
    } else {
        read_sets(&context.client, decision::sets_to_read(&change).into_iter()).await?
    };
    let accepts = objects.new.as_ref().is_some_and(|c| c.spec.hub_accepts_client);
    let namespace = if accepts {
        read_namespace(&context.client, &request.name).await?
    } else {
        None
    };
    let observed = decision::Observed {
        sets,
        namespace_terminating: namespace
            .as_ref()
            .is_some_and(|n| n.metadata.deletion_timestamp.is_some()),
        namespace_is_foreign: namespace
            .is_some_and(|n| n.labels().get(CLUSTER_NAME_LABEL) != Some(&request.name)),
    };
    Ok(decision::decide(&change, &observed, guards))
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
