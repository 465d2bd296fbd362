//! The map of the house: crates, folders, files, lines. It stands in `docs/architecture.md`, between two marks.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::{Context, Result};

use super::{Finding, exceptions::Exception};

/// The page with the map.
pub const PAGE: &str = "docs/architecture.md";
const BEGIN: &str = "<!-- map of the house: written by `cargo xtask house --map` -->\n";
const END: &str = "<!-- end of the map -->\n";

/// Files and lines of each folder, test code not counted.
pub type Folders = BTreeMap<String, Folder>;

/// One folder of sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Folder {
    /// Source files beside each other in it.
    pub files: usize,
    /// Their lines.
    pub lines: usize,
}

/// The map in Markdown.
pub fn render(folders: &Folders, exceptions: &[Exception]) -> String {
    let mut text = String::from("\n| crate | folder | files | lines |\n| --- | --- | --- | --- |\n");
    let mut crates: BTreeMap<&str, Folder> = BTreeMap::new();
    for (path, folder) in folders {
        let (name, _) = split(path);
        let all = crates.entry(name).or_default();
        all.files += folder.files;
        all.lines += folder.lines;
    }
    for (name, all) in &crates {
        text += &row(name, "", *all);
        let inside = folders.iter().filter(|(path, _)| split(path).0 == *name);
        for (path, folder) in inside.filter(|(path, _)| !split(path).1.is_empty()) {
            text += &row("", split(path).1, *folder);
        }
    }
    text += "\nExceptions from the limits (`xtask/house.toml`):";
    if exceptions.is_empty() {
        text += " none.\n\n";
        return text;
    }
    text += "\n\n| where | limit | why |\n| --- | --- | --- |\n";
    for exception in exceptions {
        let Exception {
            path, check, reason, ..
        } = exception;
        let _ = writeln!(text, "| `{path}` | {check}: {} | {reason} |", exception.limit);
    }
    text.push('\n');
    text
}

fn row(name: &str, folder: &str, size: Folder) -> String {
    let folder = if folder.is_empty() {
        String::new()
    } else {
        format!("`{folder}`")
    };
    format!("| {name} | {folder} | {} | {} |\n", size.files, size.lines)
}

/// The crate of a folder, and the folder inside its sources.
fn split(path: &str) -> (&str, &str) {
    let inside = path.strip_prefix("crates/").unwrap_or(path);
    let (name, folder) = inside.split_once('/').unwrap_or((inside, ""));
    (
        name,
        folder
            .strip_prefix("src")
            .map_or("", |folder| folder.trim_start_matches('/')),
    )
}

/// The page with another map in it.
pub fn replace(page: &str, map: &str) -> Result<String> {
    let (before, _, after) = parts(page)?;
    Ok(format!("{before}{BEGIN}{map}{END}{after}"))
}

/// Whether the page has this map. Lines may have become a few more or less: a map that every change makes wrong helps
/// no reader.
pub fn check(page: &str, map: &str) -> Result<Option<Finding>> {
    let (_, committed, _) = parts(page)?;
    let same = committed.lines().count() == map.lines().count()
        && committed
            .lines()
            .zip(map.lines())
            .all(|(old, new)| old == new || close(old, new));
    let what = "the map of the house is not current: run `cargo xtask house --map` and commit it";
    Ok((!same).then(|| Finding::new(PAGE, what)))
}

fn parts(page: &str) -> Result<(&str, &str, &str)> {
    let (before, rest) = page
        .split_once(BEGIN)
        .with_context(|| format!("{PAGE} has no {BEGIN:?}"))?;
    let (committed, after) = rest
        .split_once(END)
        .with_context(|| format!("{PAGE} has no {END:?}"))?;
    Ok((before, committed, after))
}

/// Whether two rows differ only in their lines, by a tenth or by twenty.
fn close(old: &str, new: &str) -> bool {
    let parsed = |row: &str| {
        let (row, lines) = row.strip_suffix(" |")?.rsplit_once("| ")?;
        Some((row.to_owned(), lines.parse::<usize>().ok()?))
    };
    let (Some((old, before)), Some((new, now))) = (parsed(old), parsed(new)) else {
        return false;
    };
    old == new && before.abs_diff(now) <= (now / 10).max(20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(lines: usize) -> Folders {
        let folder = |files, lines| Folder { files, lines };
        [
            ("crates/hub/src".to_owned(), folder(2, 100)),
            ("crates/hub/src/work".to_owned(), folder(3, lines)),
        ]
        .into()
    }

    #[test]
    fn map_has_crates_folders_and_exceptions() {
        let text = render(&folders(50), &[]);
        assert!(
            text.contains("| hub |  | 5 | 150 |\n|  | `work` | 3 | 50 |\n"),
            "{text}"
        );
        assert!(text.contains("none."), "{text}");
        let exception = Exception {
            path: "a".into(),
            check: "files".into(),
            limit: 16,
            reason: "b".into(),
        };
        assert!(render(&folders(50), &[exception]).contains("| `a` | files: 16 | b |"));
    }

    #[test]
    fn map_is_current_while_lines_are_close() {
        let page = format!("a\n{BEGIN}{END}b\n");
        let page = replace(&page, &render(&folders(1000), &[])).unwrap();
        assert!(page.starts_with("a\n") && page.ends_with("b\n"), "{page}");
        let current = |lines| check(&page, &render(&folders(lines), &[])).unwrap().is_none();
        assert!(current(1000) && current(1080) && !current(1200));
        assert!(check(&page, &render(&Folders::new(), &[])).unwrap().is_some());
        assert!(check("no marks", "").is_err());
    }
}
