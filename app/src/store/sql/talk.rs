//! A conversation with PostgreSQL, held by the thread that waits for the answers.

use super::secure::{Secure, Secured};
use super::{Error, Result};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Config, Connection, Socket};

/// How long a database may take to let somebody in, or to say that it does not.
const CONNECT: Duration = Duration::from_secs(6);

/// One connection. Nothing is heard of it but while somebody waits.
pub struct Talk {
    runtime: Runtime,
    connection: Connection<Socket, Secured<Socket>>,
    client: Client,
    /// The connection broke.
    is_over: bool,
}

impl Talk {
    pub fn begin(config: &Config, secure: Secure) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Error::Url(format!("no runtime: {error}")))?;
        let connected =
            runtime.block_on(async { tokio::time::timeout(CONNECT, config.connect(secure)).await });
        let (client, connection) = connected.map_err(|_| Error::Silent(CONNECT))??;
        Ok(Self {
            runtime,
            connection,
            client,
            is_over: false,
        })
    }

    /// Waits for an answer. What is asked before anything is waited for goes out in one piece. A database that says
    /// nothing for so long is not waited for, and not asked again here.
    pub fn wait<T>(
        &mut self,
        at_most: Option<Duration>,
        ask: impl AsyncFnOnce(&Client) -> std::result::Result<T, tokio_postgres::Error>,
    ) -> Result<T> {
        let Self {
            runtime,
            connection,
            client,
            is_over,
        } = self;
        let mut asking = pin!(ask(client));
        let answered = poll_fn(|context| {
            if let Poll::Ready(answer) = asking.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            if let Err(error) = moved(connection, context, is_over) {
                return Poll::Ready(Err(error));
            }
            // What came may be the answer.
            asking.as_mut().poll(context)
        });
        let answered = runtime.block_on(async {
            match at_most {
                Some(limit) => tokio::time::timeout(limit, answered)
                    .await
                    .map_err(|_| limit),
                None => Ok(answered.await),
            }
        });
        match answered {
            Ok(answer) => Ok(answer?),
            Err(limit) => {
                self.is_over = true;
                Err(Error::Silent(limit))
            }
        }
    }

    /// Says something whose answer nobody waits for: it is passed over when the next one is waited for.
    pub fn say<T>(
        &mut self,
        what: impl AsyncFnOnce(&Client) -> std::result::Result<T, tokio_postgres::Error>,
    ) {
        let Self {
            runtime,
            connection,
            client,
            is_over,
        } = self;
        let mut saying = pin!(what(client));
        runtime.block_on(poll_fn(|context| {
            if saying.as_mut().poll(context).is_pending() {
                // That it broke is seen by whoever asks next.
                drop(moved(connection, context, is_over));
            }
            Poll::Ready(())
        }));
    }

    pub fn is_over(&self) -> bool {
        self.is_over || self.client.is_closed()
    }
}

/// Sends what is to be sent, and takes in what has come.
fn moved(
    connection: &mut Connection<Socket, Secured<Socket>>,
    context: &mut Context<'_>,
    is_over: &mut bool,
) -> std::result::Result<(), tokio_postgres::Error> {
    loop {
        match connection.poll_message(context) {
            // A notice: what matters comes as an answer.
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(Some(Err(error))) => {
                *is_over = true;
                return Err(error);
            }
            Poll::Ready(None) => {
                *is_over = true;
                return Ok(());
            }
            Poll::Pending => return Ok(()),
        }
    }
}
