//! Importing rows from a file: checked, resolved and written a batch at a time, all or nothing.

use super::memory::{names_of, target_of};
use crate::clock;
use crate::prism::{Caller, Prism};
use crate::store::Table;
use crate::store::memory::{
    Author, ConfirmationRow, DeltaRow, Edge, ImportRow, InputRow, NewMemory, Node, Row,
};
use prism_core::api::memory::{Import, Imported, RuledOut};
use prism_core::id::Quoted;
use prism_core::limits::{
    OPEN_LOOP_CHARS_MAX, PATH_CHARS_MAX, RULED_OUT_MAX, TAG_CHARS_MAX, TEXT_CHARS_MAX,
};
use prism_core::memory::entity::find;
use prism_core::memory::import::{Line, NOT_SAID, target, without_nulls};
use prism_core::memory::operator::{Class, Confidence, Directness, Verdict, is_routine};
use prism_core::memory::reference::Reference;
use prism_core::memory::row::{self, Narrative, New};
use prism_core::memory::{
    DeltaKind, EdgeKind, Indexed, Kind, asked_as, check_list, check_number, optional, required,
};
use prism_core::signal::sha256_hex;
use prism_core::{Code, Identity, Problem, text};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

/// Lines of one batch.
const BATCH_LINES_MAX: usize = 500;
/// How often a batch is read anew because another import was faster with some of its lines.
const ATTEMPTS: usize = 10;
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
    import_as(prism, caller, request, &|_| clock::new_id()).await
}

/// Which id of ours a line gets.
pub type Naming<'a> = &'a (dyn Fn(&str) -> Uuid + Sync);

pub async fn import_as(
    prism: &Prism,
    caller: &Caller,
    request: Import,
    id_of: Naming<'_>,
) -> Result<Imported, Problem> {
    for _ in 0..ATTEMPTS {
        if let Some(answer) = attempt(prism, caller, &request, id_of).await? {
            return Ok(answer);
        }
    }
    Err(Problem::new(
        Code::Conflict,
        "others import lines of this source at the same time",
        "import the file again when they are done: what is in already is not written twice",
    ))
}

/// None: another import brought some of these lines while they were read here.
async fn attempt(
    prism: &Prism,
    caller: &Caller,
    request: &Import,
    id_of: Naming<'_>,
) -> Result<Option<Imported>, Problem> {
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
            routine: Vec::new(),
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
        if is_routine_ack(&line) {
            answer.routine.push(line.id);
            continue;
        }
        let id = id_of(&line.id);
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
        return Ok(Some(answer));
    }
    let written = prism.store.import(caller.project.id, source, new).await?;
    Ok(written.then_some(answer))
}

