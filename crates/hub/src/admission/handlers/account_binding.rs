//! ManagedServiceAccountBindings: to let others execute as an account takes the right to execute as it.

use futures::FutureExt as _;
use writ_api::authentication::ManagedServiceAccountBindingSpec;
use writ_controller::Error;
use writ_process::admission::{
    Decision, Operation, Request, Requirement, Rule, SPEC_CHANGES, Webhook, parse_spec, spec_of,
    spec_unchanged,
};

use super::executor::accounts_namespace;
use crate::admission::{context::AdmissionContext, requirement};

const NAME: &str =
    "managedserviceaccountbindingvalidators.admission.authentication.open-cluster-management.io";

/// Decides about bindings.
pub const WEBHOOK: Webhook<AdmissionContext> = Webhook {
    name: NAME,
    configuration: NAME,
    path: "/validate-authentication-open-cluster-management-io-v1alpha1-managedserviceaccountbinding",
    mutating: false,
    rule: Rule {
        group: "authentication.open-cluster-management.io",
        version: "v1alpha1",
        resources: &["managedserviceaccountbindings"],
        operations: &[Operation::Create, Operation::Update],
        scope: "*",
    },
    only_if: Some(SPEC_CHANGES),
    handler: |context, request| decide(context, request).boxed(),
};

async fn decide(context: AdmissionContext, request: Request) -> Result<Decision, Error> {
    if spec_unchanged(&request) {
        return Ok(Decision::ALLOW);
    }
    let spec: ManagedServiceAccountBindingSpec = match parse_spec(spec_of(request.object.as_ref())) {
        Ok(spec) => spec,
        Err(decision) => return Ok(decision),
    };
    let account = &spec.reference.name;
    let cluster = request.namespace.as_deref().unwrap_or_default();
    let reference = spec.reference.namespace.as_deref();
    if let Some(other) = reference.filter(|namespace| *namespace != cluster) {
        return Ok(Decision::invalid(format!(
            "spec.ref.namespace is {other:?}, but a binding is only for accounts of its own namespace {cluster:?}"
        )));
    }
    let Some(namespace) = accounts_namespace(&context, cluster).await? else {
        return Ok(Decision::invalid(format!(
            "the add-on managed-serviceaccount is not installed in {cluster}, so it is not known which account \
             {account:?} is: install it first"
        )));
    };
    let identity = format!("system:serviceaccount:{namespace}:{account}");
    let user = request.user_info.username.as_deref().unwrap_or_default();
    Ok(Decision::require(vec![Requirement::one(
        requirement::execute_as(&identity, Some(cluster)),
        format!(
            "user {user} cannot let others execute as {identity} in namespace {cluster}: that needs execute-as itself"
        ),
    )]))
}
