//! Importing rows from a file: checked, resolved and written a batch at a time, all or nothing.

use super::row::{self, Narrative, New};
use crate::clock;
use crate::prism::{Caller, Prism};
use crate::store::Table;
use crate::store::memory::{
    ConfirmationRow, DeltaRow, Edge, ImportRow, InputRow, NewMemory, Row, Writer,
};
use prism_core::api::memory::{Import, Imported, RuledOut};
use prism_core::id::Quoted;
use prism_core::memory::entity::find;
use prism_core::memory::import::{Line, NOT_SAID, target, without_nulls};
use prism_core::memory::operator::{Class, Confidence, Directness, Verdict};
use prism_core::memory::reference::{RefKind, Reference};
use prism_core::memory::{DeltaKind, EdgeKind, Indexed, Kind, LIST_ITEMS_MAX, optional, required};
use prism_core::signal::sha256_hex;
use prism_core::{Code, Identity, Problem, text};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

/// Lines of one batch.
const BATCH_LINES_MAX: usize = 500;
/// Characters of a source's name and of a line's own id.
const NAME_CHARS_MAX: usize = 300;

/// What earlier lines of the same source became.
struct Known {
    ids: HashMap<String, Uuid>,
    /// What this batch has built so far, by our id.
    rows: HashMap<Uuid, Built>,
}

#[derive(Clone)]
struct Built {
    identity: String,
    words: String,
    is_delta: bool,
}

pub async fn import(prism: &Prism, caller: &Caller, request: Import) -> Result<Imported, Problem> {
    let source = required("source", &request.source)?;
    if source.chars().count() > NAME_CHARS_MAX {
        return Err(Problem::field(
            "source",
            format!("may have {NAME_CHARS_MAX} characters"),
        ));
    }
    if request.lines.len() > BATCH_LINES_MAX {
        return Err(Problem::field(
            "lines",
            format!("has {} and may have {BATCH_LINES_MAX}", request.lines.len()),
        ));
    }
    let mut lines = Vec::with_capacity(request.lines.len());
    for given in &request.lines {
        let line = read(&given.row).map_err(|p| at(given.line, p))?;
        lines.push((
            given.line,
            sha256_hex(given.row.to_string().as_bytes()),
            line,
        ));
    }
    let wanted = lines
        .iter()
        .flat_map(|(_, _, l)| {
            l.references()
                .map(target)
                .chain([l.id.as_str()])
                .map(str::to_owned)
        })
        .collect();
    let found = prism
        .store
        .imported(caller.project.id, source.clone(), wanted)
        .await?;
    let mut known = Known {
        ids: found.iter().map(|(id, row)| (id.clone(), row.0)).collect(),
        rows: HashMap::new(),
    };
    let (mut new, mut answer) = (
        Vec::new(),
        Imported {
            imported: 0,
            known: 0,
            changed: Vec::new(),
            ids: BTreeMap::new(),
        },
    );
    for (number, sha256, line) in lines {
        if let Some((id, was)) = found.get(&line.id) {
            answer.known += 1;
            if *was != sha256 {
                answer.changed.push(line.id.clone());
            }
            answer.ids.insert(line.id, *id);
            continue;
        }
        if known.ids.contains_key(&line.id) {
            return Err(at(
                number,
                Problem::field(
                    "id",
                    format!(
                        "{:?} is the id of an earlier line",
                        text::clip(&line.id, 60)
                    ),
                ),
            ));
        }
        let id = clock::new_id();
        let built = build(
            prism,
            caller,
            &source,
            &line,
            id,
            &mut known,
            request.dry_run,
        )
        .await
        .map_err(|p| at(number, p))?;
        known.ids.insert(line.id.clone(), id);
        let words = built
            .indexed
            .as_ref()
            .map(|i| i.text.clone())
            .unwrap_or_default();
        known.rows.insert(
            id,
            Built {
                identity: line.identity.clone(),
                words,
                is_delta: matches!(built.row, Row::Delta(_)),
            },
        );
        answer.ids.insert(line.id.clone(), id);
        answer.imported += 1;
        new.push(ImportRow {
            line_id: line.id,
            sha256,
            new: built,
        });
    }
    if request.dry_run {
        answer.ids.clear();
        return Ok(answer);
    }
    prism.store.import(caller.project.id, source, new).await?;
    Ok(answer)
}

