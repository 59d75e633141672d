//! Recall: the store finds, `core` ranks, and every hit says why it is there.

use super::memory::{author, names_of};
use crate::clock;
use crate::embed::Embedder;
use crate::prism::{Caller, Prism};
use crate::store::Store;
use crate::store::memory::{Filter, Found, MemoryRow, Phrasing, RecallEvent, Search, Terms, Words};
use prism_core::api::memory::{self as wire, LegView, Legs, RecallHit};
use prism_core::memory::entity::{Entity, EntityType};
use prism_core::memory::generation::{self, Generation};
use prism_core::memory::question::Question;
use prism_core::memory::question::asked_for::AskedFor;
use prism_core::memory::recall::{
    self, Candidates, LOW_CONFIDENCE, Places, Ranking, SPARE, Weights,
};
use prism_core::memory::{Kind, check_number, entity, required};
use prism_core::{Code, Problem, text};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Instant;
use uuid::Uuid;

/// Results unless asked otherwise, and at the most.
const K_DEFAULT: usize = 8;
const K_MAX: usize = 50;
/// Characters of a question; a longer one is a document.
const QUERY_CHARS_MAX: usize = 4_000;
/// Other phrasings of one question, and the characters of each.
const ALSO_MAX: usize = 5;
/// The same, with blank ones and repetitions.
const ALSO_GIVEN_MAX: usize = 20;
const ALSO_CHARS_MAX: usize = 500;
/// Characters of one result's text; the rest is read by its id.
const HIT_CHARS_MAX: usize = 1_200;

/// Who asks, and of what: all that finding needs, with or without a server around it.
pub struct Asking<'a> {
    pub store: &'a Store,
    pub embedder: &'a Embedder,
    pub project: Uuid,
    /// The people of the project, and which of them is the operator.
    pub names: &'a [String],
    pub operator: &'a str,
    /// Whose turn at the embedder this takes.
    pub asker: &'a str,
}

/// A question taken apart, and what the legs brought for it.
pub struct Looked {
    pub question: Question,
    pub found: Found,
    lexical_us: u64,
    embedded: Embedded,
}

