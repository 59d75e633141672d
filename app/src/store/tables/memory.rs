//! Writing memory: the row, its search text, its edges and its embed intent, at once.

use super::opening::{BOOKKEEPING, CLOSED};
use super::{Result, Tables, beside_its_project, column, failed, held, verdicts, word_counts};
use crate::store::memory::{
    ArtifactChange, ArtifactRow, Author, ConfirmationRow, DeltaRow, Edge, ImportRow, InputRow,
    NewMemory, Node, Row, SignalSummary, Status,
};
use crate::store::sql::{
    self, Connection, FromSql, OptionalExtension, ToSql, params, params_from_iter,
};
use prism_core::api::memory::{ArtifactView, DeltaView, InputView};
use prism_core::id::Quoted;
use prism_core::memory::DeltaKind;
use prism_core::memory::entity::Entity;
use prism_core::memory::operator::Review;
use prism_core::memory::recall::NEIGHBOUR_US;
use prism_core::memory::vector::ASKED_AS;
use prism_core::memory::{EdgeKind, Indexed, Kind};
use prism_core::{Code, Moment, Problem};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

/// A column that says what took a row's place.
const SUPERSEDED_BY: &str =
    "(select s.superseded_by from entity_states s where s.node = artifacts.id) as superseded_by";

impl Tables {
    /// Begins a session with a row of memory: once, whichever server its first verbs come to, and not again after a
    /// crash.
    pub async fn open_session(&self, session: Uuid, first: NewMemory) -> Result<bool> {
        let opened = self
            .write(move |c| {
                let opened = c
                    .prepare_cached(
                        "update sessions set first_verb_at = ? where id = ? and first_verb_at is null",
                    )
                    .and_then(|mut s| s.execute(params![first.by.now.0, session.to_string()]))
                    .map_err(failed)?;
                if opened > 0 {
                    remember(c, first)?;
                }
                Ok(opened > 0)
            })
            .await;
        self.embed_wanted.notify_one();
        opened
    }

    pub async fn remember(&self, new: NewMemory) -> Result<Option<i64>> {
        let number = self.write(move |c| remember(c, new)).await;
        self.embed_wanted.notify_one();
        number
    }

    /// Which lines of a source are in already: our ids, and what the lines said.
    pub async fn imported(
        &self,
        project: Uuid,
        source: String,
        lines: Vec<String>,
    ) -> Result<HashMap<String, (Uuid, String)>> {
        self.read_memory(move |c| {
            let rows = list(
                c,
                "select i.line_id, i.memory_id, i.sha256 from json_each(?3) j cross join imports i on i.project_id = ?1 and i.source = ?2 and i.line_id = j.value",
                params![project.to_string(), source, json(&lines)],
                |r| Ok((r.get::<_, String>("line_id")?, (column::id(r, "memory_id")?, r.get("sha256")?))),
            )?;
            Ok(rows.into_iter().collect())
        })
        .await
    }

