//! Prints as kubectl does: a table, JSON, YAML or names.

use std::borrow::Cow;

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns for people.
    #[default]
    Table,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// `kind/name` lines.
    Name,
}

/// Prints lines, for `-o name`.
pub fn names(names: impl IntoIterator<Item = String>) {
    for name in names {
        println!("{name}");
    }
}

/// A managed cluster as kubectl names it.
pub fn cluster(name: &str) -> String {
    format!("managedclusters.cluster.open-cluster-management.io/{name}")
}

/// Escapes control characters: text from clusters may hold sequences that move the cursor, or worse.
pub fn clean(text: &str) -> Cow<'_, str> {
    // Characters that change the direction of the text, and so how it reads.
    let turns =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let harmless = |c: char| (!c.is_control() && !turns(c)) || c == '\n' || c == '\t';
    if text.chars().all(harmless) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if harmless(c) {
            shown.push(c);
        } else {
            shown.extend(c.escape_default());
        }
    }
    shown.into()
}

/// Prints one value that is not a Kubernetes object.
pub fn value<T: Serialize>(format: Format, value: &T, text: impl FnOnce() -> String) -> Result<()> {
    match format {
        Format::Table | Format::Name => println!("{}", clean(text().trim_end())),
        Format::Json => println!("{}", serde_json::to_string_pretty(value)?),
        Format::Yaml => print!("{}", writ_runtime::yaml::to_string(value)?),
    }
    Ok(())
}

/// Prints a kubeconfig; as a table or by name without its credentials.
pub fn kubeconfig(format: Format, config: &impl Serialize) -> Result<()> {
    let config = serde_json::to_value(config)?;
    let all = |list: &str, path: &str| -> Vec<String> {
        let entries = config.get(list).and_then(Value::as_array).into_iter().flatten();
        let texts = entries.map(|entry| entry.pointer(path).and_then(Value::as_str));
        texts.map(|text| text.unwrap_or_default().to_owned()).collect()
    };
    value(format, &config, || {
        let contexts = all("contexts", "/name");
        if format == Format::Name {
            return contexts.join("\n");
        }
        let servers = all("clusters", "/cluster/server");
        let rows: Vec<_> = contexts
            .into_iter()
            .zip(servers)
            .map(|(name, server)| vec![name, server])
            .collect();
        table(&["CONTEXT", "SERVER"], &rows)
    })
}

/// Columns padded to their widest cell, three blanks apart, no blanks at line ends.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let widths = widths(std::iter::once(&header).chain(rows));
    std::iter::once(&header)
        .chain(rows)
        .map(|row| line(row, &widths))
        .collect()
}

/// The widest cell of each column.
pub fn widths<'a>(rows: impl IntoIterator<Item = &'a Vec<String>>) -> Vec<usize> {
    let mut widths = Vec::new();
    for row in rows {
        widths.resize(row.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    widths
}

/// One line of a table.
pub fn line(row: &[String], widths: &[usize]) -> String {
    let cells: Vec<String> = row
        .iter()
        .zip(widths)
        // A cell must stay on one line.
        .map(|(cell, width)| format!("{:<width$}", cell.replace('\n', " "), width = *width))
        .collect();
    format!("{}\n", clean(cells.join("   ").trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(clean("a\nb\tc"), "a\nb\tc");
        assert_eq!(clean("\u{1b}[2Jx\u{7}\r"), "\\u{1b}[2Jx\\u{7}\\r");
        // A name that ends in "nimda" reads as one that ends in "admin".
        assert_eq!(clean("x\u{202e}nimda"), "x\\u{202e}nimda");
        let row = vec!["\u{1b}[1A".to_owned()];
        assert!(!table(&["URL"], &[row]).contains('\u{1b}'));
    }

    #[test]
    fn columns_are_aligned_without_trailing_blanks() {
        let rows = vec![vec!["a".into(), "longer".into()], vec!["bbbb".into(), "x".into()]];
        assert_eq!(
            table(&["NAME", "VALUE"], &rows),
            "NAME   VALUE\na      longer\nbbbb   x\n"
        );
    }
}
