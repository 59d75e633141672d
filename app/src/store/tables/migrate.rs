//! Numbered migrations: only ever added, and run together or not at all.

use super::{Result, StoreError, failed, moving, pool};
use crate::store::sql::{Connection, Link};

const MIGRATIONS: &[(&str, &str)] = &[
    (
        "0001_signals",
        include_str!("../../../migrations/sqlite/0001_signals.sql"),
    ),
    (
        "0002_memory",
        include_str!("../../../migrations/sqlite/0002_memory.sql"),
    ),
    (
        "0003_proof",
        include_str!("../../../migrations/sqlite/0003_proof.sql"),
    ),
    (
        "0004_vectors",
        include_str!("../../../migrations/sqlite/0004_vectors.sql"),
    ),
    (
        "0005_vectors_by_model",
        include_str!("../../../migrations/sqlite/0005_vectors_by_model.sql"),
    ),
    (
        "0006_signals_way",
        include_str!("../../../migrations/sqlite/0006_signals_way.sql"),
    ),
    (
        "0007_memory_truth",
        include_str!("../../../migrations/sqlite/0007_memory_truth.sql"),
    ),
    (
        "0008_gate_and_probe",
        include_str!("../../../migrations/sqlite/0008_gate_and_probe.sql"),
    ),
    (
        "0009_who_is_who",
        include_str!("../../../migrations/sqlite/0009_who_is_who.sql"),
    ),
    (
        "0010_retention",
        include_str!("../../../migrations/sqlite/0010_retention.sql"),
    ),
    (
        "0011_recall",
        include_str!("../../../migrations/sqlite/0011_recall.sql"),
    ),
    (
        "0012_bells",
        include_str!("../../../migrations/sqlite/0012_bells.sql"),
    ),
    (
        "0013_waiting",
        include_str!("../../../migrations/sqlite/0013_waiting.sql"),
    ),
    (
        "0014_newest_verdicts",
        include_str!("../../../migrations/sqlite/0014_newest_verdicts.sql"),
    ),
    (
        "0015_attention",
        include_str!("../../../migrations/sqlite/0015_attention.sql"),
    ),
    (
        "0016_words",
        include_str!("../../../migrations/sqlite/0016_words.sql"),
    ),
    (
        "0017_generations",
        include_str!("../../../migrations/sqlite/0017_generations.sql"),
    ),
    (
        "0018_looks",
        include_str!("../../../migrations/sqlite/0018_looks.sql"),
    ),
    (
        "0019_page",
        include_str!("../../../migrations/sqlite/0019_page.sql"),
    ),
    (
        "0020_metrics",
        include_str!("../../../migrations/sqlite/0020_metrics.sql"),
    ),
    (
        "0021_several_servers",
        include_str!("../../../migrations/sqlite/0021_several_servers.sql"),
    ),
    (
        "0022_tenants",
        include_str!("../../../migrations/sqlite/0022_tenants.sql"),
    ),
    (
        "0023_touched",
        include_str!("../../../migrations/sqlite/0023_touched.sql"),
    ),
];

/// The same numbers on PostgreSQL, which begins where SQLite was when it came.
const POSTGRES_MIGRATIONS: &[(usize, &str, &str)] = &[
    (
        19,
        "0019_begin",
        include_str!("../../../migrations/postgres/0019_begin.sql"),
    ),
    (
        20,
        "0020_metrics",
        include_str!("../../../migrations/postgres/0020_metrics.sql"),
    ),
    (
        21,
        "0021_several_servers",
        include_str!("../../../migrations/postgres/0021_several_servers.sql"),
    ),
    (
        22,
        "0022_tenants",
        include_str!("../../../migrations/postgres/0022_tenants.sql"),
    ),
    (
        23,
        "0023_touched",
        include_str!("../../../migrations/postgres/0023_touched.sql"),
    ),
];

/// The schema that this binary writes.
pub const NEWEST: usize = MIGRATIONS.len();

/// Brings a database up to date.
pub fn migrate(connection: &mut Connection) -> Result<()> {
    match connection {
        Connection::Sqlite(c) => embedded(c),
        Connection::Postgres(link) => shared(link),
    }
}

/// The schema that an embedded database has.
pub fn schema(connection: &rusqlite::Connection) -> Result<usize> {
    let found = connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    Ok(found.map_err(failed)? as usize)
}

pub fn known(found: usize) -> Result<()> {
    match found > NEWEST {
        true => Err(StoreError::Failed(format!(
            "the database has schema {found} and this prism knows {NEWEST}: a newer prism wrote it; use that one, or another $PRISM_HOME",
        ))),
        false => Ok(()),
    }
}