/// Says in which line of the file it was.
fn at(line: u64, problem: Problem) -> Problem {
    Problem {
        message: format!("line {line}: {}", problem.message),
        ..problem
    }
}

fn read(row: &Value) -> Result<Line, Problem> {
    let line: Line = serde_path_to_error::deserialize(without_nulls(row)).map_err(|e| {
        let place = e.path().to_string();
        Problem::new(
            Code::InvalidRequest,
            format!("`{place}`: {}", e.inner()),
            "mend the line and import the file again: what is in already is not written twice",
        )
    })?;
    for (field, value) in [
        ("id", &line.id),
        ("kind", &line.kind),
        ("identity", &line.identity),
    ] {
        if value.trim().is_empty() {
            return Err(Problem::field(field, "must be there"));
        }
    }
    if line.id.chars().count() > NAME_CHARS_MAX {
        return Err(Problem::field(
            "id",
            format!("may have {NAME_CHARS_MAX} characters"),
        ));
    }
    if line.created_at.is_none() {
        return Err(Problem::field("created_at", "must be there"));
    }
    for (field, n) in [
        ("open_loops", line.open_loops.len()),
        ("touched_files", line.touched_files.len()),
        ("pieces", line.pieces.len()),
        ("tags", line.tags.len()),
    ] {
        if n > LIST_ITEMS_MAX {
            return Err(Problem::field(
                field,
                format!("has {n} items and may have {LIST_ITEMS_MAX}"),
            ));
        }
    }
    Ok(line)
}

async fn build(
    prism: &Prism,
    caller: &Caller,
    source: &str,
    line: &Line,
    id: Uuid,
    known: &mut Known,
    dry_run: bool,
) -> Result<NewMemory, Problem> {
    let identity = Identity::parse(&line.identity)?;
    let identity = if dry_run {
        identity
    } else {
        prism
            .ensure_persona(&caller.project, &identity)
            .await?
            .0
            .identity
    };
    let by = Writer {
        project_id: caller.project.id,
        session_id: None,
        identity: identity.clone(),
        surface: line.surface.clone().unwrap_or_else(|| "other".into()),
        now: line.created_at.unwrap_or_default(),
    };
    let look = Look {
        prism,
        caller,
        dry_run,
    };
    let (mut edges, name) = (Vec::new(), identity.as_str());
    let (row, indexed) = match line.kind.as_str() {
        kind @ ("wrap" | "checkpoint") => {
            let row = delta(
                &look,
                line,
                known,
                if kind == "wrap" {
                    DeltaKind::Wrap
                } else {
                    DeltaKind::Checkpoint
                },
            )
            .await?;
            edges = row::attempts_to_edges(id, &row.tried_and_ruled_out);
            let indexed = row::delta(Kind::of_delta(row.kind).unwrap_or(Kind::Other), name, &row);
            (Row::Delta(row), indexed)
        }
        "note" => row::words(
            DeltaKind::Note,
            name,
            spoken(line, "text")?,
            subject(line)?,
            line.tags.clone(),
        ),
        "other" => row::words(
            DeltaKind::Other,
            name,
            spoken(line, "text")?,
            subject(line)?,
            line.tags.clone(),
        ),
        "fact" => row::standing(
            Kind::Fact,
            name,
            spoken(line, "text")?,
            subject(line)?,
            &line.tags,
        ),
        "rule" => row::standing(
            Kind::Rule,
            name,
            spoken(line, "text")?,
            subject(line)?,
            &line.tags,
        ),
        "integration_narrative" => narrative(&look, line, name, known, &mut edges).await?,
        "confirmation" => confirmation(&look, line, &by, known, &mut edges).await?,
        "operator_input" => input(&look, line, name, known, &mut edges).await?,
        kind => artifact(kind, line, name)?,
    };
    let supersedes = match &line.supersedes {
        Some(reference) => {
            look.up(known, "supersedes", reference, Table::Memory)
                .await?
        }
        None => None,
    };
    let mut names: Vec<String> = prism
        .directory
        .personas(caller.project.id)
        .iter()
        .map(|p| p.identity.to_string())
        .collect();
    names.push(name.to_owned());
    let entities = find(
        &format!(
            "{} {} {}",
            indexed.title.as_deref().unwrap_or_default(),
            indexed.text,
            line.touched_files.join(" ")
        ),
        &names,
    );
    // People do not quote this id; it only has to be the same for the same session.
    let session = line
        .session
        .as_ref()
        .map(|s| sha256_hex(format!("{}/{source}/{s}", caller.project.id).as_bytes()));
    let imported_session = session.and_then(|hash| Uuid::parse_str(&hash[..32]).ok());
    Ok(NewMemory {
        id,
        by,
        row,
        indexed: Some(indexed),
        entities,
        edges,
        supersedes,
        imported_session,
    })
}

