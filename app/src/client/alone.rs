//! One call on a socket of its own, waited for on this very thread: for a command that has nothing
//! else to do meanwhile. What keeps connections and serves many callers is in `http.rs`.

use super::http::{self, CONNECT, Post, Response};
use super::{Locator, Unanswered};
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Instant;

/// Bytes that are read at once: most answers are shorter.
const READ_BYTES: usize = 8 * 1024;

/// Sends a call to the server of this home, and reads its answer whole; none where that server speaks
/// TLS.
pub fn post(locator: &Locator, post: &Post) -> Option<Result<Response, Unanswered>> {
    match locator.url() {
        Ok(url) if !url.starts_with("http://") => None,
        Ok(url) => Some(ask(url, post)),
        Err(problem) => Some(Err(Unanswered::unsent(problem))),
    }
}

fn ask(url: String, post: &Post) -> Result<Response, Unanswered> {
    let until = Instant::now() + post.patience;
    let Some(mut stream) = open(&url) else {
        return Err(Unanswered::unreached(&url));
    };
    let broken = |error: std::io::Error| {
        let late = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        match late {
            true => http::late(&url, post.patience),
            false => Unanswered::broken(&url, "closed the connection"),
        }
    };
    let left = |until: Instant| {
        let left = until.saturating_duration_since(Instant::now());
        // None at all would be read as: for ever.
        Some(left.max(std::time::Duration::from_millis(1)))
    };
    stream.set_write_timeout(left(until)).map_err(broken)?;
    stream.write_all(&written(&url, post)).map_err(broken)?;
    let (mut read, mut part) = (Vec::new(), [0; READ_BYTES]);
    loop {
        if let Some((head, at)) = Head::of(&read)
            && let Some(body) = read.get(at..at.saturating_add(head.length))
        {
            return Ok(Response {
                status: head.status,
                headers: head.headers,
                body: Bytes::copy_from_slice(body),
                url,
            });
        }
        stream.set_read_timeout(left(until)).map_err(broken)?;
        match stream.read(&mut part).map_err(broken)? {
            0 => return Err(Unanswered::broken(&url, "closed the connection")),
            n => read.extend_from_slice(&part[..n]),
        }
    }
}

fn open(url: &str) -> Option<TcpStream> {
    let at = url
        .strip_prefix("http://")?
        .to_socket_addrs()
        .ok()?
        .next()?;
    let stream = TcpStream::connect_timeout(&at, CONNECT).ok()?;
    stream.set_nodelay(true).ok()?;
    Some(stream)
}

fn written(url: &str, post: &Post) -> Vec<u8> {
    let host = url.strip_prefix("http://").unwrap_or_default();
    let mut text = format!(
        "{} {} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n",
        post.method,
        post.path,
        post.body.len()
    )
    .into_bytes();
    for (name, value) in &post.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(&post.body);
    text
}

/// What stands before an answer's body.
struct Head {
    status: StatusCode,
    headers: HeaderMap,
    /// Bytes of the body; our server always says how many.
    length: usize,
}

impl Head {
    /// The head of an answer and where its body begins, once all of it was read.
    fn of(read: &[u8]) -> Option<(Self, usize)> {
        let end = read.windows(4).position(|four| four == b"\r\n\r\n")?;
        let mut lines = read[..end].split(|byte| *byte == b'\n');
        let status = lines.next()?.split(|byte| *byte == b' ').nth(1)?;
        let mut headers = HeaderMap::new();
        for line in lines {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let name = HeaderName::from_bytes(&line[..colon]).ok()?;
            let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
            headers.insert(name, value);
        }
        let length = headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()?;
        let status = StatusCode::from_bytes(status).ok()?;
        let head = Self {
            status,
            headers,
            length,
        };
        Some((head, end + 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_once_it_is_whole() {
        let answer =
            b"HTTP/1.1 429 Too Many\r\nContent-Length: 4\r\nprism-elsewhere:  /a b \r\n\r\n{..}";
        for cut in 0..answer.len() {
            let whole = Head::of(&answer[..cut]).is_some_and(|(head, at)| at + head.length <= cut);
            assert!(!whole, "{cut}");
        }
        let (head, at) = Head::of(answer).unwrap();
        assert_eq!((head.status.as_u16(), head.length), (429, 4));
        assert_eq!(head.headers["prism-elsewhere"], "/a b");
        assert_eq!(&answer[at..], b"{..}");
        for nonsense in [
            "SSH-2.0 hello\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert!(Head::of(nonsense.as_bytes()).is_none(), "{nonsense}");
        }
    }
}
