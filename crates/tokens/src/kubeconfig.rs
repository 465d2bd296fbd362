//! Kubeconfigs that run a program for the token instead of holding one.

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{Api, Client};
use serde_json::{Value, json};
use writ_api::cluster::ManagedCluster;

use crate::{API_VERSION, Error};

/// The address of a cluster's API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its address.
    pub url: String,
    /// Its CA, in PEM, if the hub knows it.
    pub ca: Option<Vec<u8>>,
}

/// The address of a cluster's API server, as its ManagedCluster names it first.
pub async fn server_of(hub: &Client, cluster: &str) -> Result<Access, Error> {
    let clusters: Api<ManagedCluster> = Api::all(hub.clone());
    let found = clusters
        .get(cluster)
        .await
        .map_err(|source| Error::request(format!("read ManagedCluster {cluster}"), source))?;
    let config = found
        .spec
        .managed_cluster_client_configs
        .first()
        .ok_or_else(|| Error::NoAddress(cluster.into()))?;
    Ok(Access {
        url: config.url.clone(),
        ca: config
            .ca_bundle
            .as_ref()
            .and_then(|bundle| STANDARD.decode(bundle).ok()),
    })
}

/// The program that a kubeconfig runs for a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The program.
    pub command: String,
    /// Its options.
    pub options: Vec<String>,
    /// Variables of its environment. `KUBECONFIG` belongs here: a program that inherits it may find the very kubeconfig
    /// that runs it, and run itself for ever.
    pub environment: Vec<(String, String)>,
}

/// A kubeconfig for an account: the program is run as `program token get CLUSTER NAME`, with its options in between,
/// each time a token is needed.
pub fn exec_kubeconfig(cluster: &str, name: &str, access: &Access, program: &Program) -> Value {
    let mut server = json!({ "server": access.url });
    if let (Some(ca), Some(server)) = (&access.ca, server.as_object_mut()) {
        server.insert(
            "certificate-authority-data".into(),
            Value::String(STANDARD.encode(ca)),
        );
    }
    let mut args: Vec<String> = vec!["token".into(), "get".into()];
    args.extend(program.options.iter().cloned());
    args.extend([cluster.to_owned(), name.to_owned()]);
    let context = format!("{name}@{cluster}");
    let variable = |(name, value): &(String, String)| json!({ "name": name, "value": value });
    let environment: Vec<Value> = program.environment.iter().map(variable).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "clusters": [{ "name": cluster, "cluster": server }],
        "users": [{ "name": context, "user": { "exec": {
            "apiVersion": API_VERSION,
            "command": program.command,
            "args": args,
            "env": environment,
            "interactiveMode": "Never",
        } } }],
        "contexts": [{ "name": context, "context": { "cluster": cluster, "user": context } }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubeconfig_without_a_token_is_accepted_by_clients() {
        let access = Access {
            url: "https://c1:6443".into(),
            ca: Some(b"CA".to_vec()),
        };
        let program = Program {
            command: "writ".into(),
            options: vec!["--kubeconfig=hub".into()],
            environment: vec![("KUBECONFIG".into(), "hub".into())],
        };
        let config = exec_kubeconfig("c1", "robot", &access, &program);
        assert!(!config.to_string().contains("\"token\":"));
        let read: kube::config::Kubeconfig = serde_json::from_value(config).unwrap();
        let exec = read.auth_infos[0]
            .auth_info
            .as_ref()
            .unwrap()
            .exec
            .as_ref()
            .unwrap();
        assert_eq!(
            exec.args.as_deref().unwrap(),
            ["token", "get", "--kubeconfig=hub", "c1", "robot"]
        );
    }
}
