//! The WebSocket to the server, as clients open it.

use crate::client::Target;
use prism_core::api::{ClientFrame, ServerFrame};
use prism_core::limits::FRAME_BYTES_MAX;
use prism_core::{Code, Problem};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream};

pub type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

pub async fn connect(to: impl Into<Target>, key: &str) -> Result<Socket, Problem> {
    connect_to(to, "/api/v1/stream", key).await
}

/// Opens a socket at one of the server's paths.
pub async fn connect_to(to: impl Into<Target>, path: &str, key: &str) -> Result<Socket, Problem> {
    let to = to.into();
    let (url, tls) = (&to.url, to.tls()?.map(Connector::Rustls));
    let unreachable = |why: String| {
        Problem::new(
            Code::ServerUnreachable,
            format!("no stream from {url}: {why}"),
            "start the server with `prism up`",
        )
    };
    let address = format!("{}{path}", url.replacen("http", "ws", 1));
    let mut request = address
        .into_client_request()
        .map_err(|e| unreachable(e.to_string()))?;
    let bearer = format!("Bearer {key}").parse().map_err(|_| {
        Problem::new(
            Code::InvalidKey,
            "the key has characters that no header can carry",
            "check PRISM_API_KEY",
        )
    })?;
    request.headers_mut().insert(AUTHORIZATION, bearer);
    let limits = WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(0)
        .max_message_size(Some(FRAME_BYTES_MAX * 2))
        .max_frame_size(Some(FRAME_BYTES_MAX * 2));
    let connected =
        tokio_tungstenite::connect_async_tls_with_config(request, Some(limits), true, tls);
    match connected.await {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(response)) if response.status() == 401 => Err(Problem::new(
            Code::InvalidKey,
            "the server does not know this key",
            "mint a new one: `prism key mint <identity>`",
        )),
        Err(Error::Io(error)) if to.refused(&error).is_some() => Err(to
            .refused(&error)
            .unwrap_or_else(|| unreachable(error.to_string()))),
        Err(error) => Err(unreachable(error.to_string())),
    }
}

pub fn encode(frame: &ClientFrame) -> Message {
    Message::Text(serde_json::to_string(frame).unwrap_or_default().into())
}

/// Reads a text frame; anything else says nothing.
pub fn decode(message: &Message) -> Option<ServerFrame> {
    match message {
        Message::Text(text) => serde_json::from_str(text).ok(),
        _ => None,
    }
}
