//! The ServiceAccount that an account had before the agent moved to another namespace. It goes when the account has its
//! token here. Until then it is noted on the new ServiceAccount, so that a restart forgets nothing.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use writ_api::authentication::{ANNOTATION_FORMER, KEY_TOKEN};
use writ_controller::{Error, error::Context as _, write};
use writ_runtime::segment;

use super::{claims, plan::Facts, reconcile::Worker, service_account, state::State};

/// One of the same name in another namespace, which the account's own token named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Former {
    namespace: String,
    uid: String,
    /// When the last token of it that we know of dies by itself.
    expires: Timestamp,
}

impl fmt::Display for Former {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.uid, self.expires.as_second())
    }
}

impl Former {
    /// Nobody has vouched for what a token or a note says, and it becomes part of a request: what can be no namespace
    /// and no uid is nobody.
    fn new(namespace: &str, uid: &str, expires: Timestamp) -> Option<Self> {
        let groups = uid.split('-').map(str::len);
        let identified =
            groups.eq([8, 4, 4, 4, 12]) && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        (segment::is_label(namespace) && identified).then(|| Self {
            namespace: namespace.to_owned(),
            uid: uid.to_owned(),
            expires,
        })
    }

    /// The one whose token is in the Secret, if it is not of this namespace.
    pub fn of(found: Option<&Secret>, facts: &Facts<'_>) -> Option<Self> {
        let token = found?.data.as_ref()?.get(KEY_TOKEN)?;
        let claims = claims::read(&token.0)?;
        let namespace = claims::namespace_of(&claims.subject)?;
        let moved =
            namespace != facts.namespace && claims.subject == claims::subject(namespace, &facts.wish.name);
        Self::new(namespace, claims.uid.as_ref()?, claims.expires).filter(|_| moved)
    }

    /// Those that are noted on a ServiceAccount.
    pub fn recorded(account: &ServiceAccount) -> Vec<Self> {
        let noted = account.annotations().get(ANNOTATION_FORMER);
        let one = |text: &str| {
            let (rest, expires) = text.rsplit_once('/')?;
            let (namespace, uid) = rest.split_once('/')?;
            Self::new(
                namespace,
                uid,
                Timestamp::from_second(expires.parse().ok()?).ok()?,
            )
        };
        noted
            .iter()
            .flat_map(|all| all.split(','))
            .filter_map(one)
            .collect()
    }
}

impl State {
    /// Takes over what is noted on the ServiceAccount. Who deleted the one of before where the agent may not look
    /// takes the note off.
    pub(super) fn recall(&mut self, account: &ServiceAccount) {
        let recorded = Former::recorded(account);
        if !recorded.is_empty() {
            self.former = recorded;
            self.noted = true;
        } else if std::mem::take(&mut self.noted) {
            self.former.clear();
            self.left = None;
        }
    }
}

impl Worker {
    /// Notes one that is to be deleted.
    pub(super) async fn remember(&self, name: &str, state: &mut State, former: Former) -> Result<(), Error> {
        if state.former.contains(&former) {
            return Ok(());
        }
        let all: Vec<_> = state
            .former
            .iter()
            .chain([&former])
            .map(ToString::to_string)
            .collect();
        self.note(name, Some(all.join(","))).await?;
        state.former.push(former);
        Ok(())
    }

    /// Deletes those that are noted; returns when to try again, if that failed or is still to be told.
    pub(super) async fn leave(&self, name: &str, state: &mut State) -> Option<Duration> {
        if state.former.is_empty() {
            return None;
        }
        let left = async {
            for former in &state.former {
                self.leave_one(name, former).await?;
            }
            self.note(name, None).await
        };
        match left.await {
            Ok(()) => {
                state.former.clear();
                state.noted = false;
                state.leaving.reset();
                // A condition that says otherwise goes with the next look.
                state.left.take().map(|_| Duration::ZERO)
            }
            Err(error) => {
                let told = state.left.replace(error.to_string());
                if told == state.left {
                    Some(state.leaving.next_delay())
                } else {
                    tracing::warn!(account = name, %error, "the ServiceAccount in the former namespace is still there");
                    Some(Duration::ZERO)
                }
            }
        }
    }

    async fn leave_one(&self, name: &str, former: &Former) -> Result<(), Error> {
        let namespace = &former.namespace;
        let api: Api<ServiceAccount> = Api::namespaced(self.spoke.clone(), namespace);
        let found = match api.get_opt(name).await {
            // Where it may not look, time does the same.
            Err(kube::Error::Api(status)) if status.code == 403 && former.expires <= self.spoke_now() => None,
            answer => answer.context(|| format!("read the ServiceAccount {namespace}/{name}"))?,
        };
        let is_it = |found: &ServiceAccount| {
            found.uid().as_deref() == Some(&former.uid) && service_account::is_ours(found, &self.settings)
        };
        match found.filter(is_it) {
            Some(_) => write::delete(&api, name, Some(&former.uid)).await,
            None => Ok(()),
        }
    }

    async fn note(&self, name: &str, former: Option<String>) -> Result<(), Error> {
        let patch = json!({ "metadata": { "annotations": { ANNOTATION_FORMER: former } } });
        let noted = self
            .spoke_accounts()
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        noted
            .map(drop)
            .context(|| format!("note the former namespace on the ServiceAccount {name}"))
    }
}