    /// Writes a batch of lines, all or none; none, too, when another import brought some of them
    /// since they were looked up.
    pub async fn import(
        &self,
        project: Uuid,
        source: String,
        rows: Vec<ImportRow>,
    ) -> Result<bool> {
        let written = self
            .write(move |c| {
                let lines: Vec<&str> = rows.iter().map(|row| row.line_id.as_str()).collect();
                let in_already: bool = c
                    .prepare_cached(
                        "select exists (select 1 from json_each(?3) j cross join imports i
                            on i.project_id = ?1 and i.source = ?2 and i.line_id = j.value)",
                    )
                    .and_then(|mut s| {
                        let bound = params![project.to_string(), source, json(&lines)];
                        s.query_row(bound, |r| r.get(0))
                    })
                    .map_err(failed)?;
                if in_already {
                    return Ok(false);
                }
                for row in rows {
                    let id = row.new.id.to_string();
                    remember(c, row.new)?;
                    c.prepare_cached("insert into imports (project_id, source, line_id, sha256, memory_id) values (?, ?, ?, ?, ?)")
                        .and_then(|mut s| s.execute(params![project.to_string(), source, row.line_id, row.sha256, id]))
                        .map_err(failed)?;
                }
                Ok(true)
            })
            .await;
        self.embed_wanted.notify_one();
        written
    }

    /// Finds a row of the project by id or unique prefix; the table decides what may be meant.
    pub async fn resolve(
        &self,
        project: Uuid,
        what: &'static str,
        field: &'static str,
        quoted: Quoted,
    ) -> Result<Uuid> {
        self.read_memory(move |c| resolve(c, &project.to_string(), what, field, &quoted))
            .await
    }

    pub async fn delta(&self, project: Uuid, id: Uuid) -> Result<Option<DeltaView>> {
        self.read_memory(move |c| {
            c.query_row(
                "select * from session_deltas where id = ? and project_id = ?",
                [id.to_string(), project.to_string()],
                delta,
            )
            .optional()
            .map_err(failed)
        })
        .await
    }

    pub async fn signal_summary(&self, project: Uuid, id: Uuid) -> Result<Option<SignalSummary>> {
        self.read_memory(move |c| {
            c.query_row(
                "select signal_type, from_identity, to_identity,
                 json_extract(payload, '$.summary') as summary
                 from signal_queue where id = ? and project_id = ?",
                [id.to_string(), project.to_string()],
                |r| {
                    Ok(SignalSummary {
                        signal_type: r.get("signal_type")?,
                        from: r.get("from_identity")?,
                        to: r.get("to_identity")?,
                        summary: r.get("summary")?,
                    })
                },
            )
            .optional()
            .map_err(failed)
        })
        .await
    }

    /// The project's own spec by number, id or prefix; other names are of specs kept elsewhere.
    pub async fn spec_named(&self, project: Uuid, name: String) -> Result<Option<ArtifactView>> {
        self.read_memory(move |c| own_spec(c, &project.to_string(), &name))
            .await
    }

    pub async fn deltas(
        &self,
        project: Uuid,
        since: Option<Moment>,
        kind: Option<String>,
        n: usize,
    ) -> Result<Vec<DeltaView>> {
        self.read_memory(move |c| {
            list(
                c,
                "select * from session_deltas where project_id = ?1 and created_at >= ?2 and (cast(?3 as text) is null or delta_kind = ?3) order by created_at desc limit ?4",
                params![project.to_string(), since.map_or(0, |m| m.0), kind, n as i64],
                delta,
            )
        })
        .await
    }

    pub async fn artifacts(
        &self,
        project: Uuid,
        kind: Kind,
        status: Status,
        n: usize,
    ) -> Result<Vec<ArtifactView>> {
        self.read_memory(move |c| {
            let (shown, status) = match status {
                Status::Any => ("true".to_owned(), None),
                Status::Open => (format!("status not in {CLOSED}"), None),
                Status::Standing => (
                    "not exists (select 1 from entity_states s where s.node = artifacts.id
                        and s.superseded_by is not null)"
                        .to_owned(),
                    None,
                ),
                Status::Is(status) => ("status = ?3".to_owned(), Some(status)),
            };
            list(
                c,
                &format!(
                    "select *, {SUPERSEDED_BY} from artifacts where project_id = ?1
                     and kind = ?2 and {shown} and (cast(?3 as text) is null or ?3 = status)
                     order by coalesce(number, 0) desc, created_at desc limit ?4"
                ),
                params![project.to_string(), kind.name(), status, n as i64],
                artifact,
            )
        })
        .await
    }

    /// One numbered thing, as it is or as it was in an earlier version.
    pub async fn artifact(
        &self,
        project: Uuid,
        kind: Kind,
        number: i64,
        version: Option<i64>,
    ) -> Result<ArtifactView> {
        self.read_memory(move |c| {
            let mut found = numbered(c, project, kind, number)?;
            if let Some(version) = version.filter(|v| *v != found.version) {
                let old = c
                    .query_row(
                        "select * from artifact_versions where artifact_id = ? and version = ?",
                        params![found.id.to_string(), version],
                        |r| {
                            Ok((
                                r.get::<_, String>("title")?,
                                r.get::<_, String>("body")?,
                                r.get::<_, String>("status")?,
                            ))
                        },
                    )
                    .optional()
                    .map_err(failed)?;
                let (title, body, status) = old.ok_or_else(|| {
                    Problem::new(
                        Code::UnknownReference,
                        format!("{kind} {number} has no version {version}"),
                        format!("it has 1 to {}", found.version),
                    )
                })?;
                found = ArtifactView {
                    title,
                    body,
                    status,
                    version,
                    ..found
                };
            }
            Ok(found)
        })
        .await
    }

    pub async fn change_artifact(
        &self,
        change: ArtifactChange,
        indexed: impl Fn(&ArtifactView) -> (Indexed, Vec<Entity>) + Clone + Send + 'static,
    ) -> Result<ArtifactView> {
        let changed = self
            .write(move |c| change_artifact(c, change, indexed))
            .await;
        self.embed_wanted.notify_one();
        changed
    }

    pub async fn inputs(
        &self,
        project: Uuid,
        review: Option<String>,
        n: usize,
    ) -> Result<Vec<InputView>> {
        self.read_memory(move |c| {
            list(
                c,
                "select * from operator_inputs where project_id = ?1 and (cast(?2 as text) is null or coalesce(operator_review, 'unreviewed') = ?2) order by captured_at desc limit ?3",
                params![project.to_string(), review, n as i64],
                input,
            )
        })
        .await
    }

    /// Reviews inputs, all or none; a rejected one leaves recall, an undone one returns.
    pub async fn review(
        &self,
        project: Uuid,
        ids: Vec<String>,
        review: Option<Review>,
        now: Moment,
    ) -> Result<Vec<Uuid>> {
        let reviewed = self
            .write(move |c| {
                let mut reviewed = Vec::new();
                for quoted in ids {
                    let id = resolve(
                        c,
                        &project.to_string(),
                        "operator_inputs",
                        "ids",
                        &Quoted::parse("ids", &quoted)?,
                    )?;
                    let standing: Option<String> = c
                        .query_row(
                            "select operator_review from operator_inputs where id = ?",
                            [id.to_string()],
                            |r| r.get(0),
                        )
                        .map_err(failed)?;
                    match (review, standing) {
                        (Some(_), Some(was)) => {
                            return Err(Problem::new(
                                Code::Conflict,
                                format!("{quoted} was {was} already"),
                                format!("`prism review {quoted} --undo` takes that back first"),
                            )
                            .into());
                        }
                        (None, None) => {
                            return Err(Problem::new(
                                Code::Conflict,
                                format!("{quoted} was not reviewed"),
                                "there is nothing to undo",
                            )
                            .into());
                        }
                        _ => {}
                    }
                    c.execute(
                    "update operator_inputs set operator_review = ?, reviewed_at = ? where id = ?",
                    params![
                        review.map(Review::name),
                        review.map(|_| now.0),
                        id.to_string()
                    ],
                )
                .map_err(failed)?;
                    hide(c, id, review == Some(Review::Rejected), now)?;
                    reviewed.push(id);
                }
                Ok(reviewed)
            })
            .await;
        self.embed_wanted.notify_one();
        reviewed
    }
}

