//! writ and OCM side by side: OCM's agent under writ's hub, writ's agent under OCM's hub. Real control planes, and
//! OCM's own `work` binary (`cargo xtask interop`); without it every test here is ignored by name.

mod definitions;
mod ocm;
mod ocm_agent;
mod ocm_hub;
mod rules;

use std::future::Future;

use anyhow::{Context, Result};
use libtest_mimic::Trial;
use writ_e2e::{Fleet, Kind};
use writ_testenv::harness;

fn main() {
    harness::run(vec![
        compared("interop/what_ocms_definitions_accept_ours_accept"),
        trial(
            "interop/ocm_agent_delivers_works_of_writs_hub",
            ocm_agent::delivery,
        ),
        trial(
            "interop/ocm_agent_obeys_its_executor_gate_under_writs_admission",
            ocm_agent::executor,
        ),
        trial(
            "interop/ocm_agent_hands_over_to_writs_agent_and_back",
            ocm_agent::hand_over,
        ),
        trial("interop/condition_rules_say_the_same", rules::compared),
        trial("interop/ocm_hub_drives_writs_agent", ocm_hub::replica_set),
        trial(
            "interop/ocm_webhook_guards_works_of_writs_agent",
            ocm_hub::webhook,
        ),
    ]);
}

/// The definitions side by side; nothing has to run for it.
fn compared(name: &'static str) -> Trial {
    let folders = ocm::definitions();
    if folders.is_none() {
        eprintln!("{name}: OCM's definitions are not there, `cargo xtask interop` fetches them");
    }
    let missing = folders.is_none() && !harness::real_required();
    harness::plain(name, "files", move || async move {
        definitions::accepted(&folders.context("OCM's definitions are not there: cargo xtask interop")?)
    })
    .with_ignored_flag(missing)
}

fn trial<F, Fut>(name: &'static str, test: F) -> Trial
where
    F: FnOnce(Fleet) -> Fut + Send + 'static,
    Fut: Future<Output = Result<()>>,
{
    let built = ocm::binary().is_some();
    if !built {
        eprintln!("{name}: OCM's work binary is not there, `cargo xtask interop` builds it");
    }
    let trial = harness::real(name, move || async move {
        test(Fleet::start(Kind::Real, 1).await?).await
    });
    if built {
        trial
    } else {
        trial.with_ignored_flag(true)
    }
}
