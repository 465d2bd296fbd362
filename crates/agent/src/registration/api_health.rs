//! The health of the cluster's API server.

use kube::Client;
use writ_controller::{Error, error::Context as _};

/// Asks as upstream does: `/livez`, and `/healthz` where that one is unknown or forbidden.
pub async fn ask(client: &Client) -> Result<(), Error> {
    match get(client, "/livez").await {
        Err(error) if error.is_code(404) || error.is_code(403) => get(client, "/healthz").await,
        answer => answer,
    }
}

async fn get(client: &Client, path: &str) -> Result<(), Error> {
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(|error| Error::Invalid(format!("the request of {path}: {error}")))?;
    client
        .request_text(request)
        .await
        .context(|| format!("ask {path}"))?;
    Ok(())
}
