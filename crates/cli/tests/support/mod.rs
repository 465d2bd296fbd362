//! What the tests of the binary share: a fleet of `writ up`, as a person starts it.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

/// The binary.
pub const WRIT: &str = env!("CARGO_BIN_EXE_writ");

/// The one that is an agent and nothing else.
pub const WRIT_AGENT: &str = env!("CARGO_BIN_EXE_writ-agent");

/// A running `writ up`.
pub struct Up {
    child: Child,
    /// The kubeconfig that it printed.
    pub kubeconfig: PathBuf,
    /// What it said until it was ready.
    pub greeting: String,
    output: std::sync::mpsc::Receiver<String>,
    seen: Vec<String>,
    log: fs::File,
    /// What it leaves behind when it is killed.
    scratch: TempDir,
}

impl Up {
    /// Starts it with these arguments and waits until it says that it is ready.
    pub fn start(args: &[&str]) -> Result<Self> {
        let (log, scratch) = (tempfile::tempfile()?, tempfile::tempdir()?);
        let mut child = Command::new(WRIT)
            .arg("up")
            .args(args)
            .env("WRIT_LOG", "warn")
            .env("TMPDIR", scratch.path())
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.try_clone()?)
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let (send, output) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let (mut greeting, mut kubeconfig) = (String::new(), None);
        let started = Instant::now();
        loop {
            let left = Duration::from_mins(3).saturating_sub(started.elapsed());
            let Ok(line) = output.recv_timeout(left) else {
                let _ = child.kill();
                bail!("writ up {args:?} was not ready: {greeting}");
            };
            if let Some(file) = line.strip_prefix("export KUBECONFIG=") {
                kubeconfig = Some(PathBuf::from(file));
            }
            let last = line.starts_with("Ctrl-C");
            greeting.push_str(&line);
            greeting.push('\n');
            if last {
                break;
            }
        }
        Ok(Self {
            child,
            kubeconfig: kubeconfig.context("no export line")?,
            greeting,
            output,
            seen: Vec::new(),
            log,
            scratch,
        })
    }

    /// Waits for a line of the live picture, or finds one that came before.
    pub fn line(&mut self, wanted: &str) -> Result<String> {
        let started = Instant::now();
        loop {
            if let Some(line) = self.seen.iter().find(|line| line.contains(wanted)) {
                return Ok(line.clone());
            }
            if started.elapsed() > Duration::from_mins(1) {
                bail!("no line with {wanted:?} in:\n{}", self.seen.join("\n"));
            }
            self.seen.extend(self.output.recv_timeout(Duration::from_secs(1)));
        }
    }

    /// What it logged so far: warnings and errors.
    pub fn log(&self) -> Result<String> {
        use std::os::unix::fs::FileExt as _;
        // Without moving its end, where the process writes on.
        let length = usize::try_from(self.log.metadata()?.len())?;
        let mut text = vec![0; length];
        self.log.read_exact_at(&mut text, 0)?;
        Ok(String::from_utf8(text)?)
    }

    /// Sends a signal, by name.
    pub fn send(&self, signal: &str) -> Result<()> {
        let sent = Command::new("kill")
            .args([format!("-{signal}"), self.child.id().to_string()])
            .status()?;
        ensure!(sent.success(), "kill -{signal}");
        Ok(())
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Result<Option<std::process::ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Where it keeps what is to go with it.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Sends a signal, by name, and waits for the end.
    pub fn signal(mut self, signal: &str) -> Result<std::process::ExitStatus> {
        self.send(signal)?;
        let started = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            ensure!(
                started.elapsed() < Duration::from_secs(30),
                "it did not stop after {signal}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command answered.
pub struct Output {
    /// Its exit code.
    pub code: i32,
    /// What it printed.
    pub out: String,
    /// What it complained about.
    pub err: String,
}

/// Runs the binary with this kubeconfig.
pub fn writ(kubeconfig: &Path, args: &[&str]) -> Result<Output> {
    let mut command = Command::new(WRIT);
    command
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .env("WRIT_LOG", "warn")
        .stdin(Stdio::null());
    run(&mut command)
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Result<Output> {
    let output = command.output()?;
    Ok(Output {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout)?,
        err: String::from_utf8(output.stderr)?,
    })
}

/// A folder with the binary under this name, for `PATH`.
pub fn named(name: &str) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    std::os::unix::fs::symlink(WRIT, folder.path().join(name))?;
    Ok(folder)
}

/// Reads a file of the repository.
pub fn read(path: &str) -> Result<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&file).with_context(|| file.display().to_string())
}
