//! OpenCode: a prompt given to a session of its server.
//!
//! Nothing that an MCP child is given names that server or its session, so both are told by
//! whoever starts it; one session in this folder needs no name.

use super::HANDOVER;
use prism_core::bell::{Handover, Notice};
use prism_core::limits::BELL_HANDOVER_S;
use serde_json::{Value, json};
use tokio::time::timeout;

pub struct Opencode {
    url: String,
    session: Option<String>,
    cwd: String,
    http: reqwest::Client,
}

impl Opencode {
    pub fn new(url: &str, session: Option<&str>, cwd: &str) -> Self {
        Self {
            url: url.trim_end_matches('/').to_owned(),
            session: session.map(str::to_owned),
            cwd: cwd.to_owned(),
            http: crate::client::http_client(HANDOVER).unwrap_or_default(),
        }
    }

    /// Its 204 says that the prompt was accepted, not that a model has seen it.
    pub async fn ring(&mut self, notice: &Notice) -> Handover {
        match timeout(HANDOVER, self.prompt(notice)).await {
            Ok(Ok(())) => Handover::Handed,
            Ok(Err(why)) => Handover::Failed(why),
            Err(_) => Handover::Failed(format!(
                "its server did not answer within {BELL_HANDOVER_S} s"
            )),
        }
    }

    async fn prompt(&self, notice: &Notice) -> Result<(), String> {
        let session = match &self.session {
            Some(session) => session.clone(),
            None => self.only_session().await?,
        };
        if !session
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        {
            return Err(format!("{session:?} is no id of a session"));
        }
        let body = json!({"parts": [{"type": "text", "text": notice.sentence()}]});
        let url = format!("{}/session/{session}/prompt_async", self.url);
        let answer = self.http.post(url).json(&body).send().await;
        let status = answer.map_err(|e| e.without_url().to_string())?.status();
        match status.is_success() {
            true => Ok(()),
            false => Err(format!("its server answered {status}")),
        }
    }

    /// The one session that people see in this folder; two that could be it are none.
    async fn only_session(&self) -> Result<String, String> {
        let url = format!("{}/session", self.url);
        let answer = self.http.get(url).send().await;
        let answer = answer.map_err(|e| e.without_url().to_string())?;
        let sessions: Value = answer
            .json()
            .await
            .map_err(|e| e.without_url().to_string())?;
        let sessions = sessions.as_array().map(Vec::as_slice).unwrap_or_default();
        let here = |s: &&Value| s["directory"] == self.cwd.as_str() && s["parentID"].is_null();
        let mut here = sessions
            .iter()
            .filter(here)
            .filter_map(|s| s["id"].as_str());
        match (here.next(), here.next()) {
            (Some(id), None) => Ok(id.to_owned()),
            (None, _) => Err("its server has no session in this folder".into()),
            _ => Err(
                "its server has several sessions in this folder, and nothing says which is \
                      this one: set PRISM_OPENCODE_SESSION"
                    .into(),
            ),
        }
    }
}
