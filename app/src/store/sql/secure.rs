//! TLS to PostgreSQL, with the words that its own clients have for it.
//!
//! `sslmode=require` keeps what is said from those who listen; `verify-ca` and `verify-full` also
//! make sure of the server, by `sslrootcert` or the authorities that this machine knows. As
//! everywhere, `require` with a `sslrootcert` means `verify-ca`.

use super::{Error, Result};
use crate::tls::Trust;
use ::postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as Stream;

/// How connections are secured.
#[derive(Clone)]
pub struct Secure {
    config: Arc<ClientConfig>,
    demanded: bool,
}

impl Secure {
    /// Takes what only we understand out of a URL.
    pub fn taken_from(url: &str) -> Result<(String, Self)> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut root, mut rest) = ("", None, Vec::new());
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value @ ("verify-ca" | "verify-full"))) => mode = value,
                Some(("sslrootcert", "system")) => {}
                Some(("sslrootcert", file)) => root = Some(PathBuf::from(unescaped(file))),
                _ => rest.push(pair),
            }
        }
        let trust = match (mode, root) {
            ("verify-full", None) => Trust::System,
            ("verify-full", Some(file)) => Trust::Authority(file),
            ("verify-ca", file) => Trust::AnyName(file),
            (_, Some(file)) => Trust::AnyName(Some(file)),
            (_, None) => Trust::Anybody,
        };
        let config = trust.config().map_err(|p| Error::Url(p.message))?;
        let url = match rest.is_empty() {
            true => place.to_owned(),
            false => format!("{place}?{}", rest.join("&")),
        };
        let demanded = trust != Trust::Anybody;
        Ok((url, Self { config, demanded }))
    }

    /// Whether a connection without TLS is out of the question, whatever else the URL says.
    pub fn is_demanded(&self) -> bool {
        self.demanded
    }
}

/// Turns %2F and its like into what they stand for.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = (*first == b'%').then(|| text_of(tail)).flatten();
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn text_of(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits.get(..2)?).ok()?;
    u8::from_str_radix(digits, 16).ok()
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Secure {
    type Stream = Secured<S>;
    type TlsConnect = Connect;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Connect> {
        // A socket in a folder has no name, and never comes to TLS.
        let name = ServerName::try_from(host.to_owned());
        Ok(Connect(self.config.clone().into(), name.ok()))
    }
}

/// A connection about to be secured.
pub struct Connect(TlsConnector, Option<ServerName<'static>>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Connect {
    type Stream = Secured<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Secured<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = self
                .1
                .ok_or_else(|| io::Error::other("the host has no name for TLS"))?;
            let stream = self.0.connect(name, stream).await;
            stream
                .map(Secured)
                .map_err(|error| match crate::tls::said(&error) {
                    Some((what, _)) => io::Error::other(what),
                    None => error,
                })
        })
    }
}

/// A connection under TLS.
pub struct Secured<S>(Stream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Secured<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_we_understand_is_taken_out_of_the_url() {
        for (url, left, demanded) in [
            ("postgres://h/d", "postgres://h/d", false),
            (
                "postgres://h/d?sslmode=require",
                "postgres://h/d?sslmode=require",
                false,
            ),
            (
                "postgres://h/d?sslmode=verify-full&application_name=x",
                "postgres://h/d?application_name=x",
                true,
            ),
            (
                "postgres://h/d?sslrootcert=system&sslmode=verify-ca",
                "postgres://h/d",
                true,
            ),
        ] {
            let (rest, secure) = Secure::taken_from(url).unwrap();
            assert_eq!(
                (rest.as_str(), secure.is_demanded()),
                (left, demanded),
                "{url}"
            );
        }
        let missing = Secure::taken_from("postgres://h/d?sslrootcert=%2Fno%20file").err();
        let said = missing.unwrap().to_string();
        assert!(said.contains("/no file"), "{said}");
    }
}
