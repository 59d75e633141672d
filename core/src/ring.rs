//! The inbox as the operator sees it: the last 50 signals of one identity on
//! one machine, and the small count derived from them.
//!
//! Draining marks entries read and keeps them: the bell goes out, the history stays.

use crate::envelope::Envelope;
use crate::limits::{HELLO_PENDING_MAX, RING_ENTRIES_MAX};
use crate::moment::Moment;
use crate::signal::Category;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One line of the ring file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    pub ts: Moment,
    pub cat: Category,
    pub sig_type: String,
    pub from: String,
    pub summary: String,
    pub sid: String,
    pub read: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<String>,
}

/// How many are unread, by category.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE", default)]
pub struct ByCategory {
    pub info: u32,
    pub task: u32,
    pub ask: u32,
    pub blocker: u32,
}

impl ByCategory {
    pub fn get(&self, category: Category) -> u32 {
        match category {
            Category::Info => self.info,
            Category::Task => self.task,
            Category::Ask => self.ask,
            Category::Blocker => self.blocker,
        }
    }

    pub fn add(&mut self, category: Category, n: u32) {
        match category {
            Category::Info => self.info += n,
            Category::Task => self.task += n,
            Category::Ask => self.ask += n,
            Category::Blocker => self.blocker += n,
        }
    }

    /// What is left when one of a category was taken.
    pub fn take(&mut self, category: Category) {
        let n = match category {
            Category::Info => &mut self.info,
            Category::Task => &mut self.task,
            Category::Ask => &mut self.ask,
            Category::Blocker => &mut self.blocker,
        };
        *n = n.saturating_sub(1);
    }

    pub fn total(&self) -> u32 {
        self.info + self.task + self.ask + self.blocker
    }
}

/// The newest unread ASK or BLOCKER.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Actionable {
    pub cat: Category,
    pub from: String,
    pub summary: String,
    pub ts: Moment,
    pub sid: String,
}

/// The count file: what a statusline reads once a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Count {
    pub unread: u32,
    pub by_cat: ByCategory,
    pub last_sid: Option<String>,
    pub last_ts: Option<Moment>,
    pub latest_actionable: Option<Actionable>,
    /// How far each project's inbox was seen, by the project's id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub seen_seq: BTreeMap<String, i64>,
    /// The copy of the store in which that was so, where the server says which.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub seen_copy: BTreeMap<String, String>,
}

/// What became of an envelope at the cache door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Added,
    /// Already here and unread, or seen before and trimmed since.
    Known,
    /// Already here and read.
    Read,
    /// An event about the mesh.
    System,
    /// Addressed to somebody else.
    Foreign,
}

/// Which entries a mark speaks of.
#[derive(Clone, Copy, Debug)]
pub enum Which<'a> {
    All,
    These(&'a [String]),
}

/// The ring as it stood before a shim said hello.
///
/// Other shims write here, too: only of what stood before the hello can its answer say anything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BeforeHello {
    /// Unread entries of the project.
    pub unread: Vec<String>,
    /// How far the project's inbox was seen.
    pub seen: Option<i64>,
}

/// What the server answered a hello about one inbox.
#[derive(Clone, Copy, Debug)]
pub struct InboxState<'a> {
    /// The id under which the server counts this inbox.
    pub project: &'a str,
    /// How far the inbox reaches.
    pub head_seq: i64,
    /// What nobody has drained, newest first; cut at [`HELLO_PENDING_MAX`].
    pub pending: &'a [String],
    /// It is another copy of the inbox that was seen here.
    pub restarted: bool,
    /// Which copy of the store it is in, where the server says so.
    pub copy: Option<&'a str>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ring {
    pub entries: Vec<Entry>,
    pub seen_seq: BTreeMap<String, i64>,
    pub seen_copy: BTreeMap<String, String>,
}

