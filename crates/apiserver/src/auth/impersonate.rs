//! On whose behalf: the impersonation headers, and who may send them.
//!
//! There are five ways to be allowed to be somebody else. The constrained ones ask two questions: may you be them at all
//! (`impersonate:<mode>`), and may you do this while you are (`impersonate-on:<mode>:<verb>`). The old one asks for
//! `impersonate` alone.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use http::HeaderMap;
use writ_authz::{Attributes, ResourceAttributes};

use super::authenticate::text;
use super::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User};
use crate::http::forbidden;
use crate::schema::{names, quote};
use crate::state::State;
use crate::status::{Failure, Result};

const AUTHENTICATION: &str = "authentication.k8s.io";
const NODE: &str = "system:node:";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// From this many groups, or values of `extra`, on, whether all of them are allowed is asked first.
const MANY: usize = 4;

/// How many users' ways are remembered.
const REMEMBERED: usize = 1024;

/// A way to be allowed, in the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A ServiceAccount is the node that its pod runs on.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

const MODES: [Mode; 5] = [
    Mode::AssociatedNode,
    Mode::ArbitraryNode,
    Mode::ServiceAccount,
    Mode::UserInfo,
    Mode::Legacy,
];

/// The way that last worked for a user is tried first.
#[derive(Default)]
pub(crate) struct Ways(Mutex<HashMap<String, Mode>>);

impl Ways {
    fn get(&self, user: &str) -> Option<Mode> {
        let ways = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ways.get(user).copied()
    }

    fn set(&self, user: &str, mode: Mode) {
        let mut ways = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ways.len() >= REMEMBERED {
            ways.clear();
        }
        ways.insert(user.to_owned(), mode);
    }
}

/// The user that a request is for: the one who sent it, or the one whom its headers name, if that is allowed.
pub(crate) fn impersonate(
    state: &State,
    user: User,
    headers: &HeaderMap,
    request: &Attributes<'_>,
) -> Result<User> {
    let Some(wanted) = wanted(headers)? else {
        return Ok(user);
    };
    let last = state.ways.get(&user.name);
    let others = MODES.into_iter().filter(|mode| Some(*mode) != last);
    let mut refused = None;
    for mode in last.into_iter().chain(others) {
        if !mode.applies(&wanted, &user) {
            continue;
        }
        match (Asker {
            state,
            user: &user,
            mode,
        })
        .check(&wanted, request)
        {
            Ok(actual) => {
                state.ways.set(&user.name, mode);
                return Ok(actual);
            }
            Err(failure) => drop(refused.get_or_insert(failure)),
        }
    }
    // The old way applies to everybody, so there is a refusal.
    Err(refused.unwrap_or_else(Failure::unauthorized))
}

/// Whom the headers name.
fn wanted(headers: &HeaderMap) -> Result<Option<User>> {
    let values = |name: &str| -> Vec<String> { headers.get_all(name).iter().map(text).collect() };
    let first = |name: &str| values(name).into_iter().next().unwrap_or_default();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (header, value) in headers {
        if let Some(key) = header.as_str().strip_prefix("impersonate-extra-") {
            extra
                .entry(crate::http::decode_whole(key))
                .or_default()
                .push(text(value));
        }
    }
    let user = User {
        name: first("impersonate-user"),
        uid: first("impersonate-uid"),
        groups: values("impersonate-group"),
        extra,
    };
    if !user.name.is_empty() {
        Ok(Some(user))
    } else if user == User::default() {
        Ok(None)
    } else {
        let user = as_there(&user);
        let why = format!("requested {user} without impersonating a user name");
        Err(Failure::bad_request(why))
    }
}

/// A user without a name as the real server prints it: in the syntax of Go.
fn as_there(user: &User) -> String {
    let list = |texts: &[String]| {
        let texts: Vec<_> = texts.iter().map(|text| quote(text)).collect();
        format!("[]string{{{}}}", texts.join(", "))
    };
    let groups = if user.groups.is_empty() {
        "[]string(nil)".to_owned()
    } else {
        list(&user.groups)
    };
    let extra: Vec<_> = user
        .extra
        .iter()
        .map(|(key, values)| format!("{}:{}", quote(key), list(values)))
        .collect();
    let extra = if extra.is_empty() {
        "(nil)".to_owned()
    } else {
        format!("{{{}}}", extra.join(", "))
    };
    format!(
        "&user.DefaultInfo{{Name:\"\", UID:{}, Groups:{groups}, Extra:map[string][]string{extra}}}",
        quote(&user.uid)
    )
}

/// The node behind the name of a user.
fn node(name: &str) -> Option<&str> {
    name.strip_prefix(NODE)
        .filter(|node| names::dns_subdomain(node).is_empty())
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    fn applies(self, wanted: &User, asker: &User) -> bool {
        let bare = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let account = writ_authz::split_service_account;
        match self {
            Self::AssociatedNode => {
                let own = match asker.extra.get(NODE_NAME).map(Vec::as_slice) {
                    Some([own]) => Some(own.as_str()),
                    _ => None,
                };
                bare && account(&asker.name).is_some() && own.is_some() && node(&wanted.name) == own
            }
            Self::ArbitraryNode => bare && node(&wanted.name).is_some(),
            Self::ServiceAccount => bare && account(&wanted.name).is_some(),
            Self::UserInfo => node(&wanted.name).is_none() && account(&wanted.name).is_none(),
            Self::Legacy => true,
        }
    }
}