/// Takes a row out of recall, or brings it back. What was embedded in its context is embedded anew:
/// the row after it in its session, and rows that speak of it.
fn hide(c: &Connection, id: Uuid, hidden: bool, now: Moment) -> Result<()> {
    let id = id.to_string();
    let changed = c
        .execute(
            "update memory set hidden = ?1 where id = ?2 and hidden <> ?1",
            params![hidden, id],
        )
        .map_err(failed)?;
    if changed == 0 {
        return Ok(());
    }
    c.execute(
        "insert into embed_intents (memory_id, queued_at)
         select m.id, ?2 from edges e cross join memory m on m.id = e.src
             where e.dst = ?1 and e.kind in ('CONFIRMS', 'LABELS', 'SUPERSEDES')
         union select id, ?2 from (select n.id from memory m cross join memory n
             indexed by ix_memory_session on n.session_id = m.session_id
             and n.created_at > m.created_at and n.created_at <= m.created_at + ?3
             where m.id = ?1 order by n.created_at limit 1)
         where true on conflict (memory_id) do update set queued_at = excluded.queued_at, attempts = 0",
        params![id, now.0, NEIGHBOUR_US],
    )
    .map_err(failed)?;
    Ok(())
}

pub(super) fn list<T>(
    c: &Connection,
    sql: &str,
    bound: &[&dyn ToSql],
    map: impl FnMut(&sql::Row<'_>) -> sql::Result<T>,
) -> Result<Vec<T>> {
    let mut statement = c.prepare_cached(sql).map_err(failed)?;
    let rows = statement.query_map(bound, map).map_err(failed)?;
    rows.collect::<sql::Result<_>>().map_err(failed)
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".into())
}

pub(super) fn remember(c: &Connection, new: NewMemory) -> Result<Option<i64>> {
    let (id, project) = (new.id.to_string(), new.by.project_id.to_string());
    // What is asked of it goes to the database along with it, and is looked at before anything of it stays.
    let ends = ends_with(&new);
    if let Some(session) = ends {
        c.ahead(OVER, [session.to_string()]).map_err(failed)?;
    }
    // Where a question is no way to the database and back, it is asked before anything is written. Elsewhere a row
    // of memory is refused by its reference to the project, and only what has none is asked about.
    if matches!(c, Connection::Sqlite(_)) || new.indexed.is_none() {
        in_its_project(c, &project)?;
    }
    match &new.row {
        Row::Delta(row) => insert_delta(c, &id, &new.by, row)?,
        Row::Confirmation(row) => insert_confirmation(c, &id, &new.by, row)?,
        Row::Input(row) => insert_input(c, &id, &new.by, row)?,
        Row::Artifact(row) => insert_artifact(c, &id, &new.by, row)?,
    }
    name(c, &project, &new.entities, &new.edges)?;
    if let Some(indexed) = &new.indexed {
        index(
            c,
            &id,
            &new.by,
            new.by.session_id.or(new.imported_session),
            indexed,
        )?;
    }
    if let Some(session) = ends
        && one(c, OVER, &session.to_string())? == Some(true)
    {
        // Released is for good: what a session says of its work comes before that, or not at all.
        return Err(Problem::session_over().into());
    }
    let number = match &new.row {
        Row::Artifact(row) if row.numbered => one(c, NUMBER, &id)?,
        _ => None,
    };
    connect(c, &id, &new.by, &new.entities, &new.edges)?;
    if matches!(new.row, Row::Confirmation(_)) {
        for edge in new.edges.iter().filter(|e| e.kind == EdgeKind::Confirms) {
            verdicts::set_cue(c, &project, &node_id(c, &project, &edge.dst)?)?;
        }
    }
    c.put(
        "insert into entity_states (node, valid_from) values (?, ?) on conflict do nothing",
        params![id, new.by.now.0],
    )
    .map_err(failed)?;
    if let Some(old) = new.supersedes {
        supersede(c, &id, &old.to_string(), &new.by)?;
    }
    Ok(number)
}

/// What is asked of a new row, by an id.
const PROJECT: &str = "select count(*) from projects where id = ?";
const OVER: &str = "select released_at is not null from sessions where id = ?";
const NUMBER: &str = "select number from artifacts where id = ?";
const ENTITY: &str = "select id from entities where project_id = ? and type = ? and name = ?";

/// What a session did last.
fn newest_delta() -> String {
    format!(
        "select id from session_deltas where session_id = ?
         and delta_kind not in {BOOKKEEPING} order by created_at desc limit 1"
    )
}

fn one<T: FromSql>(c: &Connection, sql: &str, id: &str) -> Result<Option<T>> {
    c.prepare_cached(sql)
        .and_then(|mut s| s.query_row([id], |r| r.get(0)).optional())
        .map_err(failed)
}

fn in_its_project(c: &Connection, project: &str) -> Result<()> {
    let projects: i64 = one(c, PROJECT, project)?.unwrap_or_default();
    beside_its_project(projects as usize)
}

/// The session of which a row says that its work has come to an end, or so far.
fn ends_with(new: &NewMemory) -> Option<Uuid> {
    let ends = matches!(&new.row, Row::Delta(row)
        if matches!(row.kind, DeltaKind::Wrap | DeltaKind::Checkpoint));
    new.by.session_id.filter(|_| ends)
}

fn insert_delta(c: &Connection, id: &str, by: &Author, d: &DeltaRow) -> Result<()> {
    c.put(
        "insert into session_deltas (id, tenant_id, project_id, session_id, identity, surface, delta_kind, summary, next, open_loops, touched_files, touched_files_source,
            operator_visible_effect, tried_and_ruled_out, subject, tags, operator_sees, pieces, would_break_it, created_at)
         select ?1, tenant_id, id, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18 from projects where id = ?19",
        params![
            id,
            by.session_id.map(|s| s.to_string()),
            by.identity.as_str(),
            by.surface,
            d.kind.name(),
            d.summary,
            d.next,
            json(&d.open_loops),
            json(&d.touched_files),
            d.touched_files_source,
            d.operator_visible_effect,
            json(&d.tried_and_ruled_out),
            d.subject,
            json(&d.tags),
            d.operator_sees,
            json(&d.pieces),
            d.would_break_it,
            by.now.0,
            by.project_id.to_string()
        ],
    )
    .map_err(failed)
}

