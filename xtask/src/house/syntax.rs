//! What one source file says that the checks ask for: modules, imports, paths, comments. Test code is left out.

use std::collections::BTreeSet;

use super::lexer::{Kind, Token, tokens};

/// Keywords that an item's name follows.
const ITEMS: [&str; 9] = [
    "fn",
    "struct",
    "enum",
    "union",
    "trait",
    "type",
    "const",
    "static",
    "macro_rules",
];
/// Keywords of items that end with a semicolon even where they hold braces.
const TO_SEMICOLON: [&str; 5] = ["use", "const", "static", "type", "let"];

/// One source file.
#[derive(Debug, Default)]
pub struct Source {
    /// Lines, test code not counted.
    pub lines: usize,
    /// Comments with the line each begins on.
    pub comments: Vec<(usize, String)>,
    /// The file's own scope first, then one for each module with a body.
    pub scopes: Vec<Scope>,
}

/// A file's top level, or a module with a body in it.
#[derive(Debug, Default)]
pub struct Scope {
    /// The names of the modules around it, inside the file.
    pub inside: Vec<String>,
    /// Modules declared as files of their own.
    pub files: Vec<String>,
    /// Items defined here, modules with a body included.
    pub items: BTreeSet<String>,
    /// Names imported here.
    pub imports: Vec<Import>,
    /// Paths in code that begin with `super`, `self` or `crate`.
    pub paths: Vec<(Vec<String>, usize)>,
}

/// One name of a `use`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The name it has from here on; `None` where everything is imported.
    pub name: Option<String>,
    /// What is imported.
    pub path: Vec<String>,
    /// The line of it.
    pub line: usize,
}

/// Reads a file. One that is all tests (`#![cfg(test)]`) has no lines.
pub fn read(text: &str) -> Source {
    let all = tokens(text);
    let code: Vec<Token> = all
        .iter()
        .filter(|token| token.kind != Kind::Comment)
        .copied()
        .collect();
    let mut reader = Reader {
        code: &code,
        at: 0,
        depth: 0,
        scopes: vec![Scope::default()],
        open: vec![(0, 0)],
        tests: Vec::new(),
    };
    reader.run();
    let (tests, scopes) = (reader.tests, reader.scopes);
    let is_test = |line: usize| tests.iter().any(|(first, last)| (*first..=*last).contains(&line));
    let comments = all
        .iter()
        .filter(|token| token.kind == Kind::Comment && !is_test(token.line));
    Source {
        lines: (1..=text.lines().count()).filter(|line| !is_test(*line)).count(),
        comments: comments
            .map(|token| (token.line, token.text.to_owned()))
            .collect(),
        scopes,
    }
}

struct Reader<'a> {
    code: &'a [Token<'a>],
    at: usize,
    /// Braces open here.
    depth: usize,
    scopes: Vec<Scope>,
    /// Scopes around this place, the innermost last: its index, and the depth of its items.
    open: Vec<(usize, usize)>,
    /// Lines of test code.
    tests: Vec<(usize, usize)>,
}

impl<'a> Reader<'a> {
    fn run(&mut self) {
        while let Some(token) = self.peek(0) {
            match token.kind {
                Kind::Punctuation('#') => self.attribute(),
                Kind::Punctuation('{') => {
                    self.depth += 1;
                    self.at += 1;
                }
                Kind::Punctuation('}') => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.open.len() > 1 && self.open.last().is_some_and(|(_, depth)| *depth > self.depth) {
                        self.open.pop();
                    }
                    self.at += 1;
                }
                Kind::Word => self.word(token),
                _ => self.at += 1,
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<Token<'a>> {
        self.code.get(self.at + ahead).copied()
    }

    fn scope(&mut self) -> Option<&mut Scope> {
        let (index, _) = *self.open.last()?;
        self.scopes.get_mut(index)
    }

    /// Whether this place is between the items of a module.
    fn between_items(&self) -> bool {
        self.open.last().is_some_and(|(_, depth)| *depth == self.depth)
    }

    /// An attribute; what it marks as a test is skipped.
    fn attribute(&mut self) {
        let first = self.peek(0).map_or(0, |token| token.line);
        let of_file = self.peek(1).is_some_and(|token| token.is('!'));
        if !self
            .peek(1 + usize::from(of_file))
            .is_some_and(|token| token.is('['))
        {
            self.at += 1;
            return;
        }
        let start = self.at;
        self.skip_brackets();
        let inside = self.code.get(start..self.at).unwrap_or_default();
        if !marks_test(inside) {
            return;
        }
        if of_file {
            self.tests.push((0, usize::MAX));
            self.at = self.code.len();
            return;
        }
        while self.peek(0).is_some_and(|token| token.is('#')) {
            self.skip_brackets();
        }
        self.skip_item();
        let last = self
            .code
            .get(self.at.saturating_sub(1))
            .map_or(first, Token::last_line);
        self.tests.push((first, last));
    }

    /// Moves behind the next pair of brackets.
    fn skip_brackets(&mut self) {
        let mut depth = 0_usize;
        while let Some(token) = self.peek(0) {
            self.at += 1;
            if token.is('[') {
                depth += 1;
            } else if token.is(']') {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return;
                }
            }
        }
    }

