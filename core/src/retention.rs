//! How long history is kept, what keeps a row longer than its time, and how old rows are walked.
//!
//! Memory is not history: nothing here can name it.

use crate::Moment;
use crate::limits::{DAY_US, PRUNE_NOTICE_US, PRUNE_REST_US};
use serde::{Deserialize, Serialize};

/// Days that each kind of history is kept; 0 keeps it for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// Signals that were drained or ended, with their deliveries and trace.
    pub signals: u32,
    /// Results of probes; their daily totals stay.
    pub loopback_runs: u32,
    /// Recalls; a cited one stays with its citation.
    pub recall_events: u32,
    /// What the gate noticed.
    pub gate_events: u32,
    /// Released sessions that left nothing in memory.
    pub sessions: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            signals: 90,
            loopback_runs: 30,
            recall_events: 180,
            gate_events: 365,
            sessions: 90,
        }
    }
}

/// A kind of row that goes in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    LoopbackRuns,
    GateEvents,
    RecallEvents,
    Signals,
    Sessions,
}

impl History {
    /// Whoever refers to a row goes before it, so that one walk is enough for both.
    pub const ALL: [Self; 5] = [
        Self::LoopbackRuns,
        Self::GateEvents,
        Self::RecallEvents,
        Self::Signals,
        Self::Sessions,
    ];

    /// As `[retention]` calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LoopbackRuns => "loopback_runs",
            Self::GateEvents => "gate_events",
            Self::RecallEvents => "recall_events",
            Self::Signals => "signals",
            Self::Sessions => "sessions",
        }
    }
}

impl Retention {
    pub const fn days(&self, what: History) -> u32 {
        match what {
            History::LoopbackRuns => self.loopback_runs,
            History::GateEvents => self.gate_events,
            History::RecallEvents => self.recall_events,
            History::Signals => self.signals,
            History::Sessions => self.sessions,
        }
    }

    /// Rows that were over before this moment have had their time; none when they stay for ever.
    pub fn cutoff(&self, what: History, now: Moment) -> Option<Moment> {
        let days = self.days(what);
        (days > 0).then(|| now.plus_us(-DAY_US.saturating_mul(days.into())))
    }
}

/// What decides whether a row goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aged {
    /// When it was over: drained, ended, released, or done with the moment it was written.
    pub over: Option<Moment>,
    /// A memory, a citation, a gate event or a kept row of history refers to it.
    pub referred: bool,
}

pub fn goes(row: Aged, cutoff: Moment) -> bool {
    !row.referred && row.over.is_some_and(|at| at < cutoff)
}

/// When the first row goes: as was set before, else after the operator had time to hear of it.
pub fn begins(set: Option<Moment>, now: Moment) -> Moment {
    set.unwrap_or(now.plus_us(PRUNE_NOTICE_US))
}

/// One walk after the other over everything that may be old, a few rows at a time.
#[derive(Clone, Debug)]
pub struct Walk {
    rules: Retention,
    begins: Moment,
    /// Which kind is being walked, and the last row that was looked at.
    place: Option<(usize, i64)>,
    /// When the next walk may begin.
    due: Moment,
}

/// The next few rows to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub what: History,
    pub after: i64,
    pub cutoff: Moment,
}

impl Walk {
    pub fn new(rules: Retention, begins: Moment) -> Self {
        Self {
            rules,
            begins,
            place: None,
            due: Moment(i64::MIN),
        }
    }

    /// Where to look now, if anywhere.
    pub fn next(&mut self, now: Moment) -> Option<Look> {
        if now < self.begins {
            return None;
        }
        let (mut kind, mut after) = match self.place {
            Some(place) => place,
            None if now < self.due => return None,
            None => {
                self.due = now.plus_us(PRUNE_REST_US);
                (0, i64::MIN)
            }
        };
        while let Some(what) = History::ALL.get(kind) {
            if let Some(cutoff) = self.rules.cutoff(*what, now) {
                self.place = Some((kind, after));
                return Some(Look {
                    what: *what,
                    after,
                    cutoff,
                });
            }
            (kind, after) = (kind + 1, i64::MIN);
        }
        self.rest();
        None
    }

