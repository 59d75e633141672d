//! The queue against a model: send, retry, drain, confirm, release, crash, reconnect, expire.

use super::{Engine, Opened, on_every_engine, runtime};
use prism::clock::new_id;
use prism::store::{
    Ack, Audience, DrainLimit, NewSignal, Persona, Project, SendOutcome, SessionRow, Store,
};
use prism_core::limits::LEASE_US;
use prism_core::signal::{AckState, SendSignal};
use prism_core::{Code, Identity, Moment, Problem};
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use serde_json::json;
use uuid::Uuid;

const TTL_S: i64 = 100;

#[derive(Clone, Debug)]
enum Step {
    Send { key: u8, ttl: bool },
    Retry { key: u8 },
    Drain { limit: usize },
    Confirm { which: usize },
    Pass { seconds: i64 },
    Sweep,
    Release,
    Crash,
    Reconnect { after: usize, undrained_only: bool },
}

#[derive(Clone, Debug)]
struct Row {
    key: u8,
    expires: i64,
    lease: Option<(usize, i64)>,
    drained: bool,
    expired: bool,
}

/// What must be true, in the plainest words: a list of rows and a clock.
#[derive(Clone, Debug)]
struct Model {
    engine: Engine,
    now: i64,
    rows: Vec<Row>,
    leases: usize,
}

impl Model {
    fn waits(&self, row: &Row) -> bool {
        !row.drained
            && !row.expired
            && row.expires > self.now
            && row.lease.is_none_or(|(_, until)| until <= self.now)
    }

    fn drain(&mut self, limit: usize) -> Vec<usize> {
        let free: Vec<usize> = (0..self.rows.len())
            .filter(|i| self.waits(&self.rows[*i]))
            .take(limit)
            .collect();
        if !free.is_empty() {
            let lease = (self.leases, self.now + LEASE_US);
            self.leases += 1;
            free.iter().for_each(|i| self.rows[*i].lease = Some(lease));
        }
        free
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self {
            engine: Engine::Sqlite,
            now: 0,
            rows: Vec::new(),
            leases: 0,
        })
        .boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Step> {
        let (leases, rows) = (state.leases.max(1), state.rows.len() + 1);
        prop_oneof![
            5 => (any::<u8>(), any::<bool>()).prop_map(|(key, ttl)| Step::Send { key, ttl }),
            2 => any::<u8>().prop_map(|key| Step::Retry { key }),
            4 => (1usize..5).prop_map(|limit| Step::Drain { limit }),
            4 => (0..leases).prop_map(|which| Step::Confirm { which }),
            2 => (1i64..40).prop_map(|seconds| Step::Pass { seconds }),
            1 => Just(Step::Sweep),
            1 => Just(Step::Release),
            1 => Just(Step::Crash),
            2 => (0..rows, any::<bool>())
                .prop_map(|(after, undrained_only)| Step::Reconnect { after, undrained_only }),
        ]
        .boxed()
    }

    fn apply(mut state: Self, step: &Step) -> Self {
        match step {
            Step::Send { key, ttl } if state.rows.iter().all(|r| r.key != *key) => {
                let expires = state.now
                    + if *ttl {
                        TTL_S * 1_000_000
                    } else {
                        i64::MAX / 4
                    };
                state.rows.push(Row {
                    key: *key,
                    expires,
                    lease: None,
                    drained: false,
                    expired: false,
                });
            }
            Step::Drain { limit } => drop(state.drain(*limit)),
            Step::Confirm { which } => {
                for row in state.rows.iter_mut().filter(|r| {
                    !r.drained && !r.expired && r.lease.is_some_and(|(l, _)| l == *which)
                }) {
                    row.drained = true;
                }
            }
            Step::Pass { seconds } => state.now += seconds * 1_000_000,
            Step::Sweep => {
                let now = state.now;
                for row in state.rows.iter_mut().filter(|r| !r.drained && !r.expired) {
                    if row.lease.is_some_and(|(_, until)| until > now) {
                        continue;
                    }
                    // Either it is over, or an unconfirmed lease goes back.
                    row.expired = row.expires <= now;
                    row.lease = row.lease.filter(|_| row.expired);
                }
            }
            Step::Release => {
                for row in state.rows.iter_mut().filter(|r| !r.drained && !r.expired) {
                    row.lease = None;
                }
            }
            _ => {}
        }
        state
    }
}

struct Sut {
    runtime: tokio::runtime::Runtime,
    /// None only while it is being exchanged.
    opened: Option<Opened>,
    people: People,
    session: Uuid,
    ids: Vec<Uuid>,
    leases: Vec<Uuid>,
    now: i64,
}

