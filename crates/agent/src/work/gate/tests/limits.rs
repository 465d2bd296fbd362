//! Limits: no work can exhaust the agent's memory, or hold up other works.

use std::sync::{Arc, mpsc};

use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use writ_api::work::Executor;
use writ_authz::{Budget, Kind};
use writ_controller::health::Health;

use super::{ALL, Case, agent, binding, config_map, granting, manifests, put, rbac_rules, role};
use crate::{
    Context, Options,
    options::ExecutorGranularity,
    work::{
        gate::{
            Gate,
            rbac_index::{AffectedSubjects, RbacIndex},
        },
        model::{Key, Refused, Verdict},
    },
};

fn words(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("w{n}")).collect()
}

fn wide_role(name: &str, groups: &[String], resources: &[String]) -> Value {
    let mut role = role(name, &[]);
    role["rules"] = json!([{"apiGroups": groups, "resources": resources, "verbs": ["get"]}]);
    role
}

/// The rules of the ClusterRole `admin`, in kind and number.
fn admin() -> Vec<Value> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let write = [
        "create",
        "delete",
        "deletecollection",
        "patch",
        "update",
        "get",
        "list",
        "watch",
    ];
    let core = [
        "configmaps",
        "endpoints",
        "persistentvolumeclaims",
        "pods",
        "secrets",
        "serviceaccounts",
        "services",
    ];
    let mut rules = vec![
        rule("", &core, &write[..5]),
        rule("", &core, &write[5..]),
        rule(
            "",
            &["pods/attach", "pods/exec", "pods/portforward", "pods/proxy"],
            &write,
        ),
        rule(
            "",
            &["pods/log", "pods/status", "events", "limitranges"],
            &write[5..],
        ),
        rule(
            "apps",
            &["daemonsets", "deployments", "replicasets", "statefulsets"],
            &write[..5],
        ),
        rule(
            "apps",
            &["daemonsets", "deployments", "replicasets", "statefulsets"],
            &write[5..],
        ),
        rule("batch", &["cronjobs", "jobs"], &write),
        rule("networking.k8s.io", &["ingresses", "networkpolicies"], &write),
        rule("rbac.authorization.k8s.io", &["roles", "rolebindings"], &write),
    ];
    // And the rules that operators add to it.
    rules.extend((0..40).map(|n| rule(&format!("operator{n}.io"), &["*"], &write)));
    rules
}

/// Forty Roles of 193,600 permissions each, in 218 kB: a tenant can send them who holds no more than `admin` in one
/// namespace.
#[test]
fn work_of_giant_roles_is_refused_with_short_messages() {
    let rbac = granting(json!(admin()));
    let mut groups = words(440);
    // A part of it is held, so everything has to be compared.
    groups[1] = String::new();
    let mut resources = words(440);
    resources[1] = "pods".into();
    let roles: Vec<Value> = (0..40)
        .map(|n| wide_role(&format!("r{n}"), &groups, &resources))
        .collect();
    let (verdict, _) = Case::new(&manifests(json!(roles)), &rbac).run();
    let refusal = verdict.refusal.unwrap();
    assert!(refusal.len() < 80_000, "{}", refusal.len());
    assert_eq!(verdict.refused.len(), 40);
    for refused in verdict.refused.values() {
        let Refused::Denied(message) = refused else {
            panic!("{refused:?}")
        };
        assert!(message.len() < 2_000, "{}", message.len());
        assert!(message.ends_with("and 193589 more"), "{message}");
    }
}

/// A budget that is spent quickly.
const SMALL: u64 = 1_000_000;

/// Account `shop/a` holds 40 resources, each verb by a rule of its own.
fn halves() -> RbacIndex {
    let resources = words(40);
    let rules =
        ["get", "list"].map(|verb| json!({"apiGroups": [""], "resources": resources, "verbs": [verb]}));
    granting(rbac_rules(json!(rules)))
}

/// A Role that this account holds, though no single rule covers it: comparing it costs a tenth of the small budget.
fn large_role(name: &str) -> Value {
    let mut role = role(name, &[]);
    role["rules"] = json!([{"apiGroups": vec![""; 60], "resources": words(40), "verbs": ["get", "list"]}]);
    role
}

/// All comparisons for a work share one budget, however many manifests they are spread over.
#[test]
fn work_has_one_budget_for_all_its_manifests() {
    let rbac = halves();
    let judge = |count: usize| {
        let roles = (0..count).map(|n| large_role(&format!("r{n}")));
        let items = manifests(roles.collect());
        let mut case = Case::new(&items, &rbac);
        case.granularity = ExecutorGranularity::Manifest;
        case.budget = Budget::new(SMALL);
        case.run().0
    };
    assert_eq!(judge(2), Verdict::default());
    let verdict = judge(30);
    assert!(verdict.refusal_of(0).is_none());
    let Some(Refused::Denied(message)) = verdict.refusal_of(29) else {
        panic!("{verdict:?}")
    };
    assert_eq!(
        message,
        "not allowed to apply the resource rbac.authorization.k8s.io roles, shop r29, error: permission escalation: it \
         cannot be compared, as the rules of this work are more than are compared for one work: name fewer API groups, \
         resources, verbs and names in a rule, or split the work"
    );
}

