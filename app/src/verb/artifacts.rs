//! Journals, retros, postmortems, decisions, specs, plans and todos.

use super::memory::{author, entities_of, names_of};
use crate::clock;
use crate::prism::{Caller, Prism};
use crate::store::Table;
use crate::store::memory::{ArtifactChange, NewMemory, Status};
use prism_core::api::memory::{
    ArtifactView, Artifacts, Decide, Document, Id, Journal, Postmortem, Retro, Todo,
};
use prism_core::gate::{Assignment, AssignmentSource};
use prism_core::id::Quoted;
use prism_core::limits::{PATH_CHARS_MAX, TAG_CHARS_MAX};
use prism_core::memory::brief::Room;
use prism_core::memory::entity::find;
use prism_core::memory::row::{self, New, Parts};
use prism_core::memory::{Kind, asked_as, check_list, optional, required};
use prism_core::{Code, Problem, text};
use serde_json::{Map, json};
use uuid::Uuid;

async fn create(
    prism: &Prism,
    caller: &Caller,
    new: New,
    supersedes: Option<Uuid>,
    asked: Vec<String>,
) -> Result<Id, Problem> {
    let by = author(caller);
    let (row, indexed) = row::artifact(by.identity.as_str(), new);
    let indexed = indexed.asked_as(asked);
    let entities = entities_of(
        prism,
        caller,
        &format!(
            "{} {}",
            indexed.title.as_deref().unwrap_or_default(),
            indexed.text
        ),
    );
    let id = clock::new_id();
    let number = prism
        .store
        .remember(NewMemory {
            id,
            by,
            row,
            indexed: Some(indexed),
            entities,
            edges: Vec::new(),
            supersedes,
            imported_session: None,
        })
        .await?;
    Ok(Id {
        id,
        number,
        version: None,
        warnings: Vec::new(),
    })
}

pub async fn journal(prism: &Prism, caller: &Caller, request: Journal) -> Result<Id, Problem> {
    let body = required("body", &request.body)?;
    let title = optional("title", request.title.as_deref())?
        .unwrap_or_else(|| text::clip(&text::one_line(&body), 80));
    create(
        prism,
        caller,
        New {
            kind: Kind::Journal,
            title,
            parts: vec![("body", Some(body))],
            status: "written".into(),
            fields: Map::new(),
        },
        None,
        Vec::new(),
    )
    .await
}

pub async fn retro(prism: &Prism, caller: &Caller, request: Retro) -> Result<Id, Problem> {
    let parts: Parts = vec![
        (
            "went_well",
            Some(required("went_well", &request.went_well)?),
        ),
        (
            "went_badly",
            Some(required("went_badly", &request.went_badly)?),
        ),
        ("change", Some(required("change", &request.change)?)),
    ];
    let title = text::clip(&text::one_line(&request.change), 80);
    create(
        prism,
        caller,
        New {
            kind: Kind::Retro,
            title,
            parts,
            status: "written".into(),
            fields: Map::new(),
        },
        None,
        Vec::new(),
    )
    .await
}

pub async fn postmortem(
    prism: &Prism,
    caller: &Caller,
    request: Postmortem,
) -> Result<Id, Problem> {
    if let Some(number) = request.resolve {
        let change = ArtifactChange {
            kind: Kind::Postmortem,
            number,
            title: None,
            body: None,
            status: Some("resolved".into()),
            fields: Map::new(),
            by: author(caller),
        };
        let item = change_item(prism, caller, change).await?;
        return Ok(Id {
            id: item.id,
            number: item.number,
            version: Some(item.version),
            warnings: Vec::new(),
        });
    }
    let parts: Parts = vec![
        (
            "what_happened",
            Some(required("what_happened", &request.what_happened)?),
        ),
        (
            "choice_point",
            Some(required("choice_point", &request.choice_point)?),
        ),
        (
            "prevention",
            Some(required("prevention", &request.prevention)?),
        ),
    ];
    create(
        prism,
        caller,
        New {
            kind: Kind::Postmortem,
            title: required("title", &request.title)?,
            parts,
            status: "open".into(),
            fields: Map::new(),
        },
        None,
        asked_as(&request.asked_as)?,
    )
    .await
}

