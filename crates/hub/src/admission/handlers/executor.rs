//! Which users may name an executor: those with `execute-as`, or with a ManagedServiceAccountBinding.

use k8s_openapi::api::authentication::v1::UserInfo;
use kube::{Api, api::ListParams};
use writ_api::{
    addon::ManagedClusterAddOn,
    authentication::{AccountSubject, ManagedServiceAccountBinding},
    work::{Executor, ExecutorServiceAccount, NIL_EXECUTOR},
};
use writ_controller::{Error, error::Context as _};
use writ_process::{admission::Decision, whoami::whoami};

use crate::{
    admission::{context::AdmissionContext, requirement},
    options::{ExecutorAuthorization, NilExecutor},
};

/// The add-on that manages accounts on clusters.
const ACCOUNTS_ADD_ON: &str = "managed-serviceaccount";

/// Where a work will run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// On one cluster.
    Cluster(&'a str),
    /// On any cluster, those that join later included.
    Everywhere,
}

/// Whether this user may change the executor of a work. A new executor deletes what the old one delivered, so the user
/// needs the right to act as either. An old executor that names no account never delivered anything.
pub async fn check_change(
    context: &AdmissionContext,
    user: &UserInfo,
    new: Option<&Executor>,
    old: Option<Option<&Executor>>,
    scope: Scope<'_>,
) -> Result<Decision, Error> {
    let decision = check(context, user, new, scope).await?;
    let replaced = old.filter(|old| *old != new && old.is_none_or(|old| old.service_account().is_ok()));
    let Some(old) = replaced.filter(|_| decision == Decision::ALLOW) else {
        return Ok(decision);
    };
    let decision = check(context, user, old, scope).await?;
    // The hub restores its own works, even if the executor was replaced by one that the hub may not act as.
    if decision != Decision::ALLOW && is_this_hub(context, user).await.unwrap_or(false) {
        return Ok(Decision::ALLOW);
    }
    Ok(decision)
}

/// Whether this user may write a work with this executor.
async fn check(
    context: &AdmissionContext,
    user: &UserInfo,
    executor: Option<&Executor>,
    scope: Scope<'_>,
) -> Result<Decision, Error> {
    let Some(executor) = executor else {
        if context.options.admission.nil_executor == NilExecutor::Allow {
            return Ok(Decision::ALLOW);
        }
        // The agent itself is not a managed account, so no binding can name it.
        let allowed = execute_as(context, user, NIL_EXECUTOR, scope).await?;
        return Ok(decide(allowed, user, "/klusterlet-work-sa", scope));
    };
    let account = match executor.service_account() {
        Ok(account) => account,
        Err(problem) => return Ok(Decision::invalid(problem)),
    };
    let how = match scope {
        Scope::Cluster(_) => context.options.admission.executor_authorization,
        // A binding applies to one cluster.
        Scope::Everywhere => ExecutorAuthorization::ExecuteAs,
    };
    let by_binding = matches!(
        how,
        ExecutorAuthorization::Binding | ExecutorAuthorization::Either
    );
    let mut allowed = false;
    if how != ExecutorAuthorization::Binding {
        allowed = execute_as(context, user, &account.user(), scope).await?;
    }
    if !allowed
        && by_binding
        && let Scope::Cluster(cluster) = scope
    {
        allowed = is_bound(context, user, account, cluster).await?;
    }
    // The hub's own controllers write works for users whose rights were checked already, and for the administrator who
    // started the hub. No binding can name the hub in every cluster, so it needs execute-as.
    if !allowed && how == ExecutorAuthorization::Binding && is_this_hub(context, user).await? {
        allowed = execute_as(context, user, &account.user(), scope).await?;
    }
    let name = format!("{}/{}", account.namespace, account.name);
    Ok(decide(allowed, user, &name, scope))
}

/// Whether the user is this hub, as the API server authenticates both.
async fn is_this_hub(context: &AdmissionContext, user: &UserInfo) -> Result<bool, Error> {
    let me = whoami(&context.client).await?.and_then(|me| me.username);
    Ok(me.is_some_and(|me| !me.is_empty() && user.username == Some(me)))
}

fn decide(allowed: bool, user: &UserInfo, executor: &str, scope: Scope<'_>) -> Decision {
    if allowed {
        return Decision::ALLOW;
    }
    let user = user.username.as_deref().unwrap_or_default();
    Decision::invalid(match scope {
        Scope::Cluster(namespace) => format!(
            "user {user} cannot manipulate the Manifestwork with executor {executor} in namespace {namespace}"
        ),
        Scope::Everywhere => format!(
            "user {user} cannot manipulate the ManifestWorkReplicaSet with executor {executor}: its clusters can \
             change, so execute-as is needed in all namespaces"
        ),
    })
}

/// Whether the user has the right `execute-as` for that identity.
async fn execute_as(
    context: &AdmissionContext,
    user: &UserInfo,
    identity: &str,
    scope: Scope<'_>,
) -> Result<bool, Error> {
    let namespace = match scope {
        Scope::Cluster(namespace) => Some(namespace),
        Scope::Everywhere => None,
    };
    let access = requirement::execute_as(identity, namespace);
    context.authorizer.is_allowed(user, &access).await
}

/// The namespace of managed accounts on this cluster; `None` if the add-on is not installed.
pub async fn accounts_namespace(context: &AdmissionContext, cluster: &str) -> Result<Option<String>, Error> {
    let add_ons: Api<ManagedClusterAddOn> = Api::namespaced(context.client.clone(), cluster);
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

/// Whether a binding lets the user execute as this account.
async fn is_bound(
    context: &AdmissionContext,
    user: &UserInfo,
    account: &ExecutorServiceAccount,
    cluster: &str,
) -> Result<bool, Error> {
    // A binding applies to the accounts that the add-on creates, not to other ServiceAccounts of the same name.
    if accounts_namespace(context, cluster).await?.as_deref() != Some(account.namespace.as_str()) {
        return Ok(false);
    }
    let bindings: Api<ManagedServiceAccountBinding> = Api::namespaced(context.client.clone(), cluster);
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
            && binding
                .spec
                .subjects
                .iter()
                .any(|subject| is_subject(subject, user))
    }))
}

/// Whether a subject of a binding is this user.
pub fn is_subject(subject: &AccountSubject, user: &UserInfo) -> bool {
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