/// Who sends to whom.
struct People {
    project: Project,
    sender: Persona,
    recipient: Persona,
}

impl People {
    async fn meet(opened: &Opened) -> Self {
        opened.store.load().await.unwrap();
        let (project, mut people) = opened.project("P", &["Donna", "Texi"]).await;
        let (recipient, sender) = (people.pop().unwrap(), people.pop().unwrap());
        Self {
            project,
            sender,
            recipient,
        }
    }

    fn signal(&self, key: u8, ttl: bool, now: Moment) -> NewSignal {
        let mut request = json!({
            "to": "Texi", "signal_type": "TaskAssigned", "payload": {"key": key},
            "idempotency_key": key.to_string()
        });
        if ttl {
            request["ttl_s"] = json!(TTL_S);
        }
        NewSignal {
            escalates_after_us: None,
            signal_id: new_id(),
            trace_id: new_id(),
            project: self.project.clone(),
            from_persona: self.sender.clone(),
            from_session: None,
            to_persona: self.recipient.clone(),
            send: serde_json::from_value::<SendSignal>(request)
                .unwrap()
                .check()
                .unwrap(),
            now,
            audience: Audience::Everybody,
            recipient_live: false,
            recipient_elsewhere: false,
            failed: false,
        }
    }

    /// A new session of the recipient.
    async fn register(&self, store: &Store, now: Moment) -> Uuid {
        let id = new_id();
        let session = SessionRow {
            id,
            project_id: self.project.id,
            persona_id: self.recipient.id,
            identity: self.recipient.identity.clone(),
            surface: "test".into(),
            machine_id: "here".into(),
            process_pid: 1,
            name: None,
            created_at: now,
            last_seen_at: now,
            first_verb_at: None,
            last_verb_at: None,
            released_at: None,
            waits: None,
            attention: None,
            seat: None,
            left_at: None,
        };
        store.add_session(session).await.unwrap();
        id
    }
}

fn moment(now: i64) -> Moment {
    Moment(1_000_000_000_000_000 + now)
}

impl Sut {
    fn store(&self) -> &Store {
        &self.opened.as_ref().unwrap().store
    }

    fn now(&self) -> Moment {
        moment(self.now)
    }

    fn send(&self, key: u8, ttl: bool) -> (Uuid, bool) {
        let new = self.people.signal(key, ttl, self.now());
        match self.runtime.block_on(self.store().send(new)) {
            Ok(SendOutcome::Stored(row, _)) => (row.envelope.signal_id, false),
            Ok(SendOutcome::Repeated(row)) => (row.envelope.signal_id, true),
            // The same key with another life is another body.
            Err(_) => (Uuid::nil(), true),
        }
    }
}

impl StateMachineTest for Sut {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(model: &Model) -> Self {
        let (runtime, opened) = (runtime(), model.engine.open());
        let (people, session) = runtime.block_on(async {
            let people = People::meet(&opened).await;
            let session = people.register(&opened.store, moment(0)).await;
            (people, session)
        });
        Self {
            runtime,
            opened: Some(opened),
            people,
            session,
            ids: Vec::new(),
            leases: Vec::new(),
            now: 0,
        }
    }