pub async fn decide(prism: &Prism, caller: &Caller, request: Decide) -> Result<Id, Problem> {
    let parts: Parts = vec![
        ("context", Some(required("context", &request.context)?)),
        ("decision", Some(required("decision", &request.decision)?)),
        (
            "consequences",
            optional("consequences", request.consequences.as_deref())?,
        ),
    ];
    let supersedes = match request.supersedes.as_deref() {
        Some(quoted) => Some(superseded(prism, caller, quoted.trim()).await?),
        None => None,
    };
    create(
        prism,
        caller,
        New {
            kind: Kind::Decision,
            title: required("title", &request.title)?,
            parts,
            status: "accepted".into(),
            fields: Map::new(),
        },
        supersedes,
        asked_as(&request.asked_as)?,
    )
    .await
}

/// The decision that a number or an id names. Digits alone may be either, once there are enough of
/// them for an id.
async fn superseded(prism: &Prism, caller: &Caller, quoted: &str) -> Result<Uuid, Problem> {
    let (store, project) = (&prism.store, caller.project.id);
    let number = quoted.trim_start_matches('#').parse::<i64>().ok();
    let by_number = match number {
        Some(n) if quoted.len() < Quoted::DIGITS_MIN => {
            return Ok(store.artifact(project, Kind::Decision, n, None).await?.id);
        }
        Some(n) => store.artifact(project, Kind::Decision, n, None).await.ok(),
        None => None,
    };
    let by_id = store
        .resolve(
            project,
            Table::Memory,
            "supersedes",
            Quoted::parse("supersedes", quoted)?,
        )
        .await;
    match (by_number, by_id) {
        (Some(decision), Ok(id)) if decision.id != id => Err(Problem::new(
            Code::Ambiguous,
            format!("`supersedes`: {quoted} is the number of one decision and begins another's id"),
            "quote more digits of the id",
        )),
        (Some(decision), _) => Ok(decision.id),
        (None, by_id) => Ok(by_id?),
    }
}

pub async fn spec(prism: &Prism, caller: &Caller, request: Document) -> Result<Artifacts, Problem> {
    document(prism, caller, request, Kind::Spec).await
}

pub async fn plan(prism: &Prism, caller: &Caller, request: Document) -> Result<Artifacts, Problem> {
    document(prism, caller, request, Kind::Plan).await
}

async fn document(
    prism: &Prism,
    caller: &Caller,
    request: Document,
    kind: Kind,
) -> Result<Artifacts, Problem> {
    let number = || {
        request
            .number
            .ok_or_else(|| Problem::field("number", format!("must say which {kind}")))
    };
    match request.action.as_str() {
        "create" => {
            let title = required("title", request.title.as_deref().unwrap_or_default())?;
            let body = required("body", request.body.as_deref().unwrap_or_default())?;
            let made = create(
                prism,
                caller,
                New {
                    kind,
                    title,
                    parts: vec![("body", Some(body))],
                    status: "draft".into(),
                    fields: Map::new(),
                },
                None,
                Vec::new(),
            )
            .await?;
            Ok(Artifacts {
                id: Some(made.id),
                number: made.number,
                version: Some(1),
                item: None,
                items: None,
                warnings: Vec::new(),
            })
        }
        "update" => {
            let (title, body, status) = (
                optional("title", request.title.as_deref())?,
                optional("body", request.body.as_deref())?,
                optional("status", request.status.as_deref())?,
            );
            if title.is_none() && body.is_none() && status.is_none() {
                return Err(Problem::field(
                    "action",
                    "`update` needs a title, a body or a status",
                ));
            }
            changed(
                prism,
                caller,
                ArtifactChange {
                    kind,
                    number: number()?,
                    title,
                    body,
                    status,
                    fields: Map::new(),
                    by: author(caller),
                },
            )
            .await
        }
        "get" => Ok(shown(
            prism
                .store
                .artifact(caller.project.id, kind, number()?, request.version)
                .await?,
        )),
        "list" => {
            let status = request.status.map_or(Status::Any, Status::Is);
            listed(prism, caller, kind, status).await
        }
        _ => Err(Problem::field(
            "action",
            "must be create, update, get or list",
        )),
    }
}

