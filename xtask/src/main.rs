//! Chores of the project.

mod builtin_schemas;
mod control_plane;
mod generate;
mod house;
mod interop;

use anyhow::{Result, bail};

const HELP: &str = "\
cargo xtask control-plane       builds etcd, kube-apiserver, kube-controller-manager and kubectl into the cache folder
cargo xtask interop             builds OCM's work binary into the cache folder, for the interop tests
cargo xtask builtin-schemas      reduces the OpenAPI documents of Kubernetes to the schemas of the embedded API server
cargo xtask generate [--check]  writes the generated files (CRDs, references); --check fails if they differ
cargo xtask house [--map]       checks layout, imports, dependencies and words; --map writes the map of the house";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["control-plane"] => control_plane::build(),
        ["interop"] => interop::build(),
        ["builtin-schemas"] => builtin_schemas::write(),
        ["generate"] => generate::write(),
        ["generate", "--check"] => generate::check(),
        ["house"] => house::check(),
        ["house", "--map"] => house::write_map(),
        [] | ["help" | "--help"] => {
            println!("{HELP}");
            Ok(())
        }
        other => bail!("there is no chore {:?}\n{HELP}", other.join(" ")),
    }
}
