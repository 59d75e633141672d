//! Memory in the store: whole rows or none, numbers, versions, reviews, imports, projects apart.

use super::{Opened, on_every_engine};
use futures_util::future::join_all;
use prism::clock::new_id;
use prism::store::memory::{
    ArtifactChange, Author, Edge, Filter, ImportRow, NewMemory, Node, Phrasing, PickupFrom, Row,
    Search, Status, Terms,
};
use prism::store::{EmbedJob, Project, Store, StoreError, Table, VectorRow};
use prism_core::id::Quoted;
use prism_core::memory::entity::{Entity, EntityType};
use prism_core::memory::operator::{Class, Confidence, Review};
use prism_core::memory::question::Question;
use prism_core::memory::recall::Weights;
use prism_core::memory::row::{self, InputRow, New};
use prism_core::memory::vector::DIMENSIONS;
use prism_core::memory::{DeltaKind, EdgeKind, Indexed, Kind};
use prism_core::{Code, Identity, Moment};
use serde_json::Map;
use std::collections::BTreeSet;
use uuid::Uuid;

const MODEL: &str = "a-model";
/// Attempts at a row's vectors before it is set aside.
const ATTEMPTS: i64 = 3;

fn at(n: i64) -> Moment {
    Moment(1_000_000_000_000_000 + n)
}

fn author(project: &Project, n: i64) -> Author {
    Author {
        project_id: project.id,
        session_id: None,
        identity: Identity::parse("Mira").unwrap(),
        surface: "test".into(),
        now: at(n),
    }
}

fn new(project: &Project, n: i64, (row, indexed): (Row, Indexed)) -> NewMemory {
    NewMemory {
        id: new_id(),
        by: author(project, n),
        row,
        indexed: Some(indexed),
        entities: Vec::new(),
        edges: Vec::new(),
        supersedes: None,
        imported_session: None,
    }
}

fn note(project: &Project, n: i64, text: &str) -> NewMemory {
    let words = row::words(DeltaKind::Note, "Mira", text.into(), None, Vec::new());
    new(project, n, words)
}

fn artifact(project: &Project, kind: Kind, n: i64, text: &str) -> NewMemory {
    let thing = New {
        kind,
        title: format!("{kind} {n}"),
        parts: vec![("body", Some(text.into()))],
        status: "open".into(),
        fields: Map::new(),
    };
    new(project, n, row::artifact("Mira", thing))
}

fn input(project: &Project, n: i64, text: &str) -> NewMemory {
    let typed = InputRow {
        class: Class::Correction,
        prompt_text: text.into(),
        triggered_action: None,
        reverses_delta: None,
        confidence: Confidence::High,
    };
    new(project, n, row::input("frank", Some("Mira"), typed))
}

fn path(name: &str) -> Entity {
    Entity {
        kind: EntityType::Path,
        name: name.into(),
    }
}

/// What recall has to rank for a question.
async fn found(store: &Store, project: &Project, text: &str) -> BTreeSet<String> {
    let question = Question::of(text, &[], "frank");
    let filter = Filter::default();
    let terms = vec![Terms {
        words: question.terms.clone(),
        identifiers: question.identifiers.clone(),
    }];
    let words = store.words(project.id, terms, filter.clone()).await;
    let phrasing = |words| Phrasing {
        words,
        ..Phrasing::default()
    };
    let search = Search {
        project_id: project.id,
        question,
        phrasings: words.unwrap().into_iter().map(phrasing).collect(),
        model: MODEL,
        entities: Vec::new(),
        filter,
        weights: Weights::default(),
        neighbours: false,
    };
    let found = store.candidates(search).await.unwrap();
    let rows = found.candidates.rows.into_iter();
    rows.filter(|row| !row.matches.is_empty())
        .map(|row| row.id)
        .collect()
}

/// What waits, left as it was: whoever takes rows has them for a while.
async fn queued(store: &Store) -> Vec<EmbedJob> {
    let jobs = store.embed_jobs(100, ATTEMPTS).await.unwrap();
    let rows = jobs.iter().map(|job| job.memory_id.clone()).collect();
    store.give_back_jobs(rows).await.unwrap();
    jobs
}