    /// `model` is the state after the step.
    fn apply(mut sut: Self, model: &Model, step: Step) -> Self {
        sut.now = model.now;
        match step {
            Step::Send { key, ttl } => {
                let (id, repeated) = sut.send(key, ttl);
                if sut.ids.len() < model.rows.len() {
                    assert!(!repeated);
                    sut.ids.push(id);
                } else {
                    assert!(repeated, "a key is accepted once");
                }
            }
            Step::Retry { key } => {
                if let Some(i) = model.rows.iter().position(|r| r.key == key) {
                    let ttl = model.rows[i].expires < i64::MAX / 8;
                    assert_eq!(sut.send(key, ttl), (sut.ids[i], true));
                }
            }
            Step::Drain { limit } => {
                let drain = sut
                    .runtime
                    .block_on(sut.store().lease(
                        sut.people.recipient.id,
                        Some(sut.session),
                        of_any_size(limit),
                        sut.now(),
                    ))
                    .unwrap();
                // The model has leased already: its newest lease is what the store must have given.
                let given: Vec<Uuid> = drain
                    .iter()
                    .flat_map(|d| d.envelopes.iter().map(|e| e.signal_id))
                    .collect();
                let newest = (model.leases > sut.leases.len()).then(|| model.leases - 1);
                let expected: Vec<Uuid> = model
                    .rows
                    .iter()
                    .zip(&sut.ids)
                    .filter(|(r, _)| newest.is_some() && r.lease.map(|(l, _)| l) == newest)
                    .map(|(_, id)| *id)
                    .collect();
                assert_eq!(given, expected);
                sut.leases.extend(drain.map(|d| d.lease_id));
            }
            Step::Confirm { which } => {
                if let Some(lease) = sut.leases.get(which).copied() {
                    let rows = sut
                        .runtime
                        .block_on(sut.store().confirm(
                            vec![sut.people.recipient.id],
                            vec![lease],
                            sut.now(),
                        ))
                        .unwrap();
                    assert!(rows.iter().all(|r| {
                        model.rows[sut.ids.iter().position(|id| *id == r.signal_id).unwrap()]
                            .drained
                    }));
                }
            }
            Step::Pass { .. } => {}
            Step::Sweep => drop(
                sut.runtime
                    .block_on(sut.store().sweep(sut.now(), 1000))
                    .unwrap(),
            ),
            Step::Release => {
                let over = sut
                    .store()
                    .release_session(sut.session, "test".into(), None, sut.now());
                sut.runtime.block_on(over).unwrap();
                let next = sut.people.register(sut.store(), sut.now());
                sut.session = sut.runtime.block_on(next);
            }
            Step::Crash => sut.opened = sut.opened.take().map(Opened::crash),
            Step::Reconnect {
                after,
                undrained_only,
            } => {
                let page = sut
                    .runtime
                    .block_on(sut.store().replay(
                        sut.people.recipient.id,
                        None,
                        after as i64,
                        undrained_only,
                        1000,
                    ))
                    .unwrap();
                let expected: Vec<(i64, Uuid, bool)> = model
                    .rows
                    .iter()
                    .zip(&sut.ids)
                    .enumerate()
                    .filter(|(i, (r, _))| {
                        i + 1 > after && !r.expired && !(undrained_only && r.drained)
                    })
                    .map(|(i, (r, id))| (i as i64 + 1, *id, r.drained))
                    .collect();
                assert_eq!(
                    page.rows
                        .iter()
                        .map(|r| (r.seq, r.envelope.signal_id, r.drained))
                        .collect::<Vec<_>>(),
                    expected
                );
                assert_eq!(page.head, model.rows.len() as i64);
            }
        }
        sut
    }

    fn check_invariants(sut: &Self, model: &Model) {
        let pending = sut
            .runtime
            .block_on(sut.store().has_pending(sut.people.recipient.id, sut.now()))
            .unwrap();
        // A no is certain; a yes may turn out empty.
        let waits = model.rows.iter().any(|r| model.waits(r));
        assert!(
            pending || !waits,
            "something waits, and no verb would ask for it"
        );
    }
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 24,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn the_queue_does_what_the_model_says(
        (model, steps, mut seen) in Model::sequential_strategy(1..60)
    ) {
        for engine in super::engines() {
            let model = Model { engine, ..model.clone() };
            Sut::test_sequential(config(), model, steps.clone(), seen.take());
        }
    }
}

fn of_any_size(signals: usize) -> DrainLimit {
    DrainLimit {
        signals,
        payload_bytes: usize::MAX,
    }
}

#[test]
fn what_was_leased_and_not_confirmed_before_a_crash_comes_back_in_its_time() {
    on_every_engine(async |opened| {
        let people = People::meet(&opened).await;
        let inbox = people.recipient.id;
        let session = people.register(&opened.store, moment(0)).await;
        for key in [1, 2] {
            let signal = people.signal(key, false, moment(0));
            opened.store.send(signal).await.unwrap();
        }
        let lease = async |opened: &Opened, limit, at| {
            let limit = of_any_size(limit);
            let leased = opened.store.lease(inbox, Some(session), limit, at).await;
            leased.unwrap()
        };
        let confirmed = lease(&opened, 1, moment(0)).await.unwrap();
        let confirm = opened
            .store
            .confirm(vec![inbox], vec![confirmed.lease_id], moment(1));
        assert_eq!(confirm.await.unwrap().len(), 1);
        let open = lease(&opened, 9, moment(2)).await.unwrap();
        assert_eq!(open.envelopes.len(), 1);

        let opened = opened.crash();
        let runs_out = moment(2 + LEASE_US);
        assert!(lease(&opened, 9, Moment(runs_out.0 - 1)).await.is_none());
        let pending = async |at| opened.store.has_pending(inbox, at).await.unwrap();
        assert!(!pending(Moment(runs_out.0 - 1)).await);
        assert!(pending(runs_out).await);
        let again = lease(&opened, 9, runs_out).await.unwrap();
        assert_eq!(again.envelopes, open.envelopes, "and the confirmed one not");
    });
}

