//! A question about rights, as people type it: `get pods`, `create deployments.apps --as user:alice`.

use anyhow::{Context, Result, bail};
use clap::Args;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::{Api, Client, api::ListParams};
use writ_authz::{Attributes, Identity, Index, ResourceAttributes};

use crate::connect::explain;

/// The verb and resource that a question is about.
#[derive(Clone, Debug, Args)]
pub struct Question {
    /// The verb: get, list, create, update, patch, delete, bind, ...
    #[arg(value_name = "VERB")]
    pub verb: String,
    /// The resource (`pods`, `po`, `deployments.apps`), one object (`secrets/NAME`), a subresource (`pods/log`; of one object:
    /// `pods/NAME --subresource log`), or a path that begins with `/`.
    #[arg(value_name = "RESOURCE")]
    pub resource: String,
    /// The namespace; without it, the question is about all namespaces. Kinds without namespaces need none.
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
    namespaced: bool,
    path: Option<String>,
}

/// A resource as a server names it.
struct Served {
    group: String,
    plural: String,
    namespaced: bool,
    subresources: Vec<String>,
}

/// Finds a resource by its plural, kind, singular or short name.
async fn find_served(client: &Client, word: &str, group: &str) -> Result<Option<Served>> {
    let (core, others) = tokio::try_join!(
        client.list_core_api_versions_aggregated(),
        client.list_api_groups_aggregated()
    )
    .map_err(|e| explain("discover what the server serves", &e))?;
    let all = core.items.into_iter().chain(others.items).flat_map(|found| {
        let name = found.metadata.and_then(|meta| meta.name).unwrap_or_default();
        // All versions: some kinds are not served in the preferred one.
        let resources = found.versions.into_iter().flat_map(|version| version.resources);
        resources.map(move |resource| (name.clone(), resource))
    });
    let mut short = None;
    for (name, resource) in all.filter(|(name, _)| group.is_empty() || name == group) {
        let Some(plural) = resource.resource else { continue };
        let kind = resource
            .response_kind
            .and_then(|kind| kind.kind)
            .unwrap_or_default();
        let whole = plural == word
            || kind.eq_ignore_ascii_case(word)
            || resource.singular_resource.as_deref() == Some(word);
        let is_short = short.is_none() && resource.short_names.iter().any(|name| name == word);
        if !whole && !is_short {
            continue;
        }
        let found = Served {
            group: name,
            plural,
            namespaced: resource.scope.as_deref() != Some("Cluster"),
            subresources: resource
                .subresources
                .into_iter()
                .filter_map(|sub| sub.subresource)
                .collect(),
        };
        if whole {
            return Ok(Some(found));
        }
        short = Some(found);
    }
    Ok(short)
}