impl Asking<'_> {
    /// Lets the legs look for a question and its other phrasings.
    pub async fn look(
        &self,
        query: &str,
        also: &[String],
        filter: Filter,
        legs: &Chosen<'_>,
    ) -> Result<Looked, Problem> {
        let read = |text: &str| Question::of(text, self.names, self.operator);
        let mut question = read(query);
        // What kind, whose and when is asked by the question alone; the others are words for it.
        let phrasings: Vec<Question> = std::iter::once(question.clone())
            .chain(also.iter().map(|text| read(text)))
            .collect();
        // The words are looked up while the question is embedded.
        let words = async {
            match legs.has("lexical") {
                true => {
                    let terms = phrasings.iter().map(|p| Terms {
                        words: p.terms.clone(),
                        identifiers: p.identifiers.clone(),
                    });
                    let terms = terms.collect();
                    self.store.words(self.project, terms, filter.clone()).await
                }
                false => Ok(vec![Words::default(); phrasings.len()]),
            }
        };
        let embedding = self.embed(&phrasings, legs.has("vector"));
        let (words, mut embedded) = tokio::join!(words, embedding);
        let words = words?;
        let lexical_us = words.iter().map(|words| words.us).sum();
        let vectors = std::mem::take(&mut embedded.vectors);
        if let Some(Some(vector)) = vectors.first() {
            question.asked_for = Generation::of(embedded.generation)
                .and_then(|generation| AskedFor::of(generation, vector));
        }
        let vectors = vectors.into_iter();
        let vectors = vectors.chain(std::iter::repeat(None));
        let identifiers = phrasings.into_iter().map(|p| p.identifiers);
        let asked = words.into_iter().zip(identifiers).zip(vectors);
        let entities = match legs.has("graph") {
            true => self.named(query),
            false => Vec::new(),
        };
        let search = Search {
            project_id: self.project,
            question: question.clone(),
            phrasings: asked
                .map(|((words, identifiers), vector)| Phrasing {
                    words,
                    identifiers,
                    vector,
                })
                .collect(),
            model: embedded.generation,
            entities,
            filter,
            weights: legs.weights(),
            neighbours: legs.has("neighbours"),
        };
        Ok(Looked {
            question,
            found: self.store.candidates(search).await?,
            lexical_us,
            embedded,
        })
    }

    /// The vectors of the question's phrasings, unless that leg was left out.
    async fn embed(&self, phrasings: &[Question], wanted: bool) -> Embedded {
        let embedder = self.embedder;
        let answering = embedder.generation().unwrap_or(&generation::BOTH);
        let off = |reason: &str| Embedded {
            vectors: Vec::new(),
            generation: answering.id,
            models: Vec::new(),
            lacks: None,
            ms: None,
            off: Some(reason.to_owned()),
        };
        if !wanted {
            return off("not asked for");
        }
        let texts = phrasings.iter().map(|p| p.embedded.clone());
        let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
        if texts.is_empty() {
            return off("the question has nothing but names and small words");
        }
        let started = Instant::now();
        // Names are a project's own: who is called the same elsewhere has a turn of their own.
        let asker = format!("{} {}", self.project, self.asker);
        match embedder.question(&asker, texts).await {
            Ok(asked) => Embedded {
                generation: asked.generation.id,
                models: asked.models,
                lacks: asked.lacks,
                vectors: {
                    let mut vectors = asked.vectors.into_iter();
                    let one = |p: &Question| match p.embedded.is_empty() {
                        true => None,
                        false => vectors.next(),
                    };
                    phrasings.iter().map(one).collect()
                },
                ms: Some(started.elapsed().as_secs_f64() * 1000.0),
                off: None,
            },
            Err(reason) => off(&reason),
        }
    }

    /// The things that a question names.
    fn named(&self, query: &str) -> Vec<Entity> {
        let mut named = entity::find(query, self.names);
        // Eight digits quote an id, or a commit.
        let ids = named.iter().filter(|e| e.kind == EntityType::Id);
        let commits: Vec<Entity> = ids.map(|id| Entity::commit(&id.name)).collect();
        named.extend(commits);
        named
    }
}