async fn waits_for_vectors(store: &Store, id: Uuid) -> bool {
    let jobs = queued(store).await;
    jobs.iter().any(|job| job.memory_id == id.to_string())
}

/// The nodes beside a node.
async fn beside(store: &Store, project: &Project, node: &str) -> Option<Vec<(String, String)>> {
    let graph = store.graph_of(project.id, node.into()).await.ok()?;
    let edges = graph.edges.into_iter();
    Some(edges.map(|edge| (edge.kind, edge.node.id)).collect())
}

async fn two_projects(opened: &Opened) -> (Project, Project) {
    opened.store.load().await.unwrap();
    let (one, _) = opened.project("P", &["Mira"]).await;
    let (two, _) = opened.project("Q", &["Mira"]).await;
    (one, two)
}

#[test]
fn a_row_its_text_its_edges_and_its_embed_intent_are_written_at_once_and_survive_a_crash() {
    on_every_engine(async |opened| {
        let (p, _) = two_projects(&opened).await;
        let old = note(&p, 1, "the kettle was copper");
        let mut row = note(&p, 2, "the kettle whistles at noon");
        row.entities = vec![path("src/kettle.rs")];
        row.edges = vec![Edge::to(EdgeKind::Combines, Node::Id(old.id.to_string()))];
        row.supersedes = Some(old.id);
        // It would take the place of a row that has been replaced: refused after it was written.
        let mut refused = note(&p, 3, "the kettle hums");
        refused.entities = vec![path("src/hum.rs")];
        refused.supersedes = Some(old.id);
        let (old_id, id, refused_id) = (old.id, row.id, refused.id);
        opened.store.remember(old).await.unwrap();
        opened.store.remember(row).await.unwrap();
        let problem = opened.store.remember(refused).await.unwrap_err();
        assert!(matches!(problem, StoreError::Refused(p) if p.is(Code::Conflict)));

        let store = &opened.crash().store;
        assert_eq!(
            found(store, &p, "whistles").await,
            BTreeSet::from([id.to_string()])
        );
        let edges = beside(store, &p, &id.to_string()).await.unwrap();
        for (kind, node) in [
            ("MENTIONS", "path:src/kettle.rs".to_owned()),
            ("COMBINES", old_id.to_string()),
            ("SUPERSEDES", old_id.to_string()),
        ] {
            assert!(
                edges.contains(&(kind.to_owned(), node)),
                "{kind}: {edges:?}"
            );
        }
        assert!(waits_for_vectors(store, id).await);
        let rows = store.rows(p.id, vec![id.to_string()]).await.unwrap();
        assert_eq!(rows[0].text, "the kettle whistles at noon");
        assert!(store.delta(p.id, id).await.unwrap().is_some());

        assert!(found(store, &p, "hums").await.is_empty());
        assert!(beside(store, &p, "path:src/hum.rs").await.is_none());
        assert!(!waits_for_vectors(store, refused_id).await);
        assert!(store.delta(p.id, refused_id).await.unwrap().is_none());
    });
}

#[test]
fn numbers_go_up_by_one_in_each_kind_of_each_project_however_many_write_at_once() {
    on_every_engine(async |opened| {
        let (p, q) = two_projects(&opened).await;
        let lots = [
            (&p, Kind::Todo, 20),
            (&p, Kind::Decision, 15),
            (&q, Kind::Todo, 10),
        ];
        let writes = lots.iter().flat_map(|(project, kind, many)| {
            let store = &opened.store;
            (0..*many).map(move |n| async move {
                let row = artifact(project, *kind, n, "x");
                let number = store.remember(row).await.unwrap().unwrap();
                ((project.id, kind.name()), number)
            })
        });
        let given = join_all(writes).await;
        let opened = opened.crash();
        for (project, kind, many) in lots {
            let whose = (project.id, kind.name());
            let mine = given.iter().filter(|(of, _)| *of == whose);
            let mut numbers: Vec<i64> = mine.map(|(_, number)| *number).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (1..=many).collect::<Vec<_>>());
            let next = opened.store.remember(artifact(project, kind, 99, "x"));
            assert_eq!(next.await.unwrap(), Some(many + 1));
        }
        let plain = opened.store.remember(note(&p, 100, "a note has none"));
        assert_eq!(plain.await.unwrap(), None);
    });
}

