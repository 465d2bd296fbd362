//! Serving: the cluster's own certificate authority, the HTTPS listener, kubeconfigs.

mod authority;
mod connection;
mod kubeconfig;
mod listener;
mod subject;

pub(crate) use authority::{Authority, CLIENT_SIGNER, ClientCertificate, ClientWish};
pub(crate) use kubeconfig::kubeconfig;
pub(crate) use listener::listen;
