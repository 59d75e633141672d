//! Rows of memory, recalls and captured inputs, by cursor.

use super::{asked, projects};
use crate::prism::{Caller, Prism};
use crate::store::page::{InputFilter, MemoryFilter, RecallFilter};
use prism_core::api::page::memory::{
    InputPage, ListInputs, ListMemory, ListRecalls, MemoryPage, MemoryShown, RecallPage, ShowMemory,
};
use prism_core::memory::Kind;
use prism_core::page::words;
use prism_core::{Problem, text};

pub async fn list(
    prism: &Prism,
    caller: &Caller,
    request: ListMemory,
) -> Result<MemoryPage, Problem> {
    let (scope, range) = asked(prism, caller, &request)?;
    for name in &request.kinds {
        Kind::from_name(name).ok_or_else(|| {
            let known = Kind::names();
            Problem::field(
                "kinds",
                format!("{:?} is not one of {known}", text::clip(name, 40)),
            )
        })?;
    }
    let filter = MemoryFilter {
        kinds: request.kinds,
        identity: request.identity,
        words: words(request.words.as_deref())?,
    };
    let listed = prism.store.list_memory(scope, filter, range).await?;
    Ok(MemoryPage {
        rows: listed.rows,
        next: listed.next,
        looked_back_to: listed.looked_back_to,
    })
}

pub async fn show(
    prism: &Prism,
    caller: &Caller,
    request: ShowMemory,
) -> Result<MemoryShown, Problem> {
    let scope = projects(prism, caller);
    Ok(prism.store.show_memory(scope, request.id).await?)
}

pub async fn recalls(
    prism: &Prism,
    caller: &Caller,
    request: ListRecalls,
) -> Result<RecallPage, Problem> {
    let (scope, range) = asked(prism, caller, &request)?;
    let filter = RecallFilter {
        identity: request.identity,
        session: request.session_id,
        cited: request.cited,
        words: words(request.words.as_deref())?,
    };
    let listed = prism.store.list_recalls(scope, filter, range).await?;
    Ok(RecallPage {
        events: listed.rows,
        next: listed.next,
        looked_back_to: listed.looked_back_to,
    })
}

pub async fn inputs(
    prism: &Prism,
    caller: &Caller,
    request: ListInputs,
) -> Result<InputPage, Problem> {
    let (scope, range) = asked(prism, caller, &request)?;
    let filter = InputFilter {
        review: request.review,
        class: request.class,
        identity: request.identity,
        surface: request.surface,
    };
    let listed = prism.store.list_inputs(scope, filter, range).await?;
    Ok(InputPage {
        inputs: listed.rows,
        next: listed.next,
    })
}
