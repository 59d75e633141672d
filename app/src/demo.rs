//! A believable week in a project of its own, so that every part of the page shows something. What
//! is told is always the same, counted back from now; delays and ids are those of the seed.

use prism_core::Moment;
use prism_core::api::memory::ImportLine;
use prism_core::loopback::{Echo, Layers, Notified, Outcome, Probe, Published, Seen};
use prism_core::receipt::Layer;
use prism_core::signal::Category;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The project that it is written into; its name says what it is.
pub const PID: &str = "PID-DEMO";
/// The agents: name, surface, machine.
type Agents = [(&'static str, &'static str, &'static str); 4];
const AGENTS: Agents = [
    ("Marlow", "claude_code", "demo-laptop"),
    ("Quill", "codex", "demo-laptop"),
    ("Tamsin", "claude_code", "demo-server"),
    ("Bram", "cursor", "demo-laptop"),
];
/// Takes the place of an agent whose name is the operator's.
const ANOTHER: &str = "Wren";
const SEED: u64 = 7;
const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The agents of a week in which this is the operator.
pub fn agents(operator: &str) -> Agents {
    AGENTS.map(
        |(name, surface, machine)| match name.eq_ignore_ascii_case(operator) {
            true => (ANOTHER, surface, machine),
            false => (name, surface, machine),
        },
    )
}

/// A week: lines that are imported as anybody's would be, and the rows that go with them.
pub struct Week {
    pub lines: Vec<ImportLine>,
    pub rows: Rows,
    /// Lines whose input the operator has accepted, and rejected.
    pub accepted: Vec<&'static str>,
    pub rejected: Vec<&'static str>,
}

/// What is written beside the imported lines.
#[derive(Default)]
pub struct Rows {
    pub project: Uuid,
    pub sessions: Vec<SessionIn>,
    pub signals: Vec<SignalIn>,
    pub recalls: Vec<RecallIn>,
    pub gate: Vec<GateIn>,
    pub probes: Vec<Probe>,
    /// Which session wrote which line, by the line's id; in the end by the row's.
    pub written_by: Vec<(String, Uuid)>,
    /// Our ids of the lines, as they are to be and in the end as they are.
    pub ids: BTreeMap<String, Uuid>,
    pub personas: BTreeMap<String, Uuid>,
    pub operator: String,
}

pub struct SessionIn {
    pub id: Uuid,
    pub identity: &'static str,
    pub surface: &'static str,
    pub machine_id: &'static str,
    pub from: Moment,
    pub last: Moment,
    pub released: bool,
    pub waits_since: Option<Moment>,
}

pub struct SignalIn {
    pub id: Uuid,
    pub from: String,
    pub to: String,
    pub signal_type: &'static str,
    pub category: Category,
    pub payload: Value,
    pub in_reply_to: Option<Uuid>,
    pub at: Moment,
    /// The session it went to, and how many of pushed, received, rung, rendered and drained are
    /// known.
    pub to_session: Option<(Uuid, usize)>,
    pub drained: bool,
    pub acted_at: Option<Moment>,
    pub ended_as: Option<&'static str>,
    pub strategy: &'static str,
    /// Between two states, in microseconds.
    pub pace_us: i64,
}

pub struct RecallIn {
    pub id: Uuid,
    pub session: Uuid,
    pub identity: &'static str,
    pub surface: &'static str,
    pub query: &'static str,
    /// Lines that it brought, the cited one first where one was.
    pub results: Vec<&'static str>,
    pub cited: bool,
    pub latency_us: i64,
    pub at: Moment,
}

pub struct GateIn {
    pub id: Uuid,
    pub assignment: Uuid,
    pub class: &'static str,
    pub warned: bool,
    pub trigger: &'static str,
    pub session: Uuid,
    pub identity: &'static str,
    pub surface: &'static str,
    pub recalls: i64,
    pub at: Moment,
    pub label: Option<bool>,
}

/// Numbers that look random and are the same for the same seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: i64) -> i64 {
        (self.next() % n.max(1) as u64) as i64
    }

    fn id(&mut self) -> Uuid {
        let (high, low) = (u128::from(self.next()), u128::from(self.next()));
        uuid::Builder::from_random_bytes(((high << 64) | low).to_be_bytes()).into_uuid()
    }
}