/// One way of one user.
struct Asker<'a> {
    state: &'a State,
    user: &'a User,
    mode: Mode,
}

impl Asker<'_> {
    fn constrained(&self) -> bool {
        self.mode != Mode::Legacy
    }

    fn allowed(&self, attributes: Attributes<'_>) -> Result<()> {
        if self.state.authorizer.allows(self.user, &attributes) {
            return Ok(());
        }
        Err(forbidden(self.user, &attributes))
    }

    /// Asks for the right to be something.
    fn may_be(&self, attributes: ResourceAttributes<'_>) -> Result<()> {
        let verb = match self.mode {
            Mode::Legacy => "impersonate".to_owned(),
            mode => format!("impersonate:{}", mode.name()),
        };
        self.allowed(Attributes::Resource(ResourceAttributes {
            verb: &verb,
            ..attributes
        }))
    }

    /// Who the user becomes.
    fn check(&self, wanted: &User, request: &Attributes<'_>) -> Result<User> {
        if self.constrained() {
            let verb = format!("impersonate-on:{}:{}", self.mode.name(), request.verb());
            self.allowed(match *request {
                Attributes::Resource(resource) => Attributes::Resource(ResourceAttributes {
                    verb: &verb,
                    ..resource
                }),
                Attributes::NonResource { path, .. } => Attributes::non_resource(&verb, path),
            })?;
        }
        let mut actual = wanted.clone();
        self.name(wanted, &mut actual)?;
        if !wanted.uid.is_empty() {
            self.may_be(ResourceAttributes::new("", AUTHENTICATION, "uids").named(&wanted.uid))?;
        }
        self.groups(&wanted.groups)?;
        self.extra(&wanted.extra)?;
        let implied = if actual.name == ANONYMOUS {
            Some(UNAUTHENTICATED)
        } else if actual.groups.iter().any(|group| group == UNAUTHENTICATED) {
            None
        } else {
            Some(AUTHENTICATED)
        };
        if let Some(implied) = implied.filter(|implied| !actual.groups.iter().any(|group| group == implied)) {
            actual.join(implied);
        }
        Ok(actual)
    }

    /// Users, accounts and nodes are different things; the groups of the latter two are known.
    fn name(&self, wanted: &User, actual: &mut User) -> Result<()> {
        let group = self.group_of_names();
        if let Some((namespace, account)) = writ_authz::split_service_account(&wanted.name) {
            if wanted.groups.is_empty() {
                actual.groups = vec![
                    "system:serviceaccounts".into(),
                    format!("system:serviceaccounts:{namespace}"),
                ];
            }
            let account = ResourceAttributes::new("", group, "serviceaccounts").named(account);
            return self.may_be(account.in_namespace(namespace));
        }
        if self.constrained()
            && let Some(node) = node(&wanted.name)
        {
            actual.groups = vec!["system:nodes".into()];
            // One's own node is asked for whichever it is.
            let node = if self.mode == Mode::AssociatedNode {
                "*"
            } else {
                node
            };
            return self.may_be(ResourceAttributes::new("", group, "nodes").named(node));
        }
        self.may_be(ResourceAttributes::new("", group, "users").named(&wanted.name))
    }

    fn group_of_names(&self) -> &'static str {
        if self.constrained() { AUTHENTICATION } else { "" }
    }

    fn groups(&self, groups: &[String]) -> Result<()> {
        let all = ResourceAttributes::new("", self.group_of_names(), "groups");
        if self.constrained() {
            for bad in ["", MASTERS] {
                if groups.iter().any(|group| group == bad) {
                    let why = format!("impersonating the {bad:?} group is not allowed");
                    return Err(Failure::forbidden(AUTHENTICATION, "groups", bad, &why));
                }
            }
            if groups.len() >= MANY && self.may_be(all.named("*")).is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|group| self.may_be(all.named(group)))
    }

    fn extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Result<()> {
        let all = ResourceAttributes::new("", AUTHENTICATION, "userextras");
        if self.constrained() && !extra.is_empty() {
            let empty = |(key, values): (&String, &Vec<String>)| {
                key.is_empty() || values.is_empty() || values.iter().any(String::is_empty)
            };
            let odd = |key: &String| !is_domain_path(key) || key.chars().any(char::is_uppercase);
            if extra.iter().any(empty) || extra.keys().any(odd) {
                let why = "impersonating such a key or value in extra is not allowed";
                return Err(Failure::forbidden(AUTHENTICATION, "userextras", "", why));
            }
            let count: usize = extra.values().map(Vec::len).sum();
            if count >= MANY && self.may_be(all.subresource("*").named("*")).is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                self.may_be(all.subresource(key).named(value))?;
            }
        }
        Ok(())
    }
}

/// `domain/path`, as keys of `extra` are spelled.
fn is_domain_path(key: &str) -> bool {
    key.split_once('/').is_some_and(|(domain, path)| {
        let good = |c: char| c.is_ascii_alphanumeric() || "/%_~!$&'()*+,;=:.-".contains(c);
        names::dns_subdomain(domain).is_empty() && !path.is_empty() && path.chars().all(good)
    })
}
