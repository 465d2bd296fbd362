//! Writes a work anew that somebody else may be writing too.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, ResourceExt as _, api::PostParams};
use writ_api::work::ManifestWork;
use writ_controller::{error::status_code, write};

use crate::MANAGER;

/// How often others may be faster than the hub in writing the same work.
const MAX_CONFLICTS: usize = 5;

/// Writes the work as a whole: that costs the server less than a patch, and the agent waits for it. What others wrote
/// meanwhile into its metadata stays.
pub async fn replace(
    api: &Api<ManifestWork>,
    seen: &ManifestWork,
    wanted: &ManifestWork,
    owners: Option<&[OwnerReference]>,
) -> Result<(), kube::Error> {
    let name = wanted.name_any();
    let params = PostParams {
        field_manager: Some(MANAGER.into()),
        ..PostParams::default()
    };
    let mut whole = ManifestWork::new(&name, wanted.spec.clone());
    whole.metadata = seen.metadata.clone();
    let mut conflicts = 0;
    loop {
        // The server keeps them.
        whole.metadata.managed_fields = None;
        if let Some(owners) = owners {
            whole.metadata.owner_references = Some(owners.to_vec());
        }
        match write::answered(api.replace(&name, &params, &whole).await) {
            Err(error) if status_code(&error) == Some(409) && conflicts < MAX_CONFLICTS => conflicts += 1,
            written => return written,
        }
        let live = api.get_metadata_opt(&name).await?;
        let same = live.filter(|live| {
            live.metadata.uid == seen.metadata.uid && live.metadata.deletion_timestamp.is_none()
        });
        // It is another one by now, or going: the watch brings us back.
        let Some(live) = same else { return Ok(()) };
        whole.metadata = live.metadata;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use kube::{Client, client::Body};
    use serde_json::json;

    use super::*;

    /// A server that answers writes with these codes, and reads with this uid; what it was asked for.
    async fn replaced(codes: &'static [u16], uid: &str) -> (Result<(), kube::Error>, Vec<String>) {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let left = Arc::new(Mutex::new(codes.iter().copied()));
        let (log, uid) = (asked.clone(), uid.to_owned());
        let server = tower::service_fn(move |request: http::Request<Body>| {
            log.lock().unwrap().push(request.method().to_string());
            let code = match request.method() {
                &http::Method::PUT => left.lock().unwrap().next().unwrap_or(409),
                _ => 200,
            };
            let answer = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "spec": {}, "code": code,
                "metadata": {"name": "w", "uid": uid, "resourceVersion": "2", "annotations": {"theirs": "1"}}});
            let mut answer = http::Response::new(Body::from(answer.to_string().into_bytes()));
            *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
            async { Ok::<_, std::convert::Infallible>(answer) }
        });
        let mut work = ManifestWork::new("w", writ_api::work::ManifestWorkSpec::default());
        work.metadata.uid = Some("1".into());
        let api: Api<ManifestWork> = Api::namespaced(Client::new(server, "default"), "cluster1");
        let outcome = replace(&api, &work, &work, None).await;
        let asked = asked.lock().unwrap().clone();
        (outcome, asked)
    }

    #[tokio::test]
    async fn whoever_was_faster_keeps_what_he_wrote() {
        let (outcome, asked) = replaced(&[409, 200], "1").await;
        assert!(outcome.is_ok(), "{outcome:?}");
        assert_eq!(asked, ["PUT", "GET", "PUT"]);
        // Another work of the name is not touched.
        let (outcome, asked) = replaced(&[409, 200], "2").await;
        assert!(outcome.is_ok(), "{outcome:?}");
        assert_eq!(asked, ["PUT", "GET"]);
        // It ends.
        let (outcome, asked) = replaced(&[], "1").await;
        assert_eq!(outcome.err().and_then(|error| status_code(&error)), Some(409));
        assert_eq!(asked.len(), 2 * MAX_CONFLICTS + 1);
        let (outcome, _) = replaced(&[403], "1").await;
        assert!(outcome.is_err());
    }
}