/// What is said of the work, as lines of an import: days and hours ago, who, and the fields.
#[rustfmt::skip]
fn told() -> Vec<(&'static str, i64, usize, Value)> {
    vec![
        ("d1", 6 * DAY + 7 * HOUR, 0, json!({"kind": "checkpoint", "summary": "The checkout form keeps what was typed when the network drops", "operator_visible_effect": "A lost connection no longer empties the address fields", "touched_files": ["web/checkout/Form.tsx"]})),
        ("v1", 6 * DAY + 6 * HOUR, 0, json!({"kind": "confirmation", "refers_to": "delta:d1", "verdict": "works", "notes": "I pulled the cable and everything was still there"})),
        ("d2", 6 * DAY + 3 * HOUR, 1, json!({"kind": "checkpoint", "summary": "Retries of a payment carry an idempotency key", "touched_files": ["server/pay/retry.rs"], "tried_and_ruled_out": [{"approach": "retry payments without a key and deduplicate by amount", "outcome": "two equal orders of one customer became one"}]})),
        ("i1", 6 * DAY + 2 * HOUR, 1, json!({"kind": "operator_input", "class": "correction", "prompt_text": "stop going to git history first, read the failing test", "triggered_action": "searching git history for the retry change", "confidence": "high"})),
        ("n1", 5 * DAY + 8 * HOUR, 2, json!({"kind": "integration_narrative", "summary": "Paying twice is impossible from the page to the bank", "operator_sees": "Pressing Pay again shows the same receipt", "pieces": ["delta:d1", "delta:d2"], "would_break_it": "A retry without its key"})),
        ("s1", 5 * DAY + 7 * HOUR, 2, json!({"kind": "spec", "title": "Payments are exactly once", "body": "Every attempt carries the key of its order. The bank answers a repeat with the first answer."})),
        ("d3", 5 * DAY + 5 * HOUR, 3, json!({"kind": "checkpoint", "summary": "The total is shown beside the Pay button", "operator_visible_effect": "The amount stands next to the button, in the customer's currency", "touched_files": ["web/checkout/Total.tsx"]})),
        ("v2", 5 * DAY + 4 * HOUR, 3, json!({"kind": "confirmation", "refers_to": "delta:d3", "verdict": "partial", "notes": "Right on the laptop, cut off on the phone"})),
        ("i2", 5 * DAY + 4 * HOUR - 600, 3, json!({"kind": "operator_input", "class": "direction_pivot", "prompt_text": "leave the colours, the phone layout comes first", "triggered_action": "choosing colours for the total", "confidence": "high"})),
        ("q1", 4 * DAY + 9 * HOUR, 2, json!({"kind": "decision", "title": "Sessions live in the database", "context": "Two servers, one customer", "decision": "One table with an expiry, no sticky routing", "consequences": "A read per request"})),
        ("d4", 4 * DAY + 6 * HOUR, 0, json!({"kind": "wrap", "summary": "The address form is done and tested on three browsers", "operator_visible_effect": "Tab moves through the fields in reading order", "next": "the receipt page", "touched_files": ["web/checkout/Form.tsx", "web/checkout/Form.test.tsx"]})),
        ("i3", 4 * DAY + 5 * HOUR, 0, json!({"kind": "operator_input", "class": "confirmation", "prompt_text": "yes, exactly like that, ship it", "confidence": "high"})),
        ("d5", 3 * DAY + 8 * HOUR, 1, json!({"kind": "checkpoint", "summary": "Receipts are sent by the queue, not by the request", "tried_and_ruled_out": [{"approach": "sending the receipt mail inside the request", "outcome": "a slow mail server held up the payment"}]})),
        ("v3", 3 * DAY + 7 * HOUR, 1, json!({"kind": "confirmation", "refers_to": "delta:d5", "verdict": "broken", "notes": "I paid and no mail came"})),
        ("i4", 3 * DAY + 7 * HOUR - 900, 1, json!({"kind": "operator_input", "class": "correction", "prompt_text": "no mail came, you did not run it once before saying it is done", "triggered_action": "reporting the receipt queue as finished", "confidence": "high", "reverses_delta": "delta:d5"})),
        ("p1", 3 * DAY + 4 * HOUR, 1, json!({"kind": "postmortem", "title": "Receipts that never left", "what_happened": "The queue's worker was not started on the second server", "choice_point": "Starting it by hand once would have shown it", "prevention": "A probe mail after each deployment"})),
        ("d6", 2 * DAY + 9 * HOUR, 3, json!({"kind": "checkpoint", "summary": "The total wraps below the button on narrow screens", "operator_visible_effect": "On the phone the amount stands below the button, whole", "touched_files": ["web/checkout/Total.tsx", "web/checkout/total.css"]})),
        ("v4", 2 * DAY + 8 * HOUR, 3, json!({"kind": "confirmation", "refers_to": "delta:d6", "verdict": "works", "notes": "Looks right on my phone now"})),
        ("i5", 2 * DAY + 5 * HOUR, 2, json!({"kind": "operator_input", "class": "correction", "prompt_text": "you are going to git history first again, read the failing test", "triggered_action": "looking through git history for when the test broke", "confidence": "high"})),
        ("d7", 2 * DAY + 3 * HOUR, 2, json!({"kind": "checkpoint", "summary": "The flaky test waited for a clock, now for an event", "tried_and_ruled_out": [{"approach": "deduplicate payments by amount when a retry has no key", "outcome": "as before: two equal orders became one"}]})),
        ("i6", DAY + 6 * HOUR, 0, json!({"kind": "operator_input", "class": "correction", "prompt_text": "that is the receipt page, we are on the form", "triggered_action": "editing the receipt page", "confidence": "low"})),
        ("i7", DAY + 4 * HOUR, 3, json!({"kind": "operator_input", "class": "confirmation", "prompt_text": "the layout is what I wanted, thank you", "confidence": "low"})),
        ("d8", DAY + 3 * HOUR, 1, json!({"kind": "checkpoint", "summary": "The receipt worker starts with the server and says so", "operator_visible_effect": "The receipt mail comes within a minute of paying", "touched_files": ["server/mail/worker.rs"]})),
        ("v5", DAY + 2 * HOUR, 1, json!({"kind": "confirmation", "refers_to": "delta:d8", "verdict": "works", "notes": "Mail after ten seconds"})),
        ("t1", DAY + HOUR, 2, json!({"kind": "todo", "title": "Probe mail after each deployment", "body": "See the postmortem on receipts", "tags": ["mail"]})),
        ("w1", 22 * HOUR, 2, json!({"kind": "plan", "title": "The week after the launch", "body": "First the probe mail, then the phone layout of the receipt, then the bank's sandbox behind a limit.", "tags": ["launch"]})),
        ("i8", 5 * HOUR, 2, json!({"kind": "operator_input", "class": "correction", "prompt_text": "do not touch the bank's sandbox without asking", "triggered_action": "calling the bank's sandbox in a loop", "confidence": "high"})),
        ("d9", 3 * HOUR, 0, json!({"kind": "checkpoint", "summary": "The receipt page shows the order while it is still being paid", "operator_visible_effect": "The receipt page is never empty", "touched_files": ["web/receipt/Page.tsx"]})),
        ("i9", 2 * HOUR, 0, json!({"kind": "operator_input", "class": "confirmation", "prompt_text": "good, the receipt page makes sense now", "confidence": "high"})),
    ]
}