/// Looks references up: lines of this file first, then rows that are here already.
struct Look<'a> {
    prism: &'a Prism,
    caller: &'a Caller,
    /// Nothing was written, so nothing can be found; the file's own references were checked where
    /// it was read.
    dry_run: bool,
}

impl Look<'_> {
    async fn up(
        &self,
        known: &Known,
        field: &'static str,
        reference: &str,
        table: Table,
    ) -> Result<Option<Uuid>, Problem> {
        if let Some(id) = known.ids.get(target(reference)) {
            return Ok(Some(*id));
        }
        if self.dry_run {
            return Ok(None);
        }
        let quoted = Quoted::parse(field, target(reference)).map_err(|_| {
            Problem::field(
                field,
                format!(
                    "{:?} is neither a line of this file nor the id of a row",
                    text::clip(reference, 60)
                ),
            )
        })?;
        Ok(Some(
            self.prism
                .store
                .resolve(self.caller.project.id, table, field, quoted)
                .await?,
        ))
    }

    /// What a node is, when it is a line of this batch or a delta that is here already.
    async fn built(&self, known: &Known, node: &str) -> Result<Option<Built>, Problem> {
        let Ok(id) = node.parse::<Uuid>() else {
            return Ok(None);
        };
        if let Some(built) = known.rows.get(&id) {
            return Ok(Some(built.clone()));
        }
        Ok(self.prism.store.delta(id).await?.map(|d| Built {
            identity: d.identity,
            words: d.summary,
            is_delta: true,
        }))
    }

    /// A node of the graph: a row, or a signal, spec or commit by its name.
    async fn node(
        &self,
        known: &Known,
        field: &'static str,
        reference: &str,
    ) -> Result<Option<(RefKind, String)>, Problem> {
        if let Some(id) = known.ids.get(target(reference)) {
            return Ok(Some((RefKind::Delta, id.to_string())));
        }
        let parsed = Reference::parse_loose(field, reference);
        match parsed {
            Ok(Reference::Spec(name)) => Ok(Some((RefKind::Spec, format!("spec:{name}")))),
            Ok(Reference::Commit(sha)) => Ok(Some((RefKind::Commit, format!("commit:{sha}")))),
            _ if self.dry_run => Ok(None),
            Ok(Reference::Signal(_)) => {
                super::memory::node_of(self.prism, self.caller, field, &parsed?)
                    .await
                    .map(|node| Some((RefKind::Signal, node)))
            }
            _ => Ok(self
                .up(known, field, reference, Table::Memory)
                .await?
                .map(|id| (RefKind::Delta, id.to_string()))),
        }
    }
}

fn subject(line: &Line) -> Result<Option<String>, Problem> {
    optional("subject", line.said(&[&line.subject, &line.title]))
}

/// The words of a row: `text`, by whatever name its verb calls them.
fn spoken(line: &Line, field: &str) -> Result<String, Problem> {
    let words = line.said(&[
        &line.text,
        &line.body,
        &line.summary,
        &line.notes,
        &line.title,
    ]);
    required(field, words.unwrap_or_default())
}

async fn delta(
    look: &Look<'_>,
    line: &Line,
    known: &Known,
    kind: DeltaKind,
) -> Result<DeltaRow, Problem> {
    let mut row = DeltaRow::of(kind, spoken(line, "text")?);
    row.next = optional("next", line.next.as_deref())?;
    row.open_loops.clone_from(&line.open_loops);
    row.touched_files.clone_from(&line.touched_files);
    row.touched_files_source = if line.touched_files.is_empty() {
        "none"
    } else {
        "caller"
    };
    row.operator_visible_effect = optional(
        "operator_visible_effect",
        line.operator_visible_effect.as_deref(),
    )?;
    (row.subject, row.tags) = (subject(line)?, line.tags.clone());
    for (i, attempt) in line.tried_and_ruled_out.iter().enumerate() {
        let ruled_out_in = match &attempt.ruled_out_in_delta {
            Some(reference) => {
                look.up(known, "ruled_out_in_delta", reference, Table::Deltas)
                    .await?
            }
            None => None,
        };
        row.tried_and_ruled_out.push(RuledOut {
            approach: required(
                &format!("tried_and_ruled_out[{i}].approach"),
                &attempt.approach,
            )?,
            outcome: required(
                &format!("tried_and_ruled_out[{i}].outcome"),
                &attempt.outcome,
            )?,
            ruled_out_in_delta: ruled_out_in.map(|id| id.to_string()),
        });
    }
    Ok(row)
}

