//! ServiceAccounts that an account had before the agent moved to another namespace, as tokens and annotations name them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::ResourceExt;
use writ_api::authentication::{ANNOTATION_FORMER, KEY_TOKEN};
use writ_runtime::segment;

use crate::{
    token_claims,
    tokens::model::{Facts, PreviousServiceAccount},
};

/// Neither a token's claims nor an annotation are trusted, and these parts become part of a request: they must be a namespace
/// and a uid.
fn previous(namespace: &str, uid: &str, expires: Timestamp) -> Option<PreviousServiceAccount> {
    let groups = uid.split('-').map(str::len);
    let is_uid =
        groups.eq([8, 4, 4, 4, 12]) && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    (segment::is_label(namespace) && is_uid).then(|| PreviousServiceAccount {
        namespace: namespace.to_owned(),
        uid: uid.to_owned(),
        expires,
    })
}

/// The ServiceAccount whose token is in the Secret, if that is of another namespace.
pub fn of_secret(found: Option<&Secret>, facts: &Facts<'_>) -> Option<PreviousServiceAccount> {
    let token = found?.data.as_ref()?.get(KEY_TOKEN)?;
    let claims = token_claims::read(&token.0)?;
    let namespace = token_claims::namespace_of(&claims.subject)?;
    let moved =
        namespace != facts.namespace && claims.subject == token_claims::subject(namespace, &facts.wish.name);
    previous(namespace, claims.uid.as_ref()?, claims.expires).filter(|_| moved)
}

/// The ServiceAccounts that are recorded on the present one.
pub fn recorded(account: &ServiceAccount) -> Vec<PreviousServiceAccount> {
    let one = |text: &str| {
        let (rest, expires) = text.rsplit_once('/')?;
        let (namespace, uid) = rest.split_once('/')?;
        let expires = Timestamp::from_second(expires.parse().ok()?).ok()?;
        previous(namespace, uid, expires)
    };
    let all = account.annotations().get(ANNOTATION_FORMER);
    all.iter()
        .flat_map(|all| all.split(','))
        .filter_map(one)
        .collect()
}
