//! Grants on exclusive keys, and the ConfigMap that restricts them.

use super::*;

#[test]
fn grants_on_keys_and_names_combine_unless_pairs_or_the_config_map_restrict_them() {
    // A user with grants on the keys region and vendor, and on the names apac and aws.
    let grants = ["region", "vendor"];
    let allowed = |guards: &Guards, grants: &[&str], keys: Option<&ExclusiveKeys>, key: &str, name: &str| {
        create(
            json!({"exclusiveKey": key}),
            name,
            0,
            keys.cloned().map(Ok),
            guards,
        )
        .is_ok_and(|needs| {
            needs.iter().all(|need| {
                need.split(" or ").any(|access| {
                    grants
                        .iter()
                        .any(|g| access == format!("create managedclustersets/exclusiveKey {g}"))
                })
            })
        })
    };
    let any = Guards::default();
    let pair = Guards {
        key_grants: KeyGrants::Pair,
        ..Guards::default()
    };
    let map = BTreeMap::from([
        ("region".to_owned(), "apac, us".to_owned()),
        ("vendor".to_owned(), "aws, gcp".to_owned()),
    ]);
    let keys = ExclusiveKeys::parse(&map).unwrap();
    for (key, name, meant) in [
        ("region", "apac", true),
        ("vendor", "aws", true),
        ("vendor", "apac", false),
        ("region", "aws", false),
    ] {
        assert!(
            allowed(&any, &grants, None, key, name),
            "the leak: {key} {name} is allowed"
        );
        assert_eq!(
            allowed(&any, &grants, Some(&keys), key, name),
            meant,
            "with the ConfigMap: {key} {name}"
        );
        assert_eq!(
            allowed(&pair, &["region:apac", "vendor:aws"], None, key, name),
            meant,
            "with keys: {key} {name}"
        );
    }
    assert!(!allowed(&pair, &grants, None, "region", "apac"));
}

#[test]
fn config_map_lists_set_names_per_key() {
    let parse = |entries: &[(&str, &str)]| {
        ExclusiveKeys::parse(
            &entries
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
        )
    };
    let keys = parse(&[
        ("region", "apac, us"),
        ("_pairs", "example.com/tier: gold, silver\n\n"),
    ])
    .unwrap();
    for (key, name, allowed) in [
        (Some("region"), "apac", true),
        (Some("region"), "eu", false),
        (Some("vendor"), "apac", false),
        (Some("vendor"), "aws", true),
        (Some("example.com/tier"), "gold", true),
        (Some("example.com/tier"), "apac", false),
        (Some(KEY), "gold", false),
        (Some(KEY), "team-a", true),
        (None, "apac", false),
        (None, "other", true),
    ] {
        assert_eq!(keys.allow(key, name), allowed, "{key:?} {name}");
    }
    for bad in [
        ("region", ""),
        ("region", "apac,,us"),
        ("region", "APAC"),
        ("_pairs", "no colon"),
    ] {
        assert!(parse(&[bad]).is_err(), "{bad:?}");
    }
    let refused = create(
        json!({}),
        "team-a",
        0,
        Some(Err("region: \"\"".into())),
        &Guards::default(),
    );
    assert!(refused.unwrap_err().contains("cannot be read"));
}
