//! The certificates of the webhook server: a CA in a Secret, or files.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client, ResourceExt,
    api::PostParams,
    runtime::{WatchStreamExt, watcher},
};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData,
};
use rustls::{
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use tokio::time::Instant;

use super::{Source, Target};
use writ_controller::{Error, error::Context as _, renewal};

/// The CA's certificates, newest first.
const BUNDLE: &str = "ca.crt";
/// The key of the newest CA.
const KEY: &str = "ca.key";

/// How long certificates live; each is replaced at 70 to 80 % of that.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The CA's lifetime.
    pub ca: Duration,
    /// The serving certificate's lifetime.
    pub serving: Duration,
    /// How often certificates in files are read again: a mounted Secret changes without an event.
    pub files: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let day = Duration::from_hours(24);
        Self {
            ca: day * 365,
            serving: day * 30,
            files: Duration::from_secs(30),
        }
    }
}

/// What the server needs: what clients shall trust, and what it shows them.
#[derive(Clone)]
pub struct Material {
    /// CA certificates in PEM.
    pub bundle: String,
    /// The serving certificate with its key.
    pub serving: Arc<CertifiedKey>,
    /// When to check again without an event.
    pub check_at: Instant,
    /// When the serving certificate is to be replaced.
    serving_due: Timestamp,
}

impl Material {
    /// Returns true if a client with this bundle trusts the other's certificate: the CA that signs is the first of its
    /// bundle.
    pub fn trusts(&self, other: &Self) -> bool {
        first_pem(&other.bundle).is_some_and(|ca| self.bundle.contains(ca.trim()))
    }
}

/// Obtains certificates and keeps them fresh.
pub struct Keeper {
    client: Client,
    source: Source,
    names: Vec<String>,
    timing: Timing,
}

/// The one crypto provider of the project.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The names that the serving certificate must carry.
pub fn names(target: &Target, base: Option<&str>) -> Result<Vec<String>, Error> {
    match (target, base) {
        (Target::Service { namespace, name }, _) => Ok(vec![
            format!("{name}.{namespace}.svc"),
            format!("{name}.{namespace}.svc.cluster.local"),
        ]),
        (Target::Url(_), base) => {
            let url = base.unwrap_or_default();
            let uri: http::Uri = url
                .parse()
                .map_err(|e| Error::Invalid(format!("the webhook URL {url:?} is no URL: {e}")))?;
            match uri.host() {
                Some(host) if uri.scheme_str() == Some("https") => {
                    Ok(vec![host.trim_matches(['[', ']']).to_owned()])
                }
                _ => Err(Error::Invalid(format!(
                    "the webhook URL {url:?} must begin with https:// and name a host"
                ))),
            }
        }
    }
}

impl Keeper {
    /// A keeper for certificates with these names.
    pub fn new(client: Client, source: Source, names: Vec<String>, timing: Timing) -> Self {
        Self {
            client,
            source,
            names,
            timing,
        }
    }

    /// The certificates, made if there are none yet.
    pub async fn obtain(&self) -> Result<Material, Error> {
        match &self.source {
            Source::Folder(folder) => from_folder(folder).await,
            Source::Secret { namespace, name } => {
                let authority = self.authority(namespace, name).await?;
                self.sign(authority)
            }
        }
    }

    /// The certificates now; the serving certificate stays the same while it is good and its CA unchanged.
    pub async fn renew(&self, current: &Material) -> Result<Material, Error> {
        let Source::Secret { namespace, name } = &self.source else {
            return self.obtain().await;
        };
        let authority = self.authority(namespace, name).await?;
        if authority.bundle == current.bundle && Timestamp::now() < current.serving_due {
            return Ok(Material {
                check_at: self.next_check(authority.due.min(current.serving_due)),
                ..current.clone()
            });
        }
        self.sign(authority)
    }

