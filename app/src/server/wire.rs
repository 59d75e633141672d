//! The bytes of a connection: as they come, or through TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

pub enum Wire {
    Plain(TcpStream),
    /// The handshake is a part of the first read: whoever does not go on with it holds up nobody,
    /// and is as silent as one who asks nothing.
    Opening(Box<Accept<TcpStream>>),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Wire {
    pub fn new(stream: TcpStream, tls: Option<&TlsAcceptor>) -> Self {
        match tls {
            None => Self::Plain(stream),
            Some(tls) => Self::Opening(Box::new(tls.accept(stream))),
        }
    }

    /// Whether something has arrived that nobody has read yet, be it noticed or not.
    pub fn has_unread(&self) -> bool {
        let socket = match self {
            Self::Plain(stream) => Some(stream),
            Self::Opening(opening) => opening.get_ref(),
            Self::Tls(tls) => Some(tls.get_ref().0),
        };
        let unread = socket.map(rustix::io::ioctl_fionread);
        unread.is_some_and(|bytes| bytes.is_ok_and(|n| n > 0))
    }

    fn open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Self::Opening(opening) = self {
            let opened = ready!(Pin::new(opening.as_mut()).poll(context));
            let opened = opened.inspect_err(|error| {
                tracing::debug!(%error, "A connection did not come to TLS");
            })?;
            *self = Self::Tls(Box::new(opened));
        }
        Poll::Ready(Ok(()))
    }
}

/// Asks whichever stream is open.
macro_rules! once_open {
    ($self:ident, $context:ident, $stream:ident => $ask:expr) => {{
        ready!($self.open($context))?;
        match $self.get_mut() {
            Wire::Plain($stream) => $ask,
            Wire::Tls(tls) => {
                let $stream = tls.as_mut();
                $ask
            }
            Wire::Opening(_) => Poll::Pending,
        }
    }};
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        once_open!(self, context, stream => Pin::new(stream).poll_read(context, into))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        once_open!(self, context, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        once_open!(self, context, stream => Pin::new(stream).poll_write_vectored(context, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Opening(_) | Self::Tls(_) => true,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Before the handshake nothing was written.
        if matches!(*self, Self::Opening(_)) {
            return Poll::Ready(Ok(()));
        }
        once_open!(self, context, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A handshake that did not come to its end has nobody to say goodbye to.
        if matches!(*self, Self::Opening(_)) {
            return Poll::Ready(Ok(()));
        }
        once_open!(self, context, stream => Pin::new(stream).poll_shutdown(context))
    }
}
