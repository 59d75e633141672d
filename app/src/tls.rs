//! TLS: what a server shows of itself, and whom those who call believe.

mod shown;
mod trust;

pub use shown::{Files, Shown};
pub use trust::{Trust, said};

use prism_core::signal::sha256_hex;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::Path;
use std::sync::Arc;

/// The cryptography of every connection.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The certificates in a PEM file, in their order; an error says what is wrong with the file.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable = |e: &dyn std::fmt::Display| format!("{} cannot be read: {e}", file.display());
    let pem = std::fs::read(file).map_err(|e| unreadable(&e))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found.map_err(|e| unreadable(&e))? {
        none if none.is_empty() => Err(format!(
            "{} holds no certificate: it must be PEM, with BEGIN CERTIFICATE lines",
            file.display()
        )),
        found => Ok(found),
    }
}

/// By what a certificate is known again.
fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    sha256_hex(certificate)
}
