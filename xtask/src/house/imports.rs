//! Import cycles between the modules of one folder.
//!
//! A module and all that is below it count as one. What a parent re-exports counts as the module that defines it; what
//! a parent defines itself is not looked at.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use super::tree::{Crate, ModulePath};

/// No chain of re-exports is longer: it would be a circle.
const HOPS: usize = 16;

/// Modules of one folder that import each other in a circle.
#[derive(Debug, PartialEq, Eq)]
pub struct Cycle {
    /// The module that holds them.
    pub parent: ModulePath,
    /// Their names.
    pub modules: Vec<String>,
    /// The imports that make the cycle.
    pub edges: Vec<Edge>,
}

/// One module imports another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Who imports.
    pub from: String,
    /// What is imported.
    pub to: String,
    /// Where it says so first.
    pub place: (PathBuf, usize),
}

/// For each folder the imports between its modules, with where each is first.
type Graphs = BTreeMap<ModulePath, BTreeMap<(String, String), (PathBuf, usize)>>;

/// The cycles of a crate.
pub fn cycles(sources: &Crate) -> Vec<Cycle> {
    let graphs = graphs(sources);
    graphs
        .into_iter()
        .flat_map(|(parent, graph)| in_folder(&parent, &graph))
        .collect()
}

fn graphs(sources: &Crate) -> Graphs {
    let mut graphs = Graphs::new();
    for (path, module) in &sources.modules {
        let imports = module.imports.iter().map(|import| (&import.path, import.line));
        for (named, line) in imports.chain(module.paths.iter().map(|(path, line)| (path, *line))) {
            let mut reached = BTreeSet::new();
            resolve(sources, path, named, HOPS, &mut reached);
            for target in reached {
                if let Some((parent, from, to)) = siblings(path, &target) {
                    let graph = graphs.entry(parent).or_default();
                    graph
                        .entry((from, to))
                        .or_insert_with(|| (module.file.clone(), line));
                }
            }
        }
    }
    graphs
}

/// The folder in which two modules part, and the names of the two sides.
fn siblings(from: &ModulePath, to: &ModulePath) -> Option<(ModulePath, String, String)> {
    let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    Some((
        from.get(..common)?.to_vec(),
        from.get(common)?.clone(),
        to.get(common)?.clone(),
    ))
}

/// The modules that a path names on its way, as seen from the module `from`, re-exports followed.
fn resolve(
    sources: &Crate,
    from: &ModulePath,
    path: &[String],
    hops: usize,
    reached: &mut BTreeSet<ModulePath>,
) {
    let Some(hops) = hops.checked_sub(1) else { return };
    let mut here = from.clone();
    let mut rest = path;
    match path.first().map(String::as_str) {
        Some("crate") => {
            here.clear();
            rest = rest.get(1..).unwrap_or_default();
        }
        Some("self") => rest = rest.get(1..).unwrap_or_default(),
        Some("super") => {
            while let Some(("super", after)) =
                rest.split_first().map(|(first, after)| (first.as_str(), after))
            {
                here.pop();
                rest = after;
            }
        }
        // A module of its own; anything else is another crate.
        Some(name) if sources.modules.contains_key(&below(from, name)) => {}
        _ => return,
    }
    while let Some((name, after)) = rest.split_first() {
        let next = below(&here, name);
        if sources.modules.contains_key(&next) {
            here = next;
            rest = after;
            continue;
        }
        let Some(module) = sources
            .modules
            .get(&here)
            .filter(|module| !module.items.contains(name))
        else {
            break;
        };
        let follow = |path: &[String], reached: &mut BTreeSet<ModulePath>| {
            let whole: Vec<String> = path.iter().chain(after).cloned().collect();
            resolve(sources, &here, &whole, hops, reached);
        };
        if let Some(import) = module
            .imports
            .iter()
            .find(|import| import.name.as_ref() == Some(name))
        {
            follow(&import.path, reached);
        } else {
            let globs = module.imports.iter().filter(|import| import.name.is_none());
            for glob in globs {
                if defines(sources, &here, &glob.path, name) {
                    let mut path = glob.path.clone();
                    path.push(name.clone());
                    follow(&path, reached);
                }
            }
        }
        break;
    }
    reached.insert(here);
}

fn below(path: &ModulePath, name: &str) -> ModulePath {
    path.iter().cloned().chain([name.to_owned()]).collect()
}

/// Whether a module that is imported whole defines or imports this name.
fn defines(sources: &Crate, from: &ModulePath, glob: &[String], name: &str) -> bool {
    let mut reached = BTreeSet::new();
    resolve(sources, from, glob, HOPS, &mut reached);
    let mut modules = reached.iter().filter_map(|path| sources.modules.get(path));
    modules.any(|module| {
        let mut imported = module.imports.iter().filter_map(|import| import.name.as_deref());
        module.items.contains(name) || imported.any(|imported| imported == name)
    })
}