/// All that is missing is one transaction: it succeeds whole, or the database stays as it was.
fn embedded(connection: &mut rusqlite::Connection) -> Result<()> {
    let found = schema(connection)?;
    known(found)?;
    let missing = &MIGRATIONS[found..];
    if missing.is_empty() {
        return Ok(());
    }
    let tx = connection.transaction().map_err(failed)?;
    for (name, sql) in missing {
        tx.execute_batch(sql)
            .map_err(|e| StoreError::Failed(format!("migration {name}: {}", reason(&e))))?;
    }
    tx.pragma_update(None, "user_version", NEWEST as i64)
        .map_err(failed)?;
    tx.commit().map_err(failed)?;
    for (name, _) in missing.iter().filter(|_| found > 0) {
        tracing::info!(migration = name, "Upgraded the database");
    }
    Ok(())
}

/// The same on PostgreSQL, one server at a time: whoever comes second finds it done. Servers of an older version that
/// are at work there may be in the way once.
fn shared(link: &Link) -> Result<()> {
    link.take_time(true).map_err(failed)?;
    let done = pool::patiently(|| {
        link.begin(
            "begin; select pg_advisory_xact_lock(hashtextextended('prism schema', 0));
             create table if not exists prism_schema (version bigint not null)",
        );
        let done = migrate_shared(link);
        match &done {
            Ok(_) => link.commit().map_err(failed)?,
            Err(_) => drop(link.rollback()),
        }
        done
    });
    link.take_time(false).map_err(failed)?;
    for name in done? {
        tracing::info!(migration = name, "Upgraded the database");
    }
    Ok(())
}

fn migrate_shared(link: &Link) -> Result<Vec<&'static str>> {
    moving::not_half_way(link)?;
    let found = link
        .query("select version from prism_schema", &[])
        .map_err(failed)?;
    let found: Option<i64> = found.first().map(|row| row.get(0));
    known(found.unwrap_or(0) as usize)?;
    let mut done = Vec::new();
    for (number, name, sql) in POSTGRES_MIGRATIONS {
        if *number as i64 > found.unwrap_or(0) {
            link.batch(sql).map_err(|error| {
                let why = format!("migration {name}: {error}");
                match failed(error) {
                    StoreError::Again(_) => StoreError::Again(why),
                    _ => StoreError::Failed(why),
                }
            })?;
            done.push(*name);
        }
    }
    if !done.is_empty() {
        link.batch(&format!(
            "select keep_tenants_apart(); delete from prism_schema; insert into prism_schema values ({NEWEST})"
        ))
        .map_err(failed)?;
    }
    Ok(done)
}

