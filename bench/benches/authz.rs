//! What the RBAC index costs with 1,000 roles and 10,000 bindings: memory, and time per question.
//!
//! It fails where a limit of the project is broken: 20 MiB, and 2 µs per `allows` on average.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark stops where its own data is wrong"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use divan::{AllocProfiler, Bencher, counter::ItemsCount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde_json::{Value, json};
use writ_authz::{Attributes, Identity, Index, ResourceAttributes};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

const NAMESPACES: usize = 100;
const CLUSTER_ROLES: usize = 200;
const ROLES: usize = 800;
const ROLE_BINDINGS: usize = 9_500;
const CLUSTER_ROLE_BINDINGS: usize = 500;
const QUESTIONS: usize = 4_096;

const MOST_MEMORY: u64 = 20 << 20;
const MOST_TIME: Duration = Duration::from_micros(2);

fn main() {
    let before = resident();
    let index = build();
    let grown = resident().saturating_sub(before);
    println!(
        "{} roles, {} bindings, {} names: {:.1} MiB resident",
        index.role_count(),
        index.binding_count(),
        index.name_count(),
        mib(grown)
    );
    let questions = questions();
    let ask_all = || questions.iter().filter(|asked| asked.allowed_by(&index)).count();
    let allowed = ask_all();
    let rounds = 500;
    let (cpu, wall) = (processor_time(), Instant::now());
    for _ in 0..rounds {
        black_box(ask_all());
    }
    let (cpu, wall) = (
        processor_time()
            .zip(cpu)
            .map(|(now, then)| now.saturating_sub(then)),
        wall.elapsed(),
    );
    let each = |all: Duration| all / rounds / u32::try_from(QUESTIONS).unwrap();
    let (cpu, wall) = (each(cpu.unwrap_or(wall)), each(wall));
    println!(
        "allows: {cpu:?} of processor time ({wall:?} of wall time) on average over {QUESTIONS} questions, {} % allowed",
        allowed * 100 / QUESTIONS
    );
    assert!(grown <= MOST_MEMORY, "the index takes {:.1} MiB", mib(grown));
    assert!(cpu <= MOST_TIME, "one question takes {cpu:?}");
    divan::main();
}

#[expect(clippy::cast_precision_loss, reason = "for printing")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The resident memory of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap_or_default();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap_or_default();
    kib << 10
}

/// The time that this thread has spent on a processor: other programs do not count. Nothing where the system does not
/// tell.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % u64::try_from(limit).unwrap()).unwrap()
    }

    fn pick<'a>(&mut self, pool: &[&'a str]) -> &'a str {
        pool.get(self.below(pool.len())).copied().unwrap()
    }
}

const VERBS: &[&str] = &[
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];
const GROUPS: &[&str] = &[
    "",
    "apps",
    "batch",
    "networking.k8s.io",
    "rbac.authorization.k8s.io",
    "example.com",
];
const RESOURCES: &[&str] = &[
    "pods",
    "services",
    "secrets",
    "configmaps",
    "deployments",
    "deployments/scale",
    "jobs",
    "ingresses",
    "roles",
    "pods/log",
    "pods/exec",
    "events",
    "endpoints",
    "widgets",
    "gadgets",
    "widgets/status",
];

fn rules(dice: &mut Dice) -> Value {
    let rule = |dice: &mut Dice| {
        let mut some = |pool: &[&'static str], most: usize| {
            let count = 1 + dice.below(most);
            (0..count).map(|_| dice.pick(pool)).collect::<Vec<_>>()
        };
        let (verbs, groups, resources) = (some(VERBS, 4), some(GROUPS, 2), some(RESOURCES, 6));
        json!({"verbs": verbs, "apiGroups": groups, "resources": resources})
    };
    (0..5).map(|_| rule(dice)).collect()
}

fn subjects(dice: &mut Dice) -> Value {
    let api_group = "rbac.authorization.k8s.io";
    let subject = |dice: &mut Dice| match dice.below(3) {
        0 => {
            json!({"kind": "User", "apiGroup": api_group, "name": format!("user-{}@example.com", dice.below(2_000))})
        }
        1 => json!({"kind": "Group", "apiGroup": api_group, "name": format!("team-{}", dice.below(300))}),
        _ => json!({
            "kind": "ServiceAccount",
            "namespace": format!("namespace-{}", dice.below(NAMESPACES)),
            "name": format!("account-{}", dice.below(20)),
        }),
    };
    (0..2).map(|_| subject(dice)).collect()
}

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn cluster_role(dice: &mut Dice, number: usize) -> ClusterRole {
    let name = format!("cluster-role-{number}");
    if number.is_multiple_of(20) {
        let selector = json!({"matchLabels": {"part-of": format!("sum-{}", number % 3)}});
        let aggregation = json!({"clusterRoleSelectors": [selector]});
        return from(json!({"metadata": {"name": name}, "aggregationRule": aggregation}));
    }
    let labels = json!({"part-of": format!("sum-{}", number % 40)});
    from(json!({"metadata": {"name": name, "labels": labels}, "rules": rules(dice)}))
}

fn role(dice: &mut Dice, number: usize) -> Role {
    let metadata = json!({"name": format!("role-{}", number / NAMESPACES), "namespace": namespace(number)});
    from(json!({"metadata": metadata, "rules": rules(dice)}))
}

fn namespace(number: usize) -> String {
    format!("namespace-{}", number % NAMESPACES)
}