#[test]
fn large_work_of_ordinary_roles_is_judged() {
    let rules = admin();
    let rbac = granting(json!(rules));
    // Five hundred Roles with ten rules each, of several groups, so that no single rule covers them.
    let ordinary = json!({"apiGroups": ["", "apps", "batch"], "resources": ["configmaps", "deployments", "jobs", "pods"],
        "verbs": ["get", "list", "watch", "update"]});
    let mut held = rules.clone();
    held.push(json!({"apiGroups": ["", "apps", "batch"], "resources": ["*"], "verbs": ["get", "update"]}));
    held.push(json!({"apiGroups": ["", "apps", "batch"], "resources": ["*"], "verbs": ["list", "watch"]}));
    let holder = granting(json!(held));
    let with = |rules: &[Value]| {
        let many = (0..500).map(|n| {
            let mut role = role(&format!("r{n}"), &[]);
            role["rules"] = json!(rules);
            role
        });
        manifests(many.collect())
    };
    assert_eq!(
        Case::new(&with(&vec![ordinary; 10]), &holder).run().0,
        Verdict::default()
    );
    // Five hundred times `admin`, rule by rule and bound.
    assert_eq!(Case::new(&with(&rules), &rbac).run().0, Verdict::default());
    let bindings: Vec<Value> = (0..500).map(|n| binding(&format!("b{n}"), "r")).collect();
    assert_eq!(
        Case::new(&manifests(json!(bindings)), &rbac).run().0,
        Verdict::default()
    );
}

/// A gate with this RBAC, and an API server that allows everything.
fn gate(rules: Value) -> Gate {
    let mut granted = role("r", &[]);
    granted["rules"] = rules.clone();
    let there = [
        ("/roles/r", granted),
        ("/rolebindings/r", binding("r", "r")),
        ("/roles/shared", role("shared", &["get"])),
    ];
    let server = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path();
        let found = there.iter().find(|(end, _)| path.ends_with(end));
        let found = found.map(|(_, object)| object.clone());
        async move {
            let answer = if request.method() == http::Method::GET {
                found.unwrap_or_else(
                    || json!({"kind": "Status", "status": "Failure", "code": 404, "message": "", "reason": "NotFound"}),
                )
            } else {
                let body = request.into_body().collect_bytes().await?;
                let mut review: Value = serde_json::from_slice(&body)?;
                review["status"] = json!({"allowed": true});
                review
            };
            let code = if answer["code"] == 404 { 404 } else { 200 };
            let answer = Response::builder()
                .status(code)
                .body(Body::from(answer.to_string().into_bytes()))?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(answer)
        }
    });
    let client = Client::new(server, "default");
    let context = Context::new(
        client.clone(),
        client,
        Options::default(),
        Health::default(),
        CancellationToken::new(),
    );
    Gate::with_rbac(&context, agent(), granting(rules))
}

fn executor() -> Executor {
    serde_json::from_value(
        json!({"subject": {"type": "ServiceAccount", "serviceAccount": {"namespace": "shop", "name": "a"}}}),
    )
    .unwrap()
}

/// The only thread for blocking work is busy, so the evaluation lasts until the test releases it. Everything else runs on
/// the one thread of the test meanwhile.
#[test]
fn evaluation_holds_up_neither_other_works_nor_changes() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let gate = gate(rbac_rules(
            json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]),
        ));
        gate.state()
            .change_rbac(|rbac| put(rbac, role("shared", &["get"])));
        let items: Arc<[_]> = manifests(json!([role("x", &["get"]), binding("x", "shared")])).into();
        let (key, executor, since) = (Key::work("large"), executor(), Instant::now());
        let check = || gate.check(&key, Some(&executor), &items, since);
        // Every question is answered: from here on only RBAC decides.
        assert_eq!(check().await.unwrap(), Some(Verdict::default()));

        let (go, wait) = mpsc::channel::<()>();
        drop(tokio::task::spawn_blocking(move || wait.recv()));
        let judged = check();
        futures::pin_mut!(judged);
        assert!(futures::poll!(judged.as_mut()).is_pending());
        // Another work is not held up.
        let plain: Arc<[_]> = manifests(json!([config_map("m")])).into();
        let other = gate.check(&Key::work("other"), None, &plain, since).await;
        assert_eq!(other.unwrap(), Some(Verdict::default()));
        // Nor is a change of the role that the work binds.
        gate.state()
            .change_rbac(|rbac| put(rbac, role("shared", &["get", "list"])));
        let id = (Kind::Role, "shop".to_owned(), "shared".to_owned());
        gate.state().invalidate(&AffectedSubjects::default(), Some(&id));
        assert!(futures::poll!(judged.as_mut()).is_pending());
        go.send(()).unwrap();
        // The verdict is about the role after the change.
        let verdict = judged.await.unwrap().unwrap();
        let Some(Refused::Denied(message)) = verdict.refusal_of(1) else {
            panic!("{verdict:?}")
        };
        assert!(message.contains("not currently held"), "{message}");
        assert!(matches!(verdict.refusal_of(0), Some(Refused::HeldBack(_))));
    });
}

/// Equal grants are compared once, and not again when answers arrive.
#[test]
fn equal_grants_are_compared_once() {
    let mut rbac = halves();
    put(&mut rbac, large_role("large"));
    let judge = |objects: Vec<Value>| {
        let items = manifests(json!(objects));
        let mut case = Case::new(&items, &rbac);
        case.budget = Budget::new(SMALL);
        let (verdict, asked) = case.run();
        assert_eq!(verdict, Verdict::default());
        assert_eq!(asked.len(), ALL.len());
    };
    // Far more than the budget, if each were compared.
    judge((0..30).map(|n| binding(&format!("b{n}"), "large")).collect());
    // Most of the budget; a second round would exceed it.
    judge((0..6).map(|n| large_role(&format!("r{n}"))).collect());
}
