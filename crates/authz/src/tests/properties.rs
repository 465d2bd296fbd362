//! Properties over random policies.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::covers::missing;
use super::generate::{self, Dice};
use super::model::Policy;
use super::*;
use crate::{Aggregation, Decision, Object, covers};

/// All objects of a policy.
fn objects(policy: &Policy) -> Vec<Object<'_>> {
    let roles = policy.roles.iter().map(Object::from);
    let cluster_roles = policy.cluster_roles.iter().map(Object::from);
    let role_bindings = policy.role_bindings.iter().map(Object::from);
    let cluster_role_bindings = policy.cluster_role_bindings.iter().map(Object::from);
    roles
        .chain(cluster_roles)
        .chain(role_bindings)
        .chain(cluster_role_bindings)
        .collect()
}

fn build(policy: &Policy) -> Index {
    let mut index = Index::new(Aggregation::Computed);
    for object in objects(policy) {
        index.apply(object).unwrap();
    }
    index
}

fn questions() -> impl Strategy<Value = Vec<Dice>> {
    proptest::collection::vec(generate::dice(), 30)
}

/// Everything the index can be asked, as one comparable value.
fn answers(index: &Index, policy: &Policy, dice: &[Dice]) -> String {
    let mut text = format!(
        "{} {} {}\n",
        index.role_count(),
        index.binding_count(),
        index.name_count()
    );
    for dice in dice {
        let asked = generate::question(policy, "p", dice);
        let attributes = asked.attributes();
        let decision = index.allows(&asked.user, &asked.groups, &attributes).allowed();
        let mut rules: Vec<_> = index.rules_for(&asked.user, &asked.groups, &asked.namespace);
        rules.sort_by_key(|rule| serde_json::to_string(rule).unwrap());
        let mut explanation = index.explain(&asked.user, &asked.groups, &attributes);
        explanation
            .chains
            .sort_by_key(|chain| serde_json::to_string(chain).unwrap());
        // Rules at the same distance come in no fixed order, and only the first few come at all.
        explanation.nearest.clear();
        let who = index.who_can(&attributes);
        text += &serde_json::to_string(&(decision, rules, explanation, who)).unwrap();
        text.push('\n');
    }
    text
}

/// Few cases by default: there are thirty questions in each. `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(48),
    }
}

