//! The pipe to the host, watched: which answers were written, which questions were taken back,
//! and when the host is gone.

use super::DrainToConfirm;
use super::lines::Refused;
use rmcp::RoleServer;
use rmcp::model::{
    ClientNotification, ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, RequestId,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

/// The tool calls under way, each with what its answer hands over once it is written.
///
/// A call leaves when it is answered or taken back, whichever comes first, so nothing stays here.
#[derive(Clone, Default)]
pub struct Calls {
    under_way: Arc<Mutex<HashMap<RequestId, Option<DrainToConfirm>>>>,
}

impl Calls {
    fn change<T>(
        &self,
        change: impl FnOnce(&mut HashMap<RequestId, Option<DrainToConfirm>>) -> T,
    ) -> T {
        change(
            &mut self
                .under_way
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    fn begin(&self, call: RequestId) {
        self.change(|calls| calls.insert(call, None));
    }

    /// The answer to this call will bring signals; a call that was taken back has no answer.
    pub fn will_carry(&self, call: &RequestId, drain: DrainToConfirm) {
        self.change(|calls| {
            if let Some(slot) = calls.get_mut(call) {
                *slot = Some(drain);
            }
        });
    }

    fn end(&self, call: &RequestId) -> Option<DrainToConfirm> {
        self.change(|calls| calls.remove(call)).flatten()
    }
}

/// A transport that knows when the host really has an answer: only then is a drain confirmed.
pub struct Watched<T> {
    inner: T,
    /// What does not get as far as the inner one.
    refused: UnboundedReceiver<Refused>,
    calls: Calls,
    host_is_gone: watch::Sender<bool>,
}

impl<T> Watched<T> {
    pub fn new(
        inner: T,
        refused: UnboundedReceiver<Refused>,
        calls: Calls,
        host_is_gone: watch::Sender<bool>,
    ) -> Self {
        Self {
            inner,
            refused,
            calls,
            host_is_gone,
        }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Watched<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let drain = match &item {
            JsonRpcMessage::Response(response) => self.calls.end(&response.id),
            JsonRpcMessage::Error(error) => {
                // An error hands nothing over.
                if let Some(id) = &error.id {
                    self.calls.end(id);
                }
                None
            }
            _ => None,
        };
        let sending = self.inner.send(item);
        async move {
            let sent = sending.await;
            if let (Ok(()), Some(drain)) = (&sent, drain) {
                tokio::spawn(drain.confirm());
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let message = tokio::select! {
                biased;
                Some(refused) = self.refused.recv() => {
                    let refusal = JsonRpcMessage::error(refused.error, Some(refused.id));
                    let sending = self.inner.send(refusal);
                    tokio::spawn(async move { drop(sending.await) });
                    continue;
                }
                message = self.inner.receive() => message,
            };
            let Some(message) = message else {
                self.host_is_gone.send_replace(true);
                return None;
            };
            match &message {
                JsonRpcMessage::Request(request) => match &request.request {
                    ClientRequest::CallToolRequest(_) => self.calls.begin(request.id.clone()),
                    // Answered here, whatever it carries: a host that gets any other answer
                    // would speak a revision in which bells are dropped.
                    ClientRequest::DiscoverRequest(_) => {
                        let refusal = ErrorData::new(
                            ErrorCode::METHOD_NOT_FOUND,
                            "server/discover is not supported: use initialize",
                            None,
                        );
                        let refusal = JsonRpcMessage::error(refusal, Some(request.id.clone()));
                        self.inner.send(refusal).await.ok()?;
                        continue;
                    }
                    _ => {}
                },
                JsonRpcMessage::Notification(notification) => {
                    if let ClientNotification::CancelledNotification(cancelled) =
                        &notification.notification
                        && let Some(call) = &cancelled.params.request_id
                    {
                        // Its answer will never be written, so its lease stays unconfirmed.
                        self.calls.end(call);
                    }
                }
                _ => {}
            }
            return Some(message);
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}
