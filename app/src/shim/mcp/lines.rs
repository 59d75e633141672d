//! What the host writes, line by line: what the protocol's reader would drop without a word, or
//! answer without a hint, is answered here.

use rmcp::model::{ErrorData, RequestId};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream, duplex,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Bytes of one message from the host; a longer one is not read.
pub const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes at either end of a message that is too long, in which its id is looked for.
const END_BYTES: usize = 1024;
/// Bytes on their way to the protocol's reader.
const PIPE_BYTES: usize = 64 * 1024;

/// A message that goes no further, and its answer.
#[derive(Debug)]
pub struct Refused {
    pub id: RequestId,
    pub error: ErrorData,
}

/// Reads the host's lines; the good ones come out of the pipe, the others as refusals.
pub fn read(
    host: impl AsyncRead + Send + Unpin + 'static,
) -> (DuplexStream, UnboundedReceiver<Refused>) {
    let (good, out) = duplex(PIPE_BYTES);
    let (refusals, refused) = unbounded_channel();
    tokio::spawn(async move { drop(sort(host, good, refusals).await) });
    (out, refused)
}

async fn sort(
    host: impl AsyncRead + Unpin,
    mut good: impl AsyncWrite + Unpin,
    refusals: UnboundedSender<Refused>,
) -> std::io::Result<()> {
    let mut host = BufReader::with_capacity(PIPE_BYTES, host);
    let mut line = Line::default();
    loop {
        let read = host.fill_buf().await?;
        if read.is_empty() {
            return Ok(());
        }
        let end = read.iter().position(|b| *b == b'\n');
        let taken = end.map_or(read.len(), |at| at + 1);
        line.push(&read[..taken]);
        host.consume(taken);
        if end.is_none() {
            continue;
        }
        let line = std::mem::take(&mut line);
        match line.refusal() {
            Some(refused) => drop(refusals.send(refused)),
            None if line.too_long > 0 => tracing::warn!(
                "A message of more than {LINE_BYTES_MAX} bytes was not read; it names no request"
            ),
            None => good.write_all(&line.bytes).await?,
        }
    }
}

/// One line; of one that is too long, both ends.
#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
    /// How long the line was when it was given up; zero while it is not.
    too_long: usize,
    last: Vec<u8>,
}

impl Line {
    fn push(&mut self, part: &[u8]) {
        let length = self.bytes.len() + part.len();
        if self.too_long == 0 && length <= LINE_BYTES_MAX {
            self.bytes.extend_from_slice(part);
            return;
        }
        if self.too_long == 0 {
            self.too_long = length;
            self.bytes.extend_from_slice(part);
            self.last = self.bytes[length - END_BYTES.min(length)..].to_vec();
            self.bytes.truncate(END_BYTES);
            self.bytes.shrink_to_fit();
            return;
        }
        self.last.extend_from_slice(part);
        let over = self.last.len().saturating_sub(END_BYTES);
        self.last.drain(..over);
    }

    /// What is wrong with it, if it can be answered.
    fn refusal(&self) -> Option<Refused> {
        if self.too_long > 0 {
            let id = id_at_the_ends(&self.bytes, &self.last)?;
            let message = format!(
                "the message has more than {LINE_BYTES_MAX} bytes: send less at once, such as a \
                 summary and where the rest is"
            );
            let error = ErrorData::invalid_request(message, None);
            return Some(Refused { id, error });
        }
        // Whatever else is wrong with a message, the protocol's own reader says.
        let call: Value = serde_json::from_slice(&self.bytes).ok()?;
        if call["method"] != "tools/call" {
            return None;
        }
        let id = RequestId::deserialize(call.get("id")?).ok()?;
        let kind = match &call["params"]["arguments"] {
            Value::Null | Value::Object(_) => return None,
            Value::Array(_) => "a list",
            Value::String(_) => "text",
            Value::Bool(_) | Value::Number(_) => "a single value",
        };
        let message = format!(
            "`arguments` is {kind} and must be an object: send it again as \
             {{\"name\": ..., \"arguments\": {{...}}}}"
        );
        let error = ErrorData::invalid_params(message, None);
        Some(Refused { id, error })
    }
}

/// The id of a request of which only both ends are known: it stands before the parameters, or is
/// the last thing in the message.
fn id_at_the_ends(first: &[u8], last: &[u8]) -> Option<RequestId> {
    let (first, last) = (
        String::from_utf8_lossy(first),
        String::from_utf8_lossy(last),
    );
    let before = first.split("\"params\"").next().unwrap_or_default();
    if before.len() < first.len()
        && let Some(at) = before.find("\"id\"")
    {
        return id_after(before, at + 4).map(|(id, _)| id);
    }
    let (id, rest) = id_after(&last, last.rfind("\"id\"")? + 4)?;
    (rest.trim() == "}").then_some(id)
}

/// The value behind a name, and what follows it.
fn id_after(text: &str, at: usize) -> Option<(RequestId, &str)> {
    let value = text[at..].trim_start().strip_prefix(':')?;
    let mut values = serde_json::Deserializer::from_str(value).into_iter::<Value>();
    let id = RequestId::deserialize(values.next()?.ok()?).ok()?;
    Some((id, &value[values.byte_offset()..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(text: &str) -> Line {
        let mut line = Line::default();
        // In parts, as a pipe brings it.
        for part in text.as_bytes().chunks(PIPE_BYTES) {
            line.push(part);
        }
        line
    }

    #[test]
    fn the_id_of_a_message_that_is_too_long_is_found_at_either_end() {
        let body = "\\\"id\\\":7 \"id\\\" ".repeat(LINE_BYTES_MAX / 10);
        for (text, id) in [
            (
                format!(
                    r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"x":"{body}"}}}}"#
                ),
                Some(json!(3)),
            ),
            (
                format!(
                    r#"{{"method":"tools/call","params":{{"x":"{body}"}},"jsonrpc":"2.0","id":"a-4"}}"#
                ),
                Some(json!("a-4")),
            ),
            (
                format!(
                    r#"{{"method":"notifications/x","params":{{"x":"{body}","y":{{"id":5}}}}}}"#
                ),
                None,
            ),
        ] {
            let refused = line(&(text + "\n")).refusal();
            assert_eq!(refused.map(|r| json!(r.id)), id);
        }
    }

    #[test]
    fn arguments_are_an_object_or_left_out() {
        for (arguments, fine) in [
            (json!({}), true),
            (json!(null), true),
            (json!([]), false),
            (json!("to=Texi"), false),
            (json!(5), false),
        ] {
            let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                "params": {"name": "prism_status", "arguments": arguments}});
            let refused = line(&format!("{call}\n")).refusal();
            assert_eq!(refused.is_none(), fine, "{arguments}");
        }
        assert!(line("not json\n").refusal().is_none());
        assert!(
            line("{\"method\":\"tools/call\"}\n").refusal().is_none(),
            "nobody waits for an answer"
        );
    }
}
