//! The exceptions from the limits: `xtask/house.toml`.

use anyhow::{Context, Result, bail, ensure};

/// More than these are no exceptions.
const MOST: usize = 8;

/// A place that may go beyond a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exception {
    /// The file or folder, from the root of the repository.
    pub path: String,
    /// The limit that it goes beyond: `lines`, `files`, `controller` or `cycle`.
    pub check: String,
    /// What it may have.
    pub limit: usize,
    /// Why.
    pub reason: String,
}

/// Reads the exceptions: tables `[[exception]]` with `path`, `check`, `limit` and `reason`.
pub fn read(text: &str) -> Result<Vec<Exception>> {
    let mut found: Vec<Exception> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line == "[[exception]]" {
            found.push(Exception::default());
            continue;
        }
        let place = || format!("xtask/house.toml:{}: {line:?}", number + 1);
        let (key, value) = line.split_once('=').with_context(place)?;
        let exception = found.last_mut().with_context(place)?;
        let value = value.trim();
        let string = || {
            value
                .strip_prefix('"')
                .and_then(|value| value.strip_suffix('"'))
                .with_context(place)
        };
        match key.trim() {
            "path" => string()?.clone_into(&mut exception.path),
            "check" => string()?.clone_into(&mut exception.check),
            "reason" => string()?.clone_into(&mut exception.reason),
            "limit" => exception.limit = value.parse().with_context(place)?,
            _ => bail!("{} is none of path, check, limit, reason", place()),
        }
    }
    for exception in &found {
        let known = ["lines", "files", "controller", "cycle"].contains(&exception.check.as_str());
        let whole =
            known && !exception.path.is_empty() && !exception.reason.is_empty() && exception.limit > 0;
        ensure!(
            whole,
            "xtask/house.toml: an exception needs path, check, limit and reason: {exception:?}"
        );
    }
    ensure!(
        found.len() <= MOST,
        "xtask/house.toml has {} exceptions, limit {MOST}",
        found.len()
    );
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str =
        "[[exception]]\npath = \"a/b\"\ncheck = \"files\"\nlimit = 16\nreason = \"one per kind\"\n";

    #[test]
    fn exceptions_are_read() {
        let read = read(&format!("# why\n\n{ONE}")).unwrap();
        let expected = Exception {
            path: "a/b".into(),
            check: "files".into(),
            limit: 16,
            reason: "one per kind".into(),
        };
        assert_eq!(read, [expected]);
    }

    #[test]
    fn incomplete_and_too_many_exceptions_are_refused() {
        for wrong in [
            "limit = 1",
            "[[exception]]\nlimit = 1",
            "[[exception]]\nfoo = 1",
            &ONE.replace("files", "x"),
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(read(&ONE.repeat(8)).is_ok());
        assert!(
            read(&ONE.repeat(9))
                .unwrap_err()
                .to_string()
                .contains("9 exceptions, limit 8")
        );
    }
}