/// Makes the week.
pub fn week(seed: Option<u64>, now: Moment, operator: &str) -> Week {
    let mut chance = Chance(seed.unwrap_or(SEED));
    let agents = &agents(operator);
    let ago = |s: i64| now.plus_s(-s);
    // Each agent worked early in the week and is at it again now.
    let sessions: Vec<SessionIn> = agents
        .iter()
        .enumerate()
        .flat_map(|(n, (identity, surface, machine_id))| {
            let [early, late] = [chance.id(), chance.id()];
            let session = |id, from, last, released| SessionIn {
                id,
                identity,
                surface,
                machine_id,
                from: ago(from),
                last: ago(last),
                released,
                waits_since: None,
            };
            let n = n as i64;
            [
                session(early, 6 * DAY + (9 + n) * HOUR, 2 * DAY + HOUR, true),
                session(late, DAY + (8 + n) * HOUR, (n + 1) * MINUTE, false),
            ]
        })
        .collect();
    let session_at = |agent: usize, s: i64| match s > 2 * DAY + HOUR {
        true => sessions[2 * agent].id,
        false => sessions[2 * agent + 1].id,
    };
    let mut rows = Rows {
        operator: operator.to_owned(),
        ..Rows::default()
    };
    let mut lines = Vec::new();
    for (number, (id, s, agent, mut line)) in told().into_iter().enumerate() {
        let (identity, surface, _) = agents[agent];
        if let Value::Object(line) = &mut line {
            line.insert("id".into(), id.into());
            line.insert("identity".into(), identity.into());
            line.insert("surface".into(), surface.into());
            line.insert("created_at".into(), ago(s).to_string().into());
        }
        rows.written_by.push((id.to_owned(), session_at(agent, s)));
        lines.push(ImportLine {
            line: number as u64 + 1,
            row: line,
        });
    }
    signals(&mut rows, &mut chance, agents, &ago, &session_at);
    looked_up(&mut rows, &mut chance, agents, &ago, &session_at);
    rows.probes = probes(&mut chance, agents, &ago, &session_at);
    let mut sessions = sessions;
    // Tamsin's host asks for a permission.
    sessions[5].waits_since = Some(ago(11 * MINUTE));
    rows.sessions = sessions;
    rows.ids = told()
        .into_iter()
        .map(|(line, ..)| (line.to_owned(), chance.id()))
        .collect();
    Week {
        lines,
        rows,
        accepted: vec!["i1", "i2", "i3", "i4", "i5"],
        rejected: vec!["i6"],
    }
}

