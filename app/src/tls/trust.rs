//! Whom a client believes, and what it says when it does not.

use super::{certificates, fingerprint, provider};
use prism_core::{Code, Problem};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Whose word counts for who a server is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The authorities that this machine knows.
    #[default]
    System,
    /// Those in this file alone.
    Authority(PathBuf),
    /// Those in this file, or that this machine knows, for a server of whatever name.
    AnyName(Option<PathBuf>),
    /// Nobody's: the certificates with these fingerprints are the server's, by a file that only its
    /// own user can have written.
    Known(Vec<String>),
    /// Nobody's: what is said is kept from those who listen, whoever it is said to.
    Anybody,
}

impl Trust {
    /// How a client speaks to a server that it would believe.
    pub fn config(&self) -> Result<Arc<ClientConfig>, Problem> {
        // Reading the machine's certificates takes longer than a whole call within it.
        static SYSTEM: OnceLock<Arc<ClientConfig>> = OnceLock::new();
        if *self != Self::System {
            return self.make();
        }
        if let Some(config) = SYSTEM.get() {
            return Ok(config.clone());
        }
        let config = self.make()?;
        Ok(SYSTEM.get_or_init(|| config).clone())
    }

    fn make(&self) -> Result<Arc<ClientConfig>, Problem> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|e| unusable(&e))?;
        let config = match self {
            Self::System => builder.with_root_certificates(roots(None)?),
            Self::Authority(file) => builder.with_root_certificates(roots(Some(file))?),
            special => {
                let check = special.check()?;
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(check))
            }
        };
        Ok(Arc::new(config.with_no_client_auth()))
    }

    fn check(&self) -> Result<Check, Problem> {
        Ok(match self {
            Self::Known(prints) => Check::Known(prints.clone()),
            Self::AnyName(file) => {
                let roots = Arc::new(roots(file.as_ref())?);
                let chain = WebPkiServerVerifier::builder_with_provider(roots, provider());
                Check::Chain(chain.build().map_err(|e| unusable(&e))?)
            }
            _ => Check::Nothing,
        })
    }
}

fn unusable(error: &dyn std::fmt::Display) -> Problem {
    Problem::new(Code::Internal, format!("no TLS: {error}"), "report this")
}

fn roots(file: Option<&PathBuf>) -> Result<RootCertStore, Problem> {
    let mut roots = RootCertStore::empty();
    let Some(file) = file else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        return Ok(roots);
    };
    let bad = |why: String| {
        Problem::new(
            Code::InvalidRequest,
            format!("the authority's certificate: {why}"),
            "give the file that signed the server's certificate, as PEM",
        )
    };
    for certificate in certificates(file).map_err(bad)? {
        roots
            .add(certificate)
            .map_err(|e| bad(format!("{} cannot be used: {e}", file.display())))?;
    }
    Ok(roots)
}

/// How a certificate is judged where not by name and authority.
#[derive(Debug)]
enum Check {
    Known(Vec<String>),
    Chain(Arc<WebPkiServerVerifier>),
    Nothing,
}

impl ServerCertVerifier for Check {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self {
            Self::Nothing => Ok(ServerCertVerified::assertion()),
            Self::Known(prints) if prints.contains(&fingerprint(own)) => {
                Ok(ServerCertVerified::assertion())
            }
            Self::Known(_) => Err(CertificateError::ApplicationVerificationFailure.into()),
            // The name is looked at last.
            Self::Chain(chain) => match chain.verify_server_cert(own, between, name, ocsp, now) {
                Err(Error::InvalidCertificate(
                    CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. },
                )) => Ok(ServerCertVerified::assertion()),
                judged => judged,
            },
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        verify_tls12_signature(message, own, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        verify_tls13_signature(message, own, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// What was wrong with a handshake, and what to do about it; none when that was not TLS.
pub fn said(error: &io::Error) -> Option<(String, &'static str)> {
    use CertificateError as C;
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    let (what, hint) = match error {
        Error::InvalidCertificate(bad) => match bad {
            // One that signs as somebody known, with another key, is as unknown.
            C::UnknownIssuer | C::BadSignature => (
                "its certificate is of an authority that is not known here",
                "set PRISM_CA_FILE to that authority's certificate (PEM), if this is your server",
            ),
            C::NotValidForName | C::NotValidForNameContext { .. } => (
                "its certificate is for another name",
                "call the server by a name that its certificate has, or give it one for this name",
            ),
            C::Expired | C::ExpiredContext { .. } => (
                "its certificate has expired",
                "renew it where the server runs and send the server SIGHUP; or mend this machine's \
                 clock",
            ),
            C::NotValidYet | C::NotValidYetContext { .. } => (
                "its certificate is not valid yet",
                "compare this machine's clock with the server's",
            ),
            C::ApplicationVerificationFailure => (
                "it shows another certificate than the server of this home",
                "somebody else may listen there; `prism doctor` looks",
            ),
            C::Other(_) => (
                "its certificate cannot be a server's, or is an authority's own",
                "make one for the server, signed by the authority, with the server's name in it \
                 (subjectAltName)",
            ),
            _ => (
                "its certificate is not good",
                "`openssl s_client -connect host:port` shows it",
            ),
        },
        Error::InvalidMessage(_) => (
            "it does not speak TLS",
            "is it http:// there? Check the address and the port",
        ),
        _ => (
            "no TLS connection came about",
            "`prism serve` there says why, in its log at level debug",
        ),
    };
    Some((format!("{what} ({error})"), hint))
}