fn insert_confirmation(c: &Connection, id: &str, by: &Author, r: &ConfirmationRow) -> Result<()> {
    c.put(
        "insert into operator_confirmations (id, tenant_id, project_id, session_id, refers_to_kind, refers_to_id, verdict, notes, confirmed_by, confirmed_via, directness, on_own_delta, confirmed_at)
         select ?1, tenant_id, id, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11 from projects where id = ?12",
        params![
            id,
            by.session_id.map(|s| s.to_string()),
            r.refers_to_kind,
            r.refers_to_id,
            r.verdict.name(),
            r.notes,
            r.confirmed_by,
            r.confirmed_via,
            r.directness.name(),
            r.on_own_delta,
            by.now.0,
            by.project_id.to_string()
        ],
    )
    .map_err(failed)
}

fn insert_input(c: &Connection, id: &str, by: &Author, r: &InputRow) -> Result<()> {
    c.put(
        "insert into operator_inputs (id, tenant_id, project_id, session_id, captured_via,
            captured_at, class, prompt_text, triggered_action, reverses_delta, confidence, surface)
         select ?1, tenant_id, id, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 from projects where id = ?11",
        params![
            id,
            by.session_id.map(|s| s.to_string()),
            by.identity.as_str(),
            by.now.0,
            r.class.name(),
            r.prompt_text,
            r.triggered_action,
            r.reverses_delta.map(|d| d.to_string()),
            r.confidence.name(),
            by.surface,
            by.project_id.to_string()
        ],
    )
    .map_err(failed)
}

