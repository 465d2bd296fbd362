//! Fetches from a repository that is not on this machine into a bare clone.

use std::{io::Write as _, num::NonZeroU32, path::Path, sync::atomic::AtomicBool};

use gix::{ObjectId, Repository, progress::Discard, remote::Direction};
use gix_transport::{
    Protocol,
    client::{TransportWithoutIO as _, blocking_io},
};

use super::{Credentials, Request, SourceError, Target, http, last_cause, resolve};

/// A clone with more packs than this is made anew: every fetch adds one.
const MAX_PACKS: usize = 50;

/// Brings the clone up to date and returns the commit.
pub fn fetch(
    request: &Request,
    credentials: &Credentials,
    clone: &Path,
) -> Result<(Repository, ObjectId), SourceError> {
    let repository = open(clone).map_err(|reason| request.failed(reason))?;
    let url = gix::url::parse(request.repo.as_bytes()).map_err(|error| request.failed(last_cause(&error)))?;
    let specs = match &request.target {
        Target::Branch(name) => vec![format!("+refs/heads/{name}:refs/heads/{name}")],
        // A tag or a branch is asked for by name; a commit may be anywhere.
        Target::Revision(name) if ObjectId::from_hex(name.as_bytes()).is_err() => vec![
            format!("+refs/tags/{name}*:refs/tags/{name}*"),
            format!("+refs/heads/{name}*:refs/heads/{name}*"),
        ],
        Target::Revision(name) => {
            if let Ok(id) = resolve(&repository, request) {
                // A commit never changes.
                return Ok((repository, id));
            }
            let _ = name;
            vec![
                "+refs/heads/*:refs/heads/*".to_owned(),
                "+refs/tags/*:refs/tags/*".to_owned(),
            ]
        }
    };
    let by_commit =
        matches!(&request.target, Target::Revision(name) if ObjectId::from_hex(name.as_bytes()).is_ok());
    let depth = request.depth.filter(|_| !by_commit).and_then(NonZeroU32::new);
    match url.scheme {
        gix::url::Scheme::Https | gix::url::Scheme::Http => {
            let client = http::Client::new(credentials.ca.as_deref(), request.no_verify)
                .map_err(|reason| request.failed(reason))?;
            let mut transport = blocking_io::http::connect_http(client, url.clone(), Protocol::V2, false);
            if !credentials.token.is_empty() {
                transport
                    .set_identity(gix::sec::identity::Account {
                        username: credentials.username.clone(),
                        password: credentials.token.clone(),
                        oauth_refresh_token: None,
                    })
                    .map_err(|error| request.failed(last_cause(&error)))?;
            }
            receive(&repository, request, &url, &specs, depth, transport)?;
        }
        gix::url::Scheme::Ssh => {
            let files = SshFiles::write(credentials).map_err(|reason| request.failed(reason))?;
            let options = blocking_io::ssh::connect::Options {
                command: Some(files.command().into()),
                disallow_shell: false,
                kind: Some(blocking_io::ssh::ProgramKind::Ssh),
            };
            let transport = blocking_io::ssh::connect(url.clone(), Protocol::V2, options, false)
                .map_err(|error| request.failed(last_cause(&error)))?;
            receive(&repository, request, &url, &specs, depth, transport)?;
        }
        other => {
            return Err(SourceError::Unsupported(format!(
                "addresses that start with {}: are not supported: use https, ssh or a local folder",
                other.as_str()
            )));
        }
    }
    // What was fetched is read by a fresh handle.
    let repository = open(clone).map_err(|reason| request.failed(reason))?;
    let commit = resolve(&repository, request)?;
    Ok((repository, commit))
}

