//! Holds the plans of the statements that run often: none of them reads history.

use super::{
    directory, escalation, migrate, opening, probe, retention, sessions, signals, trace, verdicts,
};
use crate::store::sql::{self, Connection, params_from_iter};
use prism_core::retention::History;

/// The steps SQLite would take, in a store without statistics, as every home is.
fn plan(sql: &str) -> Vec<String> {
    let mut connection = Connection::open_in_memory().unwrap();
    migrate::migrate(&mut connection).unwrap();
    let mut statement = connection
        .prepare(&format!("explain query plan {sql}"))
        .unwrap();
    let nothing = vec![Option::<i64>::None; statement.parameter_count()];
    let steps = statement.query_map(params_from_iter(nothing), |r| r.get("detail"));
    steps.unwrap().collect::<sql::Result<_>>().unwrap()
}

#[test]
fn what_runs_often_reads_what_waits_and_never_what_was() {
    for (what, sql, wanted) in [
        (
            "looking for a send under the same key",
            signals::SENT_BEFORE.to_owned(),
            &["ux_signal_idempotency"][..],
        ),
        (
            "looking for room in an inbox",
            signals::NEXT_PLACE.to_owned(),
            &["ix_signal_waiting"],
        ),
        ("draining", signals::free_rows(), &["ix_signal_waiting"]),
        (
            "a hello's list",
            signals::UNDRAINED.to_owned(),
            &["ix_signal_waiting"],
        ),
        (
            "a replay without a cursor",
            signals::replayed_rows(true),
            &["ix_signal_waiting"],
        ),
        (
            "a replay after a cursor",
            signals::replayed_rows(false),
            &["ux_signal_inbox (to_persona_id=? AND seq>?)"],
        ),
        (
            "counting what more waits",
            signals::free_count(),
            &["COVERING INDEX ix_signal_waiting"],
        ),
        (
            "looking when a lease runs out",
            signals::FIRST_RETURN.to_owned(),
            &["COVERING INDEX ix_signal_waiting"],
        ),
        (
            "confirming",
            signals::UNCONFIRMED.to_owned(),
            &["ix_signal_lease"],
        ),
        (
            "finding a signal by its id",
            trace::BY_ID.to_owned(),
            &["sqlite_autoindex_signal_queue_1 (id>? AND id<?)"],
        ),
        (
            "finding a signal by its trace",
            trace::BY_TRACE.to_owned(),
            &["ix_signal_trace"],
        ),
        (
            "a look whether a sweep is due",
            signals::DUE.to_owned(),
            &["ix_signal_expiry", "ix_signal_leased"],
        ),
        (
            "ending what expired",
            signals::EXPIRE.to_owned(),
            &["ix_signal_expiry"],
        ),
        (
            "giving leases back in time",
            signals::OVERDUE.to_owned(),
            &["ix_signal_leased"],
        ),
        (
            "counting what waits",
            signals::WAITING.to_owned(),
            &[
                "sqlite_autoindex_personas_2",
                "COVERING INDEX ix_signal_waiting",
            ],
        ),
        (
            "dismissing all that a session was given",
            signals::DISMISS_GIVEN.to_owned(),
            &["sqlite_autoindex_signal_queue_1", "ix_deliveries_session"],
        ),
        (
            "dismissing all without a session",
            signals::DISMISS_LATELY.to_owned(),
            &["ux_signal_inbox", "sqlite_autoindex_personas_1"],
        ),
        (
            "releasing a session",
            sessions::LEASED.to_owned(),
            &["ix_signal_leased"],
        ),
        (
            "finishing a probe",
            probe::END_PROBE.to_owned(),
            &["sqlite_autoindex_signal_queue_1", "ix_signal_echo"],
        ),
        (
            "the probes that wait for a session",
            probe::PROBES_OF.to_owned(),
            &["ix_signal_waiting"],
        ),
        (
            "a look at what has waited too long",
            escalation::DUE.to_owned(),
            &["ix_signal_escalates (escalate_at<?)"],
        ),
        (
            "a look at what was put off before the clock was set back",
            escalation::due_too_late(),
            &["ix_signal_escalates (escalate_at>?)"],
        ),
        (
            "moving on what has waited too long",
            escalation::MOVE_ON.to_owned(),
            &["sqlite_autoindex_signal_queue_1"],
        ),
        (
            "what the operator is told of",
            escalation::AT_OPERATORS.to_owned(),
            &["ix_signal_at_operator"],
        ),
        (
            "what the operator was not notified of",
            escalation::UNNOTIFIED.to_owned(),
            &["ix_signal_unnotified"],
        ),
        (
            "the corrections of a hook's brief",
            opening::corrections(),
            &["ix_operator_inputs_corrections (project_id=?)"],
        ),
        (
            "counting corrections to review",
            opening::to_review(),
            &["INDEX ix_operator_inputs_to_review (project_id=?)"],
        ),
        (
            "finding open sessions at a start",
            directory::OPEN_SESSIONS.to_owned(),
            &["ix_sessions_open"],
        ),
        (
            "finding sessions that went silent",
            sessions::SILENT.to_owned(),
            &["ix_sessions_silent (last_seen_at<?)"],
        ),
    ] {
        let steps = plan(&sql);
        for index in wanted {
            let used = steps.iter().any(|step| step.contains(index));
            assert!(used, "{what} does not use {index}: {steps:#?}");
        }
        let sorts = steps
            .iter()
            .any(|step| step.contains("TEMP B-TREE FOR ORDER"));
        assert!(
            !sorts || what == "counting what waits",
            "{what}: {steps:#?}"
        );
        // The few open leases, open sessions and what waits at the operator may be read whole;
        // nothing else.
        let small = [
            "CONSTANT ROW",
            "ix_signal_leased",
            "ix_sessions_open",
            "ix_signal_at_operator",
            "ix_signal_unnotified",
        ];
        for step in steps.iter().filter(|s| s.starts_with("SCAN")) {
            assert!(small.iter().any(|s| step.contains(s)), "{what}: {steps:#?}");
        }
    }
}

