//! ManagedServiceAccountBindings: whoever lets others execute as an account must be allowed to do so.

use std::sync::Arc;

use futures::FutureExt;
use writ_api::authentication::ManagedServiceAccountBindingSpec;
use writ_controller::Error;

use super::{
    Decision, Desk, Handler, Request, SPEC_CHANGES,
    executor::{Scope, accounts_namespace, execute_as},
    manifest_work::{parse, spec_of, unchanged},
    webhook,
};

/// The row in the table of handlers.
pub const HANDLER: Handler = Handler {
    path: "/validate-authentication-open-cluster-management-io-v1alpha1-managedserviceaccountbinding",
    webhook: || {
        webhook(
            "managedserviceaccountbindingvalidators.admission.authentication.open-cluster-management.io",
            HANDLER.path,
            (
                "authentication.open-cluster-management.io",
                "v1alpha1",
                "managedserviceaccountbindings",
            ),
            &[SPEC_CHANGES],
        )
    },
    review: |desk, request| review(desk, request).boxed(),
};

async fn review(desk: Arc<Desk>, request: Request) -> Result<Decision, Error> {
    if unchanged(request.object.as_ref(), request.old_object.as_ref()) {
        return Ok(Decision::Allow);
    }
    let spec: ManagedServiceAccountBindingSpec = match parse(spec_of(request.object.as_ref())) {
        Ok(spec) => spec,
        Err(decision) => return Ok(decision),
    };
    let cluster = request.namespace.as_deref().unwrap_or_default();
    if let Some(other) = spec
        .reference
        .namespace
        .as_deref()
        .filter(|namespace| *namespace != cluster)
    {
        return Ok(Decision::bad_request(format!(
            "spec.ref.namespace is {other:?}, but a binding is only for accounts of its own namespace {cluster:?}"
        )));
    }
    let Some(namespace) = accounts_namespace(&desk, cluster).await? else {
        return Ok(Decision::bad_request(format!(
            "the add-on managed-serviceaccount is not there in {cluster}, so nobody can tell which account \
             {:?} is: install it first",
            spec.reference.name
        )));
    };
    let identity = format!("system:serviceaccount:{namespace}:{}", spec.reference.name);
    let user = &request.user_info;
    if execute_as(&desk, user, &identity, Scope::Cluster(cluster)).await? {
        return Ok(Decision::Allow);
    }
    Ok(Decision::forbidden(format!(
        "user {} cannot let others execute as {identity} in namespace {cluster}: that needs execute-as itself",
        user.username.as_deref().unwrap_or_default()
    )))
}
