//! The inbox as the operator sees it: the last 50 signals of one identity on
//! one machine, and the small count derived from them.
//!
//! Draining marks entries read and keeps them: the bell goes out, the history stays.

use crate::envelope::Envelope;
use crate::limits::RING_ENTRIES_MAX;
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
}

/// What became of an envelope at the cache door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Added,
    /// Already here, or seen before and trimmed since.
    Known,
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

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ring {
    pub entries: Vec<Entry>,
    pub seen_seq: BTreeMap<String, i64>,
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
        let seen_seq = count
            .and_then(|text| serde_json::from_str::<Count>(text).ok())
            .unwrap_or_default()
            .seen_seq;
        let mut ring = Self { entries, seen_seq };
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

    /// Lets an envelope in: not a system event, addressed here, not seen before.
    ///
    /// `project` is the id under which the server counts this inbox. `read`
    /// says that the server already knows it drained.
    pub fn record(
        &mut self,
        envelope: &Envelope,
        identity: &str,
        project: &str,
        read: bool,
        now: Moment,
    ) -> Recorded {
        if envelope.is_system() || envelope.signal_type.is_empty() {
            return Recorded::System;
        }
        if !envelope.to_identity.eq_ignore_ascii_case(identity) {
            return Recorded::Foreign;
        }
        let sid = envelope.signal_id.to_string();
        let in_ring = self.entries.iter().any(|e| e.sid == sid);
        // A probe goes to one session only, so its place in the inbox says
        // nothing about what the other sessions' shims have recorded here.
        let seen = !envelope.is_loopback()
            && envelope
                .seq
                .is_some_and(|seq| self.seen_seq.get(project).is_some_and(|s| seq <= *s));
        if let Some(seq) = envelope.seq.filter(|_| !envelope.is_loopback()) {
            let through = self.seen_seq.entry(project.to_owned()).or_insert(seq);
            *through = seq.max(*through);
        }
        if in_ring || seen {
            return Recorded::Known;
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

    fn trim(&mut self) {
        let over = self.entries.len().saturating_sub(RING_ENTRIES_MAX);
        self.entries.drain(..over);
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

    /// Agrees with the server: an unread entry of `pid` that is no longer
    /// pending there was drained, expired or taken back while we were away.
    pub fn reconcile(&mut self, pid: &str, pending: &[String]) -> usize {
        let gone: Vec<String> = self
            .entries
            .iter()
            .filter(|e| !e.read && e.pid.as_deref() == Some(pid) && !pending.contains(&e.sid))
            .map(|e| e.sid.clone())
            .collect();
        self.mark_read(Which::These(&gone))
    }

    /// The last `n` entries, oldest first.
    pub fn tail(&self, n: usize) -> &[Entry] {
        &self.entries[self.entries.len().saturating_sub(n)..]
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
        }
    }
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
        ring.record(e, "Texi", "project", false, NOW)
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

    #[test]
    fn what_was_drained_while_we_were_away_is_marked_read() {
        let mut ring = Ring::default();
        for n in 1..=3 {
            record(
                &mut ring,
                &envelope(n, "TaskAssigned", "Texi", Some(n as i64)),
            );
        }
        assert_eq!(ring.reconcile("other", &[]), 0);
        assert_eq!(ring.reconcile("P", &[Uuid::from_u128(2).to_string()]), 2);
        assert_eq!(ring.count().unread, 1);
    }

    proptest! {
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
                    1 if head > 0 => { let seq = (n as i64 % head) + 1; prop_assert_eq!(record(&mut ring, &envelope(seq as u128 + 1000, "TaskAssigned", "Texi", Some(seq))), Recorded::Known); }
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
