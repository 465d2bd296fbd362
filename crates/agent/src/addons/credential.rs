//! The requests for a credential, to the hub, and the Secret that holds it.

use k8s_openapi::api::{certificates::v1::CertificateSigningRequest, core::v1::Secret};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use writ_controller::{Error, backoff::Backoff, error::Context as _, write};
use writ_process::token;

use super::{
    model::{ACCOUNT, ADDON, Given, Proof, Registration, SECRET},
    plan::is_ours,
};
use crate::{
    Context, MANAGER,
    registration::{
        certificate::{self, Answer},
        identity,
    },
};

/// How long a token lives.
const TOKEN_SECONDS: i64 = 3600;

/// A certificate request that the hub has not answered yet.
pub struct PendingRequest {
    /// Its name.
    pub name: String,
    /// The key that it is for, in PEM.
    pub key: String,
    /// The pauses until it is read again.
    pub pauses: Backoff,
}

/// What asking for a credential led to.
pub enum Asked {
    /// The credential.
    Given(Given),
    /// A request that is pending.
    Pending(PendingRequest),
}

/// Asks the hub for a credential.
pub async fn ask(context: &Context, wanted: &Registration) -> Result<Asked, Error> {
    let cluster = &context.options.cluster_name;
    let groups = match &wanted.proof {
        Proof::Certificate { groups } => groups,
        Proof::Token { .. } => {
            let token = token::request(&context.hub, cluster, ACCOUNT, Some(TOKEN_SECONDS)).await?;
            tracing::info!(until = %token.ends, "a token of the add-on {ADDON}");
            return Ok(Asked::Given(Given::Token(token.text)));
        }
    };
    let key = identity::new_key()?;
    let request = wanted.request(cluster, groups, &key)?;
    let created = requests(context)
        .create(&PostParams::default(), &request)
        .await
        .context(|| format!("ask the hub for a certificate of the add-on {ADDON}"))?;
    let name = created.name_any();
    let fingerprint = identity::fingerprint(&key)?;
    tracing::info!(request = %name, key = fingerprint, "waiting for the certificate of the add-on {ADDON}");
    Ok(Asked::Pending(PendingRequest {
        name,
        key,
        pauses: certificate::pauses(),
    }))
}

/// Reads the answer to a pending request.
pub async fn answer(context: &Context, pending: &PendingRequest) -> Result<Answer, Error> {
    certificate::read(&requests(context), &pending.name).await
}

fn requests(context: &Context) -> Api<CertificateSigningRequest> {
    Api::all(context.hub.clone())
}

/// Writes the Secret by its name: the right to create it covers no more.
pub async fn write(context: &Context, secret: &Secret) -> Result<(), Error> {
    let namespace = secret.namespace().unwrap_or_default();
    let api: Api<Secret> = write::namespaced(&context.spoke, &namespace);
    let params = PatchParams::apply(MANAGER).force();
    api.patch(SECRET, &params, &Patch::Apply(secret))
        .await
        .map(drop)
        .context(|| format!("write Secret {namespace}/{SECRET}"))
}

/// Deletes the Secret if this controller wrote it.
pub async fn delete(context: &Context, namespace: &str) -> Result<(), Error> {
    let api: Api<Secret> = write::namespaced(&context.spoke, namespace);
    let found = api
        .get_opt(SECRET)
        .await
        .context(|| format!("read Secret {namespace}/{SECRET}"));
    let found = match found {
        // Where the agent may not read it has written nothing.
        Err(error) if error.is_code(403) => None,
        found => found?,
    };
    match found.filter(is_ours) {
        Some(secret) => write::delete(&api, SECRET, secret.uid().as_deref()).await,
        None => Ok(()),
    }
}