/// A routine ack is never captured, whichever way it comes.
fn is_routine_ack(line: &Line) -> bool {
    line.kind == "operator_input"
        && class_of(line).is_ok()
        && line
            .said(&[&line.prompt_text, &line.text])
            .is_some_and(is_routine)
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
    check_list("open_loops", &line.open_loops, OPEN_LOOP_CHARS_MAX)?;
    check_list("touched_files", &line.touched_files, PATH_CHARS_MAX)?;
    check_list("paths", &line.paths, PATH_CHARS_MAX)?;
    check_list("pieces", &line.pieces, TEXT_CHARS_MAX)?;
    check_list("tags", &line.tags, TAG_CHARS_MAX)?;
    let ruled_out = line.tried_and_ruled_out.len();
    check_number("tried_and_ruled_out", ruled_out, RULED_OUT_MAX)?;
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
    // What the operator wrote is the operator's: nobody has to be added for it.
    let identity = if identity.is(prism.operator.as_str()) {
        prism.operator.clone()
    } else if dry_run {
        identity
    } else {
        prism
            .ensure_persona(&caller.project, &identity)
            .await?
            .0
            .identity
    };
    let by = Author {
        project_id: caller.project.id,
        session_id: None,
        identity: identity.clone(),
        surface: line.surface.clone().unwrap_or_else(|| "other".into()),
        now: line.created_at.unwrap_or_default(),
    };
    let references = References {
        prism,
        caller,
        line_id: &line.id,
        dry_run,
    };
    let (mut edges, name) = (Vec::new(), identity.as_str());
    let (row, indexed) = match line.kind.as_str() {
        kind @ ("wrap" | "checkpoint") => {
            let row = delta(
                &references,
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
        "integration_narrative" => narrative(&references, line, name, known, &mut edges).await?,
        "confirmation" => confirmation(&references, line, &by, known, &mut edges).await?,
        "operator_input" => input(&references, line, name, known, &mut edges).await?,
        kind => artifact(kind, line, name)?,
    };
    let indexed = indexed.asked_as(asked_as(&line.asked_as)?);
    let supersedes = match &line.supersedes {
        Some(reference) => {
            references
                .row(known, "supersedes", reference, Table::Memory)
                .await?
        }
        None => None,
    };
    let mut names = names_of(prism, caller);
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
struct References<'a> {
    prism: &'a Prism,
    caller: &'a Caller,
    /// The line that refers. A row says nothing by naming itself: that is passed over.
    line_id: &'a str,
    /// Nothing was written, so nothing can be found; the file's own references were checked where
    /// it was read.
    dry_run: bool,
}

/// What a reference of a line names.
struct Named {
    reference: Reference,
    node: Node,
    id: String,
    words: Option<String>,
    identity: Option<String>,
    is_delta: bool,
}

impl References<'_> {
    fn names_itself(&self, reference: &str) -> bool {
        target(reference) == self.line_id
    }

    async fn row(
        &self,
        known: &Known,
        field: &'static str,
        reference: &str,
        table: Table,
    ) -> Result<Option<Uuid>, Problem> {
        if let Some(id) = known.ids.get(target(reference)) {
            return Ok(Some(*id));
        }
        if self.dry_run || self.names_itself(reference) {
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

    /// What a row is, when it is a line of this batch or a delta that is here already.
    async fn of_row(&self, known: &Known, id: Uuid) -> Result<Named, Problem> {
        let built = match known.rows.get(&id) {
            Some(built) => Some(built.clone()),
            None => {
                let delta = self.prism.store.delta(self.caller.project.id, id).await?;
                delta.map(|d| Built {
                    identity: d.identity,
                    words: d.summary,
                    is_delta: true,
                })
            }
        };
        Ok(Named {
            reference: Reference::Delta(Quoted::parse("refers_to", &id.to_string())?),
            node: Node::Id(id.to_string()),
            id: id.to_string(),
            is_delta: built.as_ref().is_some_and(|b| b.is_delta),
            identity: built.as_ref().map(|b| b.identity.clone()),
            words: built.map(|b| b.words.lines().next().unwrap_or_default().to_owned()),
        })
    }

    /// A row, or a signal, spec or commit by its name.
    async fn thing(
        &self,
        known: &Known,
        field: &'static str,
        reference: &str,
    ) -> Result<Option<Named>, Problem> {
        if let Some(id) = known.ids.get(target(reference)) {
            return self.of_row(known, *id).await.map(Some);
        }
        match Reference::parse_loose(field, reference) {
            Ok(parsed @ (Reference::Spec(_) | Reference::Commit(_))) => {
                self.named(field, parsed).await.map(Some)
            }
            _ if self.dry_run || self.names_itself(reference) => Ok(None),
            Ok(parsed @ Reference::Signal(_)) => self.named(field, parsed).await.map(Some),
            _ => match self.row(known, field, reference, Table::Memory).await? {
                Some(id) => self.of_row(known, id).await.map(Some),
                None => Ok(None),
            },
        }
    }

    async fn named(&self, field: &'static str, reference: Reference) -> Result<Named, Problem> {
        let found = target_of(self.prism, self.caller, field, &reference).await?;
        Ok(Named {
            reference: found.reference,
            node: found.node,
            id: found.id,
            words: found.words,
            identity: found.identity,
            is_delta: false,
        })
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
    references: &References<'_>,
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
                references
                    .row(known, "ruled_out_in_delta", reference, Table::Deltas)
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
    references: &References<'_>,
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
                tags: line.tags.clone(),
            },
        ));
    }
    if line.pieces.is_empty() {
        return Err(row::unanswered("pieces"));
    }
    for piece in line.pieces.iter().filter(|p| !row::is_told(p)) {
        let named = references.thing(known, "pieces", piece).await?;
        edges.extend(named.map(|n| Edge::to(EdgeKind::Combines, n.node)));
    }
    let told = Narrative {
        operator_sees: answer("operator_sees", line.operator_sees.as_deref())?,
        pieces: line.pieces.clone(),
        would_break_it: answer("would_break_it", line.would_break_it.as_deref())?,
        body,
        subject,
        tags: line.tags.clone(),
    };
    Ok(row::narrative(identity, told))
}

