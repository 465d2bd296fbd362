//! What `writ up` and `writ get` cost a person: start to ready, memory, and the time of a command.
//!
//! It starts the program that lies next to it: build both first, with `cargo build --release -p writ -p writ-bench`.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

/// The limits.
const START_SMALL: Duration = Duration::from_secs(1);
const START_LARGE: Duration = Duration::from_secs(10);
const MEMORY_LARGE: u64 = 1024 * 1024 * 1024;
const GET: Duration = Duration::from_millis(50);

const LARGE: usize = 200;
const STARTS: usize = 5;
const GETS: usize = 21;

fn main() -> Result<ExitCode> {
    let program = std::env::current_exe()?.with_file_name("writ");
    ensure!(
        program.exists(),
        "there is no {}; build it first: cargo build --release -p writ",
        program.display()
    );
    let mut limits = Limits::default();

    let mut starts = Vec::new();
    for _ in 0..STARTS {
        starts.push(Up::start(&program, 2)?.took);
    }
    limits.time(
        "start to ready, 2 clusters (median of 5)",
        median(&mut starts),
        START_SMALL,
    );

    let small = Up::start(&program, 2)?;
    // The baseline of the same run: what starting the program costs, without asking anybody.
    let mut empty = times(|| small.run(&program, &["version"]))?;
    let mut gets = times(|| small.run(&program, &["get", "clusters"]))?;
    println!(
        "{:<44} {:>8.1} ms",
        "writ version (median of 21)",
        ms(median(&mut empty))
    );
    limits.time("writ get clusters (median of 21)", median(&mut gets), GET);
    println!("{:<44} {:>8.1} MiB", "memory, 2 clusters", mib(small.memory()?));
    drop(small);

    let large = Up::start(&program, LARGE)?;
    limits.time("start to ready, 200 clusters", large.took, START_LARGE);
    // After what the start left to do: reports, first renewals.
    std::thread::sleep(Duration::from_secs(10));
    limits.memory("memory, 200 clusters with agents and syncs", large.memory()?);
    Ok(limits.verdict())
}

/// A running `writ up`.
struct Up {
    child: Child,
    kubeconfig: PathBuf,
    took: Duration,
}

impl Up {
    fn start(program: &Path, clusters: usize) -> Result<Self> {
        let started = Instant::now();
        let mut child = Command::new(program)
            .args(["up", "--clusters", &clusters.to_string()])
            .env("WRIT_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let (mut took, mut kubeconfig) = (None, None);
        for line in lines.by_ref() {
            let line = line?;
            if line.starts_with("ready after") {
                took = Some(started.elapsed());
            }
            if let Some(file) = line.strip_prefix("export KUBECONFIG=") {
                kubeconfig = Some(PathBuf::from(file));
                break;
            }
        }
        // Somebody has to read the live picture, or the program would wait for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            child,
            kubeconfig: kubeconfig.context("it ended before it was ready")?,
            took: took.context("it was never ready")?,
        })
    }

    fn run(&self, program: &Path, args: &[&str]) -> Result<()> {
        let status = Command::new(program)
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success(), "writ {args:?} ended with {status}");
        Ok(())
    }

    /// Resident memory, in bytes.
    fn memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: u64 = line
            .and_then(|line| line.split_whitespace().next()?.parse().ok())
            .context("no VmRSS")?;
        Ok(kib * 1024)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Default)]
struct Limits {
    broken: bool,
}

impl Limits {
    fn time(&mut self, what: &str, took: Duration, limit: Duration) {
        println!("{what:<44} {:>8.1} ms   limit {:>8.0} ms", ms(took), ms(limit));
        self.broken |= took > limit;
    }

    fn memory(&mut self, what: &str, bytes: u64) {
        println!(
            "{what:<44} {:>8.1} MiB  limit {:>8.0} MiB",
            mib(bytes),
            mib(MEMORY_LARGE)
        );
        self.broken |= bytes > MEMORY_LARGE;
    }

    fn verdict(&self) -> ExitCode {
        if self.broken {
            eprintln!("a limit is broken");
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }
}

fn times(mut run: impl FnMut() -> Result<()>) -> Result<Vec<Duration>> {
    (0..GETS)
        .map(|_| {
            let started = Instant::now();
            run()?;
            Ok(started.elapsed())
        })
        .collect()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0 / 1024.0
}
