//! A question about rights, as people type it: `get pods`, `create deployments.apps --as user:alice`.

use anyhow::{Context, Result, bail};
use clap::Args;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::{
    Api, Client,
    api::ListParams,
    discovery::{ApiResource, Discovery},
};
use writ_authz::{Attributes, Identity, Index, ResourceAttributes};

use crate::connect::explain;

/// What is asked about.
#[derive(Clone, Debug, Args)]
pub struct Question {
    /// The verb: get, list, create, update, patch, delete, bind, ...
    #[arg(value_name = "VERB")]
    pub verb: String,
    /// The resource (`pods`, `deployments.apps`), one object (`secrets/NAME`), a subresource (`pods/log`; of one object:
    /// `pods/NAME --subresource log`), or a path that begins with `/`.
    #[arg(value_name = "RESOURCE")]
    pub resource: String,
    /// The namespace; without it, the question is about all namespaces.
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// The subresource, such as `status` or `log`.
    #[arg(long, value_name = "NAME")]
    pub subresource: Option<String>,
}

/// Subresources that people ask about where discovery does not name them: those that need a kubelet, and those that
/// exist in RBAC alone.
const SUBRESOURCES: [(&str, &str); 11] = [
    ("pods", "log"),
    ("pods", "exec"),
    ("pods", "attach"),
    ("pods", "portforward"),
    ("pods", "proxy"),
    ("pods", "eviction"),
    ("pods", "ephemeralcontainers"),
    ("services", "proxy"),
    ("nodes", "proxy"),
    ("managedclustersets", "join"),
    ("managedclustersets", "bind"),
];

/// The question with its resource found on a server.
#[derive(Clone, Debug)]
pub struct Resolved {
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    name: String,
    namespace: String,
    path: Option<String>,
}

impl Question {
    /// Finds out which API group is meant.
    pub async fn resolve(&self, client: &Client) -> Result<Resolved> {
        let mut resolved = Resolved {
            verb: self.verb.clone(),
            group: String::new(),
            resource: String::new(),
            subresource: self.subresource.clone().unwrap_or_default(),
            name: String::new(),
            namespace: self.namespace.clone().unwrap_or_default(),
            path: self.resource.starts_with('/').then(|| self.resource.clone()),
        };
        if resolved.path.is_some() {
            return Ok(resolved);
        }
        let (kind, name) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        name.clone_into(&mut resolved.name);
        let (plural, group) = kind.split_once('.').unwrap_or((kind, ""));
        if plural == "*" {
            "*".clone_into(&mut resolved.resource);
            group.clone_into(&mut resolved.group);
            return Ok(resolved);
        }
        let discovery = Discovery::new(client.clone())
            .run_aggregated()
            .await
            .map_err(|e| explain("discover what the server serves", &e))?;
        let found = discovery
            .groups_alphabetical()
            .into_iter()
            .filter(|candidate| group.is_empty() || candidate.name() == group)
            // Not those of the preferred version alone: some kinds are served in another one.
            .flat_map(kube::discovery::ApiGroup::resources_by_stability)
            .find(|(resource, _)| resource.plural == plural || resource.kind.eq_ignore_ascii_case(plural));
        match found {
            Some((resource, capabilities)) => {
                // pods/log is a subresource, secrets/NAME is an object.
                let served = |(sub, _): &(ApiResource, _)| {
                    sub.plural.rsplit('/').next() == Some(resolved.name.as_str())
                };
                let known = (resource.plural.as_str(), resolved.name.as_str());
                let is_subresource =
                    SUBRESOURCES.contains(&known) || capabilities.subresources.iter().any(served);
                if resolved.subresource.is_empty() && is_subresource {
                    resolved.subresource = std::mem::take(&mut resolved.name);
                }
                resolved.group = resource.group;
                resolved.resource = resource.plural;
            }
            None => bail!(
                "the server has no resource {kind:?}; write it as in `kubectl api-resources`, with its group: deployments.apps"
            ),
        }
        Ok(resolved)
    }
}