impl Question {
    /// Finds the resource, its group and its scope by discovery.
    pub async fn resolve(&self, client: &Client) -> Result<Resolved> {
        let mut resolved = Resolved {
            verb: self.verb.clone(),
            group: String::new(),
            resource: String::new(),
            subresource: self.subresource.clone().unwrap_or_default(),
            name: String::new(),
            namespace: self.namespace.clone().unwrap_or_default(),
            namespaced: true,
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
        let Some(found) = find_served(client, plural, group).await? else {
            bail!(
                "the server has no resource {kind:?}; write it as in `kubectl api-resources`, with its group: deployments.apps"
            )
        };
        // pods/log is a subresource, secrets/NAME is an object.
        let known = (found.plural.as_str(), resolved.name.as_str());
        let is_subresource = SUBRESOURCES.contains(&known) || found.subresources.contains(&resolved.name);
        if resolved.subresource.is_empty() && is_subresource {
            resolved.subresource = std::mem::take(&mut resolved.name);
        }
        resolved.group = found.group;
        resolved.resource = found.plural;
        resolved.namespaced = found.namespaced;
        if !found.namespaced {
            // A RoleBinding grants nothing on cluster-scoped resources. Namespaces are the exception: the server
            // authorizes a request that names one inside that namespace.
            let itself = resolved.group.is_empty() && resolved.resource == "namespaces";
            resolved.namespace = if itself {
                resolved.name.clone()
            } else {
                String::new()
            };
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
            _ if !self.namespaced => {}
            "" => text.push_str(" in all namespaces"),
            namespace => {
                text.push_str(" in namespace ");
                text.push_str(namespace);
            }
        }
        text
    }
}

/// The subject that a question is about.
#[derive(Clone, Debug, PartialEq)]
pub enum Who {
    /// An identity with the same name on every cluster.
    Known(Identity),
    /// A ManagedServiceAccount: its cluster's add-on says in which namespace it is a ServiceAccount.
    Account(String),
}

/// Parses a subject: `user:alice`, `group:team-a`, `serviceaccount:NAMESPACE/NAME`, `account:NAME`, or a bare user
/// name.
pub fn parse_subject(text: &str) -> Result<Who> {
    let (kind, name) = match text.split_once(':') {
        // Names of the system, such as system:serviceaccount:ns:name, are taken as they are.
        None | Some(("system", _)) => ("user", text),
        Some(parts) => parts,
    };
    if name.is_empty() {
        bail!("{text:?} names no subject");
    }
    Ok(Who::Known(match kind {
        "group" => Identity::user("").with_group(name),
        "serviceaccount" | "sa" => {
            let (namespace, name) = name.split_once('/').with_context(|| {
                format!("{text:?}: a ServiceAccount is written serviceaccount:NAMESPACE/NAME")
            })?;
            Identity::service_account(namespace, name)
        }
        "user" => match writ_authz::split_service_account(name) {
            Some((namespace, name)) => Identity::service_account(namespace, name),
            None => Identity::user(name),
        },
        "account" => return Ok(Who::Account(name.to_owned())),
        _ => bail!(
            "{text:?}: {kind:?} is none of user, group, serviceaccount, account; a user whose name has a colon is written user:{text}"
        ),
    }))
}

/// Reads all RBAC objects of a cluster.
pub async fn read_rbac(client: &Client) -> Result<Index> {
    let all = ListParams::default();
    let (roles, cluster_roles, bindings, cluster_bindings) = tokio::try_join!(
        async { Api::<Role>::all(client.clone()).list(&all).await },
        async { Api::<ClusterRole>::all(client.clone()).list(&all).await },
        async { Api::<RoleBinding>::all(client.clone()).list(&all).await },
        async { Api::<ClusterRoleBinding>::all(client.clone()).list(&all).await },
    )
    .map_err(|e| explain("read the roles and bindings", &e))?;
    let mut index = Index::default();
    let bad = |e: writ_authz::InvalidObject| tracing::warn!("{e}; the object is ignored");
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

    fn known(text: &str) -> Identity {
        match parse_subject(text).unwrap() {
            Who::Known(identity) => identity,
            Who::Account(name) => panic!("{text} is the account {name}"),
        }
    }

    #[test]
    fn subject_with_and_without_prefix_is_parsed() {
        assert_eq!(known("user:alice").user, "alice");
        assert_eq!(known("alice@example.com").user, "alice@example.com");
        assert_eq!(known("user:oidc:alice").user, "oidc:alice");
        assert_eq!(
            known("sa:web/deployer").user,
            "system:serviceaccount:web:deployer"
        );
        let has = |text: &str, wanted: &str| known(text).groups.iter().any(|group| group == wanted);
        assert!(has(
            "system:serviceaccount:web:deployer",
            "system:serviceaccounts:web"
        ));
        assert!(has("group:team-a", "team-a"));
        assert_eq!(
            parse_subject("account:robot").unwrap(),
            Who::Account("robot".into())
        );
    }

    #[test]
    fn subject_of_unknown_form_is_refused() {
        let rows = [
            ("sa:deployer", "serviceaccount:NAMESPACE/NAME"),
            ("acount:robot", "none of user, group, serviceaccount, account"),
            ("oidc:alice", "is written user:oidc:alice"),
            ("account:", "names no subject"),
            ("", "names no subject"),
        ];
        for (text, wanted) in rows {
            let error = parse_subject(text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