    /// Notes how far the last look reached; none means that the kind has nothing older.
    pub fn reached(&mut self, last: Option<i64>) {
        self.place = self.place.map(|(kind, _)| match last {
            Some(row) => (kind, row),
            None => (kind + 1, i64::MIN),
        });
    }

    /// Ends this walk: done, or stopped by an error that the next one may not meet.
    pub fn rest(&mut self) {
        self.place = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment(1_000 * DAY_US);

    fn days_ago(days: i64) -> Moment {
        NOW.plus_us(-days * DAY_US)
    }

    #[test]
    fn each_kind_has_its_days_and_0_is_for_ever() {
        let rules = Retention {
            gate_events: 0,
            ..Retention::default()
        };
        for (what, cutoff) in [
            (History::Signals, Some(days_ago(90))),
            (History::LoopbackRuns, Some(days_ago(30))),
            (History::RecallEvents, Some(days_ago(180))),
            (History::Sessions, Some(days_ago(90))),
            (History::GateEvents, None),
        ] {
            assert_eq!(rules.cutoff(what, NOW), cutoff, "{}", what.name());
        }
        assert_eq!(Retention::default().gate_events, 365);
        let longest = Retention {
            signals: u32::MAX,
            ..rules
        };
        let cutoff = longest.cutoff(History::Signals, NOW).unwrap();
        assert!(cutoff < Moment(0), "more days than there are is no error");
    }

    #[test]
    fn a_row_goes_when_it_was_over_before_the_cutoff_and_nobody_refers_to_it() {
        let cutoff = days_ago(90);
        for (over, referred, gone) in [
            (Some(days_ago(91)), false, true),
            (Some(days_ago(91)), true, false),
            (Some(days_ago(90)), false, false),
            (Some(days_ago(1)), false, false),
            (None, false, false),
        ] {
            assert_eq!(goes(Aged { over, referred }, cutoff), gone, "{over:?}");
        }
    }

    #[test]
    fn an_upgraded_home_has_seven_days_notice_and_a_new_one_none() {
        assert_eq!(begins(None, NOW), NOW.plus_us(7 * DAY_US));
        assert_eq!(begins(Some(Moment(0)), NOW), Moment(0));
    }

    #[test]
    fn a_walk_visits_each_kind_that_ages_and_then_rests() {
        let rules = Retention {
            recall_events: 0,
            ..Retention::default()
        };
        let mut walk = Walk::new(rules, days_ago(-1));
        assert_eq!(walk.next(NOW), None, "not before its day");
        let mut walk = Walk::new(rules, NOW);
        let look = walk.next(NOW).unwrap();
        assert_eq!((look.what, look.after), (History::LoopbackRuns, i64::MIN));
        walk.reached(Some(7));
        assert_eq!(walk.next(NOW).unwrap().after, 7, "it goes on where it was");
        let mut seen = Vec::new();
        while let Some(look) = walk.next(NOW) {
            seen.push(look.what);
            walk.reached(None);
        }
        let kept_for_ever = History::RecallEvents;
        let all = History::ALL.into_iter().filter(|k| *k != kept_for_ever);
        assert_eq!(seen, all.collect::<Vec<_>>());
        assert_eq!(walk.next(NOW.plus_us(PRUNE_REST_US - 1)), None);
        assert!(walk.next(NOW.plus_us(PRUNE_REST_US)).is_some());
    }

    #[test]
    fn whoever_refers_goes_before_what_is_referred_to() {
        let at = |what| History::ALL.iter().position(|k| *k == what).unwrap();
        for (referrer, referred) in [
            (History::LoopbackRuns, History::Signals),
            (History::GateEvents, History::Signals),
            (History::GateEvents, History::RecallEvents),
            (History::GateEvents, History::Sessions),
            (History::Signals, History::Sessions),
        ] {
            assert!(at(referrer) < at(referred), "{referrer:?} {referred:?}");
        }
    }
}
