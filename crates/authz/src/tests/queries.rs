//! `who_can`, `rules_for`, `grants_for` and `explain`, asked in one shop.

use super::*;
use crate::{Aggregation, Explanation, Key, Kind, Missing};

/// A shop: developers may edit in `shop`, everything of `view` comes by aggregation, ops may do all.
fn shop(aggregation: Aggregation) -> Index {
    let mut index = Index::new(aggregation);
    let view = json!([{"matchLabels": {"to-view": "true"}}]);
    // As the controller would have left it, with one rule that nobody else has.
    let stored = [rule("get,list - pods"), rule("get - odd")];
    index.apply(&aggregated("view", &view, &stored)).unwrap();
    index
        .apply(&labelled(
            cluster_role("view-core", &[rule("get,list - pods")]),
            "to-view",
            "true",
        ))
        .unwrap();
    index
        .apply(&cluster_role("all", &[rule("* * *"), urls("* *")]))
        .unwrap();
    index
        .apply(&role(
            "shop",
            "edit",
            &[rule("get,update apps deployments web"), rule("get - secrets")],
        ))
        .unwrap();
    index
        .apply(&binding(
            "shop",
            "devs",
            "Role:edit",
            &["group:dev", "user:alice", "sa:ci"],
        ))
        .unwrap();
    index
        .apply(&binding(
            "shop",
            "viewers",
            "ClusterRole:view",
            &["user:bob", "user:bob"],
        ))
        .unwrap();
    index
        .apply(&cluster_binding("ops", "ClusterRole:all", &["group:ops"]))
        .unwrap();
    index
        .apply(&binding("shop", "lost", "Role:gone", &["user:alice"]))
        .unwrap();
    index
        .apply(&binding("other", "lost", "Role:gone", &["user:alice"]))
        .unwrap();
    index
}

fn who(index: &Index, text: &str) -> Vec<String> {
    let holders = index.who_can(&ask(text));
    let line = |chain: &crate::Chain| {
        let from = chain
            .aggregated_from
            .as_ref()
            .map(|from| format!(" <- {from}"))
            .unwrap_or_default();
        format!(
            "{}: {} -> {}{from} -> {}",
            chain.subject,
            chain.binding,
            chain.role,
            crate::describe(&chain.rule)
        )
    };
    for holder in &holders {
        assert!(holder.chains.iter().all(|chain| chain.subject == holder.subject));
    }
    holders
        .iter()
        .flat_map(|holder| holder.chains.iter().map(line))
        .collect()
}

const OPS: &str = r#"Group ops: ClusterRoleBinding ops -> ClusterRole all -> {APIGroups:["*"], Resources:["*"], Verbs:["*"]}"#;

