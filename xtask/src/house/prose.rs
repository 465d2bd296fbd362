//! Words that hide what a comment is about.

use std::path::Path;

use super::{Finding, syntax::Source};

/// Words and phrases that stand for a noun that should be there: the agent, the author, the caller.
const WORDS: [&str; 4] = ["nobody", "somebody", "whoever", "is told"];

/// Comments of a file with such a word.
pub fn check(file: &Path, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut previous: Option<(usize, &str)> = None;
    for (line, comment) in &source.comments {
        for (offset, text) in comment.lines().enumerate() {
            let line = line + offset;
            // A phrase may go on in the next line of a comment.
            let end = previous
                .filter(|(before, _)| before + 1 == line)
                .map_or("", |(_, end)| end);
            for word in WORDS
                .iter()
                .filter(|word| contains(text, word) || spans(end, text, word))
            {
                let what = format!("the word \"{word}\" in a comment: name the thing");
                findings.push(Finding::at(file, line, what));
            }
            previous = Some((line, text));
        }
    }
    findings
}

/// Whether a text has this word or phrase, as whole words.
fn contains(text: &str, phrase: &str) -> bool {
    let text = words(text);
    let phrase = words(phrase);
    text.windows(phrase.len()).any(|part| part == phrase)
}

/// Whether a phrase of two words begins at the end of one line and ends at the start of the next.
fn spans(first: &str, second: &str, phrase: &str) -> bool {
    phrase.split_once(' ').is_some_and(|(a, b)| {
        words(first).last().is_some_and(|word| word == a)
            && words(second).first().is_some_and(|word| word == b)
    })
}

fn words(text: &str) -> Vec<String> {
    let parts = text.split(|c: char| !c.is_alphanumeric());
    parts
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::syntax::read;
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        let findings = check(Path::new("a.rs"), &read(text));
        let shown = findings
            .into_iter()
            .map(|finding| (finding.line.unwrap(), finding.what));
        shown
            .map(|(line, what)| (line, what.split('"').nth(1).unwrap().to_owned()))
            .collect()
    }

    #[test]
    fn word_in_a_comment_is_found_with_its_line() {
        let text = "//! Nobody\nfn a() {} // it is\n/* is\n told whoever */\nlet nobody = \"somebody\";";
        assert_eq!(
            found(text),
            [(1, "nobody".into()), (4, "whoever".into()), (4, "is told".into())]
        );
        assert!(found("// this told; nobodyelse\n").is_empty());
    }

    #[test]
    fn words_in_test_code_do_not_count() {
        assert!(found("#[cfg(test)]\nmod tests {\n    // nobody\n}").is_empty());
    }
}
