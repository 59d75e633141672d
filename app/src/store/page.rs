//! The store's operations for the operator's page: they only read, but for the demonstration.

use super::{Result, Store};
use crate::live::Touched;
use prism_core::api::page::live::Change;
use prism_core::api::page::memory::{
    InputClass, InputRow, MemoryShown, MemoryView, RecallRow, ReviewWanted,
};
use prism_core::api::page::metrics::Metric;
use prism_core::api::page::signals::{SignalRow, Standing};
use prism_core::api::page::story::StoryItem;
use prism_core::api::page::{
    GateOutcomeName, GateRow, LastDelta, SessionRow, SessionsWanted, house,
};
use prism_core::loopback::{Outcome, Probe};
use prism_core::page::metrics::{DeliveryFacts, Facts};
use prism_core::page::{Cursor, range, rows_wanted};
use prism_core::receipt::{SessionReceipt, SignalFacts};
use prism_core::ring::ByCategory;
use prism_core::signal::Category;
use prism_core::{Moment, Problem};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Which part of a list is asked for.
#[derive(Clone, Debug)]
pub struct Range {
    /// The list's name: its cursors are good for no other.
    pub list: &'static str,
    pub since: Option<Moment>,
    pub until: Option<Moment>,
    pub cursor: Option<Cursor>,
    pub limit: usize,
}

impl Range {
    pub fn new(
        list: &'static str,
        since: Option<Moment>,
        until: Option<Moment>,
        cursor: Option<&str>,
        limit: Option<usize>,
    ) -> std::result::Result<Self, Problem> {
        range(since, until)?;
        let parse = |text| Cursor::parse(list, text);
        Ok(Self {
            list,
            since,
            until,
            cursor: cursor.map(parse).transpose()?,
            limit: rows_wanted(limit)?,
        })
    }
}

/// A part of a list, and how it goes on.
#[derive(Clone, Debug)]
pub struct Listed<T> {
    pub rows: Vec<T>,
    pub next: Option<String>,
    /// How far was looked, where not everything was.
    pub looked_back_to: Option<Moment>,
}

impl<T> Listed<T> {
    /// Merges what several projects gave, newest first; nothing is shown that lies beyond what was
    /// looked at everywhere.
    pub fn of(mut rows: Vec<(Cursor, T)>, looked_to: Option<Cursor>, range: &Range) -> Self {
        let limit = range.limit;
        rows.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        if let Some(end) = looked_to {
            rows.retain(|(at, _)| *at >= end);
        }
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = match more {
            true => rows.last().map(|(at, _)| *at),
            false => looked_to,
        };
        Self {
            looked_back_to: looked_to.filter(|_| !more).map(|c| c.at),
            next: next.map(|at| at.write(range.list)),
            rows: rows.into_iter().map(|(_, row)| row).collect(),
        }
    }

    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Listed<U> {
        Listed {
            rows: self.rows.into_iter().map(f).collect(),
            next: self.next,
            looked_back_to: self.looked_back_to,
        }
    }
}

/// Which signals are asked for.
#[derive(Clone, Debug, Default)]
pub struct SignalFilter {
    pub identity: Option<String>,
    pub from: Option<String>,
    pub to: Option<String>,
    pub category: Option<Category>,
    pub signal_type: Option<String>,
    pub state: Option<Standing>,
    pub words: Vec<String>,
    pub probes: bool,
}

/// A signal as a list has it, and what is needed to say why it is stuck.
#[derive(Clone, Debug)]
pub struct LookedAt {
    pub row: SignalRow,
    pub to_persona: Uuid,
    pub facts: SignalFacts,
    pub receipts: Vec<SessionReceipt>,
}

/// Inboxes, and the categories that are looked for there, the most urgent first.
#[derive(Clone, Debug)]
pub struct Inboxes {
    pub personas: Vec<Uuid>,
    pub categories: &'static [Category],
}

/// What waits on the operator.
#[derive(Clone, Debug, Default)]
pub struct OnOperator {
    pub to_me: Vec<LookedAt>,
    pub unread: Vec<LookedAt>,
    /// What waits in each inbox of the projects.
    pub counts: Vec<(Uuid, ByCategory)>,
    pub inputs: Vec<InputRow>,
    pub inputs_left: u64,
    pub warnings: Vec<GateRow>,
    pub warnings_left: u64,
}

/// Which end of inboxes is looked at, and how far.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub after: i64,
    pub newest: bool,
    pub n: usize,
}