    /// Moves behind the item, statement or field that begins here.
    fn skip_item(&mut self) {
        let words = self.code.get(self.at..).unwrap_or_default().iter();
        let mut words = words
            .filter(|token| token.kind == Kind::Word)
            .map(|token| token.text);
        let first = words.find(|word| !matches!(*word, "pub" | "crate" | "super" | "in" | "self"));
        let second = words.next();
        let to_semicolon = first.is_some_and(|word| TO_SEMICOLON.contains(&word)) && second != Some("fn");
        let is_item = to_semicolon
            || first.is_some_and(|word| {
                ITEMS.contains(&word)
                    || matches!(word, "const" | "mod" | "impl" | "extern" | "unsafe" | "async")
            });
        let mut depth = 0_usize;
        while let Some(token) = self.peek(0) {
            match token.kind {
                Kind::Punctuation('{' | '(' | '[') => depth += 1,
                Kind::Punctuation('}' | ')' | ']') => {
                    // The end of what is around a last field or expression.
                    if depth == 0 {
                        return;
                    }
                    depth -= 1;
                    if depth == 0 && token.is('}') && !to_semicolon {
                        self.at += 1;
                        return;
                    }
                }
                Kind::Punctuation(';') if depth == 0 => {
                    self.at += 1;
                    return;
                }
                Kind::Punctuation(',') if depth == 0 && !is_item => {
                    self.at += 1;
                    return;
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    fn word(&mut self, token: Token<'a>) {
        let next = self.peek(1);
        match token.text {
            // Not the `use<'a>` of a bound.
            "use" if !next.is_some_and(|token| token.is('<')) => {
                self.at += 1;
                let named = self.between_items();
                self.use_tree(&[], named);
            }
            "mod" if next.is_some_and(|token| token.kind == Kind::Word) => self.module(),
            "super" | "self" | "crate" if next.is_some_and(|token| token.kind == Kind::Separator) => {
                self.path();
            }
            item if ITEMS.contains(&item) && self.between_items() => {
                let skipped = if next.is_some_and(|token| token.is('!')) {
                    2
                } else {
                    1
                };
                if let Some(name) = self.peek(skipped).filter(|token| token.kind == Kind::Word) {
                    let name = name.text.to_owned();
                    if let Some(scope) = self.scope() {
                        scope.items.insert(name);
                    }
                }
                self.at += 1;
            }
            _ => self.at += 1,
        }
    }

    fn module(&mut self) {
        let name = self
            .peek(1)
            .map_or_else(String::new, |token| token.text.to_owned());
        let has_body = self.peek(2).is_some_and(|token| token.is('{'));
        self.at += 3;
        if !has_body {
            if let Some(scope) = self.scope() {
                scope.files.push(name);
            }
            return;
        }
        let Some(scope) = self.scope() else { return };
        scope.items.insert(name.clone());
        let mut inside = scope.inside.clone();
        inside.push(name);
        self.depth += 1;
        self.open.push((self.scopes.len(), self.depth));
        self.scopes.push(Scope {
            inside,
            ..Scope::default()
        });
    }

    /// A path in code.
    fn path(&mut self) {
        let line = self.peek(0).map_or(0, |token| token.line);
        let mut path = Vec::new();
        while let Some(token) = self.peek(0).filter(|token| token.kind == Kind::Word) {
            path.push(token.text.to_owned());
            self.at += 1;
            if !self.peek(0).is_some_and(|token| token.kind == Kind::Separator) {
                break;
            }
            self.at += 1;
        }
        if let Some(scope) = self.scope() {
            scope.paths.push((path, line));
        }
    }

    /// The part of a `use` that comes after `before`, up to its comma, brace or semicolon.
    fn use_tree(&mut self, before: &[String], named: bool) {
        let mut path = before.to_vec();
        let mut line = self.peek(0).map_or(0, |token| token.line);
        let mut name = None;
        while let Some(token) = self.peek(0) {
            match token.kind {
                Kind::Word if token.text == "as" => {
                    name = self.peek(1).map(|token| token.text.to_owned());
                    self.at += 2;
                }
                Kind::Word => {
                    line = token.line;
                    path.push(token.text.to_owned());
                    self.at += 1;
                }
                Kind::Punctuation('*') => {
                    self.at += 1;
                    self.import(None, path, line, named);
                    return;
                }
                Kind::Punctuation('{') => {
                    self.at += 1;
                    while let Some(token) = self.peek(0) {
                        if token.is('}') {
                            self.at += 1;
                            return;
                        } else if token.is(',') {
                            self.at += 1;
                        } else {
                            self.use_tree(&path, named);
                        }
                    }
                    return;
                }
                Kind::Separator => self.at += 1,
                _ => break,
            }
        }
        // `a::{self}` imports `a`.
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = name.or_else(|| path.last().cloned());
        self.import(name, path, line, named);
        // Progress even over what is no `use` tree at all.
        if self
            .peek(0)
            .is_some_and(|token| !(token.is('}') || token.is(',')))
        {
            self.at += 1;
        }
    }

    fn import(&mut self, name: Option<String>, path: Vec<String>, line: usize, named: bool) {
        if let Some(scope) = self.scope() {
            if named {
                scope.imports.push(Import { name, path, line });
            } else {
                // Inside of a function its name reaches no further.
                scope.paths.push((path, line));
            }
        }
    }
}

/// Whether an attribute is a `cfg` that holds only in tests.
fn marks_test(attribute: &[Token]) -> bool {
    let mut words = attribute
        .iter()
        .filter(|token| token.kind == Kind::Word)
        .map(|token| token.text);
    words.next() == Some("cfg") && {
        let rest: Vec<_> = words.collect();
        rest.contains(&"test") && !rest.contains(&"not") && !rest.contains(&"any")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(text: &str) -> Vec<(Option<String>, String)> {
        let source = read(text);
        let scope = source.scopes.first().unwrap();
        let show = |import: &Import| (import.name.clone(), import.path.join("::"));
        scope.imports.iter().map(show).collect()
    }

    fn named(name: &str, path: &str) -> (Option<String>, String) {
        (Some(name.into()), path.into())
    }

    #[test]
    fn use_tree_with_groups_names_every_import() {
        let text = "pub(crate) use super::{a::{self, B as C, d::*}, E};\nuse f;";
        let expected = [
            named("a", "super::a"),
            named("C", "super::a::B"),
            (None, "super::a::d".into()),
            named("E", "super::E"),
            named("f", "f"),
        ];
        assert_eq!(imports(text), expected);
    }

    #[test]
    fn path_in_body_is_found_with_its_line() {
        let text = "fn a() {\n    super::b::c(crate::d::E, self.f);\n    use super::g;\n}";
        let source = read(text);
        let paths: Vec<_> = source.scopes[0]
            .paths
            .iter()
            .map(|(path, line)| (path.join("::"), *line))
            .collect();
        let expected = [("super::b::c", 2), ("crate::d::E", 2), ("super::g", 3)];
        assert_eq!(paths, expected.map(|(path, line)| (path.to_owned(), line)));
        assert!(
            source.scopes[0].imports.is_empty(),
            "a function's import is its own"
        );
    }

    #[test]
    fn test_code_is_left_out() {
        let text = "\
// kept
use super::a;
#[cfg(test)]
use super::b;
#[cfg(test)]
#[allow(dead_code)]
fn c<A, B>() { super::d(); } // not kept
struct E {
    #[cfg(test)]
    f: super::G,
    h: super::I,
}
#[cfg(not(test))]
fn j() { super::k(); }
#[cfg(test)]
mod tests {
    // not kept
    use super::*;
}
#[cfg(test)]
mod more;
mod last;
";
        let source = read(text);
        let scope = &source.scopes[0];
        assert_eq!(imports(text), [named("a", "super::a")]);
        let paths: Vec<_> = scope.paths.iter().map(|(path, _)| path.join("::")).collect();
        assert_eq!(paths, ["super::I", "super::k"]);
        assert_eq!(scope.files, ["last"]);
        assert_eq!(source.comments, [(1, "// kept".to_owned())]);
        assert_eq!(source.lines, 8, "{source:?}");
        assert_eq!(read("#![cfg(test)]\nfn a() {}").lines, 0);
    }

    #[test]
    fn module_with_a_body_has_a_scope_of_its_own() {
        let text = "mod a { pub fn b() { super::c(); } mod d { use super::e; } }\nfn f() { self::g(); }";
        let source = read(text);
        let shown: Vec<_> = source
            .scopes
            .iter()
            .map(|scope| scope.inside.join("::"))
            .collect();
        assert_eq!(shown, ["", "a", "a::d"]);
        assert_eq!(source.scopes[1].paths.len(), 1);
        assert_eq!(source.scopes[2].imports.len(), 1);
        assert_eq!(
            source.scopes[0].paths,
            [(vec!["self".to_owned(), "g".to_owned()], 2)]
        );
        assert!(source.scopes[0].items.contains("a") && source.scopes[0].items.contains("f"));
    }
}