fn receive<T: blocking_io::Transport>(
    repository: &Repository,
    request: &Request,
    url: &gix::Url,
    specs: &[String],
    depth: Option<NonZeroU32>,
    transport: T,
) -> Result<(), SourceError> {
    let fail = |error: gix::error::Error| request.failed(last_cause(&error));
    let remote = repository
        .remote_at_without_url_rewrite(url.clone())
        .and_then(|remote| {
            remote
                .with_fetch_tags(gix::remote::fetch::Tags::None)
                .with_refspecs(
                    specs.iter().map(String::as_bytes).map(gix::bstr::BStr::new),
                    Direction::Fetch,
                )
        })
        .map_err(fail)?;
    let connection = remote
        .to_connection_with_transport(transport)
        // Credentials come from the Secret, never from helpers or a prompt of this machine.
        .with_credentials(|_| Ok(None));
    let mut prepared = connection
        .prepare_fetch(Discard, gix::remote::ref_map::Options::default())
        .map_err(fail)?;
    if prepared.ref_map().mappings.is_empty() {
        return Err(SourceError::Revision {
            repo: request.shown(),
            what: request.target.describe(),
        });
    }
    if unchanged(repository, prepared.ref_map()) {
        return Ok(());
    }
    if let Some(depth) = depth {
        prepared = prepared.with_shallow(gix::remote::fetch::Shallow::DepthAtRemote(depth));
    }
    prepared.receive(Discard, &AtomicBool::new(false)).map_err(fail)?;
    Ok(())
}

/// Whether everything that the server offers is here already: a shallow fetch would bring it again.
fn unchanged(repository: &Repository, offered: &gix::remote::fetch::RefMap) -> bool {
    offered.mappings.iter().all(|mapping| {
        let (Some(id), Some(local)) = (mapping.remote.as_id(), mapping.local.as_ref()) else {
            return false;
        };
        let here = repository
            .try_find_reference(local)
            .ok()
            .flatten()
            .and_then(|reference| reference.try_id().map(gix::Id::detach));
        here.is_some_and(|here| here.as_ref() == id && repository.has_object(here))
    })
}

fn open(clone: &Path) -> Result<Repository, String> {
    let packs = std::fs::read_dir(clone.join("objects/pack"))
        .map(|entries| {
            entries
                .flatten()
                .filter(|e| e.path().extension().is_some_and(|x| x == "pack"))
                .count()
        })
        .unwrap_or_default();
    if packs > MAX_PACKS {
        std::fs::remove_dir_all(clone).map_err(|error| format!("clear the clone: {error}"))?;
    }
    let options = || gix::open::Options::isolated().with(gix::sec::Trust::Full);
    if let Ok(repository) = gix::open_opts(clone, options()) {
        return Ok(repository);
    }
    // Absent, or broken by a crash: either way a new one is right.
    if clone.exists() {
        std::fs::remove_dir_all(clone).map_err(|error| format!("clear the clone: {error}"))?;
    }
    std::fs::create_dir_all(clone).map_err(|error| format!("make the clone: {error}"))?;
    gix::init_bare(clone).map_err(|error| last_cause(&error))?;
    gix::open_opts(clone, options()).map_err(|error| last_cause(&error))
}

/// The key and the known hosts, in files that only this process can read and that go with this value.
struct SshFiles {
    folder: tempfile::TempDir,
    known_hosts: bool,
}

impl SshFiles {
    fn write(credentials: &Credentials) -> Result<Self, String> {
        let Some(key) = &credentials.ssh_key else {
            return Err("an address of ssh needs spec.git.auth ssh and a Secret with the key `ssh`".into());
        };
        let found = std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("ssh").is_file()));
        if !found {
            return Err("the program `ssh` is not installed here; use an https address".into());
        }
        let folder = tempfile::Builder::new()
            .prefix("writ-ssh-")
            .tempdir()
            .map_err(|error| format!("make a folder for the key: {error}"))?;
        let save = |name: &str, content: &[u8]| -> std::io::Result<()> {
            use std::os::unix::fs::OpenOptionsExt as _;
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(folder.path().join(name))?;
            file.write_all(content)?;
            if !content.ends_with(b"\n") {
                file.write_all(b"\n")?;
            }
            Ok(())
        };
        save("key", key).map_err(|error| format!("save the key: {error}"))?;
        if let Some(hosts) = &credentials.known_hosts {
            save("known_hosts", hosts).map_err(|error| format!("save the known hosts: {error}"))?;
        }
        Ok(Self {
            known_hosts: credentials.known_hosts.is_some(),
            folder,
        })
    }

    fn command(&self) -> String {
        let folder = self.folder.path().display();
        let hosts = if self.known_hosts {
            format!("-o StrictHostKeyChecking=yes -o UserKnownHostsFile={folder}/known_hosts")
        } else {
            // As upstream does without `known_hosts` in the Secret.
            "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null".to_owned()
        };
        format!(
            "ssh -F /dev/null -i {folder}/key -o IdentitiesOnly=yes -o BatchMode=yes -o ConnectTimeout=15 {hosts}"
        )
    }
}