#[derive(Clone, Debug, Default)]
pub struct MemoryFilter {
    pub kinds: Vec<String>,
    pub identity: Option<String>,
    pub words: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct RecallFilter {
    pub identity: Option<String>,
    pub session: Option<String>,
    pub cited: Option<bool>,
    pub words: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct InputFilter {
    pub review: Option<ReviewWanted>,
    pub class: Option<InputClass>,
    pub identity: Option<String>,
    pub surface: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct GateFilter {
    pub outcome: Option<GateOutcomeName>,
    pub labelled: Option<bool>,
    pub identity: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct SessionFilter {
    pub identity: Option<String>,
    pub surface: Option<String>,
    pub which: Option<SessionsWanted>,
}

#[derive(Clone, Debug, Default)]
pub struct ProbeFilter {
    pub identity: Option<String>,
    pub surface: Option<String>,
    pub machine_id: Option<String>,
    pub outcome: Option<Outcome>,
}

/// What of a story is asked for.
#[derive(Clone, Debug, Default)]
pub struct StoryFilter {
    pub signal_id: Option<String>,
    pub identity: Option<String>,
}

/// What a persona is at.
#[derive(Clone, Debug, Default)]
pub struct Doing {
    pub last_delta: Option<LastDelta>,
    pub task: Option<LookedAt>,
    pub oldest_unread_at: Option<Moment>,
}

impl Store {
    /// Which rows were touched, as a page knows them; a project of none concerns everybody.
    pub async fn changes(&self, touched: Vec<Touched>) -> Result<Vec<(Option<Uuid>, Change)>> {
        self.0.changes(touched).await
    }

    pub async fn list_signals(
        &self,
        projects: Vec<Uuid>,
        filter: SignalFilter,
        range: Range,
    ) -> Result<Listed<LookedAt>> {
        self.0.list_signals(projects, filter, range).await
    }

    /// What waits in these inboxes after a place, of some categories or all: the oldest, in order,
    /// or the newest. Whether there is more is for whoever asks for one more than it shows.
    pub async fn look_into(
        &self,
        personas: Vec<Uuid>,
        categories: Vec<Category>,
        look: Look,
    ) -> Result<Vec<(i64, LookedAt)>> {
        self.0.look_into(personas, categories, look).await
    }

    /// One signal's id and project, and its conversation, oldest first.
    pub async fn conversation(
        &self,
        projects: Vec<Uuid>,
        signal_id: String,
    ) -> Result<(LookedAt, Vec<LookedAt>, u64)> {
        self.0.conversation(projects, signal_id).await
    }

    /// How a signal was to be delivered, and until when it waits.
    pub async fn signal_terms(&self, signal_id: String) -> Result<(String, Moment)> {
        self.0.signal_terms(signal_id).await
    }

    /// The echo of a probe, once it came.
    pub async fn echo_of(&self, probe: Uuid) -> Result<Option<(Uuid, Moment)>> {
        self.0.echo_of(probe).await
    }

    /// Marks signals of an inbox as read by somebody without a session.
    pub async fn read_ids(
        &self,
        persona: Uuid,
        signal_ids: Vec<String>,
        now: Moment,
    ) -> Result<Vec<Uuid>> {
        self.0.read_ids(persona, signal_ids, now).await
    }

    /// What each of these personas is at.
    pub async fn doing(&self, personas: Vec<Uuid>) -> Result<BTreeMap<Uuid, Doing>> {
        self.0.doing(personas).await
    }

    pub async fn list_sessions(
        &self,
        projects: Vec<Uuid>,
        filter: SessionFilter,
        range: Range,
    ) -> Result<Listed<SessionRow>> {
        self.0.list_sessions(projects, filter, range).await
    }

    pub async fn list_gate(
        &self,
        projects: Vec<Uuid>,
        filter: GateFilter,
        range: Range,
    ) -> Result<Listed<GateRow>> {
        self.0.list_gate(projects, filter, range).await
    }

    pub async fn list_inputs(
        &self,
        projects: Vec<Uuid>,
        filter: InputFilter,
        range: Range,
    ) -> Result<Listed<InputRow>> {
        self.0.list_inputs(projects, filter, range).await
    }

    /// What waits in the operator's inboxes and in those of others, and what waits to be judged in some projects.
    pub async fn on_operator(
        &self,
        inboxes: [Inboxes; 2],
        projects: Vec<Uuid>,
    ) -> Result<OnOperator> {
        self.0.on_operator(inboxes, projects).await
    }

    pub async fn list_memory(
        &self,
        projects: Vec<Uuid>,
        filter: MemoryFilter,
        range: Range,
    ) -> Result<Listed<MemoryView>> {
        self.0.list_memory(projects, filter, range).await
    }

    pub async fn show_memory(&self, projects: Vec<Uuid>, id: String) -> Result<MemoryShown> {
        self.0.show_memory(projects, id).await
    }

    pub async fn list_recalls(
        &self,
        projects: Vec<Uuid>,
        filter: RecallFilter,
        range: Range,
    ) -> Result<Listed<RecallRow>> {
        self.0.list_recalls(projects, filter, range).await
    }

    pub async fn list_probes(
        &self,
        projects: Vec<Uuid>,
        filter: ProbeFilter,
        range: Range,
    ) -> Result<Listed<(Probe, house::ProbeRow)>> {
        self.0.list_probes(projects, filter, range).await
    }

    pub async fn story(
        &self,
        projects: Vec<Uuid>,
        filter: StoryFilter,
        range: Range,
    ) -> Result<Listed<StoryItem>> {
        self.0.story(projects, filter, range).await
    }

    /// The rows that these metrics of a range are counted from.
    pub async fn metric_facts(
        &self,
        projects: Vec<Uuid>,
        wanted: Vec<Metric>,
        since: Moment,
        until: Moment,
    ) -> Result<Facts> {
        self.0.metric_facts(projects, wanted, since, until).await
    }

    pub async fn delivery_facts(
        &self,
        projects: Vec<Uuid>,
        since: Moment,
        until: Moment,
    ) -> Result<DeliveryFacts> {
        self.0.delivery_facts(projects, since, until).await
    }

    pub async fn project_settings(&self) -> Result<Vec<house::ProjectSettings>> {
        self.0.project_settings().await
    }

    pub async fn stored(&self) -> Result<(house::Stored, Vec<house::SurfaceSeen>)> {
        self.0.stored().await
    }

    /// Writes the demonstration's rows beside its project, all or none.
    pub async fn mark_demo(&self, project: Uuid) -> Result<()> {
        self.0.mark_demo(project).await
    }

    pub async fn write_demo(&self, rows: crate::demo::Rows) -> Result<BTreeMap<String, u64>> {
        self.0.write_demo(rows).await
    }

    /// Takes a demonstration away with everything in it; false where the project is none.
    pub async fn remove_demo(&self, project: Uuid) -> Result<Option<BTreeMap<String, u64>>> {
        self.0.remove_demo(project).await
    }
}