#[test]
fn a_change_keeps_what_was_and_is_found_by_its_new_words_alone() {
    on_every_engine(async |opened| {
        let (p, q) = two_projects(&opened).await;
        let spec = artifact(&p, Kind::Spec, 1, "the porcelain shelf");
        let id = spec.id.to_string();
        opened.store.remember(spec).await.unwrap();
        let change = |project: &Project, n, body: &str| ArtifactChange {
            kind: Kind::Spec,
            number: 1,
            title: None,
            body: Some(body.into()),
            status: None,
            fields: Map::new(),
            by: author(project, n),
        };
        // An engine may run it twice: it looks at the row and keeps nothing.
        let indexed = |row: &prism_core::api::memory::ArtifactView| {
            (row::changed_artifact(Kind::Spec, row), Vec::new())
        };
        for (n, body) in [(2, "the oaken shelf"), (3, "the marble shelf")] {
            let changed = opened.store.change_artifact(change(&p, n, body), indexed);
            let changed = changed.await.unwrap();
            assert_eq!((changed.version, changed.body.as_str()), (n, body));
        }
        let elsewhere = change(&q, 4, "the tin shelf");
        let refused = opened.store.change_artifact(elsewhere, indexed).await;
        assert!(refused.is_err(), "the other project has no such spec");

        let store = &opened.crash().store;
        for (version, body) in [
            (Some(1), "the porcelain shelf"),
            (Some(2), "the oaken shelf"),
            (Some(3), "the marble shelf"),
            (None, "the marble shelf"),
        ] {
            let kept = store.artifact(p.id, Kind::Spec, 1, version).await.unwrap();
            assert_eq!(kept.body, body);
        }
        assert!(store.artifact(p.id, Kind::Spec, 1, Some(4)).await.is_err());
        assert_eq!(found(store, &p, "marble").await, BTreeSet::from([id]));
        for gone in ["porcelain", "oaken", "tin"] {
            assert!(found(store, &p, gone).await.is_empty(), "{gone}");
        }
    });
}

#[test]
fn a_rejected_input_leaves_recall_and_an_undo_brings_it_back() {
    on_every_engine(async |opened| {
        let (p, _) = two_projects(&opened).await;
        let typed = input(&p, 1, "use the brass ladle");
        let id = typed.id;
        opened.store.remember(typed).await.unwrap();
        let review = async |opened: &Opened, ids: &[Uuid], review| {
            let ids = ids.iter().map(Uuid::to_string).collect();
            opened.store.review(p.id, ids, review, at(2)).await
        };
        let shown = async |opened: &Opened| {
            let hits = found(&opened.store, &p, "brass").await.len();
            let node = beside(&opened.store, &p, &id.to_string()).await;
            (hits, node.is_some())
        };
        assert_eq!(shown(&opened).await, (1, true));
        let with_a_stranger = review(&opened, &[id, new_id()], Some(Review::Rejected)).await;
        assert!(with_a_stranger.is_err());
        assert_eq!(shown(&opened).await, (1, true), "all of them or none");
        let rejected = review(&opened, &[id], Some(Review::Rejected)).await;
        assert_eq!(rejected.unwrap(), [id]);
        let opened = opened.crash();
        assert_eq!(shown(&opened).await, (0, false));
        let listed = opened.store.inputs(p.id, Some("rejected".into()), 9).await;
        assert_eq!(listed.unwrap().len(), 1, "it is kept, out of sight");
        review(&opened, &[id], None).await.unwrap();
        let opened = opened.crash();
        assert_eq!(shown(&opened).await, (1, true));
    });
}

