//! 22,000 questions over 200 random policies.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Result, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::Subject;
use serde_json::json;
use writ_authz::{Aggregation, Index};
use writ_testenv::{ControlPlane, Options};

use crate::cluster;
use crate::generate;
use crate::model::{Asked, Feature, Policy};

const POLICIES: usize = 200;
const QUESTIONS: usize = 110;
/// How many answers each feature must decide.
const DECIDED: usize = 500;

pub(crate) async fn run() -> Result<()> {
    let _turn = cluster::turn().await;
    let mut runner = cluster::runner()?;
    let mut policies = Vec::new();
    let mut questions = Vec::new();
    for number in 0..POLICIES {
        let prefix = format!("p{number}");
        let policy = cluster::sample(&mut runner, &generate::policy(&prefix))?;
        for _ in 0..QUESTIONS {
            let dice = cluster::sample(&mut runner, &generate::dice())?;
            questions.push((number, generate::question(&policy, &prefix, &dice)));
        }
        policies.push(policy);
    }

    let started = Instant::now();
    let plane = ControlPlane::start(Options::default()).await?;
    let client = plane.client()?;
    let before = cluster::read(&client).await?;
    let namespaces: Vec<_> = (0..POLICIES)
        .flat_map(|number| generate::namespaces(&format!("p{number}")))
        .collect();
    cluster::create_namespaces(&client, &namespaces).await?;
    let all = policies.iter().fold(Policy::default(), cluster::join);
    cluster::create_policy(&client, &all).await?;
    // What we wrote, aggregated by us.
    let written = cluster::index_of(Aggregation::Computed, &[&before, &all])?;
    cluster::wait_aggregated(&client, &written).await?;
    cluster::wait_authorizer(&client, &namespaces[0]).await?;
    // What the cluster stores, aggregated by its controller, or by both.
    let after = cluster::read(&client).await?;
    let stored = cluster::index_of(Aggregation::Stored, &[&after])?;
    let both = cluster::index_of(Aggregation::StoredAndComputed, &[&after])?;
    println!(
        "{} roles and {} bindings are in place after {:.1?}",
        stored.role_count(),
        stored.binding_count(),
        started.elapsed()
    );

    let started = Instant::now();
    let answers = cluster::each(questions.iter().collect(), |(_, asked)| {
        let review = review(asked);
        let client = client.clone();
        async move { cluster::ask(&client, &review).await }
    })
    .await?;
    println!(
        "{} questions answered after {:.1?}",
        answers.len(),
        started.elapsed()
    );

    // The model of a policy has to know what every cluster comes with, too, as far as it reaches our askers: by groups.
    let mut common = before;
    common.role_bindings.clear();
    let by_group = |subject: &Subject| subject.kind == "Group";
    common
        .cluster_role_bindings
        .retain(|binding| binding.subjects.iter().flatten().any(by_group));
    let policies: Vec<_> = policies
        .into_iter()
        .map(|policy| cluster::join(policy, &common))
        .collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut differences = Vec::new();
    for ((number, asked), (allowed, reason)) in questions.iter().zip(&answers) {
        let answer = if *allowed { "allow" } else { "deny" };
        let decided_by = policies[*number].decided_by(asked);
        for heading in decided_by.into_iter().chain([answer]) {
            *counts.entry(heading).or_default() += 1;
        }
        for (name, index) in [("written", &written), ("stored", &stored), ("both", &both)] {
            if index
                .allows(&asked.user, &asked.groups, &asked.attributes())
                .allowed()
                != *allowed
            {
                differences.push(format!(
                    "{name}: the API server says {answer} ({reason}) to {asked:?}"
                ));
            }
        }
        if *allowed && !reasons(&stored, asked).contains(reason) {
            differences.push(format!("no chain of ours is {reason:?}, for {asked:?}"));
        }
        if policies[*number].allows(asked, None) != *allowed {
            differences.push(format!(
                "model: the API server says {answer} ({reason}) to {asked:?}"
            ));
        }
    }
    println!(
        "{POLICIES} policies, {} questions, {} differences",
        answers.len(),
        differences.len()
    );
    for (heading, count) in &counts {
        println!("  {heading}: {count}");
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    let count = |heading: &str| counts.get(heading).copied().unwrap_or_default();
    for answer in ["allow", "deny"] {
        ensure!(
            count(answer) * 100 >= answers.len() * 30,
            "only {} answers are {answer}",
            count(answer)
        );
    }
    for feature in Feature::ALL {
        let heading = feature.heading();
        ensure!(
            count(heading) >= DECIDED,
            "{heading} decides only {} answers",
            count(heading)
        );
    }
    Ok(())
}

fn review(asked: &Asked) -> SubjectAccessReview {
    let spec = match &asked.path {
        Some(path) => json!({
            "user": asked.user,
            "groups": asked.groups,
            "nonResourceAttributes": {"verb": asked.verb, "path": path},
        }),
        None => json!({
            "user": asked.user,
            "groups": asked.groups,
            "resourceAttributes": {
                "verb": asked.verb,
                "group": asked.group,
                "resource": asked.resource,
                "subresource": asked.subresource,
                "namespace": asked.namespace,
                "name": asked.name,
            },
        }),
    };
    cluster::from(json!({"metadata": {}, "spec": spec}))
}

/// The reasons that the API server may give, as we see it.
fn reasons(index: &Index, asked: &Asked) -> Vec<String> {
    let explanation = index.explain(&asked.user, &asked.groups, &asked.attributes());
    explanation.chains.iter().map(writ_authz::Chain::reason).collect()
}