    /// Something about the source may have changed.
    pub fn changes(&self) -> BoxStream<'static, ()> {
        match &self.source {
            Source::Folder(_) => {
                let every = self.timing.files;
                futures::stream::unfold((), move |()| async move {
                    tokio::time::sleep(every).await;
                    Some(((), ()))
                })
                .boxed()
            }
            Source::Secret { namespace, name } => {
                let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
                watcher(
                    api,
                    watcher::Config::default().fields(&format!("metadata.name={name}")),
                )
                .default_backoff()
                .filter_map(|event| async move { event.is_ok().then_some(()) })
                .boxed()
            }
        }
    }

    /// The bundle and the newest CA; makes or replaces the CA if it is time. Replicas agree by resourceVersion.
    async fn authority(&self, namespace: &str, name: &str) -> Result<Authority, Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        for _ in 0..10 {
            let found = api
                .get_opt(name)
                .await
                .context(|| format!("get Secret {namespace}/{name}"))?;
            let bundle = found.as_ref().and_then(|secret| text(secret, BUNDLE));
            let key = found.as_ref().and_then(|secret| text(secret, KEY));
            if let (Some(bundle), Some(key)) = (&bundle, &key)
                && let Some(authority) = usable(bundle, key, self.timing.ca)
            {
                return Ok(authority);
            }
            let (cert, key) = new_authority(self.timing.ca)?;
            let kept = bundle.as_deref().and_then(first_pem).unwrap_or_default();
            let mut secret = found.unwrap_or_default();
            secret.metadata.name = Some(name.into());
            secret.data = Some(BTreeMap::from([
                (
                    BUNDLE.to_owned(),
                    ByteString(format!("{cert}{kept}").into_bytes()),
                ),
                (KEY.to_owned(), ByteString(key.into_bytes())),
            ]));
            let written = if secret.resource_version().is_some() {
                api.replace(name, &PostParams::default(), &secret).await
            } else {
                api.create(&PostParams::default(), &secret).await
            };
            match written {
                Ok(_) => {}
                // Another replica was faster: what it wrote is as good.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => {
                    return Err(error).context(|| format!("write the CA to Secret {namespace}/{name}"));
                }
            }
        }
        Err(Error::Invalid(format!(
            "the CA in Secret {namespace}/{name} keeps changing"
        )))
    }

    fn sign(&self, authority: Authority) -> Result<Material, Error> {
        let failed = |e: rcgen::Error| Error::io("sign the webhook's certificate", e);
        let mut params = CertificateParams::new(self.names.clone()).map_err(failed)?;
        params.distinguished_name.push(DnType::CommonName, "writ webhook");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let ends = validity(&mut params, self.timing.serving);
        let key = KeyPair::generate().map_err(failed)?;
        let cert = params.signed_by(&key, &authority.issuer).map_err(failed)?;
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let serving = certified(vec![cert.der().clone()], &key)?;
        let serving_due = due(ends, self.timing.serving, cert.der().as_ref());
        Ok(Material {
            bundle: authority.bundle,
            serving,
            check_at: self.next_check(authority.due.min(serving_due)),
            serving_due,
        })
    }

    /// When the next certificate is due. Not later than a sixth of the shorter life: the clock may be set meanwhile.
    fn next_check(&self, due: Timestamp) -> Instant {
        let left = Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default();
        Instant::now() + left.min(self.timing.serving.min(self.timing.ca) / 6)
    }
}