#[test]
fn a_walk_over_old_rows_follows_their_numbers_and_finds_referrers_by_index() {
    for what in History::ALL {
        for condition in [retention::NEXT, retention::THE_ONE] {
            let steps = plan(&retention::look_sql(what, condition));
            assert!(
                steps[0].starts_with("SEARCH t USING INTEGER PRIMARY KEY (rowid"),
                "{steps:#?}"
            );
            assert!(
                !steps.iter().any(|s| s.starts_with("SCAN")),
                "{what:?}: {steps:#?}"
            );
        }
    }
}

/// Deleting a row makes SQLite look for rows that refer to it: without an index, in all of them.
#[test]
fn whatever_may_refer_to_a_row_that_goes_is_found_by_index() {
    let mut connection = Connection::open_in_memory().unwrap();
    migrate::migrate(&mut connection).unwrap();
    let mut tables = connection
        .prepare("select name from sqlite_schema where type = 'table'")
        .unwrap();
    let tables = tables.query_map([], |r| r.get::<_, String>(0)).unwrap();
    for table in tables.map(Result::unwrap) {
        let sql = format!("select \"table\", \"from\" from pragma_foreign_key_list('{table}')");
        let mut keys = connection.prepare(&sql).unwrap();
        let keys = keys.query_map([], |r| Ok((r.get(0)?, r.get(1)?))).unwrap();
        for (parent, column) in keys.map(Result::<(String, String), _>::unwrap) {
            if History::ALL.iter().any(|h| retention::table(*h) == parent) {
                let steps = plan(&format!("select 1 from {table} where {column} = ?1"));
                assert!(
                    steps[0].starts_with("SEARCH"),
                    "{table}.{column}: {steps:?}"
                );
            }
        }
    }
}

#[test]
fn the_newest_verdict_is_found_without_reading_all_of_them() {
    let steps = plan(verdicts::ON_NODE);
    let used = |part: &str| steps.iter().any(|step| step.contains(part));
    assert!(used("ix_edges_verdicts (dst=?)"), "{steps:#?}");
    // The few that were found are put in order; the search itself is in order already.
    let sorted = steps.iter().filter(|s| s.contains("TEMP B-TREE"));
    assert_eq!(sorted.count(), 1, "{steps:#?}");
    let steps = plan(verdicts::JUDGED_NAMED);
    assert!(
        steps.iter().all(|step| !step.starts_with("SCAN")),
        "{steps:#?}"
    );
}

