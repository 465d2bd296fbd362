use writ_controller::Name;

use super::*;
use crate::reconciler::source::File;

fn files(all: &[(&str, &str)]) -> Files {
    Files {
        files: all
            .iter()
            .map(|(path, text)| File {
                path: (*path).to_owned(),
                content: text.as_bytes().to_vec(),
            })
            .collect(),
        problems: Vec::new(),
        memory: None,
    }
}

fn map(name: &str, extra: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n{extra}")
}

fn names(parsed: &Parsed) -> Vec<String> {
    parsed
        .objects
        .iter()
        .map(|raw| format!("{}/{}", raw.namespace(), raw.name()))
        .collect()
}

fn codes(parsed: &Parsed) -> Vec<String> {
    let problems = parsed.problems.iter();
    problems.map(|problem| problem.code.to_string()).collect()
}

#[test]
fn documents_and_lists_are_parsed_and_local_config_is_skipped() {
    let text = format!(
        "{}---\n---\n# nothing\n---\napiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: b}}}}\n---\n{}",
        map("a", ""),
        map(
            "local",
            "  annotations: {config.kubernetes.io/local-config: 'true'}\n"
        ),
    );
    let parsed = parse(files(&[("a.yaml", &text)]), Format::Unstructured, "");
    assert_eq!(names(&parsed), ["/a", "/b"]);
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    let json = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "j"}}"#;
    assert_eq!(
        names(&parse(files(&[("a.json", json)]), Format::Unstructured, "")),
        ["/j"]
    );
}

#[test]
fn name_that_cannot_be_in_a_request_is_refused() {
    let cases = [
        ("name: bad name", "1036"),
        ("name: a/b", "1036"),
        ("name: a%2fb", "1036"),
        ("name: 'a?b'", "1036"),
        ("name: ..", "1036"),
        ("{name: a, namespace: b/../c}", "1055"),
        (&*format!("name: {}", "a".repeat(1 << 20)), "1036"),
    ];
    for (metadata, code) in cases {
        let metadata = metadata.trim_start_matches('{').trim_end_matches('}');
        let text = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{{metadata}}}}}");
        let parsed = parse(files(&[("a.yaml", &text)]), Format::Unstructured, "");
        assert_eq!(codes(&parsed), [code], "{metadata}");
        assert!(parsed.problems[0].message.len() < 500);
        assert!(parsed.objects.is_empty(), "{metadata}");
    }
    for version in ["v1?x", "a b/v1", "a/b/v1", "a/", "/v1"] {
        let text = format!("{{apiVersion: '{version}', kind: ConfigMap, metadata: {{name: a}}}}");
        let parsed = parse(files(&[("a.yaml", &text)]), Format::Unstructured, "");
        assert_eq!(codes(&parsed), ["1006"], "{version}");
    }
    // As RBAC has them.
    for name in ["system:node", "alice@example.com", "A_b~c.d"] {
        let parsed = parse(files(&[("a.yaml", &map(name, ""))]), Format::Unstructured, "");
        assert_eq!(names(&parsed), [format!("/{name}")]);
    }
}

#[test]
fn bad_file_or_object_does_not_stop_the_others() {
    let parsed = parse(
        files(&[
            ("bad.yaml", "a: [b"),
            ("text.yaml", "just text"),
            ("kind.yaml", "apiVersion: v1\nmetadata: {name: x}"),
            ("name.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {}"),
            ("labels.yaml", &map("labels", "  labels: {a: 1}\n")),
            (
                "selector.yaml",
                &map(
                    "selector",
                    "  annotations: {configmanagement.gke.io/cluster-selector: x}\n",
                ),
            ),
            ("good.yaml", &map("good", "")),
        ]),
        Format::Unstructured,
        "",
    );
    assert_eq!(names(&parsed), ["/good"]);
    assert_eq!(codes(&parsed), ["1006", "1006", "1006", "1031", "1054", "1013"]);
    assert!(parsed.problems.iter().all(|problem| problem.path.is_some()));
}

#[test]
fn aliases_of_many_files_share_one_budget() {
    let items = vec!["x"; 100_000].join(", ");
    let text = map("laughs", &format!("data: &a [{items}]\nmore: *a\n"));
    let parsed = parse(
        files(&[
            ("a.yaml", &text),
            ("b.yaml", &text),
            ("c.yaml", &text),
            ("good.yaml", &map("good", "")),
        ]),
        Format::Unstructured,
        "",
    );
    assert_eq!(names(&parsed), ["/laughs", "/laughs", "/good"]);
    assert_eq!(codes(&parsed), ["1006"]);
}