pub async fn recall(
    prism: &Prism,
    caller: &Caller,
    request: wire::Recall,
) -> Result<wire::Recalled, Problem> {
    let started = Instant::now();
    if request.preview && !caller.is_operator {
        return Err(Problem::new(
            prism_core::Code::OperatorOnly,
            "only the operator looks without a trace",
            "leave `preview` out",
        ));
    }
    let (query, k, filter) = checked(&request)?;
    let also = also(&request, &query)?;
    if let Some(unknown) = request.legs.iter().find(|l| !LEGS.contains(&l.as_str())) {
        return Err(Problem::new(
            Code::InvalidRequest,
            format!("`legs` names {unknown:?}, which is none"),
            format!("name some of {}, or leave `legs` out", LEGS.join(", ")),
        ));
    }
    let legs = Chosen(&request.legs);
    let weights = legs.weights();
    let asking = Asking {
        store: &prism.store,
        embedder: &prism.embedder,
        project: caller.project.id,
        names: &names_of(prism, caller),
        operator: prism.operator.as_str(),
        asker: caller.persona.identity.as_str(),
    };
    let Looked {
        question,
        found,
        lexical_us,
        embedded,
    } = asking.look(&query, &also, filter, &legs).await?;
    let Ranking {
        rows: ranked,
        confidence,
        places,
    } = recall::rank(&question, &found.candidates, &weights);
    let best = ranked.iter().take(k + SPARE).map(|r| r.id.clone());
    let rows = prism.store.rows(caller.project.id, best.collect()).await?;
    let mut by_id: HashMap<String, MemoryRow> = rows
        .into_iter()
        .map(|row| (row.id.to_string(), row))
        .collect();
    let standing = by_id
        .iter()
        .map(|(id, row)| (id.clone(), row.standing.clone()))
        .collect();
    let known = ranked
        .into_iter()
        .filter(|r| by_id.contains_key(&r.id))
        .collect();
    let ranked = recall::with_standing(known, &standing, &weights, &question);
    let shown = recall::shown(&ranked, confidence, k);
    let results: Vec<RecallHit> = ranked
        .into_iter()
        .take(shown)
        .filter_map(|scored| by_id.remove(&scored.id).map(|row| hit(scored, row)))
        .collect();

    let recall_event_id = (!request.preview).then(clock::new_id);
    let event = recall_event_id.map(|id| RecallEvent {
        id,
        by: author(caller),
        query,
        results: summary(&results, &found.candidates, &places),
        latency_us: started.elapsed().as_micros() as u64,
        tokens: results.iter().map(|r| recall::tokens(&r.text)).sum(),
        gate: prism.gate.actor(caller),
    });
    if event.is_some() {
        prism.gate.settled(caller).await;
    }
    // What is known is told even when nothing more can be written.
    let unrecorded = match event {
        Some(event) => prism.store.note_recall(event).await.err(),
        None => None,
    };
    // Nobody can cite what was not kept.
    let recall_event_id = recall_event_id.filter(|_| unrecorded.is_none());
    let unrecorded = unrecorded.map(|error| {
        format!(
            "this recall was not recorded: {}",
            Problem::from(error).message
        )
    });
    let on = |leg: &str, hits: usize, us: u64| {
        let state = if legs.has(leg) { "on" } else { "off" };
        LegView {
            state: state.into(),
            hits,
            ms: us as f64 / 1000.0,
            ..LegView::default()
        }
    };
    let vector = LegView {
        state: if embedded.off.is_none() { "on" } else { "off" }.into(),
        reason: embedded.off.or(embedded.lacks).or_else(|| {
            let still = "vectors are still being read; this recall looked at those that were there";
            found.still_reading.then(|| still.to_owned())
        }),
        hits: found.vector,
        ms: found.vector_us as f64 / 1000.0,
        embedding_ms: embedded.ms,
        pending: Some(found.embed_pending),
        models: embedded.models,
    };
    let legs = Legs {
        lexical: on("lexical", found.lexical, lexical_us),
        vector,
        graph: on("graph", found.graph, found.graph_us),
        recency: on("recency", found.candidates.rows.len(), found.recency_us),
    };
    let unsure = (confidence < LOW_CONFIDENCE).then(|| {
        "memory may not hold the answer: nothing it found is close to the question".to_owned()
    });
    let note = unsure
        .into_iter()
        .chain(unrecorded)
        .reduce(|a, b| format!("{a}; {b}"));
    Ok(wire::Recalled {
        recall_event_id,
        results,
        confidence: (confidence * 100.0).round() / 100.0,
        note,
        legs,
    })
}

/// The other phrasings, each once.
fn also(request: &wire::Recall, query: &str) -> Result<Vec<String>, Problem> {
    // Each is compared with the others: how many there are is known first.
    check_number("also", request.also.len(), ALSO_GIVEN_MAX)?;
    let mut also: Vec<String> = Vec::new();
    for text in &request.also {
        let text = text.trim();
        if text.chars().count() > ALSO_CHARS_MAX {
            let most = format!("may have {ALSO_CHARS_MAX} characters each; ask in a sentence");
            return Err(Problem::field("also", most));
        }
        let known = |other: &str| other.eq_ignore_ascii_case(text);
        if !text.is_empty() && !known(query) && !also.iter().any(|other| known(other)) {
            also.push(text.to_owned());
        }
    }
    if also.len() > ALSO_MAX {
        let most = format!("are {} and may be {ALSO_MAX} phrasings", also.len());
        return Err(Problem::field("also", most));
    }
    Ok(also)
}

