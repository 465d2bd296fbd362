//! A month of rotation, small enough for every test run; `WRIT_MONTH_CLUSTERS=1000` is the full size.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use jiff::SignedDuration;

#[tokio::test]
async fn no_account_is_ever_without_a_valid_token() {
    let clusters = std::env::var("WRIT_MONTH_CLUSTERS").map_or(10, |n| n.parse().unwrap());
    let month = writ_bench::month::simulate(clusters, 5).await.unwrap();
    println!("{month:?}");
    assert_eq!(month.accounts, clusters * 5);
    // A token of a week is renewed every five and a half days, an outage of a day included.
    assert!(month.renewals >= month.accounts * 4 && month.renewals <= month.accounts * 6);
    assert!(month.failures > 0, "there was an outage");
    assert!(month.oldest_first);
    assert!(
        month.parts.0 >= 0.699 && month.parts.1 <= 0.801,
        "{:?}",
        month.parts
    );
    // 70 % + a day + 10 % of a week: there is always more than a day left.
    assert!(
        month.least_left > SignedDuration::from_hours(9),
        "{:?}",
        month.least_left
    );
    let even = month.accounts / 1008 + 1;
    assert!(
        month.most_per_minute <= 4 * even + 4,
        "{} in one minute",
        month.most_per_minute
    );
}
