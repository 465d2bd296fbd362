//! The ServiceAccount in a namespace where the agent was before.

use serde_json::json;

use super::{
    super::{
        model::{Existing, Facts},
        plan::{previous, secret, service_account, token as plan},
        state::State,
    },
    CLUSTER, account, at, settings, token,
};

const UID: &str = "11111111-2222-3333-4444-555555555555";

#[test]
fn previous_service_account_is_recorded_and_recalled() {
    let plain = account(&json!({}));
    let wish = plan::wish(&plain, &settings()).unwrap();
    let of_uid = |subject: &str, uid: &str| {
        let token = token(subject, 0, 1000, uid);
        let secret = secret::wanted(&plain, &wish, &CLUSTER, &token, None);
        let facts = Facts {
            account: &plain,
            wish: &wish,
            uid: "s1",
            cluster: CLUSTER.clone(),
            namespace: "agents",
            now: at(100),
        };
        previous::of_secret(Some(&secret), &facts)
    };
    let of = |subject: &str| of_uid(subject, UID);
    assert_eq!(of("system:serviceaccount:agents:a"), None, "it is here");
    assert_eq!(
        of("system:serviceaccount:before:b"),
        None,
        "it is another account's"
    );
    // The content of a Secret must not become part of a request.
    for namespace in [
        "",
        "-",
        "Before",
        "a/b",
        "..",
        "kube-system/serviceaccounts?watch=true&x=",
        "a%2f",
        &"a".repeat(64),
    ] {
        let subject = format!("system:serviceaccount:{namespace}:a");
        assert_eq!(of(&subject), None, "{namespace}");
        let note = json!({"metadata": {"annotations": {"authentication.writ.dev/former":
            format!("{namespace}/{UID}/1000")}}});
        assert!(
            previous::recorded(&super::service_account(&note)).is_empty(),
            "{namespace}"
        );
    }
    for uid in [
        "",
        "s0",
        "11111111-2222-3333-4444-55555555555g",
        "11111111222233334444555555555555",
    ] {
        assert_eq!(of_uid("system:serviceaccount:before:a", uid), None, "{uid}");
    }
    let former = of("system:serviceaccount:before:a").unwrap();
    let noted = json!({"metadata": {"annotations": {"authentication.writ.dev/former":
        format!("{former},nonsense,x/y/z")}}});
    let found = super::service_account(&noted);
    assert_eq!(previous::recorded(&found), std::slice::from_ref(&former));
    // The note is no edit that has to be undone.
    assert_eq!(
        service_account::existing(&plain, &wish, &found, false, &settings()),
        Ok(Existing::Use)
    );
    let mut state = State::default();
    state.recall_previous(&super::service_account(&json!({})));
    assert!(state.previous.is_empty());
    state.recall_previous(&found);
    assert_eq!(state.previous, [former]);
    state.previous_error = Some("why".into());
    state.recall_previous(&super::service_account(&json!({})));
    assert!(state.previous.is_empty() && state.previous_error.is_none());
}