/// Numbers come from inside the transaction, so two writers never get the same one.
fn insert_artifact(c: &Connection, id: &str, by: &Author, a: &ArtifactRow) -> Result<()> {
    c.put(
        "insert into artifacts (id, tenant_id, project_id, session_id, kind, number, title, body, fields, status, identity, created_at, updated_at)
         select ?1, tenant_id, id, ?2, ?3, case when ?4 = 1 then
                (select coalesce(max(a.number), 0) + 1 from artifacts a where a.project_id = ?11 and a.kind = ?3) end,
            ?5, ?6, ?7, ?8, ?9, ?10, ?10 from projects where id = ?11",
        params![
            id,
            by.session_id.map(|s| s.to_string()),
            a.kind.name(),
            a.numbered,
            a.title,
            a.body,
            json(&a.fields),
            a.status,
            by.identity.as_str(),
            by.now.0,
            by.project_id.to_string()
        ],
    )
    .map_err(failed)?;
    if a.numbered {
        c.ahead(NUMBER, [id]).map_err(failed)?;
    }
    keep_version(c, id, by)
}

fn keep_version(c: &Connection, id: &str, by: &Author) -> Result<()> {
    c.put(
        "insert into artifact_versions (artifact_id, version, title, body, status, identity, created_at) select id, version, title, body, status, ?2, ?3 from artifacts where id = ?1",
        params![id, by.identity.as_str(), by.now.0],
    )
    .map_err(failed)?;
    Ok(())
}

/// Writes the search text, the fields and the intent to embed them.
fn index(
    c: &Connection,
    id: &str,
    by: &Author,
    session: Option<Uuid>,
    indexed: &Indexed,
) -> Result<()> {
    let written = "insert into memory (id, project_id, session_id, kind, identity, title, text,
            created_at, cues, words, also)
        values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) returning rowid";
    let row: i64 = c
        .prepare_cached(written)
        .and_then(|mut s| {
            s.query_row(
                params![
                    id,
                    by.project_id.to_string(),
                    session.map(|s| s.to_string()),
                    indexed.kind.name(),
                    by.identity.as_str(),
                    indexed.title,
                    indexed.text,
                    by.now.0,
                    indexed.cues,
                    indexed.words() as i64,
                    indexed.also
                ],
                |r| r.get(0),
            )
        })
        .map_err(failed)?;
    write_text(c, row, id, indexed)?;
    word_counts::written(c, row)?;
    c.put(
        "insert into embed_intents (memory_id, queued_at) values (?, ?) on conflict (memory_id) do update set queued_at = excluded.queued_at",
        params![id, by.now.0],
    )
    .map_err(failed)
}

fn write_text(c: &Connection, rowid: i64, id: &str, indexed: &Indexed) -> Result<()> {
    let body = format!("{}\n{}", indexed.text, indexed.also);
    held::add(c, rowid, indexed.title.as_deref(), &body, &indexed.label)?;
    let fields = indexed.fields.iter().enumerate();
    let fields = fields.map(|(ordinal, field)| {
        let (name, text) = (field.name.to_owned(), field.text.clone());
        [
            id.to_owned().into(),
            name.into(),
            (ordinal as i64).into(),
            text.into(),
        ]
    });
    put_rows(
        c,
        "insert into memory_fields (memory_id, field, ordinal, text)",
        fields,
        "",
    )
}

