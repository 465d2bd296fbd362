//! Roles and bindings written by users with random rights: the API server and the index refuse the same.
//!
//! Every actor may create and update all four kinds, holds random rules in the cluster and in a namespace, and some may
//! `escalate` or `bind`. All writes are dry runs, so that each case finds the same cluster.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Client;
use serde_json::Value;
use writ_authz::{Aggregation, Escalation, Identity, Index, Key, Kind, Write};
use writ_testenv::{ControlPlane, Options};

use crate::actor::{Actor, Case, GROUP, Written, creators, namespace};
use crate::cluster;

const ACTORS: usize = 60;
const CASES: usize = 30;

pub(crate) async fn run() -> Result<()> {
    let _turn = cluster::turn().await;
    let mut runner = cluster::runner()?;
    let mut policy = creators();
    let mut cases = Vec::new();
    for number in 0..ACTORS {
        let actor = Actor::random(&mut runner, number)?;
        for _ in 0..CASES {
            cases.push(actor.case(&mut runner)?);
        }
        policy = cluster::join(policy, &actor.policy);
    }

    let plane = ControlPlane::start(Options::default()).await?;
    let client = plane.client()?;
    let before = cluster::read(&client).await?;
    let namespaces: Vec<_> = (0..ACTORS).map(namespace).collect();
    cluster::create_namespaces(&client, &namespaces).await?;
    cluster::create_policy(&client, &policy).await?;
    let written = cluster::index_of(Aggregation::Computed, &[&before, &policy])?;
    cluster::wait_aggregated(&client, &written).await?;
    cluster::wait_authorizer(&client, &namespaces[0]).await?;
    let stored = cluster::index_of(Aggregation::Stored, &[&cluster::read(&client).await?])?;

    let started = Instant::now();
    let answers = cluster::each(cases.iter().collect(), |case| try_write(&client, case)).await?;
    println!(
        "{} writes answered after {:.1?}",
        answers.len(),
        started.elapsed()
    );

    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut differences = Vec::new();
    for (case, (status, message)) in cases.iter().zip(&answers) {
        let headings = [
            case.object.heading().to_owned(),
            format!("{:?}", case.write),
            status.to_string(),
        ];
        for heading in [headings.join(" "), format!("status {status}")] {
            *counts.entry(heading).or_default() += 1;
        }
        if matches!(status, 200 | 201) && !holds_all(&stored, case) {
            *counts
                .entry("accepted by escalate or bind".to_owned())
                .or_default() += 1;
        }
        for (name, index) in [("written", &written), ("stored", &stored)] {
            let (expected, text) = answer(index, case);
            if expected != *status || !says(message, &text) {
                differences.push(format!(
                    "{name}: {expected} {text:?}, but the API server says {status} {message:?} to {:?} {:?} by {:?}",
                    case.write, case.object, case.actor
                ));
            }
        }
    }
    println!(
        "{ACTORS} actors, {} writes, {} differences",
        answers.len(),
        differences.len()
    );
    for (heading, count) in &counts {
        println!("  {heading}: {count}");
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    ensure!(answers.len() >= 1000, "only {} cases", answers.len());
    let count = |heading: &str| counts.get(heading).copied().unwrap_or_default();
    let accepted = count("status 200") + count("status 201");
    for some in [accepted, count("status 403")] {
        ensure!(some * 100 >= answers.len() * 30, "the cases are not balanced");
    }
    for heading in [
        "RoleBinding Update 200",
        "RoleBinding Update 403",
        "ClusterRoleBinding Update 200",
        "ClusterRoleBinding Update 403",
        "status 422",
    ] {
        ensure!(count(heading) > 0, "{heading}: not one");
    }
    ensure!(
        count("accepted by escalate or bind") >= 100,
        "escalate and bind decide too little"
    );
    Ok(())
}

/// What we expect: a status, and for a refusal how its message ends.
fn answer(index: &Index, case: &Case) -> (u16, String) {
    let Identity { user, groups } = &case.actor;
    match index.may_write(user, groups, case.write, case.object.as_object()) {
        // Held or not is asked first.
        Ok(()) if mixes_names_and_urls(&case.object) => (422, String::new()),
        Ok(()) if case.write == Write::Create => (201, String::new()),
        Ok(()) => (200, String::new()),
        Err(refused @ Escalation::NoRole { .. }) => {
            let text = refused.to_string();
            // The API server puts the resource where we put the kind.
            (
                404,
                text.split_once(' ')
                    .map(|(_, end)| end.to_owned())
                    .unwrap_or_default(),
            )
        }
        Err(refused) => (403, refused.to_string()),
    }
}

/// Whether the API server says the same. Where much is missing we tell the first of it, and count the rest.
fn says(message: &str, text: &str) -> bool {
    let Some((told, _)) = text.rsplit_once("\nand ") else {
        return message.ends_with(text);
    };
    // The verbs of a line may be cut, too.
    let mut lines = told.lines().map(|line| line.trim_end_matches("]}"));
    let head = lines.next().unwrap_or_default();
    message.contains(head) && lines.all(|line| message.lines().any(|said| said.starts_with(line)))
}

fn mixes_names_and_urls(object: &Written) -> bool {
    let Written::ClusterRole(role) = object else {
        return false;
    };
    let mut rules = role.rules.iter().flatten();
    rules.any(|rule| rule.resource_names.is_some() && rule.non_resource_urls.is_some())
}

/// Whether the actor holds what is given, without `escalate` and `bind`.
fn holds_all(index: &Index, case: &Case) -> bool {
    let (role, namespace) = match &case.object {
        Written::Role(role) => {
            let namespace = role.metadata.namespace.as_deref().unwrap_or_default();
            return held(index, case, namespace, role.rules.as_deref().unwrap_or_default());
        }
        Written::ClusterRole(role) => {
            return held(index, case, "", role.rules.as_deref().unwrap_or_default());
        }
        Written::RoleBinding(binding) => (
            &binding.role_ref,
            binding.metadata.namespace.as_deref().unwrap_or_default(),
        ),
        Written::ClusterRoleBinding(binding) => (&binding.role_ref, ""),
    };
    let kind = if role.kind == "Role" {
        Kind::Role
    } else {
        Kind::ClusterRole
    };
    let rules = index.role_rules(Key::new(kind, namespace, &role.name));
    rules.is_some_and(|rules| held(index, case, namespace, &rules))
}

fn held(index: &Index, case: &Case, namespace: &str, rules: &[PolicyRule]) -> bool {
    index
        .holds(&case.actor.user, &case.actor.groups, namespace, rules)
        .is_ok()
}

async fn try_write(client: &Client, case: &Case) -> Result<(u16, String)> {
    let (resource, namespace, name) = {
        let key = Key::from(case.object.as_object());
        (
            format!("{}s", key.kind.to_string().to_lowercase()),
            key.namespace,
            key.name,
        )
    };
    let within = if namespace.is_empty() {
        String::new()
    } else {
        format!("namespaces/{namespace}/")
    };
    let (method, suffix) = match case.write {
        Write::Create => (http::Method::POST, String::new()),
        Write::Update => (http::Method::PUT, format!("/{name}")),
    };
    let mut request = http::Request::builder()
        .method(method)
        .uri(format!("/apis/{GROUP}/v1/{within}{resource}{suffix}?dryRun=All"))
        .header("content-type", "application/json")
        .header("impersonate-user", &case.actor.user);
    for group in case
        .actor
        .groups
        .iter()
        .filter(|group| *group != "system:authenticated")
    {
        request = request.header("impersonate-group", group);
    }
    let request = request.body(serde_json::to_vec(&case.object.to_json()?)?)?;
    match client.request::<Value>(request).await {
        Ok(_) if case.write == Write::Create => Ok((201, String::new())),
        Ok(_) => Ok((200, String::new())),
        Err(kube::Error::Api(status)) => Ok((status.code, status.message.clone())),
        Err(error) => Err(error).context("a write failed"),
    }
}
