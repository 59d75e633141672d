//! What time does to sessions, leases and signals; a test moves the clock instead of waiting.

use crate::harness::{PID, Server, wait_until};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn a_silent_session_is_stale_after_90_seconds_and_released_after_a_day() {
    let server = Server::start();
    let (donna, id) = server.session("Donna").await;
    donna.call(PID, "status", json!({})).await.unwrap();
    let operator = server.operator();
    let state = || async {
        let status = operator.call(PID, "status", json!({})).await.unwrap();
        let sessions = status["sessions"].as_array().unwrap().clone();
        let mine = sessions.iter().find(|s| s["session_id"] == id.to_string());
        mine.map(|s| s["state"].as_str().unwrap().to_owned())
    };
    assert_eq!(state().await.as_deref(), Some("live"));
    server.advance(Duration::from_secs(91));
    assert_eq!(state().await.as_deref(), Some("stale"));
    server.advance(Duration::from_secs(24 * 3600));
    wait_until("the sweep releases it", || async {
        state().await.is_none().then_some(())
    })
    .await;
    let refused = donna.call(PID, "status", json!({})).await.unwrap_err();
    assert_eq!(refused.code, "session_released");
}