impl Ring {
    /// Reads the two files; a torn or foreign line is skipped and counted.
    pub fn parse(ring: &str, count: Option<&str>) -> (Self, usize) {
        let mut skipped = 0;
        let mut entries: Vec<Entry> = Vec::new();
        for line in ring.lines().filter(|l| !l.trim().is_empty()) {
            match serde_json::from_str::<Entry>(line) {
                Ok(entry) if !entries.iter().any(|e| e.sid == entry.sid) => entries.push(entry),
                _ => skipped += 1,
            }
        }
        let count = count
            .and_then(|text| serde_json::from_str::<Count>(text).ok())
            .unwrap_or_default();
        let mut ring = Self {
            entries,
            seen_seq: count.seen_seq,
            seen_copy: count.seen_copy,
        };
        ring.trim();
        (ring, skipped)
    }

    pub fn to_lines(&self) -> String {
        self.entries
            .iter()
            .filter_map(|e| serde_json::to_string(e).ok())
            .map(|line| line + "\n")
            .collect()
    }

    /// Lets in what the stream brought: not a system event, addressed here, not seen before.
    ///
    /// `project` is the id under which the server counts this inbox. The stream brings an inbox
    /// in its order, so this moves the cursor. `read` says that somebody has drained it already.
    pub fn arrived(
        &mut self,
        envelope: &Envelope,
        identity: &str,
        project: &str,
        read: bool,
        now: Moment,
    ) -> Recorded {
        if let Some(stopped) = stopped(envelope, identity) {
            return stopped;
        }
        // A probe goes to one session only, so its place in the inbox says
        // nothing about what the other sessions' shims have recorded here.
        let seq = envelope.seq.filter(|_| !envelope.is_loopback());
        let seen = self.is_seen(seq, project);
        if let Some(seq) = seq {
            let through = self.seen_seq.entry(project.to_owned()).or_insert(seq);
            *through = seq.max(*through);
        }
        self.add(envelope, seen, read, now)
    }

    /// Lets in what a drain brought, of whatever project.
    ///
    /// A drain may skip what another session is being given, so it says nothing about how far
    /// the inbox was seen. `project` is the inbox's id where the caller knows it.
    pub fn drained(
        &mut self,
        envelope: &Envelope,
        identity: &str,
        project: Option<&str>,
        now: Moment,
    ) -> Recorded {
        if let Some(stopped) = stopped(envelope, identity) {
            return stopped;
        }
        let seen = project.is_some_and(|project| self.is_seen(envelope.seq, project));
        self.add(envelope, seen, false, now)
    }

    fn is_seen(&self, seq: Option<i64>, project: &str) -> bool {
        let through = self.seen_seq.get(project);
        seq.zip(through)
            .is_some_and(|(seq, through)| seq <= *through)
    }

    fn add(&mut self, envelope: &Envelope, seen: bool, read: bool, now: Moment) -> Recorded {
        let sid = envelope.signal_id.to_string();
        match self.entries.iter().find(|e| e.sid == sid) {
            Some(entry) if entry.read => return Recorded::Read,
            Some(_) => return Recorded::Known,
            None if seen => return Recorded::Known,
            None => {}
        }
        self.entries.push(Entry {
            ts: envelope.created_at.unwrap_or(now),
            cat: envelope.resolved_category(),
            sig_type: crate::text::clip(&crate::text::one_line(&envelope.signal_type), 40),
            from: crate::text::clip(
                &crate::text::one_line(&envelope.from_identity),
                crate::Identity::CHARS_MAX,
            ),
            summary: envelope.summary(),
            sid,
            read: read || envelope.is_loopback(),
            pid: envelope.pid.clone(),
        });
        self.trim();
        Recorded::Added
    }

    /// Makes room: the oldest entry that was read goes, an unread one only where all are unread.
    fn trim(&mut self) {
        while self.entries.len() > RING_ENTRIES_MAX {
            let oldest_read = self.entries.iter().position(|e| e.read);
            self.entries.remove(oldest_read.unwrap_or(0));
        }
    }

