//! One call of a server, plain or over TLS, on connections that are kept for the next one.
//!
//! Where the server is, is asked when a connection is opened: one that is open leads to the very
//! process that was found then, and ends with it.

use super::{Locator, Target, Unanswered, alone};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use prism_core::limits::IDLE_CONNECTION_S;
use prism_core::{Code, Problem};
use rustls::pki_types::ServerName;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long a connection may take to open.
pub const CONNECT: Duration = Duration::from_secs(5);
/// How long a connection waits for the next call; given up before the server does, so that a
/// request does not meet the server's close.
pub const KEPT: Duration = Duration::from_secs(IDLE_CONNECTION_S / 2);

/// How calls get to a server.
#[derive(Clone, Default)]
pub struct Http {
    kept: Arc<Mutex<Vec<Kept>>>,
    /// Whoever calls has nothing else to do until the answer is there.
    pub alone: bool,
}

/// What a call sends.
pub struct Post {
    pub method: Method,
    /// What follows the server's address.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// How long it may take.
    pub patience: Duration,
}

/// What came back, and from where.
pub struct Response {
    pub url: String,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// An open connection that nobody uses.
struct Kept {
    to: Arc<Address>,
    sender: SendRequest<Full<Bytes>>,
    since: Instant,
}

/// A server's address and its parts.
struct Address {
    url: String,
    /// As the `Host` header says it.
    authority: HeaderValue,
    host: String,
    port: u16,
    /// The path that every call begins with, without a slash at its end.
    base: String,
}

impl Address {
    fn parse(url: String) -> Option<Self> {
        let parsed = reqwest::Url::parse(&url).ok()?;
        let (host, port) = (parsed.host_str()?, parsed.port_or_known_default()?);
        let authority = match parsed.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        Some(Self {
            authority: HeaderValue::from_str(&authority).ok()?,
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            base: parsed.path().trim_end_matches('/').to_owned(),
            url,
        })
    }
}

impl Http {
    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a call once, and reads its answer whole.
    pub async fn post(&self, locator: &Locator, mut post: Post) -> Result<Response, Unanswered> {
        let patience = post.patience;
        if self.alone
            && let Locator::Home(_) = locator
            && let Some(answer) = alone::post(locator, &post)
        {
            return answer;
        }
        let until = tokio::time::Instant::now() + patience;
        let body = Bytes::from(std::mem::take(&mut post.body));
        loop {
            let (mut kept, is_new) = match self.take().await {
                Some(kept) => (kept, false),
                None => (open(locator).await?, true),
            };
            let request = request(&kept.to, &post, body.clone())?;
            let url = &kept.to.url;
            let exchange = async {
                kept.sender.ready().await.map_err(|_| true)?;
                let response = kept.sender.try_send_request(request).await;
                let response = response.map_err(|mut e| e.take_message().is_some())?;
                let (head, body) = response.into_parts();
                let body = body.collect().await.map_err(|_| false)?.to_bytes();
                Ok((head, body))
            };
            let (head, body) = match tokio::time::timeout_at(until, exchange).await {
                Ok(Ok(answer)) => answer,
                // It was closed while nobody used it: not a byte of the request has left.
                Ok(Err(true)) if !is_new => continue,
                Ok(Err(true)) => return Err(Unanswered::unreached(url)),
                Ok(Err(false)) => return Err(Unanswered::broken(url, "closed the connection")),
                Err(_) => return Err(late(url, patience)),
            };
            let url = url.clone();
            self.keep(kept);
            return Ok(Response {
                url,
                status: head.status,
                headers: head.headers,
                body,
            });
        }
    }

    /// The connection that was used last, if one is open.
    async fn take(&self) -> Option<Kept> {
        if self.kept().is_empty() {
            return None;
        }
        // What the server has closed meanwhile is known once the runtime has looked at its sockets.
        tokio::task::yield_now().await;
        let mut kept = self.kept();
        kept.retain(|k| k.since.elapsed() < KEPT && !k.sender.is_closed());
        kept.pop()
    }

    fn keep(&self, kept: Kept) {
        if !kept.sender.is_closed() {
            self.kept().push(Kept {
                since: Instant::now(),
                ..kept
            });
        }
    }
}

pub fn late(url: &str, patience: Duration) -> Unanswered {
    let seconds = patience.as_secs();
    Unanswered::broken(url, &format!("did not answer within {seconds} s"))
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

fn request(to: &Address, post: &Post, body: Bytes) -> Result<Request<Full<Bytes>>, Unanswered> {
    let request = Request::builder()
        .method(post.method.clone())
        .uri(format!("{}{}", to.base, post.path))
        .body(Full::new(body));
    let mut request = request.map_err(|e| {
        Unanswered::unsent(Problem::new(
            Code::Internal,
            format!("the request to {} cannot be written: {e}", to.url),
            "report this",
        ))
    })?;
    *request.headers_mut() = post.headers.clone();
    request.headers_mut().insert(HOST, to.authority.clone());
    request.headers_mut().insert(CONTENT_TYPE, JSON);
    Ok(request)
}

/// Finds the server and connects to it.
async fn open(locator: &Locator) -> Result<Kept, Unanswered> {
    let target = locator.target().map_err(Unanswered::unsent)?;
    let tls = target.tls().map_err(Unanswered::unsent)?;
    let unreached = || Unanswered::unreached(&target.url);
    let Some(to) = Address::parse(target.url.clone()) else {
        return Err(unreached());
    };
    let connect = async {
        let stream = TcpStream::connect((to.host.as_str(), to.port)).await;
        let stream = stream.map_err(|_| unreached())?;
        stream.set_nodelay(true).map_err(|_| unreached())?;
        let sender = match tls {
            None => begin(stream).await,
            Some(tls) => begin(secured(&target, &to.host, tls.into(), stream).await?).await,
        };
        sender.ok_or_else(unreached)
    };
    let sender = tokio::time::timeout(CONNECT, connect).await;
    Ok(Kept {
        sender: sender.unwrap_or_else(|_| Err(unreached()))?,
        to: Arc::new(to),
        since: Instant::now(),
    })
}

async fn secured(
    target: &Target,
    host: &str,
    tls: TlsConnector,
    stream: TcpStream,
) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static, Unanswered> {
    let unreached = || Unanswered::unreached(&target.url);
    let name = ServerName::try_from(host.to_owned()).map_err(|_| unreached())?;
    let stream = tls.connect(name, stream).await;
    stream.map_err(|e| {
        target
            .refused(&e)
            .map_or_else(unreached, Unanswered::unsent)
    })
}

async fn begin(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Option<SendRequest<Full<Bytes>>> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
    // It lasts as long as its sender does.
    tokio::spawn(async move { drop(connection.await) });
    Some(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart_as_it_was_written() {
        for (url, authority, host, port, base) in [
            (
                "http://127.0.0.1:7747",
                "127.0.0.1:7747",
                "127.0.0.1",
                7747,
                "",
            ),
            ("http://[::1]:7747", "[::1]:7747", "::1", 7747, ""),
            ("http://localhost", "localhost", "localhost", 80, ""),
            (
                "http://prism.lan:81/team/",
                "prism.lan:81",
                "prism.lan",
                81,
                "/team",
            ),
        ] {
            let address = Address::parse(url.into()).unwrap();
            assert_eq!(address.authority, authority, "{url}");
            assert_eq!((address.host.as_str(), address.port), (host, port), "{url}");
            assert_eq!(address.base, base, "{url}");
        }
        assert!(Address::parse("prism".into()).is_none());
    }
}
