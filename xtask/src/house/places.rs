//! The table "where is what" of the architecture page: every file and function that it names exists.

use std::path::Path;

use super::{
    Finding,
    lexer::{Kind, tokens},
    map::PAGE,
};

const BEGIN: &str = "<!-- where is what: checked by `cargo xtask house` -->";
const END: &str = "<!-- end of the table -->";
/// Keywords that the name of an item follows.
const ITEMS: [&str; 7] = ["fn", "struct", "enum", "const", "static", "trait", "mod"];

/// Names in the table that the sources do not have. `read` returns the text of a file from the root of the repository.
pub fn check(page: &str, read: impl Fn(&Path) -> Option<String>) -> Vec<Finding> {
    let table = page.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
    let Some((table, _)) = table else {
        return vec![Finding::new(
            PAGE,
            format!("there is no table between {BEGIN:?} and {END:?}"),
        )];
    };
    let first = page.lines().position(|line| line == BEGIN).unwrap_or_default();
    let mut findings = Vec::new();
    for (number, row) in (first + 1..).zip(table.lines()) {
        let mut find = |what: String| findings.push(Finding::at(Path::new(PAGE), number, what));
        let mut source: Option<(&str, String)> = None;
        for name in row.split('`').skip(1).step_by(2) {
            if Path::new(name)
                .extension()
                .is_some_and(|extension| extension == "rs")
            {
                source = read(&Path::new("crates").join(name)).map(|text| (name, text));
                if source.is_none() {
                    find(format!("there is no file crates/{name}"));
                }
            } else if let Some((file, text)) = &source
                && !defines(text, name)
            {
                find(format!("crates/{file} does not define {name}"));
            }
        }
    }
    findings
}

/// Whether a source defines an item of this name.
fn defines(text: &str, name: &str) -> bool {
    let code: Vec<_> = tokens(text)
        .into_iter()
        .filter(|token| token.kind != Kind::Comment)
        .collect();
    let mut pairs = code.iter().zip(code.iter().skip(1));
    pairs.any(|(keyword, item)| ITEMS.contains(&keyword.text) && item.is_word(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_that_the_sources_lack_is_found() {
        let page = format!(
            "# x\n{BEGIN}\n| what | where |\n| a | `hub/src/a.rs` `one`, `two`; `hub/src/b.rs` |\n{END}\n"
        );
        let read =
            |path: &Path| (path == Path::new("crates/hub/src/a.rs")).then(|| "fn one() {} // fn two".into());
        let found: Vec<_> = check(&page, read).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                format!("{PAGE}:4: crates/hub/src/a.rs does not define two"),
                format!("{PAGE}:4: there is no file crates/hub/src/b.rs"),
            ]
        );
        assert_eq!(check("no table", read).len(), 1);
    }
}