proptest! {
    #![proptest_config(config())]

    /// The index and the plain model give the same answer, and `explain` and `who_can` fit to it.
    #[test]
    fn the_index_is_the_model(policy in generate::policy("p"), dice in questions()) {
        let index = build(&policy);
        for dice in &dice {
            let asked = generate::question(&policy, "p", dice);
            let attributes = asked.attributes();
            let expected = policy.allows(&asked, None);
            let decision = index.allows(&asked.user, &asked.groups, &attributes);
            prop_assert_eq!(decision.allowed(), expected, "{:?}", asked);
            let explanation = index.explain(&asked.user, &asked.groups, &attributes);
            prop_assert_eq!(explanation.allowed, expected);
            prop_assert_eq!(explanation.chains.is_empty(), !expected);
            prop_assert!(explanation.nearest.iter().all(|near| !near.missing.is_empty()));
            if let Decision::Allow(grant) = decision {
                let chain = index.chain(&grant).unwrap();
                prop_assert!(explanation.chains.contains(&chain));
            }
            let who = index.who_can(&attributes);
            let is_asker = |subject: &crate::Subject| match (subject.kind, &subject.namespace) {
                (crate::SubjectKind::Group, _) => asked.groups.contains(&subject.name),
                (_, Some(namespace)) => asked.user == crate::service_account_user(namespace, &subject.name),
                (_, None) => asked.user == subject.name,
            };
            prop_assert_eq!(who.iter().any(|holder| is_asker(&holder.subject)), expected, "{:?}", who);
            // And the rules of the asker alone give the same decision.
            let rules = index.rules_for(&asked.user, &asked.groups, attributes.namespace());
            let mut alone = Index::default();
            alone.apply(&cluster_role("r", &rules)).unwrap();
            alone.apply(&cluster_binding("b", "ClusterRole:r", &["user:x"])).unwrap();
            prop_assert_eq!(alone.allows("x", &[] as &[&str], &attributes).allowed(), expected);
        }
    }

    /// However the objects came, changed and went, the index is the one built from what is there now.
    #[test]
    fn incremental_is_rebuilt(
        policies in proptest::collection::vec(generate::policy("p"), 3),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0..3usize, any::<bool>()), 40),
        dice in questions(),
    ) {
        // Three policies with the same names: the second and third bring other versions of the same objects.
        let versions: Vec<_> = policies.iter().map(objects).collect();
        let mut index = Index::new(Aggregation::Computed);
        let mut present: BTreeMap<String, Object<'_>> = BTreeMap::new();
        for (at, version, remove) in &edits {
            let object = versions[*version][at.index(versions[*version].len())];
            let key = crate::Key::from(object);
            let address = format!("{key:?}");
            if *remove {
                prop_assert_eq!(index.remove(key), present.remove(&address).is_some());
            } else {
                index.apply(object).unwrap();
                present.insert(address, object);
            }
        }
        let mut rebuilt = Index::new(Aggregation::Computed);
        for object in present.values() {
            rebuilt.apply(*object).unwrap();
        }
        prop_assert_eq!(
            answers(&index, &policies[0], &dice),
            answers(&rebuilt, &policies[0], &dice)
        );
        // Nothing is left over when everything has gone.
        for object in present.values() {
            prop_assert!(index.remove(*object));
        }
        prop_assert_eq!(index.name_count(), Index::default().name_count());
        prop_assert!(index.who_can(&ask("get - pods")).is_empty());
    }

    /// Whoever has rules covers them, fewer of them, and still does with more in hand.
    #[test]
    fn covers_is_reflexive_and_monotone(
        owner in proptest::collection::vec(generate::cluster_rule(), 0..5),
        more in proptest::collection::vec(generate::cluster_rule(), 0..3),
        wanted in proptest::collection::vec(generate::cluster_rule(), 0..3),
    ) {
        prop_assert_eq!(missing(&owner, &owner), vec![]);
        let all = [owner.clone(), more].concat();
        prop_assert_eq!(missing(&all, &owner), vec![]);
        let lacking = missing(&owner, &wanted);
        let still_lacking = missing(&all, &wanted);
        prop_assert!(still_lacking.iter().all(|rule| lacking.contains(rule)));
        // What is missing is exactly what it takes.
        prop_assert_eq!(missing(&[owner.clone(), lacking.clone()].concat(), &wanted), vec![]);
        prop_assert_eq!(missing(&owner, &lacking), lacking.clone());
        // The first of it is told, and all of it is counted.
        let told = covers(&owner, &wanted);
        prop_assert_eq!(told.count, lacking.len());
        prop_assert_eq!(&told.first[..], &lacking[..lacking.len().min(10)]);
    }

    /// Where rules cover others, they allow whatever those allow; where an atom is missing, they deny it.
    #[test]
    fn covers_agrees_with_allows(
        owner in proptest::collection::vec(generate::cluster_rule(), 0..4),
        wanted in proptest::collection::vec(generate::cluster_rule(), 1..3),
    ) {
        let index = |rules: &[PolicyRule]| {
            let mut index = Index::default();
            index.apply(&cluster_role("r", rules)).unwrap();
            index.apply(&cluster_binding("b", "ClusterRole:r", &["user:x"])).unwrap();
            index
        };
        let (owns, wants) = (index(&owner), index(&wanted));
        let missing = missing(&owner, &wanted);
        let mut texts: Vec<String> = Vec::new();
        for verb in ["get", "list", "create", "delete", "watch", "*"] {
            for group in ["-", "apps", "example.com", "other", "*"] {
                for resource in ["pods", "secrets", "deployments", "jobs", "*"] {
                    for sub in ["", "/log", "/scale", "/status"] {
                        for name in ["-", "one", "two", "three", "four"] {
                            texts.push(format!("{verb} {group} {resource}{sub} n {name}"));
                        }
                    }
                }
            }
            for path in ["/healthz", "/metrics", "/metrics/", "/metrics/cpu", "/version", "/openapi/v3", "/", "/zzz"] {
                texts.push(format!("{verb} {path}"));
            }
        }
        let allowed = |index: &Index, text: &str| allows(index, "x", &[], text);
        let more: BTreeSet<_> = texts.iter().filter(|text| allowed(&wants, text) && !allowed(&owns, text)).collect();
        if missing.is_empty() {
            prop_assert!(more.is_empty(), "{more:?}");
        } else {
            // Two owner rules can together allow all that a wildcard with a name allows in this vocabulary, so only
            // atoms without a wildcard must show up as a denied request.
            for atom in missing.iter().filter(|atom| !serde_json::to_string(atom).unwrap().contains('*')) {
                let lacks = index(std::slice::from_ref(atom));
                let asked: Vec<_> = texts.iter().filter(|text| allowed(&lacks, text)).collect();
                prop_assert!(!asked.is_empty());
                let atom_has_name = atom.resource_names.is_some();
                let denied = asked.iter().filter(|text| !allowed(&owns, text)).count();
                prop_assert!(denied > 0, "{atom:?}");
                prop_assert!(!atom_has_name || denied == asked.len(), "{atom:?}");
            }
        }
    }
}

/// The generator itself: enough allowed, enough denied, every feature decides. The real test asks the same questions.
#[test]
fn the_questions_are_balanced() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let (policies, each) = (60, 40);
    for n in 0..policies {
        let prefix = format!("p{n}");
        let policy = generate::policy(&prefix).new_tree(&mut runner).unwrap().current();
        for _ in 0..each {
            let dice = generate::dice().new_tree(&mut runner).unwrap().current();
            let asked = generate::question(&policy, &prefix, &dice);
            let answer = if policy.allows(&asked, None) {
                "allow"
            } else {
                "deny"
            };
            for heading in policy.decided_by(&asked).into_iter().chain([answer]) {
                *counts.entry(heading).or_default() += 1;
            }
        }
    }
    let total = policies * each;
    let count = |heading: &str| counts.get(heading).copied().unwrap_or_default();
    assert!(
        count("allow") * 100 > total * 35 && count("deny") * 100 > total * 35,
        "{counts:?}"
    );
    // 500 of 22,000 is 2.3 %.
    for feature in super::model::Feature::ALL {
        assert!(
            count(feature.heading()) * 1000 > total * 25,
            "{feature:?} {counts:?}"
        );
    }
    eprintln!("{counts:?}");
}
