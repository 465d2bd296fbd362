//! How works are delivered.

use std::{str::FromStr, time::Duration};

/// The options of the controller.
#[derive(Clone, Debug)]
pub struct WorkOptions {
    /// The server address of the hub, exactly as its kubeconfig spells it. The names of AppliedManifestWorks
    /// depend on every character of it.
    pub hub_server: String,
    /// The identity of this agent among the agents of a cluster; by default the hash of its hub.
    pub agent_id: Option<String>,
    /// The name of the agent's ServiceAccount in its own namespace: no executor may touch what its rights rest on.
    pub service_account: String,
    /// How long objects stay after their work is gone from the hub (one hour).
    pub eviction_grace_period: Duration,
    /// How often objects are polled that the agent may not watch (five minutes).
    pub status_sync_interval: Option<Duration>,
    /// What happens to works without an executor.
    pub nil_executor: NilExecutor,
    /// What a refused manifest means for the others of its work.
    pub executor_granularity: ExecutorGranularity,
    /// What decides about requests on the managed cluster.
    pub authorizers: Authorizers,
}

impl Default for WorkOptions {
    fn default() -> Self {
        Self {
            hub_server: String::new(),
            agent_id: None,
            service_account: "writ-agent".into(),
            eviction_grace_period: Duration::from_hours(1),
            status_sync_interval: None,
            nil_executor: NilExecutor::default(),
            executor_granularity: ExecutorGranularity::default(),
            authorizers: Authorizers::default(),
        }
    }
}

/// What happens to works without an executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NilExecutor {
    /// The agent acts as itself.
    #[default]
    Allow,
    /// Nothing is applied, and a condition reports that.
    Deny,
}

/// What a refused manifest means for the others of its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecutorGranularity {
    /// One refused manifest refuses the revision.
    #[default]
    Work,
    /// What is allowed is applied.
    Manifest,
}

/// What decides about requests on the managed cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authorizers {
    /// RBAC alone: answers hold until RBAC changes, and an answer for all names holds for each name.
    #[default]
    Rbac,
    /// Another authorizer as well: only exact questions count, and answers hold for ten seconds.
    Other,
}

macro_rules! words {
    ($type:ty { $($word:literal => $value:expr),+ $(,)? }) => {
        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok($value),)+
                    _ => Err(format!("{text:?} is not one of {}", [$($word),+].join(", "))),
                }
            }
        }
    };
}

words!(NilExecutor { "allow" => Self::Allow, "deny" => Self::Deny });
words!(ExecutorGranularity { "work" => Self::Work, "manifest" => Self::Manifest });
words!(Authorizers { "rbac" => Self::Rbac, "other" => Self::Other });
