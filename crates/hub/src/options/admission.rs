//! The options of admission.

use std::{net::SocketAddr, str::FromStr};

use writ_process::webhook;

/// How admission works.
#[derive(Clone, Debug)]
pub struct AdmissionOptions {
    /// Whether webhooks are served. Off here, on by default on the command line.
    pub webhooks: bool,
    /// Where and how they are served.
    pub server: webhook::Options,
    /// The right that a work without an executor requires.
    pub nil_executor: NilExecutor,
    /// How a user gets the right to name an executor.
    pub executor_authorization: ExecutorAuthorization,
    /// The largest sum of the sizes of a work's manifests, in bytes (512000, as in OCM).
    pub manifest_limit: usize,
}

impl Default for AdmissionOptions {
    fn default() -> Self {
        Self {
            webhooks: false,
            server: webhook::Options {
                listen: SocketAddr::from(([0, 0, 0, 0], 9443)),
                target: webhook::Target::Service {
                    namespace: crate::NAMESPACE.into(),
                    name: "writ-hub".into(),
                },
                source: webhook::Source::Secret {
                    namespace: crate::NAMESPACE.into(),
                    name: "writ-hub-webhook".into(),
                },
                timing: webhook::Timing::default(),
            },
            nil_executor: NilExecutor::default(),
            executor_authorization: ExecutorAuthorization::default(),
            manifest_limit: 500 * 1024,
        }
    }
}

/// The right that a work without an executor requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NilExecutor {
    /// Nothing: the right to write works is enough to use the agent's rights.
    #[default]
    Allow,
    /// `execute-as` for the agent itself.
    Check,
}

/// How a user gets the right to name an executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecutorAuthorization {
    /// The permission `execute-as`.
    #[default]
    ExecuteAs,
    /// A ManagedServiceAccountBinding.
    Binding,
    /// Either of the two.
    Either,
}

impl FromStr for NilExecutor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "allow" => Ok(Self::Allow),
            "check" => Ok(Self::Check),
            _ => Err(format!("{text:?} is not one of allow, check")),
        }
    }
}

impl FromStr for ExecutorAuthorization {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "execute-as" => Ok(Self::ExecuteAs),
            "binding" => Ok(Self::Binding),
            "either" => Ok(Self::Either),
            _ => Err(format!("{text:?} is not one of execute-as, binding, either")),
        }
    }
}