/// What SQLite says, without the text that it was given.
fn reason(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    #[test]
    fn a_newer_schema_is_refused_and_left_alone() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.pragma_update(None, "user_version", 999).unwrap();
        let error = embedded(&mut connection).unwrap_err().to_string();
        assert!(error.contains("999") && error.contains("newer"), "{error}");
        assert!(connection.prepare("select 1 from tenants").is_err());
    }

    #[test]
    fn both_engines_have_the_same_migrations_since_the_second_came() {
        let numbers = POSTGRES_MIGRATIONS.iter().map(|(number, ..)| *number);
        assert!(numbers.eq(19..=NEWEST));
        for (number, name, _) in &POSTGRES_MIGRATIONS[1..] {
            assert_eq!(MIGRATIONS[number - 1].0, *name);
        }
    }

    #[test]
    fn an_upgrade_that_fails_halfway_changes_nothing() {
        let mut connection = Connection::open_in_memory().unwrap();
        let has_table = |(_, sql): &(&str, &str)| sql.contains("create table ");
        let failing = MIGRATIONS.iter().rposition(has_table).unwrap();
        let before = failing - 1;
        for (_, sql) in &MIGRATIONS[..before] {
            connection.execute_batch(sql).unwrap();
        }
        connection
            .pragma_update(None, "user_version", before as i64)
            .unwrap();
        let shape = |c: &Connection| -> String {
            let sql = "select group_concat(name || coalesce(sql, '')) from sqlite_schema";
            c.query_row(sql, [], |r| r.get(0)).unwrap()
        };
        // Stands where the second of them wants to put a table of its own.
        let table = MIGRATIONS[failing].1.split("create table ").nth(1).unwrap();
        let table = table.split([' ', '(']).next().unwrap();
        connection
            .execute_batch(&format!("create table {table} (x)"))
            .unwrap();
        let was = shape(&connection);
        let error = embedded(&mut connection).unwrap_err().to_string();
        assert!(error.contains(MIGRATIONS[failing].0), "{error}");
        assert_eq!(shape(&connection), was);
        assert_eq!(schema(&connection).unwrap(), before);
    }

    #[test]
    fn an_older_database_is_upgraded_without_loss() {
        for version in 1..MIGRATIONS.len() {
            let mut connection = Connection::open_in_memory().unwrap();
            for (_, sql) in &MIGRATIONS[..version] {
                connection.execute_batch(sql).unwrap();
            }
            connection
                .pragma_update(None, "user_version", version as i64)
                .unwrap();
            connection
                .execute("insert into tenants values ('t', 'kept', 1)", [])
                .unwrap();
            embedded(&mut connection).unwrap();
            assert_eq!(
                connection
                    .query_row("select name from tenants", [], |r| r.get::<_, String>(0))
                    .unwrap(),
                "kept"
            );
            connection
                .prepare("select * from recallgate_events")
                .unwrap();
        }
    }

    #[test]
    fn old_rows_go_at_once_in_a_new_home_and_after_notice_in_an_upgraded_one() {
        let begins = |c: &Connection| -> Option<i64> {
            let sql = "select begins_at from retention";
            c.query_row(sql, [], |r| r.get(0)).unwrap()
        };
        let mut fresh = Connection::open_in_memory().unwrap();
        embedded(&mut fresh).unwrap();
        assert_eq!(begins(&fresh), Some(0));
        let mut old = Connection::open_in_memory().unwrap();
        old.execute_batch(MIGRATIONS[0].1).unwrap();
        old.pragma_update(None, "user_version", 1).unwrap();
        let tenant = "insert into tenants values ('t', 'kept', 1)";
        old.execute(tenant, []).unwrap();
        embedded(&mut old).unwrap();
        assert_eq!(begins(&old), None);
    }

    /// Rows of an older database mean the same after the upgrade, and more of them is found.
    #[test]
    fn memory_of_an_older_database_keeps_its_meaning() {
        let mut connection = Connection::open_in_memory().unwrap();
        for (_, sql) in &MIGRATIONS[..6] {
            connection.execute_batch(sql).unwrap();
        }
        connection.pragma_update(None, "user_version", 6).unwrap();
        connection
            .execute_batch(
                r#"
                insert into tenants values ('t', 'home', 1);
                insert into projects values ('p', 't', 'PID', 1);
                insert into personas values ('d', 't', 'p', 'Donna', 'donna', 0, 0, 1);
                insert into sessions (id, tenant_id, project_id, persona_id, identity, surface, machine_id, process_pid, created_at, last_seen_at)
                    values ('s', 't', 'p', 'd', 'Donna', 'codex', 'm', 1, 1, 1);
                insert into signal_queue (id, tenant_id, project_id, trace_id, to_persona_id, to_identity, from_identity, signal_type, payload, delivery_class, body_sha256, created_at, expires_at)
                    values ('q', 't', 'p', 'x', 'd', 'Donna', 'Texi', 'Question', '{}', 'async', '', 1, 2);
                insert into deliveries (signal_id, session_id, received_at, rung_at, strategy) values ('q', 's', 5, 5, 'claude_channel');
                insert into session_deltas (id, tenant_id, project_id, session_id, identity, surface, delta_kind, summary, created_at)
                    values ('delta', 't', 'p', 's', 'Donna', 'codex', 'note', 'work', 1), ('began', 't', 'p', 's', 'Donna', 'codex', 'pickup', 'x', 2);
                insert into memory (rowid, id, project_id, kind, identity, text, created_at, cues) values
                    (1, 'delta', 'p', 'note', 'Donna', 'work', 1, 8 | 128), (2, 'v1', 'p', 'confirmation', 'Donna', '', 2, 264),
                    (3, 'v2', 'p', 'confirmation', 'Donna', 'about: work', 3, 288);
                insert into memory_fts (rowid, title, body, label) values (2, 'old', '', ''), (3, 'old', 'about: work', '');
                insert into operator_confirmations (id, tenant_id, project_id, refers_to_kind, refers_to_id, verdict, confirmed_by, confirmed_via, directness, confirmed_at) values
                    ('v0', 't', 'p', 'delta', 'delta', 'works', 'frank', 'frank/cli', 'direct', 1),
                    ('v1', 't', 'p', 'spec', 'SPEC-060', 'works', 'frank', 'frank/cli', 'direct', 2),
                    ('v2', 't', 'p', 'delta', 'delta', 'broken', 'frank', 'frank/cli', 'direct', 3);
                insert into operator_inputs (id, tenant_id, project_id, session_id, captured_via, captured_at, class, prompt_text, confidence)
                    values ('i', 't', 'p', 's', 'Donna', 3, 'correction', 'no', 'high');
                insert into artifacts (id, tenant_id, project_id, kind, number, title, body, fields, status, identity, created_at, updated_at)
                    values ('todo', 't', 'p', 'todo', 1, 'x', '', '{"tags":"roof east","paths":["a"]}', 'open', 'Donna', 1, 1);
                insert into entities values (1, 'p', 'commit', '9f8e7d6c5b4a'), (2, 'p', 'spec', '60');
                insert into edges values ('v1', 'CONFIRMS', 'spec:SPEC-060', 'p', 2), ('n', 'COMBINES', 'commit:9f8e7d6', 'p', 2),
                    ('n', 'COMBINES', 'spec:login', 'p', 2), ('m', 'MENTIONS', 'entity:1', 'p', 2), ('i', 'LABELS', 'began', 'p', 3);
                "#,
            )
            .unwrap();
        embedded(&mut connection).unwrap();
        let ask = |sql: &str| -> Vec<String> {
            let mut statement = connection.prepare(sql).unwrap();
            let rows = statement.query_map([], |r| r.get(0)).unwrap();
            rows.collect::<rusqlite::Result<_>>().unwrap()
        };
        assert_eq!(
            ask(
                "select e.src || ' ' || e.kind || ' ' || coalesce(n.type || ':' || n.name, e.dst)
                 from edges e left join entities n on 'entity:' || n.id = e.dst order by 1"
            ),
            [
                "i LABELS session:s",
                "m MENTIONS commit:9f8e7d6",
                "n COMBINES commit:9f8e7d6",
                "n COMBINES spec:login",
                "v1 CONFIRMS spec:60",
            ]
        );
        let found = "select m.id from memory_fts f join memory m on m.rowid = f.rowid
             where memory_fts match ";
        assert_eq!(ask(&format!("{found} '\"spec 060\"'")), ["v1"]);
        assert_eq!(ask(&format!("{found} 'body : work'")), ["v2"]);
        assert_eq!(
            ask("select text from memory where id = 'v1'"),
            ["spec:SPEC-060"]
        );
        assert_eq!(
            ask("select text from memory_fields where memory_id = 'v1'").len(),
            1
        );
        assert_eq!(
            ask("select cast(cues as text) from memory where id = 'delta'"),
            ["128"]
        );
        assert_eq!(ask("select surface from operator_inputs"), ["codex"]);
        assert_eq!(
            ask("select fields from artifacts"),
            [r#"{"tags":["roof","east"],"paths":["a"]}"#]
        );
        assert_eq!(
            ask(
                "select persona_id || session_id || state || at || surface || evidence from last_proven"
            ),
            ["dsrung5codexclaude_channel"]
        );
    }

    #[test]
    fn gate_events_of_an_older_home_stay_and_the_first_of_each_surface_counts() {
        let mut connection = Connection::open_in_memory().unwrap();
        for (_, sql) in &MIGRATIONS[..7] {
            connection.execute_batch(sql).unwrap();
        }
        connection.pragma_update(None, "user_version", 7).unwrap();
        connection
            .execute_batch(
                "insert into tenants values ('t', 'kept', 1);
                 insert into projects (id, tenant_id, pid, created_at) values ('p', 't', 'P', 1);",
            )
            .unwrap();
        for (id, trigger, outcome, at) in [
            ("b", "ack", "satisfied", 2),
            ("a", "ack", "warned", 1),
            ("c", "recall", "satisfied", 3),
        ] {
            connection
                .execute(
                    "insert into recallgate_events (id, tenant_id, project_id, assignment_id,
                        task_class, gate_mode, outcome, trigger, actor_persona, actor_surface,
                        occurred_at)
                     values (?1, 't', 'p', 'x', 'tier1', 'advisory', ?2, ?3, 'Texi', 'cli', ?4)",
                    rusqlite::params![id, outcome, trigger, at],
                )
                .unwrap();
        }
        embedded(&mut connection).unwrap();
        let firsts: Vec<(String, bool)> = connection
            .prepare("select id, is_first is 1 from recallgate_events order by id")
            .unwrap()
            .query_map([], |r| Ok((r.get(0)?, r.get(1)?)))
            .unwrap()
            .collect::<rusqlite::Result<_>>()
            .unwrap();
        let expected = [("a", true), ("b", false), ("c", true)];
        assert_eq!(firsts, expected.map(|(id, first)| (id.to_owned(), first)));
    }

    /// A database that has run a migration never runs it again, so a change to it would not reach
    /// anybody. Add a new one, and its hash here.
    #[test]
    fn a_migration_never_changes() {
        let known = [
            "efa8dad11e95a77774d649ea1d399b9230b8754f8d1b16f98c52cfae37cc1898",
            "69c537933d59ba55605d8c139a83ad34e99d34c0b8959ca01b032df20189b423",
            "cad1e4008efdc55f79d1af16e38db81a9c09fd6e28f4fd4ef7c8382a05cae4f9",
            "2c0b9fbd003a0f4bf96544e5e5c3f8747851e298d23195cb15b1864beba82c28",
            "597ec7c5528255c9a739106dd711117c3a0a51e8748357df850988c53dcba5bb",
            "8699a59ca7a2d5cf9d264180289922fd053c8a3ba6717bee15aaa93df792b84f",
            "7898d9a6dee920bcfb98887fae223b50c440ea781bb71dce49fb40d4a9f7cd63",
            "caf8bd538d675551b35407bfe8d3217c4e4e140c5701321e37d896cc64449c41",
            "62294109f8c7a0cc7a8aeb59c46bcf5f92abbd3036fa3fc62fd1307b4ad87b01",
            "cae7d36009c0262e0fb802816cdfe45f2a0aadec84726c3c8a6733ede759e699",
            "91f465fa2078258a517eb69ec09f1cc7d6f82121a900c7db26738cbc262fab6d",
            "7aae4bac261af6469203d73f4ebf047d6fb4024b4af99cc7f35ad411f0ffe086",
            "935c773ebe0d68bcc0f155f573077263cce76252c982d3507604d39bc9293e3a",
            "9e15dd9ce3baee87e5dc10f114d8e597b4e1f5fbccbe80ec4d537c31255462d2",
            "ec55c806910d71f16efb4b4ca4f14df789749de4cdb14a6c85fc050f3d6e32d5",
            "e89604b9eef5da4c09c63bdbb5e57ab3dfeaf75eef062d4a52b6b1ebe12414f9",
            "0de2b3fb62361b1e480d19f6cfea581160b1e300148931b61310d0416c4716b4",
            "e4e67095e3762eb86238287ad837e592c9db6754fc4741577a22be39e5181144",
            "24631db961559033fa5bbe87fb8cdbdd7fa6ef7951270a338aa903df24b13aa3",
            "84198494069dcab269065c6891655d6ff2a09f8de4e1fdb854a846f8c946e94c",
            "d913ac59d49b6ab574dca3e2e7085c27fa1ddbef16baec22690440ace88c3373",
            "a74839a77091334324ea17568f564a247c8f5aff548b7b5b6b93772ab51ffca1",
            "34da7c5d63390104d16e021027fed02850882a11e8a958cbcd0cb2c4328a683f",
        ];
        let found: Vec<String> = MIGRATIONS
            .iter()
            .map(|(_, sql)| prism_core::signal::sha256_hex(sql.as_bytes()))
            .collect();
        assert_eq!(found, known);
    }

    #[test]
    fn migrating_twice_changes_nothing() {
        let mut connection = Connection::open_in_memory().unwrap();
        embedded(&mut connection).unwrap();
        embedded(&mut connection).unwrap();
        assert_eq!(
            connection
                .pragma_query_value(None, "user_version", |r| r.get::<_, i64>(0))
                .unwrap(),
            MIGRATIONS.len() as i64
        );
    }

    #[test]
    fn the_rows_of_an_older_home_are_counted_by_project() {
        let mut connection = Connection::open_in_memory().unwrap();
        let is_recall = |(name, _): &(&str, &str)| *name == "0011_recall";
        let before = MIGRATIONS.iter().position(is_recall).unwrap();
        for (_, sql) in &MIGRATIONS[..before] {
            connection.execute_batch(sql).unwrap();
        }
        let rows = "pragma foreign_keys = off;
            insert into memory (id, project_id, kind, identity, text, created_at) values
                ('a', 'p', 'note', 'A', 'x', 1), ('b', 'p', 'note', 'A', 'x', 2),
                ('c', 'q', 'note', 'A', 'x', 3);
            insert into embed_intents (memory_id, queued_at) values ('a', 0);";
        connection.execute_batch(rows).unwrap();
        connection
            .pragma_update(None, "user_version", before as i64)
            .unwrap();
        embedded(&mut connection).unwrap();
        let counted: String = connection
            .query_row(
                "select group_concat(project_id || rows || waiting, ' ')
                 from (select * from memory_counts order by 1)",
                [],
                |r| r.get(0),
            )
            .unwrap();
        assert_eq!(counted, "p21 q10");
    }
}
