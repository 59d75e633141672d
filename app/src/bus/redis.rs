//! News by Redis: PUBLISH on one connection, SUBSCRIBE on another.

use super::carrier::{Ear, Mouth};
use ::redis::{AsyncConnectionConfig, Client};
use futures_util::StreamExt;
use prism_core::limits::{BUS_ANSWER_S, BUS_SILENCE_S};
use prism_core::{Code, Problem};
use std::time::Duration;

pub(super) type Place = Client;

const ANSWER: Duration = Duration::from_secs(BUS_ANSWER_S);

pub(super) fn place(url: &str) -> Result<Place, Problem> {
    Client::open(url).map_err(|error| {
        Problem::new(
            Code::InvalidRequest,
            format!("this is no address of a Redis: {error}"),
            "write it as redis://[[user]:password@]host[:port][/database], or rediss:// where it speaks TLS",
        )
    })
}

fn said(error: ::redis::RedisError) -> String {
    format!("Redis: {error}")
}

pub(super) async fn speak(place: &Place, channel: &str, mouth: &mut Mouth) -> Result<(), String> {
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER))
        .set_response_timeout(Some(ANSWER));
    let mut connection = place
        .get_multiplexed_async_connection_with_config(&patient)
        .await
        .map_err(said)?;
    mouth.opens();
    while let Some(batch) = mouth.next().await {
        let mut publish = ::redis::pipe();
        for text in batch {
            publish.cmd("PUBLISH").arg(channel).arg(text).ignore();
        }
        let published: Result<(), _> = publish.query_async(&mut connection).await;
        published.map_err(said)?;
        mouth.said();
    }
    Ok(())
}

pub(super) async fn listen(place: &Place, channel: &str, ear: &Ear) -> Result<(), String> {
    let late = |_| "Redis does not answer".to_owned();
    let connecting = tokio::time::timeout(ANSWER, place.get_async_pubsub());
    let mut subscription = connecting.await.map_err(late)?.map_err(said)?;
    let subscribing = tokio::time::timeout(ANSWER, subscription.subscribe(channel));
    subscribing.await.map_err(late)?.map_err(said)?;
    ear.listens();
    let mut messages = subscription.on_message();
    loop {
        let silence = Duration::from_secs(BUS_SILENCE_S);
        match tokio::time::timeout(silence, messages.next()).await {
            Ok(Some(message)) => {
                if let Ok(text) = std::str::from_utf8(message.get_payload_bytes()) {
                    ear.hear(text);
                }
            }
            Ok(None) => return Err("Redis closed the connection".into()),
            Err(_) => return Err(format!("Redis brought nothing for {BUS_SILENCE_S} s")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::redis::ConnectionAddr;

    #[test]
    fn an_address_says_whether_it_is_spoken_to_in_secret() {
        let of = |url: &str| place(url).map(|p| p.get_connection_info().addr().clone());
        assert!(matches!(of("redis://h:1"), Ok(ConnectionAddr::Tcp(..))));
        let secret = of("rediss://:word@h:1/2").unwrap();
        assert!(matches!(
            secret,
            ConnectionAddr::TcpTls {
                insecure: false,
                ..
            }
        ));
        assert!(of("http://h").is_err_and(|p| p.hint.contains("rediss://")));
    }
}
