use writ_fleet::git::{Content, Repository};

use writ_api::configsync::{Git, GitAuth};

use super::{tree::MAX_FILE, *};

fn git(repo: &str) -> Git {
    Git {
        repo: repo.into(),
        branch: Some("main".into()),
        ..Git::default()
    }
}

pub fn budget() -> Budget {
    Budget::new(MemoryPool::default(), crate::model::SyncKind::Repo)
}

fn open(git: &Git, known: Option<&str>) -> Result<Snapshot, SourceError> {
    read(
        &Request::new(git, None).unwrap(),
        &Credentials::default(),
        std::path::Path::new("/nowhere"),
        known,
        &budget(),
    )
}

#[test]
fn files_are_read_from_the_commit_and_from_nowhere_else() {
    let repository = Repository::new().unwrap();
    let commit = repository
        .commit(
            "main",
            &[
                ("a.yaml", Content::from("a: 1")),
                ("x/b.yml", Content::from("b: 1")),
                ("x/c.json", Content::from("{}")),
                ("x/readme.md", Content::from("# no")),
                ("x/in.yaml", Content::Link("../a.yaml".into())),
                ("x/out.yaml", Content::Link("../../a.yaml".into())),
                ("x/abs.yaml", Content::Link("/etc/passwd".into())),
                ("x/nowhere.yaml", Content::Link("gone.yaml".into())),
                ("x/folder.yaml", Content::Link("..".into())),
                ("docs", Content::Link("/usr/share/doc".into())),
                ("x/Kustomization", Content::from("resources: []")),
                ("linked", Content::Link("x".into())),
                ("twice", Content::Link("linked".into())),
                ("readme", Content::Link("x/readme.md".into())),
                ("dangling", Content::Link("gone".into())),
                (".gitops/d.yaml", Content::from("d: 1")),
                (".github/workflows/e.yaml", Content::from("e: 1")),
                ("module", Content::Submodule),
                (
                    "large.yaml",
                    Content::File(vec![b'#'; usize::try_from(MAX_FILE).unwrap() + 1]),
                ),
            ],
        )
        .unwrap();
    let snapshot = open(&git(&repository.url()), None).unwrap();
    assert_eq!(snapshot.commit, commit);
    let files = snapshot.files.unwrap();
    let mut paths: Vec<_> = files.files.iter().map(|file| file.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(
        paths,
        [
            ".gitops/d.yaml",
            "a.yaml",
            "x/Kustomization",
            "x/b.yml",
            "x/c.json",
            "x/in.yaml"
        ]
    );
    let mut refused: Vec<_> = files
        .problems
        .iter()
        .map(|problem| problem.path.as_str())
        .collect();
    refused.sort_unstable();
    assert_eq!(
        refused,
        [
            "docs",
            "large.yaml",
            "linked",
            "module",
            "twice",
            "x/abs.yaml",
            "x/folder.yaml",
            "x/nowhere.yaml",
            "x/out.yaml"
        ]
    );
    // A known commit is not read again.
    let again = open(&git(&repository.url()), Some(&commit)).unwrap();
    assert!(again.files.is_none());
}

#[test]
fn request_for_branch_tag_commit_and_folder_finds_its_commit() {
    let repository = Repository::new().unwrap();
    let one = repository.commit("main", &[("x/a.yaml", "1")]).unwrap();
    let two = repository.commit("next", &[("x/a.yaml", "2")]).unwrap();
    repository.tag("v1", &one).unwrap();
    let at = |branch: &str, revision: &str, dir: &str| {
        let git = Git {
            branch: Some(branch.into()),
            revision: Some(revision.into()),
            dir: Some(dir.into()),
            ..git(&repository.path().display().to_string())
        };
        Request::new(&git, None)
            .and_then(|request| {
                read(
                    &request,
                    &Credentials::default(),
                    std::path::Path::new("/nowhere"),
                    None,
                    &budget(),
                )
            })
            .map(|snapshot| snapshot.commit)
            .map_err(|error| error.to_string())
    };
    assert_eq!(at("next", "", ""), Ok(two.clone()));
    assert_eq!(at("next", "HEAD", "/x/"), Ok(two.clone()));
    assert_eq!(at("main", "v1", "x"), Ok(one));
    assert_eq!(at("main", &two, "x"), Ok(two));
    assert!(at("gone", "", "").unwrap_err().contains("no branch \"gone\""));
    assert!(at("main", "v2", "").unwrap_err().contains("\"v2\""));
    assert!(at("main", "", "y").unwrap_err().contains("\"y\""));
    assert!(at("main", "", "x/a.yaml").unwrap_err().contains("not a folder"));
    assert!(at("main", "", "../x").unwrap_err().contains("leaves"));
}

#[test]
fn unsupported_source_is_refused_with_its_name() {
    let auth = |auth| Git {
        auth,
        ..git("https://example.com/x")
    };
    assert!(
        Request::new(&auth(GitAuth::GcpServiceAccount), None)
            .unwrap_err()
            .to_string()
            .contains("gcpserviceaccount")
    );
    assert!(Request::new(&auth(GitAuth::Token), None).is_ok());
    let proxy = Git {
        proxy: Some("http://p".into()),
        ..git("https://example.com/x")
    };
    assert!(Request::new(&proxy, None).is_err());
    let ftp = open(&git("ftp://example.com/x"), None);
    assert!(ftp.is_err());
}

#[test]
fn password_in_an_address_is_never_shown() {
    let request = Request::new(&git("https://user:secret@example.com/x"), None).unwrap();
    assert_eq!(request.shown(), "https://example.com/x");
    let error = open(&git("/no/such/repository"), None).unwrap_err().to_string();
    assert!(error.contains("/no/such/repository"));
    for bad in [
        "https://user:s3cret@[bad/x",
        "https://user:s3cret@exa mple.com/x",
        "https://user:s3cret@example.com:port/x",
        "ssh://user:s3cret@-bad/x",
        "odd://user:s3cret@example.com/x",
    ] {
        let error = open(&git(bad), None).unwrap_err().to_string();
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[test]
fn commit_over_its_size_limit_is_refused() {
    let repository = Repository::new().unwrap();
    let large = Content::File(vec![b'#'; usize::try_from(MAX_FILE).unwrap()]);
    let files = [("a.yaml", large.clone()), ("b.yaml", large)];
    repository.commit("main", &files).unwrap();
    let error = open(&git(&repository.url()), None).unwrap_err().to_string();
    assert!(error.contains("bytes in all"), "{error}");
}

#[test]
fn trees_that_multiply_are_refused_at_their_limits() {
    let repository = Repository::new().unwrap();
    for name in ["a.yaml", "a.txt"] {
        let layers = Content::Folders(6, name.into());
        repository.commit("main", &[("f", layers)]).unwrap();
        let error = open(&git(&repository.url()), None).unwrap_err().to_string();
        assert!(error.contains("more than 250000 files"), "{name}: {error}");
    }
    let files = [
        ("good.yaml", Content::from("a: 1")),
        ("link.yaml", Content::Link("x".repeat(10_000))),
        (&*format!("{}.yaml", "n".repeat(300)), Content::from("a: 1")),
        ("few", Content::Folders(2, "a.yaml".into())),
    ];
    repository.commit("main", &files).unwrap();
    let read = open(&git(&repository.url()), None).unwrap().files.unwrap();
    assert_eq!(read.files.len(), 101);
    let reasons: Vec<&str> = read
        .problems
        .iter()
        .map(|problem| problem.reason.as_str())
        .collect();
    assert_eq!(
        reasons,
        [
            "the link has 10000 bytes, the limit is 4096",
            "a name in it has more than 255 bytes"
        ]
    );
}

/// A server that has a tag, then only a tag with a longer name, then a branch of the first name.
#[tokio::test(flavor = "multi_thread")]
async fn revision_that_vanished_is_an_error() {
    use writ_testenv::git_http::{self, Access};
    let repository = Repository::new().unwrap();
    let one = repository.commit("main", &[("a.yaml", "a: 1")]).unwrap();
    let two = repository.commit("next", &[("a.yaml", "a: 2")]).unwrap();
    repository.tag("v1", &one).unwrap();
    repository.tag("v10", &two).unwrap();
    let folder = repository.path().to_owned();
    let served = git_http::serve(folder.parent().unwrap().into(), Access::default())
        .await
        .unwrap();
    let name = folder.file_name().unwrap().to_string_lossy();
    let at_v1 = Git {
        revision: Some("v1".into()),
        ..git(&format!("{}/{name}", served.url))
    };
    let clone = tempfile::tempdir().unwrap();
    let fetch = async || {
        let (git, clone) = (at_v1.clone(), clone.path().join("clone"));
        tokio::task::spawn_blocking(move || {
            let request = Request::new(&git, None).unwrap();
            read(&request, &Credentials::default(), &clone, None, &budget())
                .map(|snapshot| snapshot.commit)
                .map_err(|error| error.to_string())
        })
        .await
        .unwrap()
    };
    assert_eq!(fetch().await, Ok(one));
    std::fs::remove_file(folder.join("refs/tags/v1")).unwrap();
    let error = fetch().await.unwrap_err();
    assert!(error.contains("no tag, branch or commit \"v1\""), "{error}");
    let three = repository.commit("v1", &[("a.yaml", "a: 3")]).unwrap();
    assert_eq!(fetch().await, Ok(three));
}