#[test]
fn the_pages_lists_read_a_window_of_their_project_in_order_and_nothing_else() {
    use super::page::{Listing, Where, memory, metrics, signals as page_signals, story};
    use super::recall_events;
    let lists: [(&str, &Listing, &str); 10] = [
        (
            "signals",
            &page_signals::LISTING,
            "ix_signal_time (project_id=? AND created_at>? AND created_at<?)",
        ),
        (
            "memory",
            &memory::MEMORY,
            "ix_memory_project (project_id=? AND created_at>? AND created_at<?)",
        ),
        (
            "recalls",
            &memory::RECALLS,
            "ix_recall_project (project_id=? AND occurred_at>? AND occurred_at<?)",
        ),
        (
            "inputs",
            &memory::INPUTS,
            "ix_operator_inputs_time (project_id=? AND captured_at>? AND captured_at<?)",
        ),
        (
            "inputs left to review",
            &memory::INPUTS_LEFT,
            "ix_operator_inputs_left (project_id=? AND captured_at>? AND captured_at<?)",
        ),
        (
            "warnings left to label",
            &memory::GATE_LEFT,
            "ix_gate_left (project_id=? AND occurred_at>? AND occurred_at<?)",
        ),
        (
            "gate events",
            &memory::GATE,
            "ix_gate_time (project_id=? AND occurred_at>? AND occurred_at<?)",
        ),
        (
            "sessions",
            &memory::SESSIONS,
            "ix_sessions_time (project_id=? AND created_at>? AND created_at<?)",
        ),
        (
            "probes",
            &memory::PROBES,
            "ix_loopback_runs (project_id=? AND finished_at>? AND finished_at<?)",
        ),
        (
            "verdicts",
            &story::VERDICTS,
            "ix_operator_confirmations_time (project_id=? AND confirmed_at>? AND confirmed_at<?)",
        ),
    ];
    for (what, listing, index) in lists {
        for sql in [listing.sql(&Where::default()), listing.window_end()] {
            let steps = plan(&sql);
            let table = format!("SEARCH {}", listing.table);
            let window = steps.iter().find(|s| s.starts_with(&table));
            assert!(
                window.is_some_and(|s| s.contains(index)),
                "{what}: {steps:#?}"
            );
            // A few rows of one moment may be sorted among themselves, never the whole window.
            let read = steps.iter().take_while(|s| *s != "SCAN t");
            let sorted = read.filter(|s| s.contains("TEMP B-TREE"));
            let in_part = |s: &&String| s.contains("LAST TERM");
            assert!(sorted.clone().all(|s| in_part(&s)), "{what}: {steps:#?}");
            let scanned = steps
                .iter()
                .filter(|s| s.starts_with("SCAN") && *s != "SCAN t");
            assert_eq!(scanned.count(), 0, "{what}: {steps:#?}");
        }
    }
    for (what, sql, index) in [
        (
            "an inbox",
            page_signals::waiting_rows(2, true),
            "ix_signal_waiting",
        ),
        (
            "a persona's newest task",
            page_signals::newest_task(),
            "ux_signal_inbox (to_persona_id=? AND seq>?)",
        ),
        (
            "what is left to review",
            memory::UNREVIEWED.to_owned(),
            "ix_operator_inputs_left (project_id=?)",
        ),
        (
            "what is left to label",
            memory::UNLABELLED.to_owned(),
            "ix_gate_left (project_id=?)",
        ),
        (
            "a probe's echo",
            page_signals::ECHO.to_owned(),
            "ix_signal_echo",
        ),
        (
            "the replies to a signal",
            page_signals::REPLIES.to_owned(),
            "ix_signal_replies",
        ),
        (
            "inputs that metrics count",
            metrics::TALLIES.to_owned(),
            "ix_operator_inputs_time (project_id=? AND captured_at>? AND captured_at<?)",
        ),
        (
            "dead ends that metrics compare",
            metrics::RULED_OUT.to_owned(),
            "ix_deltas_ruled_out (project_id=? AND created_at>? AND created_at<?)",
        ),
        (
            "labels that metrics count",
            metrics::LABELS.to_owned(),
            "COVERING INDEX ix_gate_labelled",
        ),
        (
            "corrections that metrics compare",
            metrics::CORRECTIONS.to_owned(),
            "ix_operator_inputs_corrections (project_id=? AND captured_at>? AND captured_at<?)",
        ),
        (
            "where the inputs end that metrics count",
            metrics::INPUTS_END.to_owned(),
            "COVERING INDEX ix_operator_inputs_time (project_id=? AND captured_at>? AND captured_at<?)",
        ),
        (
            "where the signals end that delivery counts",
            metrics::SIGNALS_END.to_owned(),
            "COVERING INDEX ix_signal_time (project_id=? AND created_at>? AND created_at<?)",
        ),
        (
            "what became of the newest signals",
            metrics::DELIVERIES.to_owned(),
            "SEARCH d USING PRIMARY KEY (signal_id=?)",
        ),
        (
            "what the newest recalls brought",
            recall_events::NEWEST.to_owned(),
            "ix_recall_project (project_id=?)",
        ),
    ] {
        let steps = plan(&sql);
        assert!(
            steps.iter().any(|s| s.contains(index)),
            "{what}: {steps:#?}"
        );
    }
}
