//! Child processes that never outlive this one.
//!
//! Each child runs under a small shell that holds the reading end of a pipe. This process holds the writing end: when it
//! ends, however it ends, the kernel closes it, the shell reads the end of file and kills the child.

use std::{
    fs::File,
    io,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
};

use anyhow::Context as _;

use crate::Assets;

/// Starts `"$@"`, waits for its end, and kills it when standard input is closed.
///
/// It ignores the signals that end a whole process group, as it must end last. When the program ends by
/// itself, the killer goes at once: the id may soon belong to another process.
const WATCHDOG: &str = r#"
trap '' TERM INT HUP
exec 3<&0
"$@" </dev/null 3<&- &
child=$!
( while read -r _; do :; done; kill -KILL $child ) <&3 2>/dev/null &
killer=$!
exec 3<&-
wait $child
status=$?
kill -KILL $killer 2>/dev/null
exit $status
"#;

/// A child process that dies with us.
#[derive(Debug)]
pub struct Guarded {
    name: String,
    watchdog: Child,
}

impl Guarded {
    /// Starts `program` with its output appended to `log`.
    pub fn spawn<I, S>(program: &Path, args: I, env: &[(&str, &str)], log: &Path) -> io::Result<Self>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        let out = File::options().create(true).append(true).open(log)?;
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(program)
            .args(args)
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()?;
        let name = program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(Self { name, watchdog })
    }

    /// Starts a program of the control plane, with its log in `folder`.
    pub(crate) fn start(assets: &Assets, folder: &Path, name: &str, args: &[String]) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        Self::spawn(&assets.binary(name), args, &[], &log).with_context(|| format!("start {name}"))
    }

    /// The program's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The exit status of the program, if it has ended.
    pub fn exited(&mut self) -> io::Result<Option<ExitStatus>> {
        self.watchdog.try_wait()
    }

    /// Sends a signal (`STOP`, `CONT`, `TERM`) to the program itself.
    pub fn signal(&self, signal: &str) -> io::Result<()> {
        Command::new("kill")
            .args([format!("-{signal}"), self.id()?.to_string()])
            .status()
            .map(drop)
    }

    /// The id of the program itself, once it runs.
    pub fn id(&self) -> io::Result<u32> {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.watchdog.id()))?;
        // The first child is the program, the second the one that waits for our end.
        let program = children.split_whitespace().next().unwrap_or_default();
        program
            .parse()
            .map_err(|_| io::Error::new(io::ErrorKind::NotFound, format!("{} does not run", self.name)))
    }

    /// Kills the program and waits for its end.
    pub fn stop(&mut self) -> io::Result<()> {
        drop(self.watchdog.stdin.take());
        self.watchdog.wait().map(drop)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // An error cannot be returned from here; the watchdog kills the child even if the wait fails.
        let _ = self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf, thread, time::Duration};

    use super::*;

    fn running(pid: &str) -> bool {
        // A killed process without a waiting parent is a zombie, which counts as gone.
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    fn pid_in(file: &Path) -> String {
        for _ in 0..500 {
            match fs::read_to_string(file) {
                Ok(pid) if pid.ends_with('\n') => return pid.trim().to_owned(),
                _ => thread::sleep(Duration::from_millis(10)),
            }
        }
        panic!("no pid in {}", file.display());
    }

    fn gone(pid: &str) -> bool {
        (0..500).any(|_| {
            thread::sleep(Duration::from_millis(10));
            !running(pid)
        })
    }

    #[test]
    fn stopped_child_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file: PathBuf = folder.path().join("pid");
        let script = format!("echo $$ > {}; exec sleep 1000", pid_file.display());
        let mut child =
            Guarded::spawn(Path::new("sh"), ["-c", &script], &[], &folder.path().join("log")).unwrap();
        let pid = pid_in(&pid_file);
        assert!(running(&pid));
        assert!(child.exited().unwrap().is_none());
        child.stop().unwrap();
        assert!(gone(&pid));
    }

    #[test]
    fn killer_ends_with_its_child() {
        let folder = tempfile::tempdir().unwrap();
        let (pid_file, go) = (folder.path().join("pid"), folder.path().join("go"));
        let script = format!(
            "echo $$ > {}; until [ -e {} ]; do sleep 0.01; done; exit 7",
            pid_file.display(),
            go.display()
        );
        let mut child =
            Guarded::spawn(Path::new("sh"), ["-c", &script], &[], &folder.path().join("log")).unwrap();
        let pid = pid_in(&pid_file);
        // Waiting for a child closes its pipe, unless somebody else holds it.
        let pipe = child.watchdog.stdin.take().unwrap();
        let watchdog = child.watchdog.id();
        let children = fs::read_to_string(format!("/proc/{watchdog}/task/{watchdog}/children")).unwrap();
        let killer = children.split_whitespace().nth(1).unwrap();
        assert!(running(killer) && children.starts_with(&pid), "{children}");
        fs::write(go, "").unwrap();
        // The pipe is still open: the child's end alone ends all of them, and is what is told.
        assert!(gone(&pid) && gone(killer));
        assert_eq!(child.watchdog.wait().unwrap().code(), Some(7));
        drop(pipe);
    }

    #[test]
    fn child_of_killed_parent_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("pid");
        // A parent that starts the watchdog as we do, holds the pipe, and is then killed.
        let grandchild = format!("echo $$ > {}; exec sleep 1000", pid_file.display());
        let mut parent = Command::new("sh")
            .args([
                "-c",
                r#"sleep 1000 | sh -c "$1" watchdog sh -c "$2""#,
                "parent",
                WATCHDOG,
                &grandchild,
            ])
            .spawn()
            .unwrap();
        let pid = pid_in(&pid_file);
        // The writer of the pipe is the first child of `parent`; killing it is what the kernel does to a pipe's
        // end when its process dies.
        let writer = fs::read_to_string(format!("/proc/{0}/task/{0}/children", parent.id())).unwrap();
        let writer = writer.split_whitespace().next().unwrap().to_owned();
        Command::new("kill").args(["-KILL", &writer]).status().unwrap();
        assert!(gone(&pid));
        parent.wait().unwrap();
    }

    #[test]
    fn child_is_killed_when_its_group_is_terminated() {
        use std::os::unix::process::CommandExt;
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("pid");
        // A child that does not listen: an API server whose etcd is gone takes its time, too.
        let stubborn = format!("trap '' TERM; echo $$ > {}; exec sleep 1000", pid_file.display());
        let mut parent = Command::new("sh")
            .args([
                "-c",
                r#"sleep 1000 | sh -c "$1" watchdog sh -c "$2""#,
                "parent",
                WATCHDOG,
                &stubborn,
            ])
            .process_group(0)
            .spawn()
            .unwrap();
        let pid = pid_in(&pid_file);
        Command::new("kill")
            .args(["-TERM", "--", &format!("-{}", parent.id())])
            .status()
            .unwrap();
        assert!(gone(&pid));
        parent.wait().unwrap();
    }
}