#[test]
fn what_a_verb_sees_of_an_inbox_by_the_way_is_what_a_drain_finds_after_it() {
    on_every_engine(async |opened| {
        let people = People::meet(&opened).await;
        let (store, inbox, now) = (&opened.store, people.recipient.id, moment(5));
        let reads = async || drop(store.pending_counts(people.project.id).await.unwrap());
        let writes = async || {
            people.register(store, now).await;
        };
        let sends = async |key| {
            let sent = store.send(people.signal(key, false, moment(0))).await;
            assert!(matches!(sent, Ok(SendOutcome::Stored(..))));
        };
        let is_pending = async |looked| store.still_pending(looked, inbox, now).await.unwrap();

        // A yes may turn out empty, and does where a look costs next to nothing.
        let is_exact = store.is_shared();
        let ((), looked) = store.looking(inbox, now, reads()).await;
        assert!(!is_exact || !is_pending(looked).await);
        let ((), looked) = store.looking(inbox, now, writes()).await;
        assert!(!is_exact || !is_pending(looked).await);
        sends(1).await;
        assert!(is_pending(looked).await, "it came after the look");

        for running in [true, false] {
            let ((), looked) = store
                .looking(inbox, now, async {
                    if running {
                        reads().await;
                    } else {
                        writes().await;
                    }
                })
                .await;
            assert!(is_pending(looked).await, "it was there before the look");
        }
        let leased = store.lease(inbox, None, of_any_size(9), now).await.unwrap();
        assert_eq!(leased.unwrap().envelopes.len(), 1);
        let ((), looked) = store
            .looking(inbox, now, async {
                reads().await;
                sends(2).await;
            })
            .await;
        assert!(is_pending(looked).await, "it came while the verb ran");
    });
}

#[test]
fn a_send_into_a_project_that_has_gone_is_refused_and_takes_no_place() {
    super::on_every_engine(async |opened| {
        opened.store.load().await.unwrap();
        let (mut project, people) = opened.project("P", &["Donna", "Texi"]).await;
        project.id = new_id();
        let request = json!({"to": "Texi", "signal_type": "TaskAssigned", "payload": {}});
        let send = serde_json::from_value::<SendSignal>(request).unwrap();
        let new = NewSignal {
            escalates_after_us: None,
            signal_id: new_id(),
            trace_id: new_id(),
            project,
            from_persona: people[0].clone(),
            from_session: None,
            to_persona: people[1].clone(),
            send: send.check().unwrap(),
            now: Moment(1),
            audience: Audience::Everybody,
            recipient_live: false,
            recipient_elsewhere: false,
            failed: false,
        };
        let refused = opened.store.send(new).await;
        assert!(refused.is_err(), "a send without a row is no send");
        let heads = opened.store.heads(vec![people[1].id]).await.unwrap();
        assert_eq!(heads, [(people[1].id, 0)]);
    });
}

/// Somebody was admitted to a project, and before the write came the project was merged away.
#[test]
fn whoever_was_admitted_before_a_merge_is_told_of_it_and_not_of_the_database() {
    on_every_engine(async |opened| {
        let people = People::meet(&opened).await;
        let store = &opened.store;
        let SendOutcome::Stored(sent, _) = store
            .send(people.signal(1, false, moment(0)))
            .await
            .unwrap()
        else {
            panic!("it is new");
        };
        let (new, _) = opened.project("NEW", &["Donna", "Texi"]).await;
        let merged = store.merge_projects(people.project.clone(), new).await;
        merged.unwrap();
        let late = Persona {
            id: new_id(),
            identity: Identity::parse("Late").unwrap(),
            ..people.sender.clone()
        };
        let ack = Ack {
            signal_id: sent.envelope.signal_id.to_string(),
            persona: people.recipient.clone(),
            session: None,
            state: AckState::Observed,
            note: None,
            gate: None,
            now: moment(0),
        };
        let refused = [
            store.send(people.signal(2, false, moment(0))).await.err(),
            store.add_persona(late).await.err(),
            store.acknowledge(ack).await.err(),
            store.undrained(people.recipient.id, 1).await.err(),
        ];
        for (which, error) in refused.into_iter().enumerate() {
            let problem = Problem::from(error.unwrap());
            assert!(problem.is(Code::UnknownProject), "{which}: {problem:?}");
            assert!(problem.message.contains("part of another"), "{problem:?}");
        }
    });
}