impl Resolved {
    /// For the RBAC engine.
    pub fn attributes(&self) -> Attributes<'_> {
        if let Some(path) = &self.path {
            return Attributes::non_resource(&self.verb, path);
        }
        ResourceAttributes::new(&self.verb, &self.group, &self.resource)
            .in_namespace(&self.namespace)
            .named(&self.name)
            .subresource(&self.subresource)
            .into()
    }

    /// In words: `get pods/log in namespace web`.
    pub fn describe(&self) -> String {
        if let Some(path) = &self.path {
            return format!("{} {path}", self.verb);
        }
        let mut text = format!("{} {}", self.verb, self.resource);
        for (before, part) in [(".", &self.group), ("/", &self.subresource), (" ", &self.name)] {
            if !part.is_empty() {
                text.push_str(before);
                text.push_str(part);
            }
        }
        match self.namespace.as_str() {
            "" => text.push_str(" in all namespaces"),
            namespace => {
                text.push_str(" in namespace ");
                text.push_str(namespace);
            }
        }
        text
    }
}

/// Who is asked about: `user:alice`, `group:team-a`, `serviceaccount:NAMESPACE/NAME`, or a bare user name.
pub fn subject(text: &str) -> Result<Identity> {
    let (kind, name) = match text.split_once(':') {
        Some((kind @ ("user" | "group" | "serviceaccount" | "sa"), name)) => (kind, name),
        // User names with colons, such as system:serviceaccount:ns:name, are taken as they are.
        _ => ("user", text),
    };
    match kind {
        "group" => Ok(Identity::user("").with_group(name)),
        "serviceaccount" | "sa" => {
            let (namespace, name) = name.split_once('/').with_context(|| {
                format!("{text:?}: a ServiceAccount is written serviceaccount:NAMESPACE/NAME")
            })?;
            Ok(Identity::service_account(namespace, name))
        }
        _ => Ok(match writ_authz::split_service_account(name) {
            Some((namespace, name)) => Identity::service_account(namespace, name),
            None => Identity::user(name),
        }),
    }
}

/// Reads all RBAC objects of a cluster.
pub async fn index(client: &Client) -> Result<Index> {
    let all = ListParams::default();
    let (roles, cluster_roles, bindings, cluster_bindings) = tokio::try_join!(
        async { Api::<Role>::all(client.clone()).list(&all).await },
        async { Api::<ClusterRole>::all(client.clone()).list(&all).await },
        async { Api::<RoleBinding>::all(client.clone()).list(&all).await },
        async { Api::<ClusterRoleBinding>::all(client.clone()).list(&all).await },
    )
    .map_err(|e| explain("read the roles and bindings", &e))?;
    let mut index = Index::default();
    let bad = |e: writ_authz::InvalidObject| tracing::warn!("{e}; it is left out");
    roles
        .iter()
        .for_each(|object| index.apply(object).unwrap_or_else(bad));
    cluster_roles
        .iter()
        .for_each(|object| index.apply(object).unwrap_or_else(bad));
    bindings
        .iter()
        .for_each(|object| index.apply(object).unwrap_or_else(bad));
    cluster_bindings
        .iter()
        .for_each(|object| index.apply(object).unwrap_or_else(bad));
    Ok(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_typed_as_people_think_of_them() {
        assert_eq!(subject("user:alice").unwrap().user, "alice");
        assert_eq!(subject("alice@example.com").unwrap().user, "alice@example.com");
        assert_eq!(
            subject("sa:web/deployer").unwrap().user,
            "system:serviceaccount:web:deployer"
        );
        let account = subject("system:serviceaccount:web:deployer").unwrap();
        assert!(
            account
                .groups
                .iter()
                .any(|group| group == "system:serviceaccounts:web")
        );
        assert!(
            subject("group:team-a")
                .unwrap()
                .groups
                .iter()
                .any(|group| group == "team-a")
        );
        assert!(
            subject("sa:deployer")
                .unwrap_err()
                .to_string()
                .contains("serviceaccount:NAMESPACE/NAME")
        );
    }
}
