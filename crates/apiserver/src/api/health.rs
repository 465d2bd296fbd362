//! `/livez`, `/readyz`, `/healthz`: whether the server is well, all in all and check by check.

use http::{Response, StatusCode};

use crate::http::{Body, Query, text};
use crate::state::State;
use crate::status::{Failure, Result};

/// What is looked at; the store has the name that clients know it by.
const CHECKS: [&str; 3] = ["ping", "log", "etcd"];

/// Answers for one of the endpoints, and for the check that is named behind it.
pub(super) fn answer(
    state: &State,
    endpoint: &str,
    check: Option<&str>,
    query: &Query,
) -> Result<Response<Body>> {
    let is_well = |check: &str| check != "etcd" || state.store.writable().is_ok();
    if let Some(check) = check {
        return match CHECKS.contains(&check) {
            true if is_well(check) => Ok(text(StatusCode::OK, "ok")),
            true => Ok(text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal server error: the data folder cannot be written\n",
            )),
            false => Err(Failure::no_such_path()),
        };
    }
    let mut excluded = query.all("exclude");
    let mut report = Vec::new();
    let mut well = true;
    for check in CHECKS {
        let known = excluded.len();
        excluded.retain(|name| *name != check);
        if excluded.len() < known {
            report.push(format!("[+]{check} excluded: ok\n"));
        } else if is_well(check) {
            report.push(format!("[+]{check} ok\n"));
        } else {
            // Why is in the log: whoever asks here may be nobody.
            report.push(format!("[-]{check} failed: reason withheld\n"));
            well = false;
        }
    }
    if !excluded.is_empty() {
        let unknown: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        report.push(format!(
            "warn: some health checks cannot be excluded: no matches for {}\n",
            unknown.join(",")
        ));
    }
    let report = report.concat();
    Ok(match (well, query.has("verbose")) {
        (false, _) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{report}{endpoint} check failed\n"),
        ),
        (true, true) => text(StatusCode::OK, format!("{report}{endpoint} check passed\n")),
        (true, false) => text(StatusCode::OK, "ok"),
    })
}
