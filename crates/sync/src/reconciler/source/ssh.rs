//! Git over the system's `ssh`. Whatever the server does, the program is killed in time.

use std::{
    io::{self, Read, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use gix_transport::{
    Protocol,
    client::git::{ConnectMode, blocking_io::Connection},
};

use super::model::{Bounds, Credentials};

/// The bytes kept of the error output of `ssh`.
const MAX_ERROR_OUTPUT: u64 = 4096;
/// The wait for the error output of a program that was killed.
const ERROR_OUTPUT_WITHIN: Duration = Duration::from_secs(1);

/// The path of the program `ssh`.
pub fn find() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join("ssh"))
        .find(|program| program.is_file())
        .ok_or_else(|| "the program `ssh` is not installed here; use an https address".to_owned())
}

/// A connection to a repository.
pub type Transport = Connection<Bounded, ChildStdin>;

/// A running `ssh`. It is killed when this value is dropped, or when its time is over.
pub struct Session {
    child: Arc<Mutex<Child>>,
    too_slow: Arc<AtomicBool>,
    error_output: mpsc::Receiver<String>,
    /// Ends the watchdog when it is dropped.
    _done: mpsc::Sender<()>,
    _files: Files,
}

impl Session {
    /// Starts the program and connects to its output. A fault of the sync is reported before one of this machine.
    pub fn start(
        program: &dyn Fn() -> Result<PathBuf, String>,
        credentials: &Credentials,
        url: &gix::Url,
        bounds: Bounds,
    ) -> Result<(Self, Transport), String> {
        let files = Files::write(credentials)?;
        let mut command = Command::new(program()?);
        command
            .args(files.arguments())
            .args(destination(url)?)
            .env("GIT_PROTOCOL", "version=2")
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("start ssh: {error}"))?;
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("ssh has no input or output".into());
        };
        let (sender, error_output) = mpsc::channel();
        spawn("ssh-errors", move || {
            let mut kept = Vec::new();
            let mut errors = errors;
            let _ = (&mut errors).take(MAX_ERROR_OUTPUT).read_to_end(&mut kept);
            // The rest is discarded, so that the program never blocks on a full pipe.
            let _ = io::copy(&mut errors, &mut io::sink());
            let _ = sender.send(String::from_utf8_lossy(&kept).into_owned());
        })?;
        let child = Arc::new(Mutex::new(child));
        let too_slow = Arc::new(AtomicBool::new(false));
        let (done, over) = mpsc::channel::<()>();
        spawn("ssh-watchdog", {
            let (child, too_slow) = (child.clone(), too_slow.clone());
            move || {
                if over.recv_timeout(bounds.whole) == Err(mpsc::RecvTimeoutError::Timeout) {
                    too_slow.store(true, Ordering::SeqCst);
                    end(&child);
                }
            }
        })?;
        let reader = Bounded {
            output,
            received: 0,
            limit: bounds.answer,
            too_slow: too_slow.clone(),
        };
        let transport = Connection::new(
            reader,
            input,
            Protocol::V2,
            url.path.clone(),
            None::<(String, Option<u16>)>,
            ConnectMode::Process,
            false,
        )
        .custom_url(Some(url.to_bstring()));
        let session = Self {
            child,
            too_slow,
            error_output,
            _done: done,
            _files: files,
        };
        Ok((session, transport))
    }

    /// Kills the program and returns its error output.
    pub fn end(&self) -> Option<String> {
        end(&self.child);
        if self.too_slow.load(Ordering::SeqCst) {
            return Some("the server is too slow".into());
        }
        let error_output = self.error_output.recv_timeout(ERROR_OUTPUT_WITHIN).ok()?;
        let lines: Vec<String> = error_output
            .lines()
            .map(|line| line.chars().filter(|c| !c.is_control()).collect::<String>())
            .filter(|line| !line.trim().is_empty() && !line.starts_with("Warning: Permanently added"))
            .collect();
        (!lines.is_empty()).then(|| format!("ssh: {}", lines.join("; ")))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        end(&self.child);
    }
}

fn end(child: &Mutex<Child>) {
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = child.kill();
    let _ = child.wait();
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), String> {
    std::thread::Builder::new()
        .name(name.into())
        .stack_size(128 * 1024)
        .spawn(run)
        .map(drop)
        .map_err(|error| format!("start a thread: {error}"))
}

/// The output of the program, up to a limit.
pub struct Bounded {
    output: ChildStdout,
    received: u64,
    limit: u64,
    too_slow: Arc<AtomicBool>,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.output.read(buffer)?;
        if count == 0 && self.too_slow.load(Ordering::SeqCst) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the server is too slow"));
        }
        self.received += u64::try_from(count).unwrap_or(u64::MAX);
        if self.received > self.limit {
            return Err(io::Error::other(format!(
                "the server sends more than {} bytes",
                self.limit
            )));
        }
        Ok(count)
    }
}

