//! The operator's word: verdicts, captured prompts, and their review.

use super::memory::{author, entities_of, target_of};
use crate::clock;
use crate::prism::{Caller, Prism};
use crate::store::Table;
use crate::store::memory::{ConfirmationRow, Edge, InputRow, NewMemory, Node};
use prism_core::Problem;
use prism_core::api::memory::{
    Captured, Confirm, Id, Inputs, InputsAnswer, OperatorInput, ReviewInputs, Reviewed,
};
use prism_core::id::Quoted;
use prism_core::limits::REVIEW_IDS_MAX;
use prism_core::memory::operator::{Class, Confidence, Directness, Review, Verdict, is_routine};
use prism_core::memory::reference::Reference;
use prism_core::memory::row;
use prism_core::memory::{EdgeKind, optional, required};

pub async fn confirm(prism: &Prism, caller: &Caller, request: Confirm) -> Result<Id, Problem> {
    let reference = Reference::parse("refers_to", &request.refers_to)?;
    let verdict = Verdict::from_name(&request.verdict)
        .ok_or_else(|| Problem::field("verdict", format!("must be one of {}", Verdict::names())))?;
    let notes = optional("notes", request.notes.as_deref())?;
    let target = target_of(prism, caller, "refers_to", &reference).await?;
    let by = author(caller);
    // An agent can only report what the operator said; the operator's own hands are direct.
    let directness = if caller.is_operator && (request.direct || caller.from_page) {
        Directness::Direct
    } else {
        Directness::Reported
    };
    let row = ConfirmationRow {
        refers_to_kind: reference.kind().name(),
        refers_to_id: target.id,
        verdict,
        notes,
        confirmed_by: prism.operator.to_string(),
        confirmed_via: format!("{}/{}", by.identity, by.surface),
        directness,
        on_own_delta: !caller.is_operator
            && target.identity.is_some_and(|name| by.identity.is(&name)),
    };
    let (row, indexed) = row::confirmation(row, &target.reference, target.words.as_deref());
    let id = clock::new_id();
    let entities = entities_of(prism, caller, &indexed.text);
    let edges = vec![Edge::to(EdgeKind::Confirms, target.node)];
    prism
        .store
        .remember(NewMemory {
            id,
            by,
            row,
            indexed: Some(indexed),
            entities,
            edges,
            supersedes: None,
            imported_session: None,
        })
        .await?;
    Ok(Id {
        id,
        number: None,
        version: None,
        warnings: Vec::new(),
    })
}

pub async fn operator_input(
    prism: &Prism,
    caller: &Caller,
    request: OperatorInput,
) -> Result<Captured, Problem> {
    let class = Class::from_name(&request.class)
        .ok_or_else(|| Problem::field("class", format!("must be one of {}", Class::names())))?;
    let confidence = Confidence::from_name(&request.confidence).ok_or_else(|| {
        Problem::field(
            "confidence",
            format!("must be one of {}", Confidence::names()),
        )
    })?;
    let prompt_text = required("prompt_text", &request.prompt_text)?;
    if is_routine(&prompt_text) {
        return Ok(Captured {
            id: None,
            captured: false,
            reason: Some("routine_ack".into()),
        });
    }
    let triggered_action = optional("triggered_action", request.triggered_action.as_deref())?;
    let reverses_delta = match &request.reverses_delta {
        Some(quoted) => Some(
            prism
                .store
                .resolve(
                    caller.project.id,
                    Table::Deltas,
                    "reverses_delta",
                    Quoted::parse("reverses_delta", quoted.trim_start_matches("delta:"))?,
                )
                .await?,
        ),
        None => None,
    };
    let by = author(caller);
    // What it speaks of: the delta it reverses, else what the session did last, else the session.
    let labelled = match (reverses_delta, by.session_id) {
        (Some(delta), _) => Some(Node::Id(delta.to_string())),
        (None, session) => session.map(Node::Work),
    };
    // What the operator writes down with their own hands was said to whoever did the work.
    let spoken_to = match (caller.is_operator, reverses_delta) {
        (false, _) => Some(by.identity.to_string()),
        (true, Some(delta)) => {
            let delta = prism.store.delta(caller.project.id, delta).await?;
            delta.map(|d| d.identity)
        }
        (true, None) => None,
    };
    let row = InputRow {
        class,
        prompt_text,
        triggered_action,
        reverses_delta,
        confidence,
    };
    let (row, indexed) = row::input(prism.operator.as_str(), spoken_to.as_deref(), row);
    let id = clock::new_id();
    let named = format!(
        "{} {}",
        indexed.text,
        spoken_to.as_deref().unwrap_or_default()
    );
    let entities = entities_of(prism, caller, &named);
    let edges = labelled
        .into_iter()
        .map(|node| Edge::to(EdgeKind::Labels, node))
        .collect();
    prism
        .store
        .remember(NewMemory {
            id,
            by,
            row,
            indexed: Some(indexed),
            entities,
            edges,
            supersedes: None,
            imported_session: None,
        })
        .await?;
    Ok(Captured {
        id: Some(id),
        captured: true,
        reason: None,
    })
}

pub async fn inputs(
    prism: &Prism,
    caller: &Caller,
    request: Inputs,
) -> Result<InputsAnswer, Problem> {
    let review = match request.review.as_deref() {
        None | Some("all") => None,
        Some(state @ ("unreviewed" | "accepted" | "rejected")) => Some(state.to_owned()),
        Some(_) => {
            return Err(Problem::field(
                "review",
                "must be unreviewed, accepted, rejected or all",
            ));
        }
    };
    let n = request.n.unwrap_or(100);
    if !(1..=1000).contains(&n) {
        return Err(Problem::field("n", format!("is {n} and must be 1 to 1000")));
    }
    Ok(InputsAnswer {
        inputs: prism.store.inputs(caller.project.id, review, n).await?,
    })
}

pub async fn review(
    prism: &Prism,
    caller: &Caller,
    request: ReviewInputs,
) -> Result<Reviewed, Problem> {
    if request.ids.is_empty() {
        return Err(Problem::field("ids", "must name at least one input"));
    }
    if request.ids.len() > REVIEW_IDS_MAX {
        let most = format!("may be {REVIEW_IDS_MAX}; these are {}", request.ids.len());
        return Err(Problem::field("ids", most));
    }
    let verdict = match request.action.as_str() {
        "accept" => Some(Review::Accepted),
        "reject" => Some(Review::Rejected),
        "undo" => None,
        _ => return Err(Problem::field("action", "must be accept, reject or undo")),
    };
    let reviewed = prism
        .store
        .review(caller.project.id, request.ids, verdict, clock::now())
        .await?;
    Ok(Reviewed {
        reviewed,
        action: request.action,
    })
}
