//! Signals looked at, not read.

use super::asked;
use crate::clock;
use crate::prism::{Caller, Prism};
use crate::store::page::{Look, LookedAt, SignalFilter};
use prism_core::api::ServerFrame;
use prism_core::api::page::signals::{
    InboxPage, InboxRead, ListSignals, LookInbox, ReadInbox, ShowSignal, SignalPage, SignalRow,
    SignalShown,
};
use prism_core::limits::DISMISS_IDS_MAX;
use prism_core::page::stuck::{Waits, stuck};
use prism_core::page::{Cursor, rows_wanted, words};
use prism_core::receipt::{Receipt, timeline};
use prism_core::signal::{Category, DeliveryClass, SignalType};
use prism_core::{Code, Moment, Problem};
use std::collections::HashMap;
use uuid::Uuid;

pub async fn list(
    prism: &Prism,
    caller: &Caller,
    request: ListSignals,
) -> Result<SignalPage, Problem> {
    let (scope, range) = asked(prism, caller, &request)?;
    if let Some(name) = &request.signal_type {
        SignalType::from_name(name).ok_or_else(|| {
            let hint = format!("use one of {}", SignalType::names());
            let message = format!("there is no type {:?}", prism_core::text::clip(name, 40));
            Problem::new(Code::UnknownType, message, hint)
        })?;
    }
    let filter = SignalFilter {
        identity: request.identity,
        from: request.from,
        to: request.to,
        category: request.category,
        probes: request.probes || request.signal_type.as_deref() == Some("Loopback"),
        signal_type: request.signal_type,
        state: request.state,
        words: words(request.words.as_deref())?,
    };
    let listed = prism.store.list_signals(scope, filter, range).await?;
    let mut knows = Recipients::new(prism);
    let listed = listed.map(|looked| knows.row(looked));
    Ok(SignalPage {
        signals: listed.rows,
        next: listed.next,
        looked_back_to: listed.looked_back_to,
    })
}

pub async fn show(
    prism: &Prism,
    caller: &Caller,
    request: ShowSignal,
) -> Result<SignalShown, Problem> {
    let scope = prism.scope(caller);
    let ids = scope.iter().map(|p| p.id).collect();
    let (own, thread, thread_more) = prism.store.conversation(ids, request.signal_id).await?;
    let project = scope.iter().find(|p| p.pid.as_str() == own.row.pid);
    let project = project.map_or(caller.project.id, |p| p.id);
    let id = own.row.signal_id.to_string();
    let trace = prism.store.trace(project, Some(id.clone()), None).await?;
    let (delivery_class, expires_at) = prism.store.signal_terms(id).await?;
    let mut knows = Recipients::new(prism);
    Ok(SignalShown {
        can_take_back: own.row.waiting && !own.row.leased,
        signal: knows.row(own),
        payload: trace.envelope.payload,
        from_session: trace.envelope.from_session,
        delivery_class: DeliveryClass::from_name(&delivery_class).unwrap_or(DeliveryClass::Async),
        publish_path: trace.publish_path,
        expires_at,
        timeline: timeline(&trace.facts, &trace.sessions, trace.notes),
        receipt: Receipt::assemble(&trace.facts, trace.sessions),
        thread: thread.into_iter().map(|looked| knows.row(looked)).collect(),
        thread_more,
    })
}

/// What its cursors are called.
const INBOX: &str = "inbox";

pub async fn inbox(
    prism: &Prism,
    caller: &Caller,
    request: LookInbox,
) -> Result<InboxPage, Problem> {
    let persona = match &request.identity {
        Some(name) => prism
            .directory
            .named(caller.project.id, name, Code::UnknownIdentity)?,
        None => caller.persona.clone(),
    };
    let limit = rows_wanted(request.limit)?;
    let after = match request.cursor.as_deref() {
        Some(cursor) => Cursor::parse(INBOX, cursor)?.row,
        None => -1,
    };
    let unread = prism.store.pending_counts(caller.project.id).await?;
    let look = Look {
        after,
        newest: false,
        n: limit + 1,
    };
    let mut rows = prism
        .store
        .look_into(vec![persona.id], Vec::new(), look)
        .await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|(seq, _)| {
        let at = Moment(0);
        Cursor { at, row: *seq }.write(INBOX)
    });
    let mut knows = Recipients::new(prism);
    Ok(InboxPage {
        identity: persona.identity.to_string(),
        unread: unread
            .into_iter()
            .find(|(id, _)| *id == persona.id)
            .map(|(_, n)| n)
            .unwrap_or_default(),
        signals: rows
            .into_iter()
            .map(|(_, looked)| knows.row(looked))
            .collect(),
        next,
    })
}

pub async fn read(
    prism: &Prism,
    caller: &Caller,
    request: ReadInbox,
) -> Result<InboxRead, Problem> {
    let n = request.signal_ids.len();
    if n == 0 || n > DISMISS_IDS_MAX {
        let most = format!("must be 1 to {DISMISS_IDS_MAX} ids and are {n}");
        return Err(Problem::field("signal_ids", most));
    }
    let persona = caller.persona.id;
    let read = prism
        .store
        .read_ids(persona, request.signal_ids, clock::now())
        .await?;
    let n = read.len() as u64;
    if n > 0 {
        let drained = ServerFrame::Drained {
            signal_ids: read,
            by_session: None,
        };
        prism.bus().tell(persona, None, drained);
    }
    Ok(InboxRead { read: n })
}

/// What is known of those whom signals wait for, asked once each.
pub struct Recipients<'a> {
    prism: &'a Prism,
    now: Moment,
    known: HashMap<Uuid, Recipient>,
}

#[derive(Clone, Copy)]
struct Recipient {
    state: prism_core::presence::RecipientState,
    connected: bool,
    waits: Option<prism_core::hook::Waiting>,
}

impl<'a> Recipients<'a> {
    pub fn new(prism: &'a Prism) -> Self {
        Self {
            prism,
            now: clock::now(),
            known: HashMap::new(),
        }
    }

    /// A row, with why it is stuck if it is.
    pub fn row(&mut self, looked: LookedAt) -> SignalRow {
        let LookedAt {
            mut row,
            to_persona,
            receipts,
            ..
        } = looked;
        if row.waiting {
            let (prism, now) = (self.prism, self.now);
            let recipient = *self.known.entry(to_persona).or_insert_with(|| {
                let (connected, waits) = prism.presence.at_hand(to_persona, now);
                Recipient {
                    state: prism
                        .presence
                        .recipient_state(to_persona, row.to_operator, now),
                    connected,
                    waits,
                }
            });
            row.stuck = stuck(
                &Waits {
                    to: &row.to_identity,
                    to_operator: row.to_operator,
                    category: row.category.unwrap_or(Category::Info),
                    since: row.created_at,
                    leased: row.leased,
                    recipient: recipient.state,
                    connected: recipient.connected,
                    waits_for_human: recipient.waits,
                    receipts: &receipts,
                },
                now,
            );
        }
        row
    }
}
