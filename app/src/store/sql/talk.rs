//! A conversation with PostgreSQL, held by the thread that waits for the answers.

use super::secure::{Secure, Secured};
use super::{Error, Result};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Config, Connection, Socket};

/// One connection. Nothing is heard of it but while somebody waits.
pub struct Talk {
    runtime: Runtime,
    connection: Connection<Socket, Secured<Socket>>,
    client: Client,
}

impl Talk {
    pub fn begin(config: &Config, secure: Secure) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Error::Url(format!("no runtime: {error}")))?;
        let (client, connection) = runtime.block_on(config.connect(secure))?;
        Ok(Self {
            runtime,
            connection,
            client,
        })
    }

    /// Waits for an answer. What is asked before anything is waited for goes out in one piece.
    pub fn wait<T>(
        &mut self,
        ask: impl AsyncFnOnce(&Client) -> std::result::Result<T, tokio_postgres::Error>,
    ) -> std::result::Result<T, tokio_postgres::Error> {
        let Self {
            runtime,
            connection,
            client,
        } = self;
        let mut asking = pin!(ask(client));
        runtime.block_on(poll_fn(|context| {
            if let Poll::Ready(answer) = asking.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            loop {
                match connection.poll_message(context) {
                    // A notice: what matters comes as an answer.
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                    Poll::Ready(None) | Poll::Pending => break,
                }
            }
            // What came may be the answer.
            asking.as_mut().poll(context)
        }))
    }

    pub fn is_over(&self) -> bool {
        self.client.is_closed()
    }
}