/// Rows that go into one statement, at the most: each has its own for every number of them.
const ROWS_TOGETHER: usize = 8;

/// Writes rows, a few with each statement: where that goes to a database, each takes its time.
fn put_rows<const N: usize>(
    c: &Connection,
    into: &str,
    rows: impl IntoIterator<Item = [sql::Value; N]>,
    then: &str,
) -> Result<()> {
    let rows: Vec<[sql::Value; N]> = rows.into_iter().collect();
    let row = format!("({})", ["?"; N].join(", "));
    for some in rows.chunks(ROWS_TOGETHER) {
        let places = vec![row.as_str(); some.len()].join(", ");
        let values = params_from_iter(some.iter().flatten().cloned());
        c.put(&format!("{into} values {places} {then}"), values)
            .map_err(failed)?;
    }
    Ok(())
}

fn connect(
    c: &Connection,
    id: &str,
    by: &Author,
    entities: &[Entity],
    edges: &[Edge],
) -> Result<()> {
    let project = by.project_id.to_string();
    let edge = |src: &str, kind: EdgeKind, dst: String| {
        let (src, kind) = (src.to_owned(), kind.name().to_owned());
        let project = project.clone();
        [
            src.into(),
            kind.into(),
            dst.into(),
            project.into(),
            by.now.0.into(),
        ]
    };
    let mut rows = Vec::new();
    for entity in entities {
        let dst = entity_node(c, &project, entity)?;
        rows.push(edge(id, EdgeKind::Mentions, dst));
    }
    for e in edges {
        let dst = node_id(c, &project, &e.dst)?;
        rows.push(edge(e.src.as_deref().unwrap_or(id), e.kind, dst));
    }
    put_rows(
        c,
        "insert into edges (src, kind, dst, project_id, created_at)",
        rows,
        "on conflict do nothing",
    )
}

/// A node as it stands in the graph, once it is named.
fn node_id(c: &Connection, project: &str, node: &Node) -> Result<String> {
    match node {
        Node::Id(id) => Ok(id.clone()),
        Node::Entity(entity) => entity_node(c, project, entity),
        Node::Work(session) => {
            let session = session.to_string();
            let newest: Option<String> = one(c, &newest_delta(), &session)?;
            Ok(newest.unwrap_or_else(|| format!("session:{session}")))
        }
    }
}

/// What nobody has named before gets its number, and all are asked for.
fn name(c: &Connection, project: &str, entities: &[Entity], edges: &[Edge]) -> Result<()> {
    let mut named: Vec<&Entity> = entities.iter().collect();
    for edge in edges {
        match &edge.dst {
            Node::Entity(entity) => named.push(entity),
            Node::Work(session) => c
                .ahead(&newest_delta(), [session.to_string()])
                .map_err(failed)?,
            Node::Id(_) => {}
        }
    }
    let rows = named.iter().map(|entity| {
        let (kind, name) = (entity.kind.name().to_owned(), entity.name.clone());
        [project.to_owned().into(), kind.into(), name.into()]
    });
    put_rows(
        c,
        "insert into entities (project_id, type, name)",
        rows,
        "on conflict do nothing",
    )?;
    for entity in named {
        let known = params![project, entity.kind.name(), entity.name];
        c.ahead(ENTITY, known).map_err(failed)?;
    }
    Ok(())
}

fn entity_node(c: &Connection, project: &str, entity: &Entity) -> Result<String> {
    let id: i64 = c
        .prepare_cached(ENTITY)
        .and_then(|mut s| {
            s.query_row(params![project, entity.kind.name(), entity.name], |r| {
                r.get(0)
            })
        })
        .map_err(failed)?;
    Ok(format!("entity:{id}"))
}

