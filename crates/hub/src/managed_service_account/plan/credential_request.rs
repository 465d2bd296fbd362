//! Which requests for the certificate of the add-on's agent are approved.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use super::rights;
use crate::csr;

/// The cluster for which this request asks for the add-on's credential, if it may have it: exactly the user and the group
/// that the registration names, asked for by exactly that cluster's agent. Extensions are let through: upstream's agents ask
/// for a DNS name, which a client certificate has no use for.
pub fn approvable_cluster(request: &CertificateSigningRequest) -> Result<String, String> {
    let asked = csr::read(request)?;
    let (cluster, requester) = (&asked.cluster, &asked.requester);
    if !csr::is_agent_user(&requester.name, cluster)
        || !requester.groups.contains(&csr::cluster_group(cluster))
    {
        return Err("it was not made by the agent of its cluster".into());
    }
    if asked.user != rights::addon_user(cluster) {
        return Err("it asks for another user".into());
    }
    if asked.groups != [rights::addon_group(cluster)] {
        return Err("it asks for other groups".into());
    }
    Ok(asked.cluster)
}
