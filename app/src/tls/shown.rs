//! The certificate that a server shows: two files, read again while it runs.

use super::{certificates, fingerprint, provider};
use anyhow::{Context, Result, bail};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, RootCertStore, ServerConfig};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio_rustls::TlsAcceptor;

/// Where a certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The server's own certificate first, then those between it and its authority.
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Files {
    fn read(&self) -> Result<CertifiedKey> {
        let chain = certificates(&self.cert).map_err(anyhow::Error::msg)?;
        let pem = std::fs::read(&self.key)
            .with_context(|| format!("{} cannot be read", self.key.display()))?;
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|e| {
            anyhow::anyhow!(
                "{} holds no private key that can be used: {e}; it must be PEM and without a \
                 passphrase",
                self.key.display()
            )
        })?;
        CertifiedKey::from_der(chain, key, &provider()).map_err(|e| match e {
            rustls::Error::InconsistentKeys(_) => anyhow::anyhow!(
                "{} is not the key of the certificate in {}",
                self.key.display(),
                self.cert.display()
            ),
            e => anyhow::anyhow!("{} cannot be used: {e}", self.cert.display()),
        })
    }
}

/// What a server shows now.
#[derive(Debug)]
pub struct Shown {
    files: Files,
    pair: RwLock<Arc<CertifiedKey>>,
}

impl Shown {
    /// Reads the files. A certificate whose time is not now is shown all the same: whoever runs the
    /// server may be about to replace it, and what is on this machine goes on.
    pub fn open(files: Files) -> Result<Arc<Self>> {
        let pair = files.read()?;
        if let Some(wrong) = out_of_time(&pair) {
            tracing::warn!(
                "{} {wrong}: other machines will refuse it; replace it and send SIGHUP",
                files.cert.display()
            );
        }
        Ok(Arc::new(Self {
            files,
            pair: RwLock::new(Arc::new(pair)),
        }))
    }

    /// Reads the files again and shows what they hold now; false when that is the same. `before` is
    /// told the new fingerprint and the old one, and runs before anybody sees the new certificate.
    /// On an error the old one stays.
    pub fn read_again(&self, before: impl FnOnce([String; 2]) -> Result<()>) -> Result<bool> {
        let fresh = self.files.read()?;
        if let Some(wrong) = out_of_time(&fresh) {
            bail!("{} {wrong}", self.files.cert.display());
        }
        let prints = [
            fingerprint(&fresh.cert[0]),
            fingerprint(&self.pair().cert[0]),
        ];
        let differs = prints[0] != prints[1];
        if differs {
            before(prints)?;
        }
        // The certificates behind it may be others.
        *self.pair.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
        Ok(differs)
    }

    pub fn fingerprint(&self) -> String {
        fingerprint(&self.pair().cert[0])
    }

    /// Whether the certificate is for this host. Then a browser that came here under the name has
    /// seen that it is this server's.
    pub fn is_for(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[').and_then(|h| h.split_once(']')) {
            Some((address, _)) => address,
            None => host.split_once(':').map_or(host, |(name, _)| name),
        };
        let pair = self.pair();
        let (Ok(name), Ok(certificate)) = (
            ServerName::try_from(name),
            ParsedCertificate::try_from(&pair.cert[0]),
        ) else {
            return false;
        };
        rustls::client::verify_server_name(&certificate, &name).is_ok()
    }

    pub fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    fn pair(&self) -> Arc<CertifiedKey> {
        self.pair
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.pair())
    }
}

/// What is wrong with the time for which a certificate was made.
fn out_of_time(pair: &CertifiedKey) -> Option<&'static str> {
    let own: &CertificateDer<'_> = &pair.cert[0];
    let mut roots = RootCertStore::empty();
    // It vouches for itself here: only its time is looked at, and that comes first.
    roots.add(own.clone()).ok()?;
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
    let name = ServerName::try_from("localhost").ok()?;
    let now = u64::try_from(crate::clock::now().0).ok()?;
    let now = UnixTime::since_unix_epoch(Duration::from_micros(now));
    let judged = verifier
        .build()
        .ok()?
        .verify_server_cert(own, &[], &name, &[], now);
    match judged {
        Err(rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => Some("has expired"),
        Err(rustls::Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        )) => Some("is not valid yet"),
        _ => None,
    }
}