pub async fn todo(prism: &Prism, caller: &Caller, request: Todo) -> Result<Artifacts, Problem> {
    let number = || {
        request
            .number
            .ok_or_else(|| Problem::field("number", "must say which todo"))
    };
    let mut fields = Map::new();
    for (name, list, chars) in [
        ("tags", &request.tags, TAG_CHARS_MAX),
        ("paths", &request.paths, PATH_CHARS_MAX),
    ] {
        check_list(name, list, chars)?;
        if !list.is_empty() {
            fields.insert(name.into(), json!(list));
        }
    }
    match request.action.as_str() {
        "add" => {
            let title = required("title", request.title.as_deref().unwrap_or_default())?;
            let body = optional("body", request.body.as_deref())?;
            let parts: Parts = vec![("body", body)];
            let assignment = Assignment {
                text: format!("{title}\n{}", request.body.as_deref().unwrap_or_default()),
                tags: request.tags.clone(),
                paths: request.paths.clone(),
            };
            let made = create(
                prism,
                caller,
                New {
                    kind: Kind::Todo,
                    title,
                    parts,
                    status: "open".into(),
                    fields,
                },
                None,
                Vec::new(),
            )
            .await?;
            let source =
                made.number
                    .map_or(AssignmentSource::Unknown, |number| AssignmentSource::Todo {
                        project: caller.project.id,
                        number,
                    });
            let warning = prism
                .gate
                .todo_added(&prism.store, caller, &source, &assignment)
                .await;
            Ok(Artifacts {
                id: Some(made.id),
                number: made.number,
                version: None,
                item: None,
                items: None,
                warnings: warning.into_iter().collect(),
            })
        }
        "list" if request.number.is_some() => Ok(shown(
            prism
                .store
                .artifact(caller.project.id, Kind::Todo, number()?, None)
                .await?,
        )),
        "list" => {
            let status = match request.status.as_deref() {
                None | Some("open") => Status::Open,
                Some("all") => Status::Any,
                Some(status) => Status::Is(status.to_owned()),
            };
            listed(prism, caller, Kind::Todo, status).await
        }
        "update" | "done" => {
            let status = if request.action == "done" {
                Some("done".to_owned())
            } else {
                optional("status", request.status.as_deref())?
            };
            if let Some(status) = &status
                && !["open", "doing", "blocked", "done", "dropped"].contains(&status.as_str())
            {
                return Err(Problem::field(
                    "status",
                    "must be open, doing, blocked, done or dropped",
                ));
            }
            let (title, body) = (
                optional("title", request.title.as_deref())?,
                optional("body", request.body.as_deref())?,
            );
            if title.is_none() && body.is_none() && status.is_none() && fields.is_empty() {
                return Err(Problem::field(
                    "action",
                    "`update` needs a title, a body, a status, paths or tags",
                ));
            }
            changed(
                prism,
                caller,
                ArtifactChange {
                    kind: Kind::Todo,
                    number: number()?,
                    title,
                    body,
                    status,
                    fields,
                    by: author(caller),
                },
            )
            .await
        }
        _ => Err(Problem::field(
            "action",
            "must be add, list, update or done",
        )),
    }
}

async fn change_item(
    prism: &Prism,
    caller: &Caller,
    change: ArtifactChange,
) -> Result<ArtifactView, Problem> {
    let (names, kind) = (names_of(prism, caller), change.kind);
    let indexed = move |item: &ArtifactView| {
        let named = format!("{} {}", item.title, item.body);
        (row::changed_artifact(kind, item), find(&named, &names))
    };
    Ok(prism.store.change_artifact(change, indexed).await?)
}

async fn changed(
    prism: &Prism,
    caller: &Caller,
    change: ArtifactChange,
) -> Result<Artifacts, Problem> {
    let item = change_item(prism, caller, change).await?;
    Ok(Artifacts {
        id: Some(item.id),
        number: item.number,
        version: Some(item.version),
        item: None,
        items: None,
        warnings: Vec::new(),
    })
}

fn shown(item: ArtifactView) -> Artifacts {
    Artifacts {
        id: Some(item.id),
        number: item.number,
        version: Some(item.version),
        item: Some(item),
        items: None,
        warnings: Vec::new(),
    }
}

async fn listed(
    prism: &Prism,
    caller: &Caller,
    kind: Kind,
    status: Status,
) -> Result<Artifacts, Problem> {
    let mut items = prism
        .store
        .artifacts(caller.project.id, kind, status, 100)
        .await?;
    // A list is for choosing; one by its number is shown whole.
    let each = items.iter_mut();
    each.for_each(|item| Room::ARTIFACT.artifact(item));
    Ok(Artifacts {
        id: None,
        number: None,
        version: None,
        item: None,
        items: Some(items),
        warnings: Vec::new(),
    })
}
