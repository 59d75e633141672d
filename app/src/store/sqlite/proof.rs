//! What probes found.

use super::{Result, Sqlite, failed};
use prism_core::Moment;
use prism_core::loopback::Probe;
use rusqlite::params;
use uuid::Uuid;

/// Probe results kept for each project.
const RUNS_MAX: i64 = 1_000;

impl Sqlite {
    pub async fn finish_probe(&self, project: Uuid, probe: Probe, now: Moment) -> Result<()> {
        self.write(move |c| {
            let (project, signal) = (project.to_string(), probe.signal_id.to_string());
            c.execute(
                "update signal_queue set ended_at = ?1, ended_as = 'recalled' where signal_type = 'Loopback' and project_id = ?2 and (id = ?3 or in_reply_to = ?3) and ended_at is null",
                params![now.0, project, signal],
            )
            .map_err(failed)?;
            let envelope = serde_json::to_string(&probe).unwrap_or_default();
            c.execute(
                "insert or ignore into loopback_runs (loopback_id, project_id, session_id, identity, signal_id, outcome, envelope, finished_at) values (?, ?, ?, ?, ?, ?, ?, ?)",
                params![probe.loopback_id.to_string(), project, probe.requested_by_session.map(|s| s.to_string()), probe.requested_by_identity, signal, probe.outcome.name(), envelope, now.0],
            )
            .map_err(failed)?;
            c.execute("delete from loopback_runs where project_id = ?1 and loopback_id not in (select loopback_id from loopback_runs where project_id = ?1 order by finished_at desc limit ?2)", params![project, RUNS_MAX])
                .map_err(failed)?;
            Ok(())
        })
        .await
    }
}
