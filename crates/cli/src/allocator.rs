//! Memory that is not needed goes back at once, in the commands that run for months.

use std::{env, os::unix::process::CommandExt as _, process::Command};

/// How long the allocator keeps what is free, in milliseconds; it would be a second, counted only while something is
/// allocated. An agent with a thousand works occupies a sixth less, and uses no more of the processor.
const PURGE_DELAY: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "0");

/// The allocator is told by the environment in which the process begins, and in no other way without unsafe code: so
/// the process begins anew, under its own number. Where that is not possible it goes on as it is.
pub fn return_memory_at_once() {
    let (name, value) = PURGE_DELAY;
    if env::var_os(name).is_some() {
        return;
    }
    let mut arguments = env::args_os();
    if let (Some(called), Ok(program)) = (arguments.next(), env::current_exe()) {
        let failed = Command::new(program)
            .arg0(called)
            .args(arguments)
            .env(name, value)
            .exec();
        tracing::debug!(%failed, "the process could not begin anew");
    }
}
