//! The manifests of `deploy/` are part of the binary: a new file there must lead to a new build.

fn main() {
    println!("cargo::rerun-if-changed=../../deploy");
}
