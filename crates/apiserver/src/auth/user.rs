//! Who sends a request.

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub(crate) const AUTHENTICATED: &str = "system:authenticated";
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
pub(crate) const ANONYMOUS: &str = "system:anonymous";
pub(crate) const MASTERS: &str = "system:masters";

/// A user with everything that is known about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// A number that outlives the name, if the authenticator has one.
    pub uid: String,
    /// All groups.
    pub groups: Vec<String>,
    /// Other facts.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user that has proven who it is, in these groups and in `system:authenticated`; unless it proved to be nobody.
    pub fn new<S: Into<String>>(name: impl Into<String>, groups: impl IntoIterator<Item = S>) -> Self {
        let mut user = Self {
            name: name.into(),
            groups: groups.into_iter().map(Into::into).collect(),
            ..Self::default()
        };
        if user.name != ANONYMOUS && !user.groups.iter().any(|group| group == UNAUTHENTICATED) {
            user.join(AUTHENTICATED);
        }
        user
    }

    /// One that has proven nothing.
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.into(),
            groups: vec![UNAUTHENTICATED.into()],
            ..Self::default()
        }
    }

    /// The groups that a ServiceAccount is in.
    pub(crate) fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        let mut user = Self::new(
            account_name(namespace, name),
            [
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ],
        );
        uid.clone_into(&mut user.uid);
        user
    }

    pub(crate) fn join(&mut self, group: &str) {
        if !self.groups.iter().any(|have| have == group) {
            self.groups.push(group.to_owned());
        }
    }

    /// As `userInfo` in reviews.
    pub(crate) fn to_json(&self) -> Value {
        let mut it = json!({ "username": self.name });
        if let Some(map) = it.as_object_mut() {
            if !self.uid.is_empty() {
                map.insert("uid".into(), self.uid.clone().into());
            }
            if !self.groups.is_empty() {
                map.insert("groups".into(), self.groups.clone().into());
            }
            if !self.extra.is_empty() {
                map.insert("extra".into(), json!(self.extra));
            }
        }
        it
    }
}

/// What a ServiceAccount is called as a user.
pub(super) fn account_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}
