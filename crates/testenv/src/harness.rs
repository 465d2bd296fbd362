//! Tests that need a real control plane: ignored by name if there is none, failed if one is required.
//!
//! ```no_run
//! use writ_testenv::harness;
//! fn main() {
//!     harness::run(vec![harness::real("a_role_is_bound", || async { anyhow::Ok(()) })]);
//! }
//! ```

use std::{env, future::Future, sync::Once};

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::Assets;

static EXPLAINED: Once = Once::new();

/// Whether a missing control plane fails the tests that need one: `WRIT_REQUIRE_REAL=1`.
pub fn real_required() -> bool {
    env::var("WRIT_REQUIRE_REAL").is_ok_and(|value| value == "1")
}

/// A test that needs a real control plane.
pub fn real<F, Fut>(name: &str, test: F) -> Trial
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = Result<()>>,
{
    let missing = Assets::find().err();
    let ignored = missing.is_some() && !real_required();
    if let Some(missing) = missing.as_ref().filter(|_| ignored) {
        // The list of tests names the ignored ones; the reason is printed once for all.
        EXPLAINED.call_once(|| eprintln!("tests that need a real control plane are ignored: {missing}"));
    }
    Trial::test(name, move || match missing {
        Some(missing) => Err(Failed::from(missing)),
        None => block_on(test()),
    })
    .with_ignored_flag(ignored)
    .with_kind("real")
}

/// A test that needs nothing but this process.
pub fn plain<F, Fut>(name: &str, kind: &str, test: F) -> Trial
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = Result<()>>,
{
    Trial::test(name, move || block_on(test())).with_kind(kind)
}

/// Runs the tests as `cargo test` expects it, and ends the process.
pub fn run(tests: Vec<Trial>) -> ! {
    run_then(tests, || Ok(()))
}

/// The same with a final check of what all tests did together, if all were run and passed.
pub fn run_then(tests: Vec<Trial>, check: impl FnOnce() -> Result<()>) -> ! {
    let arguments = Arguments::from_args();
    let everything = arguments.filter.is_none() && arguments.skip.is_empty() && !arguments.list;
    let conclusion = libtest_mimic::run(&arguments, tests);
    if everything
        && !conclusion.has_failed()
        && let Err(error) = check()
    {
        eprintln!("{error:?}");
        std::process::exit(101);
    }
    conclusion.exit()
}

fn block_on(test: impl Future<Output = Result<()>>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let outcome = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(test));
    outcome.map_err(|error| Failed::from(format!("{error:?}")))
}