fn checked(request: &wire::Recall) -> Result<(String, usize, Filter), Problem> {
    let query = required("query", &request.query)?;
    if query.chars().count() > QUERY_CHARS_MAX {
        return Err(Problem::field(
            "query",
            format!("may have {QUERY_CHARS_MAX} characters; ask in a sentence"),
        ));
    }
    let k = request.k.unwrap_or(K_DEFAULT);
    if !(1..=K_MAX).contains(&k) {
        return Err(Problem::field(
            "k",
            format!("is {k} and must be 1 to {K_MAX}"),
        ));
    }
    let kind = |name: &String| {
        Kind::from_name(name).ok_or_else(|| {
            Problem::field(
                "kinds",
                format!("{:?} is not one of {}", text::clip(name, 40), Kind::names()),
            )
        })
    };
    let kinds = request.kinds.iter().map(kind).collect::<Result<_, _>>()?;
    Ok((
        query,
        k,
        Filter {
            kinds,
            since: request.since,
            until: request.until,
            as_of: request.as_of,
        },
    ))
}

/// What a request may leave out by naming the others.
const LEGS: [&str; 6] = [
    "lexical",
    "vector",
    "graph",
    "recency",
    "neighbours",
    "verdicts",
];

/// The legs a request names; none means all of them.
pub struct Chosen<'a>(pub &'a [String]);

impl Chosen<'_> {
    fn has(&self, leg: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|l| l == leg)
    }

    fn weights(&self) -> Weights {
        let mut weights = Weights::default();
        if !self.has("recency") {
            weights.recency = 0.0;
        }
        if !self.has("graph") {
            weights.between = 0.0;
        }
        if !self.has("neighbours") {
            weights.session = 0.0;
        }
        if !self.has("verdicts") {
            (
                weights.works,
                weights.broken,
                weights.corrected,
                weights.superseded,
            ) = (0.0, 0.0, 0.0, 0.0);
        }
        weights
    }
}

/// The vectors of the question's phrasings, or why there are none.
struct Embedded {
    /// None for a phrasing that has nothing but names and small words.
    vectors: Vec<Option<Vec<f32>>>,
    /// The id on the vectors that they can be compared with, and the models that took part.
    generation: &'static str,
    models: Vec<String>,
    /// Why a model did not take part, and why none did.
    lacks: Option<String>,
    ms: Option<f64>,
    off: Option<String>,
}

fn hit(scored: recall::Scored, row: MemoryRow) -> RecallHit {
    RecallHit {
        id: row.id,
        kind: row.kind,
        identity: row.identity,
        created_at: row.created_at,
        title: row.title,
        text: text::clip(&row.text, HIT_CHARS_MAX),
        score: (scored.score * 1e3).round() / 1e3,
        why: scored.why,
        verdicts: row.verdicts,
        refers_to: row.refers_to,
        ruled_out: row.ruled_out,
        superseded_by: row.standing.superseded_by.and_then(|id| id.parse().ok()),
    }
}

/// What the recall's event keeps of each result: its place, and its place in each leg.
fn summary(results: &[RecallHit], found: &Candidates, places: &Places) -> Value {
    let at: HashMap<&str, usize> = found
        .rows
        .iter()
        .enumerate()
        .map(|(i, r)| (r.id.as_str(), i))
        .collect();
    let one = |(rank, hit): (usize, &RecallHit)| {
        let i = at.get(hit.id.to_string().as_str()).copied();
        let row = i.map(|i| &found.rows[i]);
        json!({"id": hit.id, "rank": rank + 1, "score": hit.score, "lexical": i.and_then(|i| places.lexical(i)), "vector": i.and_then(|i| places.vector(i)),
            "cosine": row.and_then(|r| r.near).map(|n| (n.field * 1e3).round() / 1e3), "graph": row.is_some_and(|r| r.mentions)})
    };
    results.iter().enumerate().map(one).collect()
}
