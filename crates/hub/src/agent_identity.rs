//! Which users are agents of managed clusters.

use k8s_openapi::api::authentication::v1::UserInfo;

/// The roles for agents that `deploy/hub` ships; the agent of every cluster is bound to them in its own namespace. No
/// cluster can have such a name: its own role would take the place of the shared one.
pub const SHARED_ROLES: [&str; 4] = ["registration", "work", "ocm", "token"];

/// The ServiceAccount of an agent in its cluster's namespace, where the token driver is used.
pub const AGENT_ACCOUNT: &str = "managed-cluster-agent";

/// The user who sent a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requester {
    /// The user name.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
}

impl From<&UserInfo> for Requester {
    fn from(user: &UserInfo) -> Self {
        Self {
            name: user.username.clone().unwrap_or_default(),
            groups: user.groups.clone().unwrap_or_default(),
        }
    }
}

/// The cluster whose agent this user is: by certificate, by the account of the token driver, or by the name of the
/// cluster itself, as OCM's agents on EKS have it.
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
                    // Without `system:` the prefix is not reserved, so the user name has to agree.
                    .or_else(|| {
                        let cluster = group.strip_prefix("open-cluster-management:");
                        cluster.filter(|cluster| *cluster == user.name)
                    })
                    .filter(|cluster| !cluster.contains(':'))
            })
    };
    by_name.or(by_account).or_else(by_group)
}

/// The cluster as whose agent a user acts on the cluster of this name: agents, and all members of the group that holds
/// an agent's rights on it.
pub fn acts_as_agent<'a>(user: &'a Requester, cluster: &'a str) -> Option<&'a str> {
    let in_group = |group: &String| group.strip_prefix("open-cluster-management:") == Some(cluster);
    cluster_identity(user).or_else(|| user.groups.iter().any(in_group).then_some(cluster))
}
