//! `prism watch`: the project's signals as they are sent.

use super::{Context, print_json_line};
use crate::clock;
use crate::shim::socket;
use crate::ui::{Failure, Outcome, out, short};
use futures_util::{SinkExt, StreamExt};
use prism_core::api::{ClientFrame, ServerFrame};
use prism_core::text::one_line;
use std::time::Duration;

pub async fn run(context: Context) -> Outcome {
    if context.identity.is_some() {
        return Err(Failure::Unable {
            message: "only the operator watches a project".into(),
            hint: Some("unset PRISM_AGENT_IDENTITY and leave out --as".into()),
        });
    }
    // A call first: it creates the project if need be, and names what is wrong with the key.
    context.call("ping", serde_json::json!({})).await?;
    let client = context.client()?;
    let mut ws = socket::connect(client.locator().target()?, client.key()).await?;
    let hello = ClientFrame::Hello {
        pid: context.pid().into(),
        session_id: None,
        last_seq: None,
        last_id: None,
        copy: None,
        confirm: Vec::new(),
    };
    ws.send(socket::encode(&hello))
        .await
        .map_err(|e| anyhow::anyhow!("the stream broke: {e}"))?;
    let mut heartbeat = tokio::time::interval(Duration::from_secs(prism_core::limits::HEARTBEAT_S));
    loop {
        tokio::select! {
            frame = ws.next() => match frame {
                Some(Ok(message)) => show(&context, socket::decode(&message)),
                Some(Err(_)) | None => return Err(anyhow::anyhow!("the server closed the stream").into()),
            },
            _ = heartbeat.tick() => ws.send(socket::encode(&ClientFrame::Ping)).await.map_err(|e| anyhow::anyhow!("the stream broke: {e}"))?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

fn show(context: &Context, frame: Option<ServerFrame>) {
    let style = context.style;
    let Some(frame) = frame else { return };
    if context.json {
        if !matches!(frame, ServerFrame::Pong | ServerFrame::Live) {
            print_json_line(&frame);
        }
        return;
    }
    match frame {
        ServerFrame::Hello { pid, .. } => out(&style.dim(&format!("watching {pid}; ctrl-c ends"))),
        ServerFrame::Watched {
            envelope,
            publish_path,
        } => {
            let category = envelope.resolved_category();
            let time = clock::now()
                .to_string()
                .chars()
                .skip(11)
                .take(8)
                .collect::<String>();
            let who = format!(
                "{} → {}",
                one_line(&envelope.from_identity),
                one_line(&envelope.to_identity)
            );
            let tail = style.dim(&format!(
                "{} {} {publish_path}",
                envelope.signal_type,
                short(envelope.signal_id)
            ));
            out(&format!(
                "{time} {} {who}  {}  {tail}",
                style.category(category, &format!("{category:<7}")),
                envelope.summary()
            ));
        }
        ServerFrame::Event { envelope } => out(&style.dim(&format!(
            "         {} {}",
            one_line(&envelope.from_identity),
            if envelope.signal_type == "PeerJoined" {
                "joined"
            } else {
                "left"
            }
        ))),
        _ => {}
    }
}