fn in_folder(parent: &ModulePath, graph: &BTreeMap<(String, String), (PathBuf, usize)>) -> Vec<Cycle> {
    let names: BTreeSet<&str> = graph
        .keys()
        .flat_map(|(from, to)| [from.as_str(), to.as_str()])
        .collect();
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        names.iter().map(|name| (*name, reachable(graph, name))).collect();
    let meets = |a: &str, b: &str| reach.get(a).is_some_and(|found| found.contains(b));
    let mut cycles: Vec<Cycle> = Vec::new();
    for name in names.iter().copied().filter(|name| meets(name, name)) {
        if cycles
            .iter()
            .any(|cycle| cycle.modules.iter().any(|module| module == name))
        {
            continue;
        }
        let modules = names
            .iter()
            .copied()
            .filter(|other| meets(name, other) && meets(other, name));
        let modules: Vec<String> = modules.map(str::to_owned).collect();
        let inside = graph
            .iter()
            .filter(|((from, to), _)| modules.contains(from) && modules.contains(to));
        let edges = inside.map(|((from, to), place)| Edge {
            from: from.clone(),
            to: to.clone(),
            place: place.clone(),
        });
        cycles.push(Cycle {
            parent: parent.clone(),
            edges: edges.collect(),
            modules,
        });
    }
    cycles
}

/// The modules that one imports, directly or through others.
fn reachable<'a>(graph: &'a BTreeMap<(String, String), (PathBuf, usize)>, from: &str) -> BTreeSet<&'a str> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(name) = open.pop() {
        for (_, to) in graph.keys().filter(|(from, _)| *from == name) {
            if found.insert(to.as_str()) {
                open.push(to.clone());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{syntax::read, tree::Module};
    use super::*;

    /// A crate of these modules, each with its text.
    fn sources(modules: &[(&str, &str)]) -> Crate {
        let mut sources = Crate::default();
        for (path, text) in modules {
            let source = read(text);
            let scope = source.scopes.into_iter().next().unwrap();
            let path: ModulePath = path
                .split("::")
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect();
            let module = Module {
                file: path.join("/").into(),
                items: scope.items,
                imports: scope.imports,
                paths: scope.paths,
            };
            sources.modules.insert(path, module);
        }
        sources
    }

    fn found(modules: &[(&str, &str)]) -> Vec<(String, String)> {
        let cycles = cycles(&sources(modules));
        let shown = cycles
            .into_iter()
            .map(|cycle| (cycle.parent.join("::"), cycle.modules.join(" ")));
        shown.collect()
    }

    fn cycle(parent: &str, modules: &str) -> (String, String) {
        (parent.into(), modules.into())
    }

    #[test]
    fn modules_that_import_each_other_are_a_cycle() {
        let modules = [
            ("", "mod a; mod b; mod c;"),
            ("a", "use super::b::B;"),
            ("b", "fn f() { crate::a::g() }"),
            ("c", "use super::a;"),
        ];
        assert_eq!(found(&modules), [cycle("", "a b")]);
        let place = &cycles(&sources(&modules))[0].edges[1].place;
        assert_eq!(*place, ("b".into(), 1));
    }

    #[test]
    fn reexport_of_the_parent_counts_as_the_module_that_defines_it() {
        let modules = [
            ("x", "mod a; mod b; pub use a::A; use b::*; pub struct Own;"),
            ("x::a", "use super::B; pub struct A;"),
            ("x::b", "use super::{A, Own}; pub struct B;"),
        ];
        assert_eq!(found(&modules), [cycle("x", "a b")]);
    }

    #[test]
    fn parent_and_child_are_no_cycle() {
        let modules = [
            ("", "mod a; pub use a::A; pub struct Own; use self::a::b;"),
            (
                "a",
                "mod b; use crate::Own; use b::f; use super::A; pub struct A;",
            ),
            ("a::b", "use super::A; use crate::Own; pub fn f() {}"),
        ];
        assert!(found(&modules).is_empty());
    }

    #[test]
    fn folder_below_counts_as_its_module() {
        let modules = [
            ("", "mod a; mod b;"),
            ("a", "mod deep;"),
            ("a::deep", "use super::super::b::B;"),
            ("b", "pub struct B; use crate::a::deep;"),
        ];
        assert_eq!(found(&modules), [cycle("", "a b")]);
    }

    #[test]
    fn reexport_in_a_circle_ends() {
        let modules = [
            ("", "mod a; mod b;"),
            ("a", "pub use super::b::X;"),
            ("b", "pub use super::a::X;"),
        ];
        assert_eq!(found(&modules), [cycle("", "a b")]);
    }
}
