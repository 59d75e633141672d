//! News by PostgreSQL: NOTIFY after the commit, on a connection of its own, and LISTEN on another.
//!
//! Inside the transaction that it tells of, a NOTIFY would make every commit wait for the one before.

use super::carrier::{Ear, Mouth};
use crate::store::sql::{Secure, Secured};
use futures_util::{StreamExt, stream};
use prism_core::limits::{BUS_ANSWER_S, BUS_SILENCE_S};
use prism_core::{Code, Problem};
use std::time::Duration;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Socket};

pub(super) type Place = (Config, Secure);

const ANSWER: Duration = Duration::from_secs(BUS_ANSWER_S);
const NOTIFY: &str = "select pg_notify($1, said) from unnest($2) as said";

pub(super) fn place(url: &str) -> Result<Place, Problem> {
    let no_address = |error: String| {
        Problem::new(
            Code::InvalidRequest,
            format!("this is no address of a PostgreSQL: {error}"),
            "write it as postgres://user:password@host:port/database",
        )
    };
    let (url, secure) = Secure::taken_from(url).map_err(|e| no_address(e.to_string()))?;
    let mut place: Config = url
        .parse()
        .map_err(|e: tokio_postgres::Error| no_address(e.to_string()))?;
    place.connect_timeout(ANSWER).application_name("prism-bus");
    if secure.is_demanded() {
        place.ssl_mode(SslMode::Require);
    }
    // The one that writes tells; one that follows it tells nobody.
    if place.get_hosts().len() > 1 {
        place.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    Ok((place, secure))
}

fn said(error: tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(&error).map(|c| format!(": {c}"));
    format!("PostgreSQL: {error}{}", cause.unwrap_or_default())
}

type Connection = tokio_postgres::Connection<Socket, Secured<Socket>>;

async fn connect((place, secure): &Place) -> Result<(Client, Connection), String> {
    let connecting = tokio::time::timeout(ANSWER, place.connect(secure.clone()));
    connecting.await.map_err(late)?.map_err(said)
}

fn late(_: tokio::time::error::Elapsed) -> String {
    "PostgreSQL does not answer".into()
}

/// Ends with its connection.
struct Driven(tokio::task::JoinHandle<()>);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) async fn speak(place: &Place, channel: &str, mouth: &mut Mouth) -> Result<(), String> {
    let (client, connection) = connect(place).await?;
    let _driven = Driven(tokio::spawn(async {
        drop(connection.await);
    }));
    mouth.opens();
    while let Some(batch) = mouth.next().await {
        let said_to: [(&(dyn ToSql + Sync), Type); 2] =
            [(&channel, Type::TEXT), (&batch, Type::TEXT_ARRAY)];
        // Without a name for the statement, so that a pooler may stand in between.
        let notify = client.query_typed(NOTIFY, &said_to);
        let notified = tokio::time::timeout(ANSWER, notify).await;
        notified.map_err(late)?.map_err(said)?;
        mouth.said();
    }
    Ok(())
}

pub(super) async fn listen(place: &Place, channel: &str, ear: &Ear) -> Result<(), String> {
    let (client, mut connection) = connect(place).await?;
    let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
    let statement = format!("listen \"{}\"", channel.replace('"', ""));
    let mut listening = std::pin::pin!(client.batch_execute(&statement));
    let mut listens = false;
    loop {
        let silence = Duration::from_secs(if listens { BUS_SILENCE_S } else { BUS_ANSWER_S });
        tokio::select! {
            done = &mut listening, if !listens => {
                done.map_err(said)?;
                listens = true;
                ear.listens();
            }
            heard = tokio::time::timeout(silence, messages.next()) => match heard {
                Ok(Some(Ok(AsyncMessage::Notification(said)))) => ear.hear(said.payload()),
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(error))) => return Err(said(error)),
                Ok(None) => return Err("PostgreSQL closed the connection".into()),
                Err(_) => {
                    return Err(format!(
                        "PostgreSQL brought nothing for {} s, not even what this server said itself: \
                         a pooler in between must be in session mode",
                        silence.as_secs()
                    ));
                }
            },
        }
    }
}