fn role_binding(dice: &mut Dice, number: usize) -> RoleBinding {
    let (kind, name) = match dice.below(2) {
        0 => ("Role", format!("role-{}", dice.below(ROLES / NAMESPACES))),
        _ => (
            "ClusterRole",
            format!("cluster-role-{}", dice.below(CLUSTER_ROLES)),
        ),
    };
    from(json!({
        "metadata": {"name": format!("binding-{}", number / NAMESPACES), "namespace": namespace(number)},
        "roleRef": {"kind": kind, "apiGroup": "rbac.authorization.k8s.io", "name": name},
        "subjects": subjects(dice),
    }))
}

fn cluster_role_binding(dice: &mut Dice, number: usize) -> ClusterRoleBinding {
    let role = format!("cluster-role-{}", dice.below(CLUSTER_ROLES));
    // A few hold for everybody, as in every cluster.
    let everybody = json!([{"kind": "Group", "name": "system:authenticated"}]);
    from(json!({
        "metadata": {"name": format!("binding-{number}")},
        "roleRef": {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": role},
        "subjects": if number < 3 { everybody } else { subjects(dice) },
    }))
}

/// One object after the other, as a watch would bring them; nothing but the index stays.
fn build() -> Index {
    let mut dice = Dice(1);
    let mut index = Index::default();
    (0..CLUSTER_ROLES)
        .try_for_each(|number| index.apply(&cluster_role(&mut dice, number)))
        .unwrap();
    (0..ROLES)
        .try_for_each(|number| index.apply(&role(&mut dice, number)))
        .unwrap();
    (0..ROLE_BINDINGS)
        .try_for_each(|number| index.apply(&role_binding(&mut dice, number)))
        .unwrap();
    (0..CLUSTER_ROLE_BINDINGS)
        .try_for_each(|number| index.apply(&cluster_role_binding(&mut dice, number)))
        .unwrap();
    index
}

struct Asked {
    identity: Identity,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    namespace: String,
}

impl Asked {
    fn attributes(&self) -> Attributes<'_> {
        ResourceAttributes::new(self.verb, self.group, self.resource)
            .subresource(self.subresource)
            .in_namespace(&self.namespace)
            .named("some-object")
            .into()
    }

    fn allowed_by(&self, index: &Index) -> bool {
        index
            .allows(&self.identity.user, &self.identity.groups, &self.attributes())
            .allowed()
    }
}

fn questions() -> Vec<Asked> {
    let mut dice = Dice(2);
    let question = |dice: &mut Dice| {
        let identity = if dice.below(2) == 0 {
            let user = Identity::user(&format!("user-{}@example.com", dice.below(2_000)));
            user.with_group(&format!("team-{}", dice.below(300)))
                .with_group(&format!("team-{}", dice.below(300)))
        } else {
            Identity::service_account(
                &namespace(dice.below(NAMESPACES)),
                &format!("account-{}", dice.below(20)),
            )
        };
        let (resource, subresource) = {
            let asked = dice.pick(RESOURCES);
            asked.split_once('/').unwrap_or((asked, ""))
        };
        Asked {
            identity,
            verb: dice.pick(VERBS),
            group: dice.pick(GROUPS),
            resource,
            subresource,
            namespace: namespace(dice.below(NAMESPACES)),
        }
    };
    (0..QUESTIONS).map(|_| question(&mut dice)).collect()
}

/// All questions once; the throughput is per question.
#[divan::bench]
fn allows(bencher: Bencher<'_, '_>) {
    let (index, questions) = (build(), questions());
    bencher
        .counter(ItemsCount::new(QUESTIONS))
        .bench_local(|| questions.iter().filter(|asked| asked.allowed_by(&index)).count());
}

/// One changed binding: out and in again.
#[divan::bench]
fn replace_one_binding(bencher: Bencher<'_, '_>) {
    let mut index = build();
    let mut dice = Dice(3);
    let binding = role_binding(&mut dice, 4_711);
    bencher.bench_local(move || index.apply(&binding));
}

/// One changed ClusterRole that is part of an aggregated one.
#[divan::bench]
fn replace_one_aggregated_source(bencher: Bencher<'_, '_>) {
    let mut index = build();
    let mut dice = Dice(4);
    let changed = cluster_role(&mut dice, 41);
    bencher.bench_local(move || index.apply(&changed));
}

/// The start of every "what if".
#[divan::bench]
fn clone_the_index(bencher: Bencher<'_, '_>) {
    let index = build();
    bencher.bench_local(|| index.clone());
}

#[divan::bench]
fn who_can(bencher: Bencher<'_, '_>) {
    let index = build();
    let asked = ResourceAttributes::new("get", "", "secrets").in_namespace("namespace-7");
    bencher.bench_local(|| index.who_can(&asked.into()));
}

#[divan::bench]
fn explain_a_deny(bencher: Bencher<'_, '_>) {
    let index = build();
    let asked = ResourceAttributes::new("impersonate", "", "users");
    let identity = Identity::user("user-7@example.com").with_group("team-7");
    bencher.bench_local(|| index.explain(&identity.user, &identity.groups, &asked.into()));
}

/// The objects are made in here too, from JSON, so this is an upper limit.
#[divan::bench(sample_count = 10)]
fn build_from_nothing(bencher: Bencher<'_, '_>) {
    bencher.bench_local(build);
}