#[test]
fn a_quoted_prefix_is_unknown_unique_or_ambiguous_within_its_project() {
    on_every_engine(async |opened| {
        let (p, q) = two_projects(&opened).await;
        for (project, id) in [
            (&p, "aaaaaaaa-0000-7000-8000-000000000001"),
            (&p, "aaaaaaaa-0000-7000-8000-000000000002"),
            (&p, "bbbbbbbb-0000-7000-8000-000000000003"),
            (&q, "bbbbbbbb-0000-7000-8000-000000000004"),
            (&q, "cccccccc-0000-7000-8000-000000000005"),
        ] {
            let mut row = note(project, 1, "x");
            row.id = id.parse().unwrap();
            opened.store.remember(row).await.unwrap();
        }
        let resolve = async |what, quoted| {
            let quoted = Quoted::parse("id", quoted).unwrap();
            match opened.store.resolve(p.id, what, "id", quoted).await {
                Ok(id) => Ok(id.to_string()),
                Err(StoreError::Refused(problem)) => Err(problem),
                Err(other) => panic!("{other}"),
            }
        };
        for table in [Table::Deltas, Table::Memory] {
            let two = resolve(table, "aaaaaaaa").await.unwrap_err();
            assert!(two.is(Code::Ambiguous), "{two:?}");
            let whole = "aaaaaaaa-0000-7000-8000-000000000002";
            assert_eq!(resolve(table, whole).await.unwrap(), whole);
            assert_eq!(
                resolve(table, "bbbbbbbb").await.unwrap(),
                "bbbbbbbb-0000-7000-8000-000000000003"
            );
            for unknown in ["cccccccc", "dddddddd"] {
                let none = resolve(table, unknown).await.unwrap_err();
                assert!(none.is(Code::UnknownReference), "{none:?}");
            }
        }
    });
}

/// How many rows of a project each listing shows.
async fn listed(store: &Store, project: &Project, ids: &[Uuid]) -> Vec<(&'static str, usize)> {
    let id = project.id;
    let mut shown = Vec::new();
    shown.push((
        "deltas",
        store.deltas(id, None, None, 99).await.unwrap().len(),
    ));
    let from = PickupFrom {
        identity: Some(Identity::parse("Mira").unwrap()),
        session: None,
    };
    let (_, baton) = store.baton(id, from, 99).await.unwrap();
    shown.push(("baton", baton.len()));
    let todos = store.artifacts(id, Kind::Todo, Status::Any, 99).await;
    shown.push(("artifacts", todos.unwrap().len()));
    let todo = store.artifact(id, Kind::Todo, 1, None).await;
    shown.push(("artifact", usize::from(todo.is_ok())));
    let spec = store.spec_named(id, "SPEC-1".into()).await.unwrap();
    shown.push(("spec_named", usize::from(spec.is_some())));
    shown.push(("inputs", store.inputs(id, None, 99).await.unwrap().len()));
    shown.push(("training", store.training(id).await.unwrap().len()));
    let opening = store
        .opening(author(project, 99), Vec::new())
        .await
        .unwrap();
    shown.push(("opening's deltas", opening.recent_deltas.len()));
    shown.push(("opening's todos", opening.open_todos.len()));
    shown.push(("candidates", found(store, project, "kettle").await.len()));
    let wanted = ids.iter().map(Uuid::to_string).collect();
    shown.push(("rows", store.rows(id, wanted).await.unwrap().len()));
    let mut views = (0, 0);
    for row in ids {
        let node = beside(store, project, &row.to_string()).await;
        views.0 += usize::from(node.is_some());
        let delta = store.delta(id, *row).await.unwrap();
        views.1 += usize::from(delta.is_some());
    }
    shown.extend([("nodes", views.0), ("delta", views.1)]);
    let named = beside(store, project, "path:src/kettle.rs").await;
    shown.push(("named nodes", usize::from(named.is_some())));
    let lines = store.imported(id, "file".into(), vec!["1".into()]).await;
    shown.push(("imported", lines.unwrap().len()));
    let stats = store.memory_stats(id).await.unwrap();
    shown.push(("counted rows", stats.rows.values().sum::<u64>() as usize));
    shown.push(("counted entities", stats.entities as usize));
    shown.push(("counted waiting", stats.embed_pending as usize));
    let rot = store.rot(id, Vec::new(), at(99)).await.unwrap();
    shown.push(("rot", rot.rows as usize));
    shown
}

