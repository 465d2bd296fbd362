//! The certificates and keys of one control plane.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use writ_process::private;

/// A certificate with its key, both in PEM.
pub struct Identity {
    /// The certificate.
    pub cert: String,
    /// Its private key.
    pub key: String,
}

/// An authority that signs serving and client certificates.
pub struct Authority {
    cert: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Loads the authority from `folder`, or makes it there.
    pub fn load_or_create(folder: &Path) -> Result<Self> {
        let (cert_file, key_file) = (folder.join("ca.crt"), folder.join("ca.key"));
        if !cert_file.is_file() {
            let mut params = CertificateParams::default();
            params.distinguished_name = name("writ-testenv", None);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
            let key = KeyPair::generate()?;
            fs::write(&cert_file, params.self_signed(&key)?.pem())?;
            private::file(&key_file, key.serialize_pem())?;
        }
        let cert = fs::read_to_string(&cert_file).context("read the CA")?;
        let key = KeyPair::from_pem(&fs::read_to_string(&key_file).context("read the CA's key")?)?;
        let issuer = Issuer::from_ca_cert_pem(&cert, key)?;
        Ok(Self { cert, issuer })
    }

    /// The authority's own certificate.
    pub fn cert(&self) -> &str {
        &self.cert
    }

    /// A client certificate for a user in one group.
    pub fn client(&self, user: &str, group: &str) -> Result<Identity> {
        let mut params = CertificateParams::default();
        params.distinguished_name = name(user, Some(group));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// A serving certificate for this machine.
    pub fn serving(&self) -> Result<Identity> {
        let names = ["localhost", "127.0.0.1", "kubernetes.default.svc", "10.0.0.1"].map(String::from);
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = name("kube-apiserver", None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Identity> {
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity {
            cert,
            key: key.serialize_pem(),
        })
    }
}

fn name(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name
}
