//! What the agent could not report when it happened.

use anyhow::Result;
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    core::v1::Namespace,
    rbac::v1::ClusterRole,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use writ_api::writ::NamespaceGrant;

use super::support::{allowed, condition, delete, permission, pods, spoke, start, user};
use crate::{Fleet, wait};

/// Whether the agent of `cluster1` may report on works.
async fn may_report(hub: &Client) -> Result<bool> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some("agent".into()),
            groups: Some(vec!["system:open-cluster-management:cluster1".into()]),
            resource_attributes: Some(ResourceAttributes {
                verb: Some("patch".into()),
                group: Some("work.open-cluster-management.io".into()),
                resource: Some("manifestworks".into()),
                subresource: Some("status".into()),
                namespace: Some("cluster1".into()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews = Api::all(hub.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// The hub takes no reports for a while; what happened meanwhile is reported when it does.
pub async fn later(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    let hub = fleet.hub.admin().await?;
    let client = spoke(&fleet).await?;
    let selector = json!({"matchLabels": {"team": "a"}});
    permission(
        &fleet,
        "p",
        json!({
            "roles": [{"namespaceSelector": selector, "rules": pods("get")}],
            "roleBindings": [{"namespaceSelector": selector, "roleRef": {"kind": "Role"}, "subject": user("alice")}],
        }),
    )
    .await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;

    let roles: Api<ClusterRole> = Api::all(hub.clone());
    let name = "open-cluster-management:managedcluster:work";
    let before = roles.get(name).await?.rules.unwrap_or_default();
    let fewer: Vec<_> = before
        .iter()
        .filter(|rule| {
            let mut resources = rule.resources.iter().flatten();
            resources.all(|resource| resource != "manifestworks/status")
        })
        .collect();
    let patch = Patch::Merge(json!({ "rules": fewer }));
    roles.patch(name, &PatchParams::default(), &patch).await?;
    wait::until_true("the agent may not report", || async {
        Ok(!may_report(&hub).await?)
    })
    .await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let grants: Api<NamespaceGrant> = Api::all(client);
    for (count, namespace) in [(1, "one"), (2, "two")] {
        fleet.cluster(1)?.namespace(namespace).await?;
        let patch = Patch::Merge(json!({"metadata": {"labels": {"team": "a"}}}));
        namespaces
            .patch(namespace, &PatchParams::default(), &patch)
            .await?;
        allowed(&fleet, "alice", "get", namespace, true).await?;
        wait::until_true(&format!("the grants count {count}"), || async {
            let grants = grants.list(&ListParams::default()).await?;
            let status = |grant: &NamespaceGrant| grant.status.clone().unwrap_or_default();
            let mut ours = grants.iter().filter(|grant| grant.name_any().starts_with("p-"));
            Ok(ours.all(|grant| status(grant).selected == Some(count)))
        })
        .await?;
    }
    let patch = Patch::Merge(json!({ "rules": before }));
    roles.patch(name, &PatchParams::default(), &patch).await?;
    wait::until_true("the hub knows of both", || async {
        let ready = condition(&fleet, "p", "Ready", "True", "Granted").await?;
        let selections = ready.status.unwrap_or_default().namespace_selections;
        Ok(selections.len() == 2 && selections.iter().all(|s| s.selected == Some(2)))
    })
    .await?;
    delete(&fleet, "p").await?;
    allowed(&fleet, "alice", "get", "one", false).await
}