#[test]
fn two_projects_never_see_each_others_rows() {
    on_every_engine(async |opened| {
        let (p, q) = two_projects(&opened).await;
        let mut named = note(&p, 1, "the kettle whistles");
        named.entities = vec![path("src/kettle.rs")];
        let rows = [
            named,
            artifact(&p, Kind::Todo, 2, "descale the kettle"),
            artifact(&p, Kind::Spec, 3, "how a kettle boils"),
            input(&p, 4, "put the kettle down"),
        ];
        let mut ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
        for row in rows {
            opened.store.remember(row).await.unwrap();
        }
        let line = note(&p, 5, "a kettle of old");
        ids.push(line.id);
        let import = vec![import_row("1", line)];
        let imported = opened.store.import(p.id, "file".into(), import);
        imported.await.unwrap();
        let opened = opened.crash();
        for (what, many) in listed(&opened.store, &p, &ids).await {
            assert!(many > 0, "{what} shows nothing of its own project");
        }
        for (what, many) in listed(&opened.store, &q, &ids).await {
            assert_eq!(many, 0, "{what} shows rows of another project");
        }
    });
}

#[test]
fn vectors_end_the_job_they_were_made_for_and_no_newer_one() {
    on_every_engine(async |opened| {
        let (p, _) = two_projects(&opened).await;
        let todo = artifact(&p, Kind::Todo, 1, "descale it");
        let id = todo.id;
        opened.store.remember(todo).await.unwrap();
        let add = async |opened: &Opened, job: EmbedJob| {
            let vector = |(ordinal, _): &(i64, String)| VectorRow {
                ordinal: *ordinal,
                vector: vec![0.05; DIMENSIONS],
            };
            let vectors = job.texts.iter().map(vector).collect();
            let added = opened.store.add_vectors(MODEL, None, vec![(job, vectors)]);
            added.await.unwrap();
        };
        let [job] = queued(&opened.store).await.try_into().unwrap();
        // The row changes while its vectors are being made.
        let change = ArtifactChange {
            kind: Kind::Todo,
            number: 1,
            title: None,
            body: Some("polish it".into()),
            status: None,
            fields: Map::new(),
            by: author(&p, 2),
        };
        let changed = opened.store.change_artifact(change, |row| {
            (row::changed_artifact(Kind::Todo, row), Vec::new())
        });
        changed.await.unwrap();
        add(&opened, job).await;
        let opened = opened.crash();
        let [job] = queued(&opened.store).await.try_into().unwrap();
        assert!(job.texts.iter().any(|(_, text)| text.contains("polish it")));
        add(&opened, job).await;
        let opened = opened.crash();
        assert!(queued(&opened.store).await.is_empty());
        let stats = opened.store.memory_stats(p.id).await.unwrap();
        assert!(stats.vectors > 0);
        // Queued anew and failing, it is tried a few times and then set aside.
        let again = opened.store.reembed(p.id, MODEL, true, at(3)).await;
        assert_eq!(again.unwrap(), 1);
        for _ in 0..ATTEMPTS {
            assert!(waits_for_vectors(&opened.store, id).await);
            opened.store.embed_failed(id.to_string()).await.unwrap();
        }
        assert!(!waits_for_vectors(&opened.store, id).await);
    });
}

/// A vector of its own for each number: no two are alike.
fn vector_of(n: usize) -> Vec<f32> {
    let mut vector = vec![0.0; DIMENSIONS];
    let (one, other) = (n % DIMENSIONS, n / DIMENSIONS);
    vector[one] = 0.8;
    vector[(one + 1 + other) % DIMENSIONS] = 0.6;
    vector
}