/// The arguments for the host and the remote command. No part of an address can become an option or a second command.
fn destination(url: &gix::Url) -> Result<Vec<String>, String> {
    let host = url.host().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| "the address has no host".to_owned())?;
    let user = url.user().filter(|user| !user.is_empty());
    if host.starts_with('-') || user.is_some_and(|user| user.starts_with('-')) {
        return Err("the address begins with a dash".into());
    }
    let path = url.path.to_string();
    // `ssh://host/~user/x` is a path in the home of that user; it is sent without the slash.
    let path = path
        .strip_prefix('/')
        .filter(|rest| rest.starts_with('~'))
        .unwrap_or(&path);
    if path.trim_start().starts_with('-') {
        return Err("the path of the repository begins with a dash".into());
    }
    let mut arguments = Vec::new();
    if let Some(port) = url.port {
        arguments.extend(["-p".to_owned(), port.to_string()]);
    }
    arguments.push(user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}")));
    let quoted = path.replace('\'', r"'\''").replace('!', r"'\!'");
    arguments.push(format!("git-upload-pack '{quoted}'"));
    Ok(arguments)
}

/// The key and the known hosts, in files that only this user can read. They are removed when this value is dropped.
struct Files {
    folder: tempfile::TempDir,
    known_hosts: bool,
}