async fn narrative(
    look: &Look<'_>,
    line: &Line,
    identity: &str,
    known: &Known,
    edges: &mut Vec<Edge>,
) -> Result<(Row, Indexed), Problem> {
    let answer = |field: &str, given: Option<&str>| {
        required(field, given.unwrap_or_default()).map_err(|_| row::unanswered(field))
    };
    let (body, subject) = (
        optional("text", line.said(&[&line.text, &line.body]))?,
        subject(line)?,
    );
    // A file may tell it in one text; who began to answer must answer all three.
    if body.is_some()
        && line.operator_sees.is_none()
        && line.would_break_it.is_none()
        && line.pieces.is_empty()
    {
        let not_said = || NOT_SAID.to_owned();
        return Ok(row::narrative(
            identity,
            Narrative {
                operator_sees: not_said(),
                pieces: vec![not_said()],
                would_break_it: not_said(),
                body,
                subject,
            },
        ));
    }
    if line.pieces.is_empty() {
        return Err(row::unanswered("pieces"));
    }
    for piece in line.pieces.iter().filter(|p| !row::is_told(p)) {
        let node = look.node(known, "pieces", piece).await?;
        edges.extend(node.map(|(_, dst)| Edge {
            src: None,
            kind: EdgeKind::Combines,
            dst,
        }));
    }
    let told = Narrative {
        operator_sees: answer("operator_sees", line.operator_sees.as_deref())?,
        pieces: line.pieces.clone(),
        would_break_it: answer("would_break_it", line.would_break_it.as_deref())?,
        body,
        subject,
    };
    Ok(row::narrative(identity, told))
}

async fn confirmation(
    look: &Look<'_>,
    line: &Line,
    by: &Writer,
    known: &Known,
    edges: &mut Vec<Edge>,
) -> Result<(Row, Indexed), Problem> {
    let reference = line
        .refers_to
        .as_deref()
        .ok_or_else(|| Problem::field("refers_to", "must name what the verdict is about"))?;
    let verdict = line
        .verdict
        .as_deref()
        .and_then(Verdict::from_name)
        .ok_or_else(|| Problem::field("verdict", format!("must be one of {}", Verdict::names())))?;
    let node = look.node(known, "refers_to", reference).await?;
    edges.extend(node.iter().map(|(_, dst)| Edge {
        src: None,
        kind: EdgeKind::Confirms,
        dst: dst.clone(),
    }));
    let (kind, node) = node.unwrap_or((RefKind::Delta, String::new()));
    let target = look.built(known, &node).await?;
    let row = ConfirmationRow {
        refers_to_kind: kind.name(),
        refers_to_id: node
            .split_once(':')
            .map_or(node.as_str(), |(_, rest)| rest)
            .to_owned(),
        verdict,
        notes: optional("text", line.said(&[&line.text, &line.notes, &line.body]))?,
        confirmed_by: look.prism.operator.to_string(),
        confirmed_via: format!("{}/{}", by.identity, by.surface),
        directness: Directness::Reported,
        on_own_delta: target.as_ref().is_some_and(|t| by.identity.is(&t.identity))
            && !by.identity.is(look.prism.operator.as_str()),
    };
    let about = target
        .as_ref()
        .map(|t| t.words.lines().next().unwrap_or_default());
    Ok(row::confirmation(row, reference, about))
}

