//! What makes the program small in memory, whose own pages are most of what an agent occupies. Only where the toolchain
//! links with its own linker, which can do it.

use std::process::Command;

fn main() {
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
    {
        // Equal functions are kept once: a third of the program is copies of the same code for types that differ by
        // name only.
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        if std::env::var("HOST") == std::env::var("TARGET") && loader_unpacks() {
            // What has to be put right in memory at the start is listed in kilobytes instead of megabytes.
            println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
}

/// Whether the C library of this machine can load a program with packed relocations: glibc can since 2.36.
fn loader_unpacks() -> bool {
    let Ok(answer) = Command::new("getconf").arg("GNU_LIBC_VERSION").output() else {
        return false;
    };
    let answer = String::from_utf8_lossy(&answer.stdout);
    let version = answer.trim().strip_prefix("glibc ").unwrap_or_default();
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next(), parts.next()) >= (Some(2), Some(36))
}