#[test]
fn kustomization_refuses_the_whole_source() {
    for name in ["kustomization.yaml", "kustomization.yml", "Kustomization"] {
        let path = format!("x/{name}");
        let files = files(&[(path.as_str(), "resources: []"), ("a.yaml", &map("a", ""))]);
        let parsed = parse(files, Format::Unstructured, "");
        assert!(parsed.objects.is_empty());
        assert_eq!(parsed.rendering[0].code, Code::Rendering);
    }
}

#[test]
fn hierarchy_assigns_namespaces() {
    let repo = "apiVersion: configmanagement.gke.io/v1\nkind: Repo\nmetadata: {name: repo}";
    let namespace = |name: &str| format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}");
    // A folder whose name ends like one of the layout, and one whose letters are longer than a byte.
    for dir in ["", "deep/inside", "platform-system", "größe/cluster", "system"] {
        let top = if dir.is_empty() {
            String::new()
        } else {
            format!("{dir}/")
        };
        let path = |rest: &str| format!("{top}{rest}");
        let all = [
            (path("system/repo.yaml"), repo.to_owned()),
            (path("system/stray.yaml"), map("stray", "")),
            (path("namespaces/top.yaml"), namespace("top")),
            (path("cluster/c.yaml"), map("c", "")),
            (path("cluster/wrong.yaml"), map("wrong", "  namespace: x\n")),
            (path("namespaces/all.yaml"), map("all", "")),
            (path("namespaces/eng/eng.yaml"), map("eng", "")),
            (path("namespaces/eng/one/ns.yaml"), namespace("one")),
            (path("namespaces/eng/one/m.yaml"), map("m", "")),
            (
                path("namespaces/eng/one/other.yaml"),
                map("other", "  namespace: two\n"),
            ),
            (path("namespaces/two/ns.yaml"), namespace("two")),
            (path("namespaces/bad/ns.yaml"), namespace("good")),
            (path("namespaces/empty/e.yaml"), map("e", "")),
            (path("elsewhere/x.yaml"), map("x", "")),
        ];
        let all: Vec<(&str, &str)> = all
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .collect();
        let parsed = parse(files(&all), Format::Hierarchy, dir);
        let mut found = names(&parsed);
        found.sort();
        assert_eq!(
            found,
            ["/c", "/one", "/two", "one/all", "one/eng", "one/m", "two/all"],
            "{dir}"
        );
        let mut found = codes(&parsed);
        found.sort_unstable();
        assert_eq!(
            found,
            ["1009", "1019", "1020", "1024", "1028", "1044", "1052"],
            "{dir}"
        );
    }
    // Another group's kind of that name is no Repo.
    let other = repo.replace("configmanagement.gke.io/v1", "example.com/v1");
    for text in [map("a", ""), other] {
        let parsed = parse(files(&[("system/a.yaml", &text)]), Format::Hierarchy, "");
        assert!(codes(&parsed).contains(&"1017".to_owned()), "{text}");
    }
}

#[test]
fn duplicate_object_is_reported_with_its_paths() {
    let key = |name: &str| ObjectId {
        name: Name::global(name),
        ..ObjectId::default()
    };
    let (problems, found) = duplicates(&[
        (key("a"), "x.yaml".into()),
        (key("b"), "y.yaml".into()),
        (key("a"), "z.yaml".into()),
    ]);
    assert_eq!(found, [key("a")].into());
    assert!(problems[0].message.contains("x.yaml, z.yaml"));
    // Again and again in the same file, and in many.
    let place = |number: usize| (key("a"), format!("{}.yaml", number / 2).into());
    let many: Vec<_> = (0..100_000).map(place).collect();
    let (problems, _) = duplicates(&many);
    assert!(problems[0].message.len() < 500, "{}", problems[0].message);
}

#[test]
fn inherited_objects_are_limited() {
    let repo = "apiVersion: configmanagement.gke.io/v1\nkind: Repo\nmetadata: {name: repo}\n";
    let mut all = vec![("system/repo.yaml".to_owned(), repo.to_owned())];
    for number in 0..1000 {
        let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: n{number}}}\n");
        all.push((format!("namespaces/n{number}/namespace.yaml"), namespace));
    }
    let large = map("large", &format!("data: {{a: {}}}\n", "x".repeat(100_000)));
    all.push(("namespaces/a-small.yaml".into(), map("small", "")));
    all.push(("namespaces/b-large.yaml".into(), large));
    let borrowed: Vec<(&str, &str)> = all.iter().map(|(path, text)| (&**path, &**text)).collect();
    let parsed = parse(files(&borrowed), Format::Hierarchy, "");
    assert_eq!(codes(&parsed), ["2001"]);
    assert_eq!(
        parsed.objects.len(),
        2000,
        "the namespaces, and the small one in each"
    );
}