#[test]
fn who_can_with_chains() {
    let index = shop(Aggregation::StoredAndComputed);
    assert_eq!(who(&index, "delete - nodes"), [OPS]);
    let secrets = r#"RoleBinding shop/devs -> Role shop/edit -> {APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#;
    assert_eq!(
        who(&index, "get - secrets shop key"),
        [
            format!("User alice: {secrets}"),
            format!("Group dev: {secrets}"),
            OPS.to_owned(),
            format!("ServiceAccount shop/ci: {secrets}"),
        ]
    );
    assert_eq!(who(&index, "get - secrets other key"), [OPS]);
    assert_eq!(who(&index, "get - secrets"), [OPS]);
    assert_eq!(
        who(&index, "get /metrics"),
        [r#"Group ops: ClusterRoleBinding ops -> ClusterRole all -> {NonResourceURLs:["*"], Verbs:["*"]}"#]
    );
}

/// Every chain that is enough on its own is told, in the order of the bindings.
#[test]
fn who_can_tells_every_chain() {
    let mut index = shop(Aggregation::Computed);
    index
        .apply(&cluster_binding("a-first", "ClusterRole:view", &["group:ops"]))
        .unwrap();
    let lines = who(&index, "list - pods shop");
    assert_eq!(lines.len(), 3);
    assert!(
        lines[1].starts_with(
            "Group ops: ClusterRoleBinding a-first -> ClusterRole view <- ClusterRole view-core"
        )
    );
    assert_eq!(lines[2], OPS);
}

#[test]
fn chains_name_the_aggregated_source() {
    let pods = r#"-> {APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#;
    let odd = r#"-> {APIGroups:[""], Resources:["odd"], Verbs:["get"]}"#;
    let bob = "User bob: RoleBinding shop/viewers -> ClusterRole view";
    let from_source = format!("{bob} <- ClusterRole view-core {pods}");
    let from_stored = format!("{bob} {odd}");
    assert_eq!(
        who(&shop(Aggregation::Stored), "list - pods shop")[0],
        from_source
    );
    assert_eq!(
        who(&shop(Aggregation::Computed), "list - pods shop")[0],
        from_source
    );
    assert_eq!(who(&shop(Aggregation::Stored), "get - odd shop")[0], from_stored);
    assert_eq!(
        who(&shop(Aggregation::StoredAndComputed), "get - odd shop")[0],
        from_stored
    );
    assert_eq!(who(&shop(Aggregation::Computed), "get - odd shop"), [OPS]);
}

/// Rules of several sources, and of one role bound twice, are all told, with those of the role itself first.
#[test]
fn every_source_and_every_binding_is_told() {
    let mut index = Index::default();
    let select = json!([{"matchLabels": {"to": "sum"}}]);
    index
        .apply(&aggregated("sum", &select, &[rule("get - *")]))
        .unwrap();
    for (name, resources) in [("one", "pods"), ("two", "pods,nodes")] {
        let source = cluster_role(name, &[rule(&format!("get - {resources}"))]);
        index.apply(&labelled(source, "to", "sum")).unwrap();
    }
    for name in ["a", "b"] {
        index
            .apply(&cluster_binding(name, "ClusterRole:sum", &["user:alice"]))
            .unwrap();
    }
    let told = |chains: &[crate::Chain]| {
        let mut told: Vec<_> = chains
            .iter()
            .map(|chain| {
                let from = chain.aggregated_from.as_ref().map_or("sum", |from| &from.name);
                format!("{} {from}", chain.binding.name)
            })
            .collect();
        told.sort();
        told
    };
    let all = ["a one", "a sum", "a two", "b one", "b sum", "b two"];
    assert_eq!(told(&index.grants_for("alice", &[] as &[&str], "")), all);
    let pods = ask("get - pods");
    assert_eq!(told(&index.explain("alice", &[] as &[&str], &pods).chains), all);
    assert_eq!(
        index.rules_for("alice", &[] as &[&str], ""),
        [rule("get - pods"), rule("get - pods,nodes"), rule("get - *")]
    );
    let pods = r#"-> {APIGroups:[""], Resources:["#;
    let all = ["a", "b"].map(|binding| {
        let start = format!("User alice: ClusterRoleBinding {binding} -> ClusterRole sum");
        [
            format!(r#"{start} {pods}"*"], Verbs:["get"]}}"#),
            format!(r#"{start} <- ClusterRole one {pods}"pods"], Verbs:["get"]}}"#),
            format!(r#"{start} <- ClusterRole two {pods}"pods" "nodes"], Verbs:["get"]}}"#),
        ]
    });
    assert_eq!(who(&index, "get - pods"), all.concat());
}

/// A stored rule is traced to the plain role it was written in, not to an aggregate on the way.
#[test]
fn the_source_is_the_role_that_was_written() {
    let mut index = Index::new(Aggregation::Stored);
    let select = |value: &str| json!([{"matchLabels": {"to": value}}]);
    let pods = [rule("get - pods")];
    index
        .apply(&aggregated("admin", &select("admin"), &pods))
        .unwrap();
    index
        .apply(&labelled(
            aggregated("edit", &select("edit"), &pods),
            "to",
            "admin",
        ))
        .unwrap();
    index
        .apply(&labelled(cluster_role("pods", &pods), "to", "edit"))
        .unwrap();
    index
        .apply(&cluster_binding("b", "ClusterRole:admin", &["user:alice"]))
        .unwrap();
    let from = |index: &Index| {
        index.who_can(&ask("get - pods"))[0].chains[0]
            .aggregated_from
            .clone()
            .map(|from| from.name)
    };
    assert_eq!(from(&index).as_deref(), Some("pods"));
    // Gone, while the controller has not yet seen it: the aggregate on the way still has the rule.
    index
        .apply(&labelled(
            cluster_role("pods", &[rule("list - pods")]),
            "to",
            "edit",
        ))
        .unwrap();
    assert_eq!(from(&index).as_deref(), Some("edit"));
    index.remove(Key::new(Kind::ClusterRole, "", "edit"));
    assert_eq!(from(&index), None);
}

/// Only an aggregated ClusterRole has sources: not a role that was one, nor a Role that shares its name.
#[test]
fn a_plain_role_has_no_source() {
    let pods = [rule("get - pods")];
    let mut index = Index::new(Aggregation::Stored);
    let select = json!([{"matchLabels": {"to": "sum"}}]);
    index.apply(&aggregated("sum", &select, &pods)).unwrap();
    index
        .apply(&labelled(cluster_role("pods", &pods), "to", "sum"))
        .unwrap();
    index.apply(&role("a", "sum", &pods)).unwrap();
    index
        .apply(&binding("a", "b", "Role:sum", &["user:bob"]))
        .unwrap();
    index
        .apply(&cluster_binding("b", "ClusterRole:sum", &["user:alice"]))
        .unwrap();
    let sources = |index: &Index| {
        ["alice", "bob"].map(|user| {
            let chains = index.explain(user, &[] as &[&str], &ask("get - pods a")).chains;
            let from = chains[0].aggregated_from.as_ref();
            from.map(|from| from.name.clone())
        })
    };
    assert_eq!(sources(&index), [Some("pods".to_owned()), None]);
    index.apply(&cluster_role("sum", &pods)).unwrap();
    assert_eq!(sources(&index), [None, None]);
}

#[test]
fn rules_of_an_asker() {
    let index = shop(Aggregation::Computed);
    let edit = [rule("get,update apps deployments web"), rule("get - secrets")];
    assert_eq!(
        index.rules_for("alice", &["dev"], "shop"),
        edit,
        "once, though bound twice"
    );
    assert_eq!(index.rules_for("alice", &["dev"], "other"), []);
    assert_eq!(index.rules_for("alice", &["dev"], ""), []);
    let both = index.rules_for("system:serviceaccount:shop:ci", &["ops"], "shop");
    assert_eq!(both, [edit.as_slice(), &[rule("* * *"), urls("* *")]].concat());
    let chains = index.grants_for("alice", &["dev"], "shop");
    assert_eq!(chains.len(), 2);
    // The binding names the group first.
    assert!(
        chains
            .iter()
            .all(|chain| chain.subject.to_string() == "Group dev")
    );
    assert_eq!(index.grants_for("bob", &[] as &[&str], "shop").len(), 1);
    assert_eq!(
        index.role_rules(Key::new(Kind::Role, "shop", "edit")).unwrap(),
        edit
    );
    assert_eq!(index.role_rules(Key::new(Kind::Role, "other", "edit")), None);
    assert_eq!(index.role_rules(Key::new(Kind::Role, "nowhere", "edit")), None);
}

fn explain(user: &str, groups: &[&str], text: &str) -> Explanation {
    shop(Aggregation::Computed).explain(user, groups, &ask(text))
}

#[test]
fn an_allow_is_explained_by_its_chains() {
    let why = explain("alice", &["dev", "ops"], "get - secrets shop");
    assert!(why.allowed && !why.superuser);
    let bindings: Vec<_> = why.chains.iter().map(|chain| chain.binding.to_string()).collect();
    assert_eq!(bindings, ["RoleBinding shop/devs", "ClusterRoleBinding ops"]);
    assert!(why.nearest.is_empty() && why.dangling.is_empty() && why.roles.is_empty());
    let why = explain("root", &["system:masters"], "get - secrets shop");
    assert!(why.allowed && why.superuser && why.chains.is_empty());
}

#[test]
fn a_deny_is_explained_by_what_is_missing() {
    let missing = |text: &str| {
        let why = explain("alice", &[], text);
        assert!(!why.allowed && why.chains.is_empty());
        why.nearest
            .iter()
            .map(|near| near.missing.clone())
            .collect::<Vec<_>>()
    };
    let verb = |text: &str| Missing::Verb(text.to_owned());
    let name = |text: &str| Missing::ResourceName(text.to_owned());
    let resource = |text: &str| Missing::Resource(text.to_owned());
    let group = |text: &str| Missing::ApiGroup(text.to_owned());
    let namespace = |text: &str| Missing::Namespace(text.to_owned());
    assert_eq!(
        missing("delete apps deployments shop web"),
        [vec![verb("delete")]]
    );
    assert_eq!(missing("get apps deployments shop db"), [vec![name("db")]]);
    assert_eq!(missing("get apps deployments shop"), [vec![name("")]]);
    assert_eq!(missing("get batch deployments shop web"), [vec![group("batch")]]);
    assert_eq!(
        missing("get apps deployments/scale shop web"),
        [vec![resource("deployments/scale")]]
    );
    assert_eq!(
        missing("get apps deployments other web"),
        [vec![namespace("other")]]
    );
    assert_eq!(missing("get apps deployments - web"), [vec![namespace("")]]);
    assert_eq!(
        missing("delete apps deployments other web"),
        [vec![verb("delete"), namespace("other")]]
    );
    // The nearer comes first; too far does not come at all.
    assert_eq!(
        missing("get - deployments shop web"),
        [vec![group("")], vec![resource("deployments")]]
    );
    assert_eq!(missing("delete batch jobs shop x"), Vec::<Vec<Missing>>::new());
    assert_eq!(missing("get /metrics"), Vec::<Vec<Missing>>::new());
}

#[test]
fn a_deny_names_lost_bindings_and_helpful_roles() {
    let why = explain("alice", &[], "delete - nodes shop");
    let lost: Vec<_> = why
        .dangling
        .iter()
        .map(|lost| format!("{} -> {}", lost.binding, lost.role))
        .collect();
    assert_eq!(lost, ["RoleBinding shop/lost -> Role shop/gone"]);
    assert_eq!(
        why.roles.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["ClusterRole all"]
    );
    let why = explain("bob", &[], "get - secrets shop");
    assert!(why.dangling.is_empty());
    let roles: Vec<_> = why.roles.iter().map(ToString::to_string).collect();
    assert_eq!(roles, ["Role shop/edit", "ClusterRole all"]);
    // A Role of another namespace cannot help.
    let why = explain("bob", &[], "get - secrets other");
    assert_eq!(why.roles.len(), 1);
}

#[test]
fn results_are_json_for_people() {
    let why = explain("bob", &[], "delete - pods shop x");
    assert_eq!(
        serde_json::to_value(&why).unwrap(),
        json!({
            "allowed": false,
            "nearest": [{
                "chain": {
                    "subject": {"kind": "User", "name": "bob"},
                    "binding": {"kind": "RoleBinding", "namespace": "shop", "name": "viewers"},
                    "role": {"kind": "ClusterRole", "name": "view"},
                    "aggregatedFrom": {"kind": "ClusterRole", "name": "view-core"},
                    "rule": {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
                },
                "missing": [{"verb": "delete"}],
            }],
            "roles": [{"kind": "ClusterRole", "name": "all"}],
        })
    );
}
