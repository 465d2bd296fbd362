//! Prints as kubectl does: a table, JSON, YAML or names.

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

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

/// Prints one value that is no Kubernetes object.
pub fn value<T: Serialize>(format: Format, value: &T, text: impl FnOnce() -> String) -> Result<()> {
    match format {
        Format::Table | Format::Name => println!("{}", text().trim_end()),
        Format::Json => println!("{}", serde_json::to_string_pretty(value)?),
        Format::Yaml => print!("{}", writ_runtime::yaml::to_string(value)?),
    }
    Ok(())
}

/// Columns padded to their widest cell, three blanks apart, no blanks at line ends.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let width = |column: usize| {
        std::iter::once(&header)
            .chain(rows)
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..header.len())
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in std::iter::once(&header).chain(rows) {
        let line: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}", width = *width))
            .collect();
        text.push_str(line.join("   ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_without_trailing_blanks() {
        let rows = vec![vec!["a".into(), "longer".into()], vec!["bbbb".into(), "x".into()]];
        assert_eq!(
            table(&["NAME", "VALUE"], &rows),
            "NAME   VALUE\na      longer\nbbbb   x\n"
        );
    }
}