type Ago<'a> = &'a dyn Fn(i64) -> Moment;
type SessionAt<'a> = &'a dyn Fn(usize, i64) -> Uuid;

#[rustfmt::skip]
fn signals(rows: &mut Rows, chance: &mut Chance, agents: &Agents, ago: Ago<'_>, session_at: SessionAt<'_>) {
    use Category::{Ask, Blocker, Info, Task};
    // Seconds ago, from, to, type, category, summary, answered by (summary, seconds later), layers known.
    type Said = (i64, Option<usize>, Option<usize>, &'static str, Category, &'static str, Option<(&'static str, i64)>, usize);
    let said: [Said; 13] = [
        (6 * DAY + 8 * HOUR, None, Some(0), "TaskAssigned", Task, "Keep the checkout form when the network drops; docs/specs/checkout.md governs", Some(("Done: the fields stay", 70 * MINUTE)), 5),
        (6 * DAY + 5 * HOUR, None, Some(1), "TaskAssigned", Task, "Make retried payments safe, as docs/specs/payments.md says", Some(("Every retry carries its key", 2 * HOUR)), 5),
        (6 * DAY + 4 * HOUR, Some(1), Some(2), "ReviewRequested", Ask, "Review: the idempotency key of a retry", Some(("Looks right; the narrative is written", 20 * MINUTE)), 5),
        (5 * DAY + 6 * HOUR, None, Some(3), "TaskAssigned", Task, "Show the total beside Pay", Some(("It is there", HOUR)), 5),
        (4 * DAY + 8 * HOUR, Some(0), Some(2), "Question", Ask, "Where do sessions live when there are two servers?", Some(("In the database: see the decision", 25 * MINUTE)), 5),
        (3 * DAY + 9 * HOUR, None, Some(1), "TaskAssigned", Task, "Send receipts without holding up the payment", Some(("The queue does it", 50 * MINUTE)), 5),
        (3 * DAY + 6 * HOUR, Some(3), Some(0), "StatusUpdate", Info, "The phone layout is next", None, 5),
        (2 * DAY + 10 * HOUR, None, Some(3), "TaskAssigned", Task, "The total is cut off on the phone", Some(("It wraps now", 80 * MINUTE)), 5),
        (DAY + 5 * HOUR, None, Some(1), "TaskAssigned", Task, "Receipts do not arrive: find out why", Some(("The worker was not started; it is now", 110 * MINUTE)), 5),
        (4 * HOUR, None, Some(0), "TaskAssigned", Task, "The receipt page is empty while the order is being paid", None, 5),
        (70 * MINUTE, Some(1), Some(3), "Question", Blocker, "The total's currency is wrong for orders in yen: which table is the right one?", None, 3),
        (40 * MINUTE, Some(2), None, "Question", Ask, "May I raise the bank's sandbox limit for one test run?", None, 0),
        (12 * MINUTE, Some(0), None, "StatusUpdate", Info, "The receipt page is ready to look at", None, 0),
    ];
    let operator = rows.operator.clone();
    let name = |agent: Option<usize>| agent.map_or(operator.clone(), |n| agents[n].0.to_owned());
    for (s, from, to, signal_type, category, summary, answer, layers) in said {
        let id = chance.id();
        let read = layers == 5;
        rows.signals.push(SignalIn {
            id,
            from: name(from),
            to: name(to),
            signal_type,
            category,
            payload: json!({"summary": summary}),
            in_reply_to: None,
            at: ago(s),
            to_session: to.filter(|_| layers > 0).map(|n| (session_at(n, s), layers)),
            drained: read,
            acted_at: answer.map(|(_, later)| ago(s - later)),
            ended_as: None,
            strategy: to.map_or("none", |n| ["claude_inbox", "codex", "claude_inbox", "hooks"][n]),
            pace_us: 4_000 + chance.below(60_000),
        });
        let Some((text, later)) = answer else { continue };
        let at = s - later;
        rows.signals.push(SignalIn {
            id: chance.id(),
            from: name(to),
            to: name(from),
            signal_type: if category == Ask { "Answer" } else { "StatusUpdate" },
            category: Info,
            payload: json!({"summary": text}),
            in_reply_to: Some(id),
            at: ago(at),
            to_session: from.map(|n| (session_at(n, at), 5)),
            drained: true,
            acted_at: None,
            ended_as: None,
            strategy: from.map_or("none", |n| ["claude_inbox", "codex", "claude_inbox", "hooks"][n]),
            pace_us: 4_000 + chance.below(60_000),
        });
    }
    // One that nobody was there to read.
    rows.signals.push(SignalIn {
        id: chance.id(),
        from: name(Some(3)),
        to: name(Some(2)),
        signal_type: "StatusUpdate",
        category: Info,
        payload: json!({"summary": "Lunch; back in an hour"}),
        in_reply_to: None,
        at: ago(5 * DAY),
        to_session: None,
        drained: false,
        acted_at: None,
        ended_as: Some("expired"),
        strategy: "none",
        pace_us: 0,
    });
}

#[rustfmt::skip]
fn looked_up(rows: &mut Rows, chance: &mut Chance, agents: &Agents, ago: Ago<'_>, session_at: SessionAt<'_>) {
    let asked: [(i64, usize, &'static str, &[&'static str], bool); 8] = [
        (6 * DAY + 8 * HOUR - 300, 0, "what happens to the form when the connection is lost", &["d1"], false),
        (6 * DAY + 5 * HOUR - 600, 1, "paying twice by accident", &["d2", "d1"], true),
        (5 * DAY + 9 * HOUR, 2, "what makes a payment exactly once", &["d2", "s1"], true),
        (4 * DAY + 7 * HOUR, 2, "two servers and one customer's session", &["q1"], true),
        (3 * DAY + 8 * HOUR + 900, 1, "why is the payment slow", &["d5", "d2"], false),
        (2 * DAY + 9 * HOUR + 1200, 3, "the amount beside the button that was cut off", &["d3", "v2"], true),
        (DAY + 5 * HOUR - 900, 1, "receipts that never arrived", &["p1", "v3", "d5"], true),
        (4 * HOUR - 600, 0, "the receipt page", &["d9", "p1"], false),
    ];
    for (s, agent, query, results, cited) in asked {
        let (identity, surface, _) = agents[agent];
        rows.recalls.push(RecallIn {
            id: chance.id(),
            session: session_at(agent, s),
            identity,
            surface,
            query,
            results: results.to_vec(),
            cited,
            latency_us: 6_000 + chance.below(30_000),
            at: ago(s),
        });
    }
    // Assignments before which nothing was looked up, and those before which something was.
    let tasks: Vec<(Uuid, Moment, usize)> = rows
        .signals
        .iter()
        .filter(|s| s.signal_type == "TaskAssigned")
        .filter_map(|s| Some((s.id, s.at, agents.iter().position(|(name, ..)| *name == s.to)?)))
        .collect();
    let noticed = [
        (true, "tier1", None),
        (false, "tier1", None),
        (true, "tier2", Some(false)),
        (true, "tier2", Some(true)),
        (false, "tier2", None),
        (false, "tier2", None),
        (true, "tier2", None),
    ];
    for ((warned, class, label), (assignment, at, agent)) in noticed.into_iter().zip(tasks) {
        let (identity, surface, _) = agents[agent];
        let session = rows.signals.iter().find(|s| s.id == assignment).and_then(|s| s.to_session);
        let Some((session, _)) = session else { continue };
        rows.gate.push(GateIn {
            id: chance.id(),
            assignment,
            class,
            warned,
            trigger: if warned { "ack" } else { "recall" },
            session,
            identity,
            surface,
            recalls: i64::from(!warned),
            at: at.plus_s(5 * MINUTE),
            label,
        });
    }
}

/// Probes over the week; Bram's host drops the bell now and then.
fn probes(
    chance: &mut Chance,
    agents: &Agents,
    ago: Ago<'_>,
    session_at: SessionAt<'_>,
) -> Vec<Probe> {
    let mut probes = Vec::new();
    for n in 0..28_i64 {
        let s = (27 - n) * 6 * HOUR + 20 * MINUTE;
        for (agent, (identity, surface, machine_id)) in agents.iter().enumerate() {
            if (n + agent as i64) % 3 != 0 {
                continue;
            }
            let started_at = ago(s);
            let seen = |ms: f64| Seen {
                observed: true,
                observed_at: Some(started_at.plus_us((ms * 1000.0) as i64)),
                elapsed_ms: Some(ms),
            };
            let pace = 1.0 + chance.below(40) as f64 / 10.0;
            let drops = agent == 3 && n % 9 == 0;
            let mut layers = Layers {
                backend_write: seen(0.4),
                redis_publish: Published {
                    seen: seen(0.6),
                    transport: Some("in_process".into()),
                    ..Published::default()
                },
                shim_tee_receipt: seen(pace),
                ..Layers::default()
            };
            if !drops {
                layers.channel_notification = Notified {
                    seen: seen(pace * 2.0),
                    strategy: Some(
                        ["claude_inbox", "codex", "claude_inbox", "hooks"][agent].into(),
                    ),
                    evidence: Some("sent".into()),
                };
            }
            let missing: &[Layer] = match drops {
                true => &[Layer::ChannelNotification, Layer::ModelAck],
                false => &[Layer::ModelAck],
            };
            probes.push(Probe {
                spec: "SPEC-100".into(),
                version: "0.1".into(),
                loopback_id: chance.id(),
                signal_id: chance.id(),
                trace_id: chance.id(),
                requested_by_identity: (*identity).into(),
                requested_by_session: Some(session_at(agent, s)),
                surface: (*surface).into(),
                machine_id: (*machine_id).into(),
                started_at,
                finished_at: Some(started_at.plus_us((pace * 4000.0) as i64)),
                outcome: match drops {
                    true => Outcome::Partial,
                    false => Outcome::Complete,
                },
                layers,
                missing_layers: missing.to_vec(),
                echo: Echo {
                    expected: true,
                    signal_id: None,
                    observed_at: Some(started_at.plus_us((pace * 3000.0) as i64)),
                },
                recipient_state: None,
            });
        }
    }
    probes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_week_and_another_another() {
        let now = Moment(1_763_200_000_000_000);
        let ids = |seed| {
            let week = week(Some(seed), now, "Frank");
            let signals: Vec<Uuid> = week.rows.signals.iter().map(|s| s.id).collect();
            (signals, week.rows.ids)
        };
        assert_eq!(ids(1), ids(1));
        let ((signals, memory), others) = (ids(1), ids(2));
        assert!(signals.iter().all(|id| !others.0.contains(id)));
        assert!(memory.iter().all(|(line, id)| others.1[line] != *id));
        let week = week(None, now, "Frank");
        let first = week.rows.signals.iter().map(|s| s.at).min();
        assert!(first.is_some_and(|at| now.since_us(at) < 7 * DAY * 1_000_000));
        assert!(
            week.rows
                .probes
                .iter()
                .any(|p| p.outcome == Outcome::Partial)
        );
    }
}