#[test]
fn thousands_of_vectors_are_read_step_by_step_and_every_row_is_found_by_its_own() {
    const ROWS: usize = 900;
    const OF_A_ROW: usize = 3;
    on_every_engine(async |opened| {
        let (p, _) = two_projects(&opened).await;
        let row = |n: usize| import_row(&n.to_string(), note(&p, n as i64, &format!("row {n}")));
        for from in (0..ROWS).step_by(100) {
            let rows = (from..from + 100).map(row).collect();
            let imported = opened.store.import(p.id, "file".into(), rows).await;
            assert!(imported.unwrap());
        }
        let mut ids = Vec::new();
        loop {
            let jobs = opened.store.embed_jobs(100, ATTEMPTS).await.unwrap();
            if jobs.is_empty() {
                break;
            }
            let mut done = Vec::new();
            for job in jobs {
                // Only the first is near to what the row is asked by.
                let n = ids.len();
                let vectors = (0..OF_A_ROW).map(|ordinal| VectorRow {
                    ordinal: ordinal as i64,
                    vector: vector_of(if ordinal == 0 { n } else { ROWS + n }),
                });
                ids.push(job.memory_id.clone());
                done.push((job, vectors.collect()));
            }
            opened.store.add_vectors(MODEL, None, done).await.unwrap();
        }
        assert_eq!(ids.len(), ROWS);
        let opened = opened.crash();
        opened.store.warm_vectors(MODEL).await.unwrap();
        // Around the end of every step, and some between.
        let asked = (0..ROWS).filter(|n| n % 333 > 329 || n % 333 < 4 || n % 50 == 0);
        for n in asked {
            let phrasing = Phrasing {
                vector: Some(vector_of(n)),
                ..Phrasing::default()
            };
            let search = Search {
                project_id: p.id,
                question: Question::of("", &[], "frank"),
                phrasings: vec![phrasing],
                model: MODEL,
                entities: Vec::new(),
                filter: Filter::default(),
                weights: Weights::default(),
                neighbours: false,
            };
            let found = opened.store.candidates(search).await.unwrap();
            let rows = found.candidates.rows.into_iter();
            let it = rows.into_iter().find(|row| row.id == ids[n]);
            let it = it.unwrap_or_else(|| panic!("row {n} is not found"));
            let near = it.near.map(|near| near.field);
            assert!(near > Some(0.99), "row {n}: {near:?}");
        }
    });
}

fn import_row(line: &str, new: NewMemory) -> ImportRow {
    ImportRow {
        line_id: line.into(),
        sha256: format!("hash of {line}"),
        new,
    }
}

#[test]
fn an_import_is_written_whole_or_not_at_all_and_never_twice() {
    on_every_engine(async |opened| {
        let (p, _) = two_projects(&opened).await;
        let import = async |opened: &Opened, lines: &[&str]| {
            let row = |line: &&str| import_row(line, note(&p, 1, &format!("line {line}")));
            let rows = lines.iter().map(row).collect();
            opened.store.import(p.id, "file".into(), rows).await
        };
        let known = async |opened: &Opened| {
            let asked = ["1", "2", "3"].map(String::from).to_vec();
            let known = opened.store.imported(p.id, "file".into(), asked).await;
            let known = known.unwrap();
            let ids: BTreeSet<Uuid> = known.values().map(|(id, _)| *id).collect();
            let deltas = opened.store.deltas(p.id, None, None, 99).await.unwrap();
            assert_eq!(ids, deltas.iter().map(|d| d.id).collect());
            let jobs = queued(&opened.store).await;
            assert_eq!(jobs.len(), ids.len());
            assert!(
                known
                    .iter()
                    .all(|(l, (_, sha))| *sha == format!("hash of {l}"))
            );
            ids
        };
        import(&opened, &["1", "2"]).await.unwrap();
        let opened = opened.crash();
        let first = known(&opened).await;
        assert_eq!(first.len(), 2);
        assert!(!import(&opened, &["3", "1"]).await.unwrap(), "1 is in");
        assert_eq!(known(&opened).await, first, "and 3 did not slip in");
        import(&opened, &["3"]).await.unwrap();
        assert_eq!(known(&opened.crash()).await.len(), 3);
    });
}

#[test]
fn a_row_whose_project_has_gone_is_refused_and_not_answered_as_written() {
    on_every_engine(async |opened| {
        opened.store.load().await.unwrap();
        let (mut project, _) = opened.project("P", &[]).await;
        project.id = new_id();
        let refused = opened.store.remember(note(&project, 1, "lost")).await;
        let Err(StoreError::Refused(problem)) = refused else {
            panic!("{refused:?}");
        };
        assert!(problem.is(Code::UnknownProject), "{problem}");
    });
}
