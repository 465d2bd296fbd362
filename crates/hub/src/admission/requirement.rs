//! The vocabulary of a decision: what was asked, what must be allowed, what is refused.

/// Who sent a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requester {
    /// The user name.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
}

/// One question to the authorizer of the hub.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// The verb.
    pub verb: &'static str,
    /// The API group.
    pub group: &'static str,
    /// The resource, with `/subresource` where there is one.
    pub resource: &'static str,
    /// The name; `None` asks for all of them.
    pub name: Option<String>,
}

/// Something that the requester must be allowed: one of several is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The questions, asked in order until one is answered with yes.
    pub any_of: Vec<Access>,
    /// What the requester reads if all answers are no.
    pub refusal: String,
}

/// What a pure decision comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is refused, whoever asks.
    Refuse {
        /// The HTTP status: 400 for what is wrong in itself, 403 for what is not allowed.
        code: u16,
        /// What the requester reads.
        message: String,
    },
    /// It is allowed if every need is met.
    AllowIf {
        /// The needs, in the order in which they are asked.
        needs: Vec<Need>,
        /// What the requester reads besides.
        warnings: Vec<String>,
    },
}

impl Decision {
    /// Allowed without a question.
    pub const ALLOW: Self = Self::AllowIf {
        needs: Vec::new(),
        warnings: Vec::new(),
    };

    /// The object is wrong in itself.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Refuse {
            code: 400,
            message: message.into(),
        }
    }

    /// The request is never allowed.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::Refuse {
            code: 403,
            message: message.into(),
        }
    }

    /// Allowed if every need is met.
    pub fn needs(needs: Vec<Need>) -> Self {
        Self::AllowIf {
            needs,
            warnings: Vec::new(),
        }
    }
}

/// The group of clusters and sets.
const CLUSTER: &str = "cluster.open-cluster-management.io";

impl Access {
    /// To move clusters into and out of a set.
    pub fn join(set: &str) -> Self {
        Self::named("create", CLUSTER, "managedclustersets/join", set)
    }

    /// To bind a set to a namespace.
    pub fn bind(set: &str) -> Self {
        Self::named("create", CLUSTER, "managedclustersets/bind", set)
    }

    /// To create sets with this exclusive key, or with this pair `key:set`.
    pub fn exclusive_key(name: &str) -> Self {
        Self::named("create", CLUSTER, "managedclustersets/exclusiveKey", name)
    }

    /// To accept a cluster.
    pub fn accept(cluster: &str) -> Self {
        Self::named(
            "update",
            "register.open-cluster-management.io",
            "managedclusters/accept",
            cluster,
        )
    }

    /// To write the taints that tell whether a cluster is reachable. The hub's own controllers hold it.
    pub fn system_taints(cluster: &str) -> Self {
        Self::named("update", CLUSTER, "managedclusters/systemtaints", cluster)
    }

    /// To update every cluster.
    pub fn update_all_clusters() -> Self {
        Self {
            verb: "update",
            group: CLUSTER,
            resource: "managedclusters",
            name: None,
        }
    }

    fn named(verb: &'static str, group: &'static str, resource: &'static str, name: &str) -> Self {
        Self {
            verb,
            group,
            resource,
            name: Some(name.to_owned()),
        }
    }
}

impl Need {
    /// One question, one refusal.
    pub fn one(access: Access, refusal: impl Into<String>) -> Self {
        Self {
            any_of: vec![access],
            refusal: refusal.into(),
        }
    }
}

/// The cluster that a user is the agent of, if it is one: by certificate, by the token driver's account, or as
/// upstream's agents are on EKS, where the user has the name of the cluster.
pub fn cluster_identity(user: &Requester) -> Option<&str> {
    let by_name = user
        .name
        .strip_prefix("system:open-cluster-management:")
        .and_then(|rest| rest.split_once(':'))
        .filter(|(cluster, agent)| !cluster.is_empty() && !agent.is_empty() && !agent.contains(':'))
        .map(|(cluster, _)| cluster);
    let by_account = user
        .name
        .strip_prefix("system:serviceaccount:")
        .and_then(|rest| rest.split_once(':'))
        .filter(|(_, account)| *account == AGENT_ACCOUNT)
        .map(|(namespace, _)| namespace);
    let by_group = || {
        user.groups
            .iter()
            .filter(|group| *group != "system:open-cluster-management:managed-clusters")
            .find_map(|group| {
                group
                    .strip_prefix("system:open-cluster-management:")
                    // People choose such names for their own groups, too.
                    .or_else(|| {
                        let cluster = group.strip_prefix("open-cluster-management:");
                        cluster.filter(|cluster| *cluster == user.name)
                    })
                    .filter(|cluster| !cluster.contains(':'))
            })
    };
    by_name.or(by_account).or_else(by_group)
}

/// The cluster as whose agent a user acts on the cluster of this name: besides agents, everybody who is in the group
/// that holds an agent's rights on it.
pub fn acts_as_agent<'a>(user: &'a Requester, cluster: &'a str) -> Option<&'a str> {
    let in_group = |group: &String| group.strip_prefix("open-cluster-management:") == Some(cluster);
    cluster_identity(user).or_else(|| user.groups.iter().any(in_group).then_some(cluster))
}

/// The ServiceAccount of an agent in its cluster's namespace, where the token driver is used.
pub const AGENT_ACCOUNT: &str = "managed-cluster-agent";
