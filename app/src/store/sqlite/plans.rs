//! Holds the plans of the statements that run often: none of them reads history.

use super::{directory, migrate, proof, sessions, signals};
use rusqlite::{Connection, params_from_iter};

/// The steps SQLite would take, in a store without statistics, as every home is.
fn plan(sql: &str) -> Vec<String> {
    let mut connection = Connection::open_in_memory().unwrap();
    migrate::migrate(&mut connection).unwrap();
    let mut statement = connection
        .prepare(&format!("explain query plan {sql}"))
        .unwrap();
    let nothing = vec![Option::<i64>::None; statement.parameter_count()];
    let steps = statement.query_map(params_from_iter(nothing), |r| r.get("detail"));
    steps.unwrap().collect::<rusqlite::Result<_>>().unwrap()
}

#[test]
fn what_runs_often_reads_what_waits_and_never_what_was() {
    for (what, sql, wanted) in [
        (
            "a look whether a sweep is due",
            signals::DUE.to_owned(),
            &["ix_signal_expiry", "ix_signal_leased"][..],
        ),
        (
            "ending what expired",
            signals::EXPIRE.to_owned(),
            &["ix_signal_expiry"],
        ),
        (
            "giving leases back in time",
            signals::inbox_sql(signals::OVERDUE),
            &["ix_signal_leased"],
        ),
        (
            "counting what waits",
            signals::WAITING.to_owned(),
            &["sqlite_autoindex_personas_2", "ix_signal_waiting"],
        ),
        (
            "releasing a session",
            sessions::GIVE_BACK.to_owned(),
            &["ix_signal_leased"],
        ),
        (
            "finishing a probe",
            proof::END_PROBE.to_owned(),
            &["sqlite_autoindex_signal_queue_1", "ix_signal_echo"],
        ),
        (
            "finding open sessions at a start",
            directory::OPEN_SESSIONS.to_owned(),
            &["ix_sessions_open"],
        ),
    ] {
        let steps = plan(&sql);
        for index in wanted {
            let used = steps.iter().any(|step| step.contains(index));
            assert!(used, "{what} does not use {index}: {steps:#?}");
        }
        // The few open leases and open sessions may be read whole; nothing else.
        let small = ["CONSTANT ROW", "ix_signal_leased", "ix_sessions_open"];
        for step in steps.iter().filter(|s| s.starts_with("SCAN")) {
            assert!(small.iter().any(|s| step.contains(s)), "{what}: {steps:#?}");
        }
    }
}
