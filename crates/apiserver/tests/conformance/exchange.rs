//! Sending one request to both servers.

use std::collections::BTreeMap;
use std::io::Read as _;

use anyhow::{Context as _, Result};
use http::{Request, header};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use writ_apiserver::Server;
use writ_testenv::ControlPlane;

use super::frames;
use super::webhook::Webhook;

/// One of the two servers, reached as administrator and as nobody.
pub struct Side {
    pub name: &'static str,
    admin: Client,
    nobody: Client,
}

/// The real server and the embedded one.
pub struct Pair {
    pub real: Side,
    pub ours: Side,
    pub webhook: Webhook,
    _plane: ControlPlane,
    _server: Server,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub code: u16,
    pub body: Value,
    pub warnings: Vec<String>,
    pub content_type: String,
    pub headers: BTreeMap<String, String>,
}

/// A request, the same for both.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub anonymous: bool,
    pub stream: bool,
    /// The connection is to become a WebSocket.
    pub socket: bool,
}

impl Pair {
    pub fn new(plane: ControlPlane, server: Server, webhook: Webhook) -> Result<Self> {
        let ours = Kubeconfig::from_yaml(&server.kubeconfig()?)?;
        Ok(Self {
            real: Side::new("real", plane.kubeconfig().clone())?,
            ours: Side::new("embedded", ours)?,
            webhook,
            _plane: plane,
            _server: server,
        })
    }
}

impl Side {
    fn new(name: &'static str, kubeconfig: Kubeconfig) -> Result<Self> {
        let mut bare = kubeconfig.clone();
        for user in &mut bare.auth_infos {
            user.auth_info = Some(AuthInfo::default());
        }
        Ok(Self {
            name,
            admin: client(kubeconfig)?,
            nobody: client(bare)?,
        })
    }

    pub async fn send(&self, wanted: &Wanted) -> Result<Answer> {
        let mut request = Request::builder()
            .method(wanted.method.as_str())
            .uri(&wanted.path);
        for (name, value) in &wanted.headers {
            request = request.header(name, value);
        }
        let given = |name: &str| {
            wanted
                .headers
                .iter()
                .any(|(have, _)| have.eq_ignore_ascii_case(name))
        };
        if !given("user-agent") {
            request = request.header(header::USER_AGENT, "conformance/1.0");
        }
        for (name, value) in frames::ASKING {
            if wanted.socket && !given(name) {
                request = request.header(name, value);
            }
        }
        let request = request.body(Body::from(wanted.body.clone()))?;
        let client = if wanted.anonymous {
            &self.nobody
        } else {
            &self.admin
        };
        let response = client
            .send(request)
            .await
            .with_context(|| format!("{}: {}", self.name, wanted.path))?;
        let code = response.status().as_u16();
        let texts = |name: header::HeaderName| -> Vec<String> {
            response
                .headers()
                .get_all(name)
                .iter()
                .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
                .collect()
        };
        let warnings = texts(header::WARNING);
        let content_type = texts(header::CONTENT_TYPE).join(",");
        let headers: BTreeMap<String, String> = response
            .headers()
            .keys()
            .map(|name| (name.to_string(), texts(name.clone()).join(",")))
            .collect();
        if code == 101 {
            return Ok(Answer {
                code,
                body: frames::read(response).await?,
                warnings,
                content_type,
                headers,
            });
        }
        let bytes = response
            .into_body()
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        let bytes = match headers.get("content-encoding").map(String::as_str) {
            Some("gzip") => {
                let mut plain = Vec::new();
                flate2::read::GzDecoder::new(&*bytes).read_to_end(&mut plain)?;
                plain.into()
            }
            _ => bytes,
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = if wanted.stream && code == 200 {
            text.lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect::<Vec<Value>>()
                .into()
        } else {
            serde_json::from_slice(&bytes).unwrap_or(Value::String(text))
        };
        Ok(Answer {
            code,
            body,
            warnings,
            content_type,
            headers,
        })
    }
}

fn client(kubeconfig: Kubeconfig) -> Result<Client> {
    let mut config = futures::executor::block_on(Config::from_custom_kubeconfig(
        kubeconfig,
        &KubeConfigOptions::default(),
    ))?;
    // What is answered is compared, not what comes of asking again.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}