    /// Marks entries read and keeps them; returns how many changed.
    pub fn mark_read(&mut self, which: Which<'_>) -> usize {
        let mut changed = 0;
        for entry in &mut self.entries {
            let named = match which {
                Which::All => true,
                Which::These(sids) => sids.contains(&entry.sid),
            };
            if named && !entry.read {
                entry.read = true;
                changed += 1;
            }
        }
        changed
    }

    /// Takes back a mark: these wait in the queue again.
    pub fn mark_unread(&mut self, sids: &[String]) -> usize {
        let waiting = self
            .entries
            .iter_mut()
            .filter(|e| e.read && sids.contains(&e.sid));
        waiting.map(|e| e.read = false).count()
    }

    /// Notes how one project's inbox stands here, right before a hello.
    pub fn before_hello(&self, pid: &str, project: &str) -> BeforeHello {
        let mine = |e: &&Entry| !e.read && e.pid.as_deref() == Some(pid);
        let unread = self.entries.iter().filter(mine);
        BeforeHello {
            unread: unread.map(|e| e.sid.clone()).collect(),
            seen: self.seen_seq.get(project).copied(),
        }
    }

    /// Agrees with the answer to a hello; returns what is unread again.
    ///
    /// What was unread before the hello and is not pending was drained, expired or taken back
    /// while we were away. What was read and is pending came back: its drain was never confirmed.
    pub fn reconcile(&mut self, before: &BeforeHello, inbox: InboxState<'_>) -> Vec<String> {
        // A cut list says nothing about what it leaves out.
        if inbox.pending.len() < HELLO_PENDING_MAX {
            let gone = before.unread.iter().filter(|s| !inbox.pending.contains(s));
            let gone: Vec<String> = gone.cloned().collect();
            self.mark_read(Which::These(&gone));
        }
        // An inbox that reaches less far than was seen is an older copy of it: what it counts
        // from here on is new, and what it still has undrained was perhaps trimmed here.
        // So is one of another copy of the store than it was seen in.
        let another = match inbox.copy {
            Some(copy) => {
                let seen_in = self
                    .seen_copy
                    .insert(inbox.project.to_owned(), copy.to_owned());
                seen_in.is_some_and(|seen_in| seen_in != copy)
            }
            None => false,
        };
        if another || inbox.restarted || before.seen.is_some_and(|seen| inbox.head_seq < seen) {
            self.seen_seq.remove(inbox.project);
        }
        let back = |e: &&Entry| e.read && inbox.pending.contains(&e.sid);
        let again: Vec<String> = self
            .entries
            .iter()
            .filter(back)
            .map(|e| e.sid.clone())
            .collect();
        self.mark_unread(&again);
        again
    }

    /// Makes these the unread ones, and no others: those that are new here come last.
    pub fn shows(&mut self, unread: &[Entry]) {
        for entry in &mut self.entries {
            entry.read = !unread.iter().any(|e| e.sid == entry.sid);
        }
        for new in unread {
            if !self.entries.iter().any(|e| e.sid == new.sid) {
                self.entries.push(new.clone());
            }
        }
        self.trim();
    }

    /// The last `n` entries, oldest first.
    pub fn tail(&self, n: usize) -> &[Entry] {
        &self.entries[self.entries.len().saturating_sub(n)..]
    }

    pub fn is_read(&self, sid: &str) -> bool {
        self.entries.iter().any(|e| e.read && e.sid == sid)
    }