async fn input(
    look: &Look<'_>,
    line: &Line,
    identity: &str,
    known: &Known,
    edges: &mut Vec<Edge>,
) -> Result<(Row, Indexed), Problem> {
    // Files of people say it shorter.
    let named = |name: &str| {
        if name == "pivot" {
            Some(Class::DirectionPivot)
        } else {
            Class::from_name(name)
        }
    };
    let class = line
        .class
        .as_deref()
        .and_then(named)
        .ok_or_else(|| Problem::field("class", format!("must be one of {}", Class::names())))?;
    let confidence = match line.confidence.as_deref() {
        None => Confidence::High,
        Some(name) => Confidence::from_name(name).ok_or_else(|| {
            Problem::field(
                "confidence",
                format!("must be one of {}", Confidence::names()),
            )
        })?,
    };
    let prompt_text = required(
        "prompt_text",
        line.said(&[&line.prompt_text, &line.text])
            .unwrap_or_default(),
    )?;
    let about = match line.reverses_delta.as_deref().or(line.refers_to.as_deref()) {
        Some(reference) => look.node(known, "refers_to", reference).await?,
        None => None,
    };
    edges.extend(about.iter().map(|(_, dst)| Edge {
        src: None,
        kind: EdgeKind::Labels,
        dst: dst.clone(),
    }));
    let reverses_delta = match (&line.reverses_delta, &about) {
        (Some(_), Some((RefKind::Delta, node))) => look
            .built(known, node)
            .await?
            .filter(|t| t.is_delta)
            .and_then(|_| node.parse().ok()),
        _ => None,
    };
    let row = InputRow {
        class,
        prompt_text,
        triggered_action: optional("triggered_action", line.triggered_action.as_deref())?,
        reverses_delta,
        confidence,
    };
    Ok(row::input(look.prism.operator.as_str(), identity, row))
}

fn artifact(kind: &str, line: &Line, identity: &str) -> Result<(Row, Indexed), Problem> {
    let listed = "wrap, checkpoint, note, other, integration_narrative, confirmation, operator_input, decision, spec, plan, todo, journal, retro, postmortem, fact, rule";
    let given = |fields: &[&Option<String>]| line.said(fields).map(str::to_owned);
    let (kind, parts, status): (Kind, row::Parts, &str) = match kind {
        "decision" => {
            let decision = required(
                "text",
                line.said(&[&line.decision, &line.text, &line.body])
                    .unwrap_or_default(),
            )?;
            (
                Kind::Decision,
                vec![
                    ("context", given(&[&line.context])),
                    ("decision", Some(decision)),
                    ("consequences", given(&[&line.consequences])),
                ],
                "accepted",
            )
        }
        "postmortem" => {
            let happened = required(
                "text",
                line.said(&[&line.what_happened, &line.text, &line.body])
                    .unwrap_or_default(),
            )?;
            let parts = vec![
                ("what_happened", Some(happened)),
                ("choice_point", given(&[&line.choice_point])),
                ("prevention", given(&[&line.prevention])),
            ];
            (Kind::Postmortem, parts, "open")
        }
        "retro" => {
            let parts = vec![
                ("body", given(&[&line.text, &line.body])),
                ("went_well", given(&[&line.went_well])),
                ("went_badly", given(&[&line.went_badly])),
                ("change", given(&[&line.change])),
            ];
            (Kind::Retro, parts, "written")
        }
        "journal" => (
            Kind::Journal,
            vec![("body", Some(spoken(line, "text")?))],
            "written",
        ),
        "todo" => (
            Kind::Todo,
            vec![
                ("body", given(&[&line.text, &line.body])),
                (
                    "paths",
                    (!line.paths.is_empty()).then(|| line.paths.join(" ")),
                ),
            ],
            "open",
        ),
        "spec" => (
            Kind::Spec,
            vec![("body", Some(spoken(line, "text")?))],
            "draft",
        ),
        "plan" => (
            Kind::Plan,
            vec![("body", Some(spoken(line, "text")?))],
            "draft",
        ),
        other => {
            return Err(Problem::field(
                "kind",
                format!("{:?} is not one of {listed}", text::clip(other, 40)),
            ));
        }
    };
    let first = parts
        .iter()
        .find_map(|(_, t)| t.as_deref())
        .map(|t| text::clip(&text::one_line(t), 80));
    let title = optional("title", line.said(&[&line.title, &line.subject]))?
        .or(first)
        .ok_or_else(|| Problem::field("text", "must say something"))?;
    let mut fields = Map::new();
    if !line.tags.is_empty() {
        fields.insert("tags".into(), json!(line.tags));
    }
    let status = line.said(&[&line.status]).unwrap_or(status).to_owned();
    Ok(row::artifact(
        identity,
        New {
            kind,
            title,
            parts,
            status,
            fields,
        },
    ))
}
