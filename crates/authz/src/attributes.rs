//! What is asked: by whom, and for what.

/// The group whose members the API server never asks RBAC about.
pub const SUPERUSERS: &str = "system:masters";

/// What a request wants to do. Borrowed, so that asking allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attributes<'a> {
    /// A request for an API resource.
    Resource(ResourceAttributes<'a>),
    /// A request for a path such as `/healthz`.
    NonResource {
        /// The lower-case HTTP method.
        verb: &'a str,
        /// The path, without a query.
        path: &'a str,
    },
}

/// A request for an API resource. Empty text means "none", as in a SubjectAccessReview.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceAttributes<'a> {
    /// `get`, `list`, `bind`, `impersonate`, ...
    pub verb: &'a str,
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural resource.
    pub resource: &'a str,
    /// The subresource, such as `status`; empty for the resource itself.
    pub subresource: &'a str,
    /// The namespace; empty for a cluster-wide request.
    pub namespace: &'a str,
    /// The object's name; empty for requests without one (`list`, `create`, ...).
    pub name: &'a str,
}

impl<'a> ResourceAttributes<'a> {
    /// `verb` on `resource` of `group`, cluster-wide and without a name.
    pub fn new(verb: &'a str, group: &'a str, resource: &'a str) -> Self {
        Self {
            verb,
            group,
            resource,
            ..Self::default()
        }
    }

    /// The same in a namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: &'a str) -> Self {
        Self { namespace, ..self }
    }

    /// The same for one named object.
    #[must_use]
    pub fn named(self, name: &'a str) -> Self {
        Self { name, ..self }
    }

    /// The same for a subresource.
    #[must_use]
    pub fn subresource(self, subresource: &'a str) -> Self {
        Self { subresource, ..self }
    }
}

impl<'a> Attributes<'a> {
    /// A request for a path.
    pub fn non_resource(verb: &'a str, path: &'a str) -> Self {
        Self::NonResource { verb, path }
    }

    /// The verb.
    pub fn verb(&self) -> &'a str {
        match self {
            Self::Resource(resource) => resource.verb,
            Self::NonResource { verb, .. } => verb,
        }
    }

    /// The namespace; empty for cluster-wide requests and for paths.
    pub fn namespace(&self) -> &'a str {
        match self {
            Self::Resource(resource) => resource.namespace,
            Self::NonResource { .. } => "",
        }
    }
}

impl<'a> From<ResourceAttributes<'a>> for Attributes<'a> {
    fn from(resource: ResourceAttributes<'a>) -> Self {
        Self::Resource(resource)
    }
}

/// A user with all groups, as authentication yields them. The questions take user and groups apart; this only builds
/// them with the groups that every Kubernetes API server adds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    /// The user name.
    pub user: String,
    /// All groups, the implicit ones included.
    pub groups: Vec<String>,
}

impl Identity {
    /// An authenticated user: in `system:authenticated`, or in `system:unauthenticated` for `system:anonymous`. The
    /// user name of a ServiceAccount gets the groups of that ServiceAccount.
    pub fn user(name: &str) -> Self {
        if let Some((namespace, account)) = split_service_account(name) {
            return Self::service_account(namespace, account);
        }
        let group = if name == "system:anonymous" {
            "system:unauthenticated"
        } else {
            "system:authenticated"
        };
        Self {
            user: name.to_owned(),
            groups: vec![group.to_owned()],
        }
    }

    /// A request without credentials.
    pub fn anonymous() -> Self {
        Self::user("system:anonymous")
    }

    /// A ServiceAccount with its three implicit groups.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self {
            user: service_account_user(namespace, name),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ],
        }
    }

    /// The same with one more group.
    #[must_use]
    pub fn with_group(mut self, group: &str) -> Self {
        if !self.groups.iter().any(|have| have == group) {
            self.groups.push(group.to_owned());
        }
        self
    }
}

const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The user name of a ServiceAccount.
pub fn service_account_user(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

/// Namespace and name of the ServiceAccount behind a user name, where it is one: others may have names that only look so.
pub fn split_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = halves(user)?;
    let subdomain = name.len() <= 253 && name.split('.').all(is_label);
    (namespace.len() <= 63 && is_label(namespace) && subdomain).then_some((namespace, name))
}

/// What a binding says is the namespace and the name of a ServiceAccount, whether there can be such a one or not.
pub(crate) fn halves(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty()).then_some((namespace, name))
}

/// Lower case letters and digits, and dashes between them.
fn is_label(text: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.iter().all(|end| end.is_some_and(plain)) && text.bytes().all(|c| plain(c) || c == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_looks_like_a_service_account_is_none() {
        let long = "a".repeat(64);
        for (name, wanted) in [
            ("system:serviceaccount:ci:robot.v1-x", Some(("ci", "robot.v1-x"))),
            ("system:serviceaccount:a:b:c", None),
            ("system:serviceaccount:A_:x", None),
            ("system:serviceaccount:a.b:c", None),
            ("system:serviceaccount:a:c.", None),
            ("system:serviceaccount:-a:c", None),
            ("system:serviceaccount::c", None),
            (&format!("system:serviceaccount:{long}:c"), None),
            ("alice", None),
        ] {
            assert_eq!(split_service_account(name), wanted, "{name}");
        }
    }

    #[test]
    fn implicit_groups() {
        assert_eq!(Identity::user("alice").groups, ["system:authenticated"]);
        assert_eq!(Identity::anonymous().groups, ["system:unauthenticated"]);
        let robot = Identity::service_account("ci", "robot");
        assert_eq!(robot.user, "system:serviceaccount:ci:robot");
        assert_eq!(
            robot.groups,
            [
                "system:serviceaccounts",
                "system:serviceaccounts:ci",
                "system:authenticated"
            ]
        );
        assert_eq!(Identity::user("system:serviceaccount:ci:robot"), robot);
        assert_eq!(
            Identity::user("alice").with_group("dev").with_group("dev").groups,
            ["system:authenticated", "dev"]
        );
    }

    #[test]
    fn a_request_is_built_part_by_part() {
        let scale = ResourceAttributes::new("get", "apps", "deployments")
            .subresource("scale")
            .in_namespace("shop")
            .named("web");
        assert_eq!(
            scale,
            ResourceAttributes {
                verb: "get",
                group: "apps",
                resource: "deployments",
                subresource: "scale",
                namespace: "shop",
                name: "web",
            }
        );
    }

    #[test]
    fn names_of_service_accounts() {
        assert_eq!(
            split_service_account("system:serviceaccount:a:b"),
            Some(("a", "b"))
        );
        for user in [
            "a",
            "system:serviceaccount:a",
            "system:serviceaccount::b",
            "system:serviceaccount:a:",
        ] {
            assert_eq!(split_service_account(user), None, "{user}");
        }
    }
}
