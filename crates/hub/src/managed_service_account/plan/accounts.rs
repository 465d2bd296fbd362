//! One account: when it ends, and when its Secret needs a repair.

use jiff::{SignedDuration, Timestamp};
use writ_api::authentication::ManagedServiceAccount;

use crate::managed_service_account::model::SeenSecret;

/// How long the status of an account may lag behind its Secret before the hub asks for a repair.
pub const REPORT_LAG: SignedDuration = SignedDuration::from_secs(2);

/// When the account's time to live ends.
pub fn ends_at(account: &ManagedServiceAccount) -> Option<Timestamp> {
    let ttl = account.spec.ttl_seconds_after_creation?;
    let created = account.metadata.creation_timestamp.as_ref()?.0;
    created.saturating_add(SignedDuration::from_secs(ttl.into())).ok()
}

/// Why the agent must repair the Secret; `None` if it is as reported. `deleted` is the version at which it was deleted.
pub fn repair_reason(
    account: &ManagedServiceAccount,
    seen: Option<&SeenSecret>,
    deleted: Option<&str>,
) -> Option<String> {
    let reported = account.status.as_ref()?.secret_digest.as_ref()?;
    match seen {
        Some(seen) if seen.digest == *reported => None,
        Some(seen) => Some(format!("changed-{}", seen.version)),
        None => Some(deleted.map_or_else(|| "missing".into(), |version| format!("missing-{version}"))),
    }
}