async fn from_folder(folder: &Path) -> Result<Material, Error> {
    let read = async |name: &str| {
        let file = folder.join(name);
        tokio::fs::read(&file)
            .await
            .map_err(|e| Error::io(format!("read {}", file.display()), e))
    };
    let (cert, key, bundle) = (
        read("tls.crt").await?,
        read("tls.key").await?,
        read("ca.crt").await?,
    );
    let broken = |e: rustls::pki_types::pem::Error| Error::io(format!("read {} as PEM", folder.display()), e);
    let chain = CertificateDer::pem_slice_iter(&cert)
        .collect::<Result<Vec<_>, _>>()
        .map_err(broken)?;
    let serving = certified(chain, &PrivateKeyDer::from_pem_slice(&key).map_err(broken)?)?;
    let bundle = String::from_utf8(bundle).map_err(|e| Error::io("read ca.crt as text", e))?;
    Ok(Material {
        bundle,
        serving,
        check_at: Instant::now() + Duration::from_hours(1),
        serving_due: Timestamp::MAX,
    })
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: &PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, Error> {
    let key = provider()
        .key_provider
        .load_private_key(key.clone_key())
        .map_err(|e| Error::io("use the webhook's private key", e))?;
    let certified = CertifiedKey::new(chain, key);
    certified
        .keys_match()
        .map_err(|e| Error::io("use the webhook's private key with its certificate", e))?;
    Ok(Arc::new(certified))
}

fn new_authority(lifetime: Duration) -> Result<(String, String), Error> {
    let failed = |e: rcgen::Error| Error::io("make a CA for the webhooks", e);
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "writ webhook CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    validity(&mut params, lifetime);
    let key = KeyPair::generate().map_err(failed)?;
    let cert = params.self_signed(&key).map_err(failed)?;
    Ok((cert.pem(), key.serialize_pem()))
}

/// Valid from a little ago, as clocks differ; returns the end.
fn validity(params: &mut CertificateParams, lifetime: Duration) -> Timestamp {
    let now = Timestamp::now();
    let ends = now.saturating_add(lifetime).unwrap_or(Timestamp::MAX);
    params.not_before = date(now.saturating_sub(Duration::from_mins(5)).unwrap_or(now));
    params.not_after = date(ends);
    ends
}

fn date(at: Timestamp) -> time::OffsetDateTime {
    time::OffsetDateTime::from_unix_timestamp(at.as_second()).unwrap_or(time::OffsetDateTime::UNIX_EPOCH)
}

/// The CA that signs serving certificates.
struct Authority {
    /// Its certificate, and the one before it, in PEM.
    bundle: String,
    issuer: Issuer<'static, KeyPair>,
    /// When it is to be replaced.
    due: Timestamp,
}

/// The CA, unless it is due for renewal or its key belongs to another certificate: clients would not trust what that signs.
fn usable(bundle: &str, key: &str, lifetime: Duration) -> Option<Authority> {
    let cert = first_pem(bundle)?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(cert.as_bytes()).ok()?;
    let parsed = pem.parse_x509().ok()?;
    let key = KeyPair::from_pem(key).ok()?;
    let ends = Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()?;
    // Replicas share the CA, and agree on when it is due.
    let due = due(ends, lifetime, &pem.contents);
    if due <= Timestamp::now() || parsed.public_key().raw != key.subject_public_key_info() {
        return None;
    }
    Some(Authority {
        bundle: bundle.to_owned(),
        issuer: Issuer::from_ca_cert_pem(&cert, key).ok()?,
        due,
    })
}

/// When a certificate is renewed. Its life is the one that is configured now, which may be longer than the one it got.
fn due(ends: Timestamp, lifetime: Duration, certificate: &[u8]) -> Timestamp {
    let issued = ends.saturating_sub(lifetime).unwrap_or(Timestamp::MIN);
    renewal::renew_at(issued, ends, &certificate)
}

fn first_pem(bundle: &str) -> Option<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let end = bundle.find(END)? + END.len();
    bundle.get(..end).map(|pem| format!("{pem}\n"))
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    let bytes = &secret.data.as_ref()?.get(key)?.0;
    String::from_utf8(bytes.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ca_is_usable_with_its_own_key_alone() {
        let year = Timing::default().ca;
        let (cert, key) = new_authority(year).unwrap();
        let (_, other) = new_authority(year).unwrap();
        assert!(usable(&cert, &key, year).is_some());
        assert!(usable(&cert, &other, year).is_none(), "the key of another CA");
        assert!(usable(&cert, &key, year * 8).is_none(), "it ends too soon");
        assert!(usable("junk", &key, year).is_none() && usable(&cert, "junk", year).is_none());
    }

    #[test]
    fn a_serving_certificate_needs_its_own_key() {
        let (cert, _) = new_authority(Duration::from_hours(1)).unwrap();
        let (_, other) = new_authority(Duration::from_hours(1)).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()];
        let other = PrivateKeyDer::from_pem_slice(other.as_bytes()).unwrap();
        let error = certified(chain, &other).unwrap_err().to_string();
        assert!(error.contains("with its certificate"), "{error}");
    }
}