    pub fn count(&self) -> Count {
        let mut by_cat = ByCategory::default();
        for entry in self.entries.iter().filter(|e| !e.read) {
            by_cat.add(entry.cat, 1);
        }
        let latest = self
            .entries
            .iter()
            .rev()
            .find(|e| !e.read && matches!(e.cat, Category::Ask | Category::Blocker));
        let last = self.entries.last();
        Count {
            unread: by_cat.total(),
            by_cat,
            last_sid: last.map(|e| e.sid.clone()),
            last_ts: last.map(|e| e.ts),
            latest_actionable: latest.map(|e| Actionable {
                cat: e.cat,
                from: e.from.clone(),
                summary: e.summary.clone(),
                ts: e.ts,
                sid: e.sid.clone(),
            }),
            seen_seq: self.seen_seq.clone(),
            seen_copy: self.seen_copy.clone(),
        }
    }
}

/// Why an envelope does not belong in this ring at all.
fn stopped(envelope: &Envelope, identity: &str) -> Option<Recorded> {
    if envelope.is_system() || envelope.signal_type.is_empty() {
        return Some(Recorded::System);
    }
    let mine = envelope.to_identity.eq_ignore_ascii_case(identity);
    (!mine).then_some(Recorded::Foreign)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use uuid::Uuid;

    const NOW: Moment = Moment(1_763_200_000_000_000);

    fn envelope(n: u128, kind: &str, to: &str, seq: Option<i64>) -> Envelope {
        serde_json::from_value(json!({
            "signal_id": Uuid::from_u128(n), "signal_type": kind, "from_identity": "Donna", "to_identity": to,
            "payload": {"summary": format!("signal {n}")}, "created_at": NOW, "seq": seq, "pid": "P",
        }))
        .unwrap()
    }

    fn record(ring: &mut Ring, e: &Envelope) -> Recorded {
        ring.arrived(e, "Texi", "project", false, NOW)
    }

    #[test]
    fn system_events_and_other_peoples_signals_stop_at_the_door() {
        let mut ring = Ring::default();
        for kind in ["PeerJoined", "PeerLeft", "MasterPreempted", ""] {
            assert_eq!(
                record(&mut ring, &envelope(1, kind, "Texi", None)),
                Recorded::System
            );
        }
        for to in ["Donna", "*"] {
            assert_eq!(
                record(&mut ring, &envelope(1, "TaskAssigned", to, None)),
                Recorded::Foreign
            );
        }
        assert_eq!(ring, Ring::default());
    }

    #[test]
    fn recording_twice_keeps_one_entry() {
        let mut ring = Ring::default();
        assert_eq!(
            record(&mut ring, &envelope(1, "TaskAssigned", "texi", Some(1))),
            Recorded::Added
        );
        let before = ring.clone();
        assert_eq!(
            record(&mut ring, &envelope(1, "TaskAssigned", "Texi", Some(1))),
            Recorded::Known
        );
        assert_eq!(ring, before);
    }

    #[test]
    fn the_ring_keeps_50_and_a_trimmed_entry_never_comes_back_unread() {
        let mut ring = Ring::default();
        for n in 1..=60 {
            record(
                &mut ring,
                &envelope(n, "TaskAssigned", "Texi", Some(n as i64)),
            );
        }
        assert_eq!(ring.entries.len(), 50);
        assert_eq!(ring.count().unread, 50);
        assert_eq!(
            record(&mut ring, &envelope(3, "TaskAssigned", "Texi", Some(3))),
            Recorded::Known
        );
        assert_eq!(ring.entries[0].summary, "signal 11");
    }

    #[test]
    fn marking_keeps_entries_and_only_the_named_ones_change() {
        let mut ring = Ring::default();
        for n in 1..=3 {
            record(
                &mut ring,
                &envelope(n, "ReviewRequested", "Texi", Some(n as i64)),
            );
        }
        assert_eq!(
            ring.mark_read(Which::These(&[Uuid::from_u128(2).to_string()])),
            1
        );
        assert_eq!(
            (
                ring.count().unread,
                ring.count().by_cat.ask,
                ring.entries.len()
            ),
            (2, 2, 3)
        );
        assert_eq!(ring.mark_read(Which::These(&[])), 0);
        assert_eq!(ring.mark_read(Which::All), 2);
        assert_eq!((ring.count().unread, ring.tail(5).len()), (0, 3));
    }

    #[test]
    fn the_latest_actionable_is_the_newest_unread_ask_or_blocker() {
        let mut ring = Ring::default();
        record(&mut ring, &envelope(1, "ReviewRequested", "Texi", None));
        let mut blocker = envelope(2, "StatusUpdate", "Texi", None);
        blocker.category = Some(Category::Blocker);
        record(&mut ring, &blocker);
        record(&mut ring, &envelope(3, "TaskAssigned", "Texi", None));
        let sid = |ring: &Ring| ring.count().latest_actionable.map(|a| a.sid);
        assert_eq!(sid(&ring), Some(blocker.signal_id.to_string()));
        ring.mark_read(Which::These(&[blocker.signal_id.to_string()]));
        assert_eq!(sid(&ring), Some(Uuid::from_u128(1).to_string()));
        ring.mark_read(Which::All);
        assert_eq!(sid(&ring), None);
    }

    #[test]
    fn a_probe_enters_as_read_and_rings_no_count() {
        let mut ring = Ring::default();
        record(&mut ring, &envelope(9, "TaskAssigned", "Texi", Some(9)));
        assert_eq!(
            record(&mut ring, &envelope(4, "Loopback", "Texi", Some(4))),
            Recorded::Added
        );
        assert_eq!((ring.entries.len(), ring.count().unread), (2, 1));
    }

    #[test]
    fn a_torn_or_foreign_line_is_skipped_and_counted() {
        let mut ring = Ring::default();
        record(&mut ring, &envelope(1, "TaskAssigned", "Texi", Some(7)));
        let text = format!("{}{{\"ts\":\"2026-\nnot json\n{{}}\n\n", ring.to_lines());
        let count = serde_json::to_string(&ring.count()).unwrap();
        assert_eq!(Ring::parse(&text, Some(&count)), (ring.clone(), 3));
        assert_eq!(Ring::parse(&text, Some("garbage")).0.seen_seq.len(), 0);
    }

    fn sid(n: u128) -> String {
        Uuid::from_u128(n).to_string()
    }

    fn inbox(head_seq: i64, pending: &[String]) -> InboxState<'_> {
        InboxState {
            project: "project",
            head_seq,
            pending,
            restarted: false,
            copy: None,
        }
    }

    #[test]
    fn a_place_that_was_seen_in_another_copy_of_the_store_was_not_seen() {
        let mut ring = Ring::default();
        let pending = Vec::new();
        let of_copy = |copy| InboxState {
            copy: Some(copy),
            ..inbox(3, &pending)
        };
        ring.seen_seq.insert("project".into(), 3);
        let hello = |ring: &mut Ring, copy| {
            let before = ring.before_hello("p", "project");
            ring.reconcile(&before, of_copy(copy));
            ring.seen_seq.contains_key("project")
        };
        assert!(hello(&mut ring, "one"), "which it was is not known");
        assert!(hello(&mut ring, "one"));
        // As the files keep it, whoever reads them next.
        let count = serde_json::to_string(&ring.count()).unwrap();
        let (mut ring, _) = Ring::parse("", Some(&count));
        assert!(!hello(&mut ring, "two"), "reaching as far says nothing");
    }

    fn ring_of(last: u128) -> Ring {
        let mut ring = Ring::default();
        for n in 1..=last {
            let e = envelope(n, "TaskAssigned", "Texi", Some(n as i64));
            record(&mut ring, &e);
        }
        ring
    }

    #[test]
    fn what_was_drained_while_we_were_away_is_marked_read() {
        let mut ring = ring_of(3);
        assert_eq!(ring.before_hello("other", "other"), BeforeHello::default());
        let before = ring.before_hello("P", "project");
        assert_eq!((before.unread.len(), before.seen), (3, Some(3)));
        assert!(ring.reconcile(&before, inbox(3, &[sid(2)])).is_empty());
        assert_eq!(ring.count().unread, 1);
    }

    #[test]
    fn what_a_sibling_recorded_after_the_hello_stays_unread() {
        let mut ring = ring_of(1);
        let before = ring.before_hello("P", "project");
        record(&mut ring, &envelope(2, "TaskAssigned", "Texi", Some(2)));
        ring.reconcile(&before, inbox(1, &[sid(1)]));
        assert_eq!(ring.count().unread, 2);
        assert_eq!(ring.seen_seq["project"], 2, "and the cursor stays with it");
    }

    #[test]
    fn what_a_cut_list_leaves_out_stays_unread() {
        let mut ring = ring_of(2);
        let before = ring.before_hello("P", "project");
        let others: Vec<String> = (0..HELLO_PENDING_MAX as u128)
            .map(|n| sid(n + 100))
            .collect();
        ring.reconcile(&before, inbox(2000, &others));
        assert_eq!(ring.count().unread, 2);
    }

    #[test]
    fn a_drain_that_was_never_confirmed_is_unread_again_at_the_hello() {
        let mut ring = ring_of(3);
        ring.mark_read(Which::All);
        let before = ring.before_hello("P", "project");
        let again = ring.reconcile(&before, inbox(3, &[sid(3)]));
        assert_eq!((again, ring.count().unread), (vec![sid(3)], 1));
    }

    #[test]
    fn an_older_copy_of_the_inbox_starts_the_cursor_again() {
        let mut ring = ring_of(60);
        ring.mark_read(Which::All);
        let before = ring.before_hello("P", "project");
        assert!(ring.reconcile(&before, inbox(5, &[sid(3)])).is_empty());
        // Trimmed here, undrained there: it is a waiting signal again.
        let third = envelope(3, "TaskAssigned", "Texi", Some(3));
        assert_eq!(record(&mut ring, &third), Recorded::Added);
        let new = envelope(99, "TaskAssigned", "Texi", Some(6));
        assert_eq!(record(&mut ring, &new), Recorded::Added);
        assert_eq!(ring.count().unread, 2);
    }

    #[test]
    fn another_copy_that_has_caught_up_starts_the_cursor_again() {
        let mut ring = ring_of(3);
        ring.mark_read(Which::All);
        let before = ring.before_hello("P", "project");
        let new = envelope(99, "TaskAssigned", "Texi", Some(3));
        let pending = [sid(99)];
        ring.clone().reconcile(&before, inbox(3, &pending));
        assert_eq!(record(&mut ring.clone(), &new), Recorded::Known);
        let restarted = InboxState {
            restarted: true,
            ..inbox(3, &pending)
        };
        ring.reconcile(&before, restarted);
        assert_eq!(record(&mut ring, &new), Recorded::Added);
        assert_eq!((ring.count().unread, ring.seen_seq["project"]), (1, 3));
    }

    #[test]
    fn a_drain_never_moves_the_cursor_of_any_inbox() {
        let mut ring = ring_of(2);
        let mut other = envelope(50, "TaskAssigned", "Texi", Some(900));
        other.pid = Some("OTHER".into());
        assert_eq!(ring.drained(&other, "Texi", None, NOW), Recorded::Added);
        assert_eq!(ring.entries[2].pid.as_deref(), Some("OTHER"));
        // A sibling is being given 3 and 4 while we are given 5.
        let fifth = envelope(5, "TaskAssigned", "Texi", Some(5));
        ring.drained(&fifth, "Texi", Some("project"), NOW);
        assert_eq!(ring.seen_seq["project"], 2);
        let third = envelope(3, "TaskAssigned", "Texi", Some(3));
        assert_eq!(record(&mut ring, &third), Recorded::Added);
        assert_eq!(record(&mut ring, &fifth), Recorded::Known);
        ring.mark_read(Which::These(&[sid(50), sid(5)]));
        assert_eq!(record(&mut ring, &fifth), Recorded::Read);
        assert_eq!(ring.count().unread, 3, "a drain marks its own ids only");
    }

    #[test]
    fn what_is_shown_is_unread_and_everything_else_is_read() {
        let mut ring = ring_of(3);
        let mut shown: Vec<Entry> = ring_of(4).entries;
        shown.remove(0);
        ring.shows(&shown);
        let unread = |ring: &Ring| -> Vec<String> {
            let unread = ring.entries.iter().filter(|e| !e.read);
            unread.map(|e| e.sid.clone()).collect()
        };
        assert_eq!(unread(&ring), [sid(2), sid(3), sid(4)]);
        ring.shows(&[]);
        assert_eq!((unread(&ring).len(), ring.entries.len()), (0, 4));
    }

    #[test]
    fn a_probe_never_costs_an_unread_entry() {
        let mut ring = ring_of(50);
        for n in 1000..1025 {
            record(&mut ring, &envelope(n, "Loopback", "Texi", None));
        }
        assert_eq!((ring.entries.len(), ring.count().unread), (50, 50));
        assert_eq!(ring.entries[0].sid, sid(1));
    }

    proptest! {
        /// An unread entry goes only when there is nothing read that could go instead.
        #[test]
        fn no_unread_entry_is_trimmed_while_a_read_one_can_go(
            ops in proptest::collection::vec((any::<bool>(), 0usize..60, any::<bool>()), 0..250),
        ) {
            let mut ring = Ring::default();
            for (n, (probe, place, mark)) in ops.into_iter().enumerate() {
                let kind = if probe { "Loopback" } else { "TaskAssigned" };
                let before = ring.clone();
                let e = envelope(n as u128 + 1, kind, "Texi", Some(n as i64 + 1));
                record(&mut ring, &e);
                let lost: Vec<_> = before.entries.iter()
                    .filter(|old| !ring.entries.iter().any(|e| e.sid == old.sid)).collect();
                prop_assert!(lost.len() <= 1);
                if lost.iter().any(|e| !e.read) {
                    prop_assert!(!probe && before.entries.iter().all(|e| !e.read));
                }
                if mark && let Some(e) = ring.entries.get(place).cloned() {
                    ring.mark_read(Which::These(&[e.sid]));
                }
            }
        }

        /// Whatever arrives, again and again and in any mix of two shims, the
        /// count is what the entries say and every unread one arrived once.
        #[test]
        fn the_count_never_lies(ops in proptest::collection::vec((0u128..80, 0u8..4), 0..300)) {
            let mut ring = Ring::default();
            let mut head = 0;
            let mut marked = std::collections::HashSet::new();
            for (n, op) in ops {
                match op {
                    0 => { head += 1; record(&mut ring, &envelope(head as u128 + 1000, "TaskAssigned", "Texi", Some(head))); }
                    1 if head > 0 => { let seq = (n as i64 % head) + 1; let again = record(&mut ring, &envelope(seq as u128 + 1000, "TaskAssigned", "Texi", Some(seq))); prop_assert!(matches!(again, Recorded::Known | Recorded::Read)); }
                    2 => if let Some(e) = ring.entries.get(n as usize).cloned() { ring.mark_read(Which::These(std::slice::from_ref(&e.sid))); marked.insert(e.sid); },
                    _ => { let (again, skipped) = Ring::parse(&ring.to_lines(), Some(&serde_json::to_string(&ring.count()).unwrap())); prop_assert_eq!(skipped, 0); prop_assert_eq!(&again, &ring); }
                }
                let count = ring.count();
                prop_assert_eq!(count.unread as usize, ring.entries.iter().filter(|e| !e.read).count());
                prop_assert!(ring.entries.iter().all(|e| e.read == marked.contains(&e.sid)));
                prop_assert!(ring.entries.len() <= RING_ENTRIES_MAX);
            }
        }
    }
}