impl Files {
    fn write(credentials: &Credentials) -> Result<Self, String> {
        let Some(key) = &credentials.ssh_key else {
            return Err("an address of ssh needs spec.git.auth ssh and a Secret with the key `ssh`".into());
        };
        let folder = tempfile::Builder::new()
            .prefix("writ-ssh-")
            .tempdir()
            .map_err(|error| format!("make a folder for the key: {error}"))?;
        let save = |name: &str, content: &[u8]| -> io::Result<()> {
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

    fn arguments(&self) -> Vec<String> {
        let folder = self.folder.path().display();
        let (check, hosts) = if self.known_hosts {
            ("yes", format!("{folder}/known_hosts"))
        } else {
            // Config Sync does the same without `known_hosts` in the Secret.
            ("no", "/dev/null".to_owned())
        };
        let options = [
            format!("StrictHostKeyChecking={check}"),
            format!("UserKnownHostsFile={hosts}"),
            "IdentitiesOnly=yes".to_owned(),
            "BatchMode=yes".to_owned(),
            "ConnectTimeout=15".to_owned(),
            "ServerAliveInterval=15".to_owned(),
            "ServerAliveCountMax=2".to_owned(),
            "SendEnv=GIT_PROTOCOL".to_owned(),
        ];
        let mut arguments = vec!["-F".to_owned(), "/dev/null".to_owned()];
        arguments.extend(["-i".to_owned(), format!("{folder}/key")]);
        arguments.extend(options.into_iter().flat_map(|option| ["-o".to_owned(), option]));
        arguments
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt as _, time::Instant};

    use super::*;

    fn url(text: &str) -> gix::Url {
        gix::url::parse(text.as_bytes()).unwrap()
    }

    /// A program in place of `ssh`.
    fn program(script: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ssh");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        (folder, path)
    }

    fn credentials() -> Credentials {
        Credentials {
            ssh_key: Some(b"the key".to_vec()),
            ..Credentials::default()
        }
    }

    fn start(script: &str, bounds: Bounds) -> (tempfile::TempDir, Session, Transport) {
        let (folder, program) = program(script);
        let to = url("ssh://git@example.com/x.git");
        let (session, transport) =
            Session::start(&|| Ok(program.clone()), &credentials(), &to, bounds).unwrap();
        (folder, session, transport)
    }

    const SECONDS: Bounds = Bounds {
        whole: Duration::from_secs(20),
        answer: 1 << 20,
        object: 1 << 20,
    };

    #[test]
    fn silent_server_is_cut_off_in_time() {
        let bounds = Bounds {
            whole: Duration::from_millis(300),
            ..SECONDS
        };
        let started = Instant::now();
        let (_folder, session, transport) = start("exec sleep 600", bounds);
        let (mut reader, _writer) = transport.into_inner();
        let error = reader.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(session.end().as_deref(), Some("the server is too slow"));
        assert!(started.elapsed() < Duration::from_secs(15));
    }

    #[test]
    fn endless_response_is_cut_off_at_its_limit() {
        let (_folder, _session, transport) = start("exec cat /dev/zero", SECONDS);
        let (mut reader, _writer) = transport.into_inner();
        let mut read = Vec::new();
        let error = reader.read_to_end(&mut read).unwrap_err();
        assert!(error.to_string().contains("more than 1048576 bytes"), "{error}");
        assert!(read.len() <= 1 << 20);
    }

    #[test]
    fn program_is_killed_with_its_session() {
        let (folder, session, _transport) =
            start(r#"echo $$ > "$(dirname "$0")/pid"; exec sleep 600"#, SECONDS);
        let pid = folder.path().join("pid");
        let started = Instant::now();
        while std::fs::read_to_string(&pid)
            .unwrap_or_default()
            .trim()
            .is_empty()
        {
            assert!(started.elapsed() < Duration::from_secs(15));
            std::thread::yield_now();
        }
        let pid = std::fs::read_to_string(&pid).unwrap();
        let process = PathBuf::from(format!("/proc/{}", pid.trim()));
        assert!(process.exists());
        drop(session);
        assert!(!process.exists());
    }

    #[test]
    fn error_output_of_ssh_is_reported_up_to_a_limit() {
        let script =
            "echo 'Warning: Permanently added x' >&2; echo 'Permission denied (publickey).' >&2; exit 255";
        let (_folder, session, transport) = start(script, SECONDS);
        let (mut reader, _writer) = transport.into_inner();
        reader.read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(
            session.end().as_deref(),
            Some("ssh: Permission denied (publickey).")
        );
        // A long error output neither blocks the program nor is kept in full.
        let script = "head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1";
        let (_folder, session, transport) = start(script, SECONDS);
        let (mut reader, _writer) = transport.into_inner();
        reader.read_to_end(&mut Vec::new()).unwrap();
        assert!(session.end().unwrap().len() <= 4200);
    }

    #[test]
    fn address_with_odd_parts_becomes_no_option_and_no_command() {
        let to = |text: &str| destination(&url(text));
        assert_eq!(
            to("ssh://git@example.com:2222/team/x.git").unwrap(),
            ["-p", "2222", "git@example.com", "git-upload-pack '/team/x.git'"]
        );
        assert_eq!(
            to("git@example.com:team/x.git").unwrap(),
            ["git@example.com", "git-upload-pack 'team/x.git'"]
        );
        assert_eq!(
            to("ssh://example.com/~me/x").unwrap().last().unwrap(),
            "git-upload-pack '~me/x'"
        );
        let mut odd = url("ssh://example.com/x");
        odd.path = "/x'; rm -rf /'".into();
        assert_eq!(
            destination(&odd).unwrap().last().unwrap(),
            r"git-upload-pack '/x'\''; rm -rf /'\'''"
        );
        for bad in ["ssh://-oProxyCommand=x@example.com/y", "git@example.com:-x"] {
            assert!(
                gix::url::parse(bad.as_bytes()).is_err() || to(bad).is_err(),
                "{bad}"
            );
        }
        assert!(Files::write(&Credentials::default()).is_err());
    }

    /// A program in place of `ssh` that runs Git as the server would.
    #[test]
    fn repository_is_fetched_again_after_it_was_too_large() {
        use writ_fleet::git::{Content, Repository};
        let repository = Repository::new().unwrap();
        let small = || ("a.yaml", Content::from("a: 1"));
        let commit = repository.commit("main", &[small()]).unwrap();
        let (_folder, program) = program("for last; do :; done\nexec sh -c \"$last\"");
        let clone = tempfile::tempdir().unwrap();
        let to = url(&format!("ssh://git@example.com{}", repository.path().display()));
        let git = writ_api::configsync::Git {
            repo: to.to_bstring().to_string(),
            branch: Some("main".into()),
            auth: writ_api::configsync::GitAuth::Ssh,
            ..writ_api::configsync::Git::default()
        };
        let request = super::super::Request::new(&git, None).unwrap();
        let fetch =
            || super::super::remote::fetch_by_ssh(&program, SECONDS, &request, &credentials(), clone.path());
        let (fetched, found) = fetch().unwrap();
        assert_eq!(found.to_string(), commit);
        assert!(
            super::super::tree::read(&fetched, found, &request, &super::super::tests::budget())
                .unwrap()
                .problems
                .is_empty()
        );
        // A file that is small when compressed and too large when unpacked. Once it is removed, the fetch succeeds.
        let large = ("b.bin", Content::File(vec![0; 3 << 20]));
        repository.commit("main", &[small(), large]).unwrap();
        let error = fetch().map(drop).unwrap_err().to_string();
        assert!(error.contains("too large to fit in memory: a file"), "{error}");
        let right = repository.commit("main", &[small()]).unwrap();
        assert_eq!(fetch().unwrap().1.to_string(), right);
        // A clone that has grown too large is cloned again.
        let pack = clone.path().join("objects/pack/pack-0.pack");
        let grown = std::fs::File::create(&pack).unwrap();
        grown.set_len(3 << 20).unwrap();
        assert_eq!(fetch().unwrap().1.to_string(), right);
        assert!(!pack.exists());
    }
}