/// Ends the old row's time and points it at the new one; a cycle is refused.
fn supersede(c: &Connection, new: &str, old: &str, by: &Author) -> Result<()> {
    let mut at = Some(new.to_owned());
    while let Some(node) = at {
        if node == old {
            return Err(Problem::new(
                Code::Conflict,
                "this would supersede a row that supersedes it",
                "name the row that is really older",
            )
            .into());
        }
        at = c
            .query_row(
                "select superseded_by from entity_states where node = ?",
                [&node],
                |r| r.get::<_, Option<String>>(0),
            )
            .optional()
            .map_err(failed)?
            .flatten();
    }
    let standing: Option<Option<String>> = c
        .query_row(
            "select superseded_by from entity_states where node = ?",
            [old],
            |r| r.get(0),
        )
        .optional()
        .map_err(failed)?;
    if let Some(Some(by)) = standing {
        return Err(Problem::new(
            Code::Conflict,
            format!("{} was superseded by {} already", &old[..8], &by[..8]),
            "supersede the newer one",
        )
        .into());
    }
    c.execute(
        "insert into entity_states (node, valid_from, valid_until, superseded_by) values (?1, 0, ?2, ?3) on conflict (node) do update set valid_until = ?2, superseded_by = ?3",
        params![old, by.now.0, new],
    )
    .map_err(failed)?;
    connect(
        c,
        new,
        by,
        &[],
        &[Edge {
            src: None,
            kind: EdgeKind::Supersedes,
            dst: Node::Id(old.to_owned()),
        }],
    )
}

pub(super) fn own_spec(c: &Connection, project: &str, name: &str) -> Result<Option<ArtifactView>> {
    let number = Entity::spec(name).name.parse::<i64>().ok();
    let numbered = c
        .query_row(
            "select * from artifacts where project_id = ? and kind = 'spec' and number = ?",
            params![project, number],
            artifact,
        )
        .optional()
        .map_err(failed)?;
    let (None, Ok(quoted)) = (&numbered, Quoted::parse("spec", name)) else {
        return Ok(numbered);
    };
    let mut found = list(
        c,
        "select * from artifacts where id >= ? and id < ? and project_id = ? and kind = 'spec'
         limit 2",
        params![quoted.prefix(), quoted.upper(), project],
        artifact,
    )?;
    if found.len() > 1 {
        return Err(Problem::new(
            Code::Ambiguous,
            format!("{} begins more than one spec's id", quoted.prefix()),
            "quote more digits, or name the spec by its number",
        )
        .into());
    }
    Ok(found.pop())
}

pub(super) fn resolve(
    c: &Connection,
    project: &str,
    table: &str,
    field: &str,
    quoted: &Quoted,
) -> Result<Uuid> {
    // The id finds it: what else the project has is not to be read.
    let sql =
        format!("select id from {table} where id >= ? and id < ? and +project_id = ? limit 2");
    let ids = list(
        c,
        &sql,
        params![quoted.prefix(), quoted.upper(), project],
        |r| column::id(r, "id"),
    )?;
    let what = match table {
        "session_deltas" => "delta",
        "signal_queue" => "signal",
        "operator_inputs" => "operator input",
        "memory_recall_events" => "recall",
        "sessions" => "session",
        _ => "row",
    };
    let unknown = if table == "sessions" {
        Code::UnknownSession
    } else {
        Code::UnknownReference
    };
    match ids.as_slice() {
        [id] => Ok(*id),
        [] => Err(Problem::new(
            unknown,
            format!("`{field}`: no {what} {} in this project", quoted.prefix()),
            "check the id; `prism recall` and `prism_deltas` show ids",
        )
        .into()),
        _ => Err(Problem::new(
            Code::Ambiguous,
            format!(
                "`{field}`: {} begins more than one {what}'s id",
                quoted.prefix()
            ),
            "quote more digits",
        )
        .into()),
    }
}

fn numbered(c: &Connection, project: Uuid, kind: Kind, number: i64) -> Result<ArtifactView> {
    c.query_row(
        "select * from artifacts where project_id = ? and kind = ? and number = ?",
        params![project.to_string(), kind.name(), number],
        artifact,
    )
    .optional()
    .map_err(failed)?
    .ok_or_else(|| {
        Problem::new(
            Code::UnknownReference,
            format!("there is no {kind} {number} in this project"),
            "`action: list` shows them",
        )
        .into()
    })
}

fn change_artifact(
    c: &Connection,
    change: ArtifactChange,
    indexed: impl Fn(&ArtifactView) -> (Indexed, Vec<Entity>),
) -> Result<ArtifactView> {
    let mut item = numbered(c, change.by.project_id, change.kind, change.number)?;
    item.title = change.title.unwrap_or(item.title);
    item.body = change.body.unwrap_or(item.body);
    item.status = change.status.unwrap_or(item.status);
    item.fields.extend(change.fields);
    item.version += 1;
    item.updated_at = change.by.now;
    let id = item.id.to_string();
    c.execute(
        "update artifacts set title = ?, body = ?, fields = ?, status = ?, version = ?, updated_at = ? where id = ?",
        params![item.title, item.body, json(&item.fields), item.status, item.version, change.by.now.0, id],
    )
    .map_err(failed)?;
    keep_version(c, &id, &change.by)?;
    let (indexed, entities) = indexed(&item);
    reindex(c, &id, change.by.now, &indexed)?;
    name(c, &change.by.project_id.to_string(), &entities, &[])?;
    connect(c, &id, &change.by, &entities, &[])?;
    Ok(item)
}

