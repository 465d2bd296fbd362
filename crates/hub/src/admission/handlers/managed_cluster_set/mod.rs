//! ManagedClusterSets: reads what the decision depends on, live, and decides.

pub mod decision;
pub mod exclusive_keys;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt, api::ListParams, core::PartialObjectMeta};
use writ_api::cluster::{ManagedCluster, ManagedClusterSet};
use writ_controller::{Error, error::Context as _};
use writ_process::admission::{Decision, OldAndNew, Operation, Request, Rule, Webhook, patch_between};

use self::exclusive_keys::{CONFIG_MAP, ExclusiveKeys, NAMESPACE};
use crate::{
    admission::{
        context::{AdmissionContext, CLUSTERS_CONFIGURATION},
        requirement,
    },
    agent_identity::Requester,
    cluster_set::membership::{CONFIRMED_ANNOTATION, Selection},
};

const RULE: Rule = Rule {
    group: writ_api::cluster::GROUP,
    version: "*",
    resources: &["managedclustersets"],
    operations: &[Operation::Create, Operation::Update],
    scope: "*",
};

/// Brings sets into their stored form.
pub const MUTATING: Webhook<AdmissionContext> = Webhook {
    name: "managedclustersetmutators.admission.cluster.open-cluster-management.io",
    configuration: CLUSTERS_CONFIGURATION,
    path: "/mutate-cluster-open-cluster-management-io-managedclusterset",
    mutating: true,
    rule: RULE,
    only_if: None,
    handler: |context, request| mutate(context, request).boxed(),
};

/// Decides about sets.
pub const VALIDATING: Webhook<AdmissionContext> = Webhook {
    name: "managedclustersetvalidators.admission.cluster.open-cluster-management.io",
    configuration: CLUSTERS_CONFIGURATION,
    path: "/validate-cluster-open-cluster-management-io-managedclusterset",
    mutating: false,
    rule: Rule {
        operations: &[Operation::Create, Operation::Update, Operation::Delete],
        ..RULE
    },
    only_if: None,
    handler: |context, request| validate(context, request).boxed(),
};

async fn mutate(context: AdmissionContext, request: Request) -> Result<Decision, Error> {
    let objects: OldAndNew<ManagedClusterSet> = OldAndNew::of(&request)?;
    let Some(before) = objects.new else {
        return Ok(Decision::ALLOW);
    };
    let annotation = |set: &ManagedClusterSet| set.annotations().get(CONFIRMED_ANNOTATION).cloned();
    // The right matters only where a set takes a key, and where it is confirmed.
    let matters = objects
        .old
        .as_ref()
        .is_none_or(|old| annotation(old) != annotation(&before) || old.spec.key() != before.spec.key());
    let may_update_all = matters
        && context
            .authorizer
            .is_allowed(&request.user_info, &requirement::update_all_clusters())
            .await?;
    let mut after = before.clone();
    let guards = &context.options.guards;
    Ok(
        match decision::mutate(objects.old.as_ref(), &mut after, may_update_all, guards) {
            Ok(()) => Decision::patched(patch_between(&before, &after)?),
            Err(message) => Decision::invalid(message),
        },
    )
}

async fn validate(context: AdmissionContext, request: Request) -> Result<Decision, Error> {
    let objects: OldAndNew<ManagedClusterSet> = OldAndNew::of(&request)?;
    let requester = Requester::from(&request.user_info);
    let change = decision::Change {
        user: &requester,
        old: objects.old.as_ref(),
        new: objects.new.as_ref(),
    };
    let before = objects.old.as_ref().map(Selection::of);
    let after = objects.new.as_ref().map(Selection::of);
    // Checked before counting: the clusters of an invalid set cannot be counted.
    if before != after
        && let Some(Err(message)) = objects.new.as_ref().map(decision::check_object)
    {
        return Ok(Decision::invalid(message));
    }
    let (gained, lost) = if before == after {
        (0, 0)
    } else {
        count_moves(&context.client, before.as_ref(), after.as_ref()).await?
    };
    // The ConfigMap restricts the sets that take a key: new ones, and those whose selector becomes the default key.
    let key = |set: &Option<ManagedClusterSet>| set.as_ref().map(|s| s.spec.key().map(str::to_owned));
    let keys = if objects.new.is_some() && key(&objects.old) != key(&objects.new) {
        read_exclusive_keys(&context.client).await?
    } else {
        None
    };
    let observed = decision::Observed { keys, gained, lost };
    Ok(decision::decide(&change, &observed, &context.options.guards))
}

/// How many clusters a change of selection adds, and how many it drops, counted live.
async fn count_moves(
    client: &Client,
    before: Option<&Selection>,
    after: Option<&Selection>,
) -> Result<(usize, usize), Error> {
    let params = match (before, after) {
        // One label decides: the API server filters.
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

async fn read_exclusive_keys(client: &Client) -> Result<Option<Result<ExclusiveKeys, String>>, Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let found = api
        .get_opt(CONFIG_MAP)
        .await
        .context(|| format!("read ConfigMap {NAMESPACE}/{CONFIG_MAP}"))?;
    Ok(found.map(|map| ExclusiveKeys::parse(&map.data.unwrap_or_default())))
}
