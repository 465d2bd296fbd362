//! Who may name which executor: `execute-as`, or a ManagedServiceAccountBinding.

use k8s_openapi::api::{authentication::v1::UserInfo, authorization::v1::ResourceAttributes};
use kube::{Api, api::ListParams};
use writ_api::{
    addon::ManagedClusterAddOn,
    authentication::{AccountSubject, ManagedServiceAccountBinding},
    work::{Executor, ExecutorServiceAccount, GROUP, NIL_EXECUTOR},
};
use writ_controller::{Error, error::Context as _};
use writ_process::whoami::whoami;

use super::{Decision, Desk, ExecutorAuthorization, NilExecutor};

/// The add-on that keeps managed accounts on clusters.
const ACCOUNTS_ADD_ON: &str = "managed-serviceaccount";

/// Where a work will run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// On one cluster.
    Cluster(&'a str),
    /// On clusters that nobody knows yet.
    Everywhere,
}

/// Whether this user may change a work from what it was, if it was there, to what it shall be. What an executor delivered
/// goes when another one takes its place, so both are asked about. One that is nobody's was never delivered for.
pub async fn check_change(
    desk: &Desk,
    user: &UserInfo,
    new: Option<&Executor>,
    old: Option<Option<&Executor>>,
    scope: Scope<'_>,
) -> Result<Decision, Error> {
    let decision = check(desk, user, new, scope).await?;
    let replaced = old.filter(|old| *old != new && old.is_none_or(|old| old.service_account().is_ok()));
    let Some(old) = replaced.filter(|_| decision == Decision::Allow) else {
        return Ok(decision);
    };
    let decision = check(desk, user, old, scope).await?;
    // The hub puts back what somebody changed, whatever he made of it.
    if decision != Decision::Allow && is_myself(desk, user).await.unwrap_or(false) {
        return Ok(Decision::Allow);
    }
    Ok(decision)
}

/// Whether this user may write a work with this executor.
async fn check(
    desk: &Desk,
    user: &UserInfo,
    executor: Option<&Executor>,
    scope: Scope<'_>,
) -> Result<Decision, Error> {
    let Some(executor) = executor else {
        if desk.options.nil_executor == NilExecutor::Allow {
            return Ok(Decision::Allow);
        }
        // The agent itself is no managed account: no binding can be about it.
        let allowed = execute_as(desk, user, NIL_EXECUTOR, scope).await?;
        return Ok(decide(allowed, user, "/klusterlet-work-sa", scope));
    };
    let account = match executor.service_account() {
        Ok(account) => account,
        Err(problem) => return Ok(Decision::bad_request(problem)),
    };
    let how = match scope {
        Scope::Cluster(_) => desk.options.executor_authorization,
        // Bindings are made for one cluster each.
        Scope::Everywhere => ExecutorAuthorization::ExecuteAs,
    };
    let by_binding = matches!(
        how,
        ExecutorAuthorization::Binding | ExecutorAuthorization::Either
    );
    let mut allowed = false;
    if how != ExecutorAuthorization::Binding {
        allowed = execute_as(desk, user, &account.user(), scope).await?;
    }
    if !allowed
        && by_binding
        && let Scope::Cluster(cluster) = scope
    {
        allowed = bound(desk, user, account, cluster).await?;
    }
    // The hub's own controllers write works for those whom admission has asked already, and for the administrator who
    // started it: no binding can name it in every cluster, so it is asked for execute-as like everywhere.
    if !allowed && how == ExecutorAuthorization::Binding && is_myself(desk, user).await? {
        allowed = execute_as(desk, user, &account.user(), scope).await?;
    }
    let name = format!("{}/{}", account.namespace, account.name);
    Ok(decide(allowed, user, &name, scope))
}

/// Whether a user is this hub, as the API server authenticates both.
async fn is_myself(desk: &Desk, user: &UserInfo) -> Result<bool, Error> {
    let me = whoami(&desk.client).await?.and_then(|me| me.username);
    Ok(me.is_some_and(|me| !me.is_empty() && user.username == Some(me)))
}

fn decide(allowed: bool, user: &UserInfo, executor: &str, scope: Scope<'_>) -> Decision {
    if allowed {
        return Decision::Allow;
    }
    let user = user.username.as_deref().unwrap_or_default();
    Decision::bad_request(match scope {
        Scope::Cluster(namespace) => format!(
            "user {user} cannot manipulate the Manifestwork with executor {executor} in namespace {namespace}"
        ),
        Scope::Everywhere => format!(
            "user {user} cannot manipulate the ManifestWorkReplicaSet with executor {executor}: its clusters can \
             change, so execute-as is needed in all namespaces"
        ),
    })
}

/// Whether the user has the permission `execute-as` for that identity.
pub async fn execute_as(
    desk: &Desk,
    user: &UserInfo,
    identity: &str,
    scope: Scope<'_>,
) -> Result<bool, Error> {
    let namespace = match scope {
        Scope::Cluster(namespace) => Some(namespace.to_owned()),
        Scope::Everywhere => None,
    };
    let attributes = ResourceAttributes {
        verb: Some("execute-as".into()),
        group: Some(GROUP.into()),
        version: Some("v1".into()),
        resource: Some("manifestworks".into()),
        namespace,
        name: Some(identity.into()),
        ..ResourceAttributes::default()
    };
    desk.authorizer.allowed(user, attributes).await
}

/// Where the add-on puts accounts on this cluster; `None` if it is not there.
pub async fn accounts_namespace(desk: &Desk, cluster: &str) -> Result<Option<String>, Error> {
    let add_ons: Api<ManagedClusterAddOn> = Api::namespaced(desk.client.clone(), cluster);
    let found = add_ons
        .get_opt(ACCOUNTS_ADD_ON)
        .await
        .context(|| format!("get ManagedClusterAddOn {cluster}/{ACCOUNTS_ADD_ON}"))?;
    Ok(found.map(|add_on| {
        let actual = add_on.status.as_ref().and_then(|status| status.namespace.clone());
        actual
            .filter(|namespace| !namespace.is_empty())
            .unwrap_or_else(|| add_on.wished_namespace().to_owned())
    }))
}

async fn bound(
    desk: &Desk,
    user: &UserInfo,
    account: &ExecutorServiceAccount,
    cluster: &str,
) -> Result<bool, Error> {
    // A binding is about the accounts that the add-on makes, never about others of the same name.
    if accounts_namespace(desk, cluster).await?.as_deref() != Some(account.namespace.as_str()) {
        return Ok(false);
    }
    let bindings: Api<ManagedServiceAccountBinding> = Api::namespaced(desk.client.clone(), cluster);
    let bindings = bindings
        .list(&ListParams::default())
        .await
        .context(|| format!("list ManagedServiceAccountBindings in {cluster}"))?;
    Ok(bindings.items.iter().any(|binding| {
        let reference = &binding.spec.reference;
        reference.name == account.name
            && reference
                .namespace
                .as_deref()
                .is_none_or(|namespace| namespace == cluster)
            && binding.spec.subjects.iter().any(|subject| names(subject, user))
    }))
}

/// Whether a subject of a binding is this user.
pub fn names(subject: &AccountSubject, user: &UserInfo) -> bool {
    let username = user.username.as_deref().unwrap_or_default();
    match subject.kind.as_str() {
        "User" => subject.name == username,
        "Group" => user.groups.iter().flatten().any(|group| *group == subject.name),
        "ServiceAccount" => subject.namespace.as_ref().is_some_and(|namespace| {
            username == format!("system:serviceaccount:{namespace}:{}", subject.name)
        }),
        _ => false,
    }
}