async fn confirmation(
    references: &References<'_>,
    line: &Line,
    by: &Author,
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
    if references.names_itself(reference) {
        return Err(Problem::field(
            "refers_to",
            "names the line itself: a verdict is about something else",
        ));
    }
    let named = references.thing(known, "refers_to", reference).await?;
    edges.extend(
        named
            .iter()
            .map(|n| Edge::to(EdgeKind::Confirms, n.node.clone())),
    );
    let (target, id) = match &named {
        Some(named) => (named.reference.clone(), named.id.clone()),
        // A dry run writes nothing, so nothing of it can be found.
        None => (Reference::Spec(String::new()), String::new()),
    };
    let whose = named.as_ref().and_then(|n| n.identity.as_deref());
    let operator = &references.prism.operator;
    let row = ConfirmationRow {
        refers_to_kind: target.kind().name(),
        refers_to_id: id,
        verdict,
        notes: optional("text", line.said(&[&line.text, &line.notes, &line.body]))?,
        confirmed_by: operator.to_string(),
        confirmed_via: format!("{}/{}", by.identity, by.surface),
        directness: Directness::Reported,
        on_own_delta: whose.is_some_and(|name| by.identity.is(name))
            && !by.identity.is(operator.as_str()),
    };
    let about = named.as_ref().and_then(|n| n.words.as_deref());
    Ok(row::confirmation(row, &target, about))
}

fn class_of(line: &Line) -> Result<Class, Problem> {
    // Files of people say it shorter.
    let named = |name: &str| match name {
        "pivot" => Some(Class::DirectionPivot),
        _ => Class::from_name(name),
    };
    line.class
        .as_deref()
        .and_then(named)
        .ok_or_else(|| Problem::field("class", format!("must be one of {}", Class::names())))
}

async fn input(
    references: &References<'_>,
    line: &Line,
    identity: &str,
    known: &Known,
    edges: &mut Vec<Edge>,
) -> Result<(Row, Indexed), Problem> {
    let class = class_of(line)?;
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
        Some(reference) => references.thing(known, "refers_to", reference).await?,
        None => None,
    };
    edges.extend(
        about
            .iter()
            .map(|n| Edge::to(EdgeKind::Labels, n.node.clone())),
    );
    let reverses_delta = match (&line.reverses_delta, &about) {
        (Some(_), Some(named)) if named.is_delta => named.id.parse().ok(),
        _ => None,
    };
    let row = InputRow {
        class,
        prompt_text,
        triggered_action: optional("triggered_action", line.triggered_action.as_deref())?,
        reverses_delta,
        confidence,
    };
    let operator = references.prism.operator.as_str();
    let spoken_to = if identity.eq_ignore_ascii_case(operator) {
        about.as_ref().and_then(|n| n.identity.as_deref())
    } else {
        Some(identity)
    };
    Ok(row::input(operator, spoken_to, row))
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
            vec![("body", given(&[&line.text, &line.body]))],
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
    if kind == Kind::Todo && !line.paths.is_empty() {
        fields.insert("paths".into(), json!(line.paths));
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