/// Replaces a row's search text; it is embedded again.
pub(super) fn reindex(c: &Connection, id: &str, now: Moment, indexed: &Indexed) -> Result<()> {
    let rowid: i64 = c
        .query_row("select rowid from memory where id = ?", [id], |r| r.get(0))
        .map_err(failed)?;
    // What a row is said to answer it answers in its next version as well.
    let asked = list(
        c,
        "select text from memory_fields where memory_id = ? and field = ? order by ordinal",
        params![id, ASKED_AS],
        |r| r.get::<_, String>(0),
    )?;
    let indexed = &indexed.clone().asked_as(asked);
    word_counts::before_change(c, rowid)?;
    c.execute("delete from memory_fts where rowid = ?", [rowid])
        .map_err(failed)?;
    c.execute("delete from memory_fields where memory_id = ?", [id])
        .map_err(failed)?;
    c.execute(
        "update memory set title = ?, text = ?, cues = ?, words = ?, also = ? where id = ?",
        params![
            indexed.title,
            indexed.text,
            indexed.cues,
            indexed.words() as i64,
            indexed.also,
            id
        ],
    )
    .map_err(failed)?;
    write_text(c, rowid, id, indexed)?;
    word_counts::after_change(c, rowid)?;
    c.execute(
        "insert into embed_intents (memory_id, queued_at) values (?, ?)
         on conflict (memory_id) do update set queued_at = excluded.queued_at",
        params![id, now.0],
    )
    .map_err(failed)?;
    Ok(())
}

fn parsed<T: serde::de::DeserializeOwned + Default>(
    row: &sql::Row<'_>,
    name: &str,
) -> sql::Result<T> {
    Ok(serde_json::from_str(&row.get::<_, String>(name)?).unwrap_or_default())
}

pub(super) fn delta(row: &sql::Row<'_>) -> sql::Result<DeltaView> {
    Ok(DeltaView {
        id: column::id(row, "id")?,
        kind: row.get("delta_kind")?,
        identity: row.get("identity")?,
        surface: row.get("surface")?,
        created_at: column::moment(row, "created_at")?,
        summary: row.get("summary")?,
        next: row.get("next")?,
        open_loops: parsed(row, "open_loops")?,
        operator_visible_effect: row.get("operator_visible_effect")?,
        tried_and_ruled_out: parsed(row, "tried_and_ruled_out")?,
        subject: row.get("subject")?,
        tags: parsed(row, "tags")?,
        operator_sees: row.get("operator_sees")?,
        pieces: parsed(row, "pieces")?,
        would_break_it: row.get("would_break_it")?,
        touched_files: parsed(row, "touched_files")?,
        session_id: column::opt_id(row, "session_id")?,
        more: BTreeMap::new(),
    })
}

pub(super) fn artifact(row: &sql::Row<'_>) -> sql::Result<ArtifactView> {
    let fields: Value = parsed(row, "fields")?;
    Ok(ArtifactView {
        id: column::id(row, "id")?,
        kind: row.get("kind")?,
        number: row.get("number")?,
        title: row.get("title")?,
        body: row.get("body")?,
        status: row.get("status")?,
        version: row.get("version")?,
        identity: row.get("identity")?,
        created_at: column::moment(row, "created_at")?,
        updated_at: column::moment(row, "updated_at")?,
        fields: fields.as_object().cloned().unwrap_or_default(),
        // Asked for by lists only.
        superseded_by: column::opt_id(row, "superseded_by").unwrap_or_default(),
        more: BTreeMap::new(),
    })
}

pub(super) fn input(row: &sql::Row<'_>) -> sql::Result<InputView> {
    Ok(InputView {
        id: column::id(row, "id")?,
        class: row.get("class")?,
        prompt_text: row.get("prompt_text")?,
        triggered_action: row.get("triggered_action")?,
        reverses_delta: column::opt_id(row, "reverses_delta")?,
        confidence: row.get("confidence")?,
        captured_via: row.get("captured_via")?,
        surface: row.get("surface")?,
        captured_at: column::moment(row, "captured_at")?,
        operator_review: row.get("operator_review")?,
        more: BTreeMap::new(),
    })
}
