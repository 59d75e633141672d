//! One POST to a server: over plain HTTP on connections that are kept for the next call, over TLS
//! by a client that is made when it is first needed.
//!
//! Where the server is, is asked when a connection is opened: one that is open leads to the very
//! process that was found then, and ends with it.

use super::{Locator, REQUEST, Unanswered, alone, http_client};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use prism_core::limits::IDLE_CONNECTION_S;
use prism_core::{Code, Problem};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// How long a connection may take to open.
pub const CONNECT: Duration = Duration::from_secs(5);
/// How long a connection waits for the next call; given up before the server does, so that a
/// request does not meet the server's close.
pub const KEPT: Duration = Duration::from_secs(IDLE_CONNECTION_S / 2);

/// How calls get to a server.
#[derive(Clone, Default)]
pub struct Http {
    kept: Arc<Mutex<Vec<Kept>>>,
    tls: Arc<OnceLock<reqwest::Client>>,
    /// Whoever calls has nothing else to do until the answer is there.
    pub alone: bool,
}

/// What a call sends.
pub struct Post {
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
    pub async fn post(&self, locator: &Locator, post: Post) -> Result<Response, Unanswered> {
        let patience = post.patience;
        if locator.is_https() {
            return self.post_tls(locator, post).await;
        }
        if self.alone && matches!(locator, Locator::Home(_)) {
            return alone::post(locator, &post);
        }
        let until = tokio::time::Instant::now() + patience;
        let body = Bytes::from(post.body);
        loop {
            let (mut kept, is_new) = match self.take().await {
                Some(kept) => (kept, false),
                None => (open(locator).await?, true),
            };
            let request = request(&kept.to, &post.path, &post.headers, body.clone())?;
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

    async fn post_tls(&self, locator: &Locator, post: Post) -> Result<Response, Unanswered> {
        let patience = post.patience;
        let url = locator.url().map_err(Unanswered::unsent)?;
        let client = match self.tls.get() {
            Some(client) => client,
            None => {
                let client = http_client(true, REQUEST).map_err(Unanswered::unsent)?;
                self.tls.get_or_init(|| client)
            }
        };
        let request = client
            .post(format!("{url}{}", post.path))
            .headers(post.headers)
            .header(CONTENT_TYPE, JSON)
            .timeout(patience)
            .body(post.body);
        let lost = |e: reqwest::Error| {
            if e.is_connect() {
                Unanswered::unreached(&url)
            } else if e.is_timeout() {
                late(&url, patience)
            } else {
                Unanswered::broken(&url, "closed the connection")
            }
        };
        let response = request.send().await.map_err(lost)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.map_err(lost)?;
        Ok(Response {
            url,
            status,
            headers,
            body,
        })
    }
}

pub fn late(url: &str, patience: Duration) -> Unanswered {
    let seconds = patience.as_secs();
    Unanswered::broken(url, &format!("did not answer within {seconds} s"))
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

fn request(
    to: &Address,
    path: &str,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Request<Full<Bytes>>, Unanswered> {
    let request = Request::post(format!("{}{path}", to.base)).body(Full::new(body));
    let mut request = request.map_err(|e| {
        Unanswered::unsent(Problem::new(
            Code::Internal,
            format!("the request to {} cannot be written: {e}", to.url),
            "report this",
        ))
    })?;
    *request.headers_mut() = headers.clone();
    request.headers_mut().insert(HOST, to.authority.clone());
    request.headers_mut().insert(CONTENT_TYPE, JSON);
    Ok(request)
}

/// Finds the server and connects to it.
async fn open(locator: &Locator) -> Result<Kept, Unanswered> {
    let url = locator.url().map_err(Unanswered::unsent)?;
    let unreached = Unanswered::unreached(&url);
    let Some(to) = Address::parse(url) else {
        return Err(unreached);
    };
    let connect = async {
        let stream = TcpStream::connect((to.host.as_str(), to.port)).await.ok()?;
        stream.set_nodelay(true).ok()?;
        handshake(TokioIo::new(stream)).await.ok()
    };
    let Ok(Some((sender, connection))) = tokio::time::timeout(CONNECT, connect).await else {
        return Err(unreached);
    };
    // It lasts as long as its sender does.
    tokio::spawn(async move { drop(connection.await) });
    Ok(Kept {
        to: Arc::new(to),
        sender,
        since: Instant::now(),
    })
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
