//! A repository behind a real `sshd`: the key, the host that is trusted, and the host that is not.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::{
    fs,
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use writ_api::configsync::{Git, GitAuth};
use writ_fleet::git::Repository;
use writ_sync::{
    model::SyncKind,
    reconciler::source::{self, Budget, Credentials, MemoryPool, Request},
};
use writ_testenv::harness;

/// Where distributions put a program that is not for everybody.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin"];

fn main() {
    let program = FOLDERS
        .iter()
        .map(|folder| Path::new(folder).join("sshd"))
        .find(|path| path.exists());
    // The whole check installs it.
    let ignored = program.is_none() && !harness::real_required();
    if ignored {
        eprintln!("a_repository_behind_a_real_sshd: there is no sshd; install openssh-server");
    }
    let test = harness::plain("a_repository_behind_a_real_sshd", "sshd", || async move {
        fetched(&program.context("there is no sshd")?)
    });
    harness::run(vec![test.with_ignored_flag(ignored)]);
}

/// A server on a port of its own, with a key of its own, for one user; it ends with this.
struct Server {
    process: Child,
    port: u16,
    folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// Another program may take the free port first; then another port is tried.
    fn start(program: &Path) -> Result<Self> {
        for _ in 0..5 {
            if let Some(server) = Self::try_start(program)? {
                return Ok(server);
            }
        }
        bail!("sshd ends again and again")
    }

    /// Nothing if it ended before it listened.
    fn try_start(program: &Path) -> Result<Option<Self>> {
        let folder = TempDir::new()?;
        let at = |name: &str| folder.path().join(name);
        for name in ["host", "user"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(at(name))
                .status()?;
            ensure!(made.success(), "ssh-keygen failed");
        }
        fs::copy(at("user.pub"), at("authorized_keys"))?;
        // Of root's server only: a folder that the system makes when its own one starts.
        let _ = fs::create_dir_all("/run/sshd");
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let path = folder.path().display();
        let config = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {path}/host\nAuthorizedKeysFile {path}/authorized_keys\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nAcceptEnv GIT_PROTOCOL\n"
        );
        fs::write(at("config"), config)?;
        let process = Command::new(program)
            .args(["-D", "-e", "-f"])
            .arg(at("config"))
            .stderr(Stdio::null())
            .spawn()
            .context("start sshd")?;
        let mut server = Self {
            process,
            port,
            folder,
        };
        let started = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if server.process.try_wait()?.is_some() {
                return Ok(None);
            }
            ensure!(
                started.elapsed() < Duration::from_secs(20),
                "sshd does not listen"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        // The answer may have come from the program that took the port.
        Ok(server.process.try_wait()?.is_none().then_some(server))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn known_hosts(&self, key: &str) -> Result<Vec<u8>> {
        let key = fs::read_to_string(self.file(key))?;
        Ok(format!("[127.0.0.1]:{} {key}", self.port).into_bytes())
    }
}

fn fetched(program: &Path) -> Result<()> {
    let server = Server::start(program)?;
    let user = Command::new("id").arg("-un").output()?.stdout;
    let user = String::from_utf8(user)?.trim().to_owned();
    let repository = Repository::new()?;
    let commit = repository.commit("main", &[("a.yaml", "a: 1")])?;
    let clones = TempDir::new()?;
    let request = Request::new(
        &Git {
            repo: format!(
                "ssh://{user}@127.0.0.1:{}{}",
                server.port,
                repository.path().display()
            ),
            branch: Some("main".into()),
            auth: GitAuth::Ssh,
            ..Git::default()
        },
        None,
    )?;
    let fetch = |key: &str, host: Option<&str>| -> Result<source::Snapshot> {
        let credentials = Credentials {
            ssh_key: Some(fs::read(server.file(key))?),
            known_hosts: host.map(|host| server.known_hosts(host)).transpose()?,
            ..Credentials::default()
        };
        let budget = Budget::new(MemoryPool::default(), SyncKind::Root);
        let clone = clones.path().join("clone");
        Ok(source::read(&request, &credentials, &clone, None, &budget)?)
    };
    for host in [Some("host.pub"), None] {
        let snapshot = fetch("user", host)?;
        ensure!(snapshot.commit == commit);
        ensure!(snapshot.files.context("no files")?.files.len() == 1);
    }
    // What changed is brought to the clone that is there.
    let next = repository.commit("main", &[("a.yaml", "a: 2"), ("b.yaml", "b: 1")])?;
    ensure!(fetch("user", Some("host.pub"))?.commit == next);
    let error = fetch("user", Some("user.pub"))
        .err()
        .context("a host that is not trusted")?;
    ensure!(
        format!("{error:#}").contains("Host key verification failed"),
        "{error:#}"
    );
    let error = fetch("host", Some("host.pub"))
        .err()
        .context("a key that is not known")?;
    ensure!(format!("{error:#}").contains("Permission denied"), "{error:#}");
    Ok(())
}
