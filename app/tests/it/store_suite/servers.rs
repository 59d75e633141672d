//! What servers on one database leave for each other: seats, duties, jobs, links.

use super::{Opened, on_every_engine};
use prism::clock::{self, new_id};
use prism::store::gate::{Actor, Assigned};
use prism::store::memory::{Author, DeltaRow, NewMemory, Row};
use prism::store::{
    Audience, Duty, Escalated, NewSignal, Persona, Project, Room, Seen, SessionRow, Store,
};
use prism_core::escalation::Step;
use prism_core::gate::{Mode, TaskClass, Trigger};
use prism_core::limits::{LINK_S, LINKS_MAX, SESSIONS_PER_IDENTITY_MAX, STALE_US};
use prism_core::memory::DeltaKind;
use prism_core::memory::row;
use prism_core::signal::SendSignal;
use prism_core::{Identity, Moment};
use serde_json::json;
use std::collections::BTreeSet;
use uuid::Uuid;

/// Two servers on one database, and somebody in a project.
struct Two {
    one: Opened,
    two: Opened,
    project: Project,
    texi: Persona,
}

fn on_two_servers(test: impl AsyncFn(Two)) {
    on_every_engine(async |one: Opened| {
        let Some(two) = one.another() else { return };
        one.store.load().await.unwrap();
        let (project, mut people) = one.project("P", &["Texi"]).await;
        let texi = people.pop().unwrap();
        test(Two {
            one,
            two,
            project,
            texi,
        })
        .await;
    });
}

impl Two {
    fn row(&self, now: Moment) -> SessionRow {
        SessionRow {
            id: new_id(),
            project_id: self.project.id,
            persona_id: self.texi.id,
            identity: self.texi.identity.clone(),
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
        }
    }

    async fn session(&self, now: Moment) -> Uuid {
        let row = self.row(now);
        let id = row.id;
        let room = self.one.store.add_session(row).await.unwrap();
        assert!(matches!(room, Room::Taken));
        id
    }
}

async fn read(store: &Store, session: Uuid) -> SessionRow {
    store
        .sessions_of(vec![session])
        .await
        .unwrap()
        .pop()
        .unwrap()
}

#[test]
fn a_session_sits_where_it_came_last_whatever_clocks_say_and_who_had_it_takes_nothing_away() {
    on_two_servers(async |two: Two| {
        let now = clock::now();
        let session = two.session(now).await;
        let (one, other) = (&two.one.store, &two.two.store);
        let first = one.seat_session(session, now).await.unwrap().unwrap();
        let behind = now.plus_s(-3600);
        let second = other.seat_session(session, behind).await.unwrap().unwrap();
        assert!(second.since > first.since && second.server != first.server);
        one.unseat_session(session, first);
        one.settle().await.unwrap();
        assert_eq!(read(one, session).await.seat, Some(second));
        other.unseat_session(session, second);
        other.settle().await.unwrap();
        assert_eq!(read(one, session).await.seat, None);
        let over = other.release_session(session, "x".into(), None, now).await;
        assert!(over.unwrap().is_some());
        assert!(
            one.seat_session(session, now).await.unwrap().is_none(),
            "over"
        );
    });
}

#[test]
fn whoever_is_silent_at_every_server_has_left_once_and_comes_back_with_a_sign_of_life() {
    on_two_servers(async |two: Two| {
        let now = clock::now();
        let (silent, awake) = (two.session(now).await, two.session(now).await);
        let (one, other) = (&two.one.store, &two.two.store);
        let later = now.plus_us(2 * STALE_US);
        let since = later.plus_us(-STALE_US);
        // One of them hears it, and says so first.
        let seen = Seen {
            at: later,
            ..read(other, awake).await.seen()
        };
        assert!(other.any_silent(since).await.unwrap());
        let left = other.left_since(since, vec![seen], later).await.unwrap();
        assert_eq!(left.iter().map(|s| s.id).collect::<Vec<_>>(), [silent]);
        assert!(!one.any_silent(since).await.unwrap());
        assert!(
            one.left_since(since, Vec::new(), later)
                .await
                .unwrap()
                .is_empty()
        );
        assert_eq!(read(one, silent).await.left_at, Some(later));
        let touch = async |last_seen_at, now| {
            let row = read(one, silent).await;
            let seen = Seen {
                at: last_seen_at,
                ..row.seen()
            };
            one.touch_sessions(vec![seen], now);
            one.settle().await.unwrap();
            read(other, silent).await
        };
        let back = touch(later.plus_s(1), later.plus_s(1)).await;
        assert_eq!(back.left_at, None);
        // An older sign of life takes nothing back, unless what stands there has not come yet: a clock was set.
        let older = touch(later, later.plus_s(1)).await;
        assert_eq!(older.last_seen_at, later.plus_s(1));
        touch(later.plus_s(3600), later.plus_s(3600)).await;
        let set_back = touch(later.plus_s(1), later.plus_s(2)).await;
        assert_eq!(set_back.last_seen_at, later.plus_s(1));
        // Only what its row says is silent is released for it, and told by one of them.
        let spared = other.release_session(silent, "stale".into(), Some(since), later);
        assert!(
            spared.await.unwrap().is_none(),
            "it was seen at the other server"
        );
        let (a, b) = tokio::join!(
            one.release_session(awake, "stale".into(), Some(later), later),
            other.release_session(awake, "stale".into(), Some(later), later)
        );
        assert_ne!(a.unwrap().is_some(), b.unwrap().is_some());
    });
}

#[test]
fn an_identity_has_no_more_sessions_than_it_may_have_at_all_servers_together() {
    on_two_servers(async |two: Two| {
        let now = clock::now();
        let mut rooms = Vec::new();
        for n in 0..SESSIONS_PER_IDENTITY_MAX / 2 + 1 {
            let at = now.plus_s(n as i64);
            let (one, other) = (two.row(at), two.row(at));
            let (one, other) = tokio::join!(
                two.one.store.add_session(one),
                two.two.store.add_session(other)
            );
            rooms.extend([one.unwrap(), other.unwrap()]);
        }
        let taken = |room: &&Room| matches!(room, Room::Taken);
        assert_eq!(
            rooms.iter().filter(taken).count(),
            SESSIONS_PER_IDENTITY_MAX
        );
        let none = Room::Full {
            longest_silent: None,
        };
        assert!(matches!(rooms.last(), Some(last) if format!("{last:?}") == format!("{none:?}")));
        let late = two.row(now.plus_us(STALE_US));
        let full = two.two.store.add_session(late).await.unwrap();
        let Room::Full {
            longest_silent: Some(silent),
        } = full
        else {
            panic!("{full:?}");
        };
        assert_eq!(silent.last_seen_at, now, "the first of them may go");
    });
}

#[test]
fn one_server_has_a_duty_until_it_no_longer_goes_on_with_it() {
    on_two_servers(async |two: Two| {
        let (one, other) = (&two.one.store, &two.two.store);
        let now = Moment(1_000_000);
        let has = async |store: &Store, now: Moment| {
            let until = now.plus_s(30);
            store.has_duty(Duty::Retention, now, until).await.unwrap()
        };
        assert!(has(one, now).await);
        assert!(!has(other, now.plus_s(20)).await);
        assert!(has(one, now.plus_s(20)).await);
        assert!(!has(other, now.plus_s(49)).await);
        assert!(has(other, now.plus_s(50)).await, "the first one has died");
        assert!(!has(one, now.plus_s(51)).await);
        let another = other.has_duty(Duty::Generation, now, now.plus_s(30)).await;
        assert!(another.unwrap());
        // Whoever stops leaves them to others at once.
        other.close().await;
        assert!(has(one, now.plus_s(52)).await);
    });
}

#[test]
fn each_row_is_embedded_by_one_server_and_given_back_by_one_that_cannot() {
    on_two_servers(async |two: Two| {
        for n in 0..20 {
            let text = format!("number {n}");
            let words = row::words(DeltaKind::Note, "Texi", text, None, Vec::new());
            let (row, indexed) = words;
            let remembered = two.one.store.remember(NewMemory {
                id: new_id(),
                by: Author {
                    project_id: two.project.id,
                    session_id: None,
                    identity: Identity::parse("Texi").unwrap(),
                    surface: "test".into(),
                    now: Moment(n),
                },
                row,
                indexed: Some(indexed),
                entities: Vec::new(),
                edges: Vec::new(),
                supersedes: None,
                imported_session: None,
            });
            remembered.await.unwrap();
        }
        let ids = |jobs: Vec<prism::store::EmbedJob>| -> BTreeSet<String> {
            jobs.into_iter().map(|job| job.memory_id).collect()
        };
        let (one, other) = (&two.one.store, &two.two.store);
        let (a, b) = tokio::join!(one.embed_jobs(12, 3), other.embed_jobs(12, 3));
        let (a, b) = (ids(a.unwrap()), ids(b.unwrap()));
        assert!(a.is_disjoint(&b), "a row was taken twice");
        let rest = ids(one.embed_jobs(12, 3).await.unwrap());
        assert_eq!(a.len() + b.len() + rest.len(), 20);
        assert!(other.embed_jobs(12, 3).await.unwrap().is_empty());
        one.give_back_jobs(a.iter().cloned().collect())
            .await
            .unwrap();
        assert_eq!(ids(other.embed_jobs(20, 3).await.unwrap()), a);
    });
}

#[test]
fn what_one_server_changes_the_others_see_by_a_number_and_a_send_changes_none() {
    on_two_servers(async |two: Two| {
        let (one, other) = (&two.one.store, &two.two.store);
        let before = other.signs().await.unwrap();
        let again = Persona {
            id: new_id(),
            identity: Identity::parse("Donna").unwrap(),
            ..two.texi.clone()
        };
        one.add_persona(again).await.unwrap();
        let named = other.signs().await.unwrap();
        assert!(named.names > before.names && named.sessions == before.sessions);
        let session = two.session(clock::now()).await;
        let begun = other.signs().await.unwrap();
        assert!(begun.sessions > named.sessions && begun.names == named.names);
        one.seat_session(session, clock::now()).await.unwrap();
        assert_eq!(other.signs().await.unwrap(), begun);
        assert_eq!(other.load().await.unwrap().names, begun.names);
    });
}

#[test]
fn a_link_is_good_once_and_for_thirty_seconds_at_whichever_server() {
    on_every_engine(async |opened: Opened| {
        opened.store.load().await.unwrap();
        let another = opened.another();
        let (one, two) = (&opened.store, another.as_ref().unwrap_or(&opened));
        let two = &two.store;
        let now = Moment(1_000_000);
        let add = async |name: &str, now: Moment| {
            one.add_link(name.into(), now.plus_s(LINK_S), now)
                .await
                .unwrap();
        };
        let take = async |name: &str, now: Moment| two.take_link(name.into(), now).await.unwrap();
        add("one", now).await;
        assert!(!take("other", now).await, "a foreign one");
        assert!(take("one", now.plus_s(LINK_S - 1)).await);
        assert!(!take("one", now).await, "used");
        add("late", now).await;
        assert!(!take("late", now.plus_s(LINK_S)).await, "too late");
        for n in 0..=LINKS_MAX {
            add(&n.to_string(), now.plus_us(n as i64)).await;
        }
        assert!(!take("0", now).await, "the oldest made room");
        assert!(take(&LINKS_MAX.to_string(), now).await);
        assert!(take("1", now).await);
    });
}

#[test]
fn a_step_is_taken_and_the_operators_command_run_by_one_server() {
    on_two_servers(async |two: Two| {
        let now = clock::now();
        let ask = json!({"to": "Texi", "signal_type": "Question", "payload": {"summary": "?"}});
        let sent = two.one.store.send(NewSignal {
            escalates_after_us: Some(1),
            signal_id: new_id(),
            trace_id: new_id(),
            project: two.project.clone(),
            from_persona: two.texi.clone(),
            from_session: None,
            to_persona: two.texi.clone(),
            send: serde_json::from_value::<SendSignal>(ask)
                .unwrap()
                .check()
                .unwrap(),
            now,
            audience: Audience::Everybody,
            recipient_live: false,
            recipient_elsewhere: false,
            failed: false,
        });
        sent.await.unwrap();
        let later = now.plus_s(1);
        let due = async |store: &Store| {
            let due = store.escalation_due(later, later.plus_s(600), 10).await;
            let step = |row| Escalated {
                row,
                step: Step::Operator,
                again_at: None,
            };
            due.unwrap().into_iter().map(step).collect::<Vec<_>>()
        };
        let (one, other) = (&two.one.store, &two.two.store);
        let (a, b) = (due(one).await, due(other).await);
        assert_eq!((a.len(), b.len()), (1, 1), "both see it");
        let (a, b) = tokio::join!(one.escalate(a, later), other.escalate(b, later));
        assert_eq!(a.unwrap().len() + b.unwrap().len(), 1, "one takes the step");
        let told = async |store: &Store| -> Vec<String> {
            let told = store.unnotified(10).await.unwrap();
            told.into_iter().map(|t| t.entry.sid).collect()
        };
        let (a, b) = (told(one).await, told(other).await);
        assert_eq!((a.len(), b.len()), (1, 1));
        let (a, b) = tokio::join!(one.notified(a, later), other.notified(b, later));
        let mine = [a.unwrap(), b.unwrap()].concat();
        assert_eq!(mine.len(), 1, "one runs the command");
        assert!(told(one).await.is_empty());
        one.not_notified(mine).await.unwrap();
        assert_eq!(told(other).await.len(), 1, "it could not be started there");
    });
}

/// Nobody has told the other server yet: its memory still has the project.
#[test]
fn a_write_at_another_server_after_a_merge_is_told_of_it() {
    on_two_servers(async |two: Two| {
        let (new, _) = two.one.project("NEW", &[]).await;
        let merged = two.one.store.merge_projects(two.project.clone(), new);
        merged.await.unwrap();
        let late = Persona {
            id: new_id(),
            identity: Identity::parse("Late").unwrap(),
            ..two.texi.clone()
        };
        let refused = two.two.store.add_persona(late).await.unwrap_err();
        let problem = prism_core::Problem::from(refused);
        assert!(problem.message.contains("part of another"), "{problem:?}");
    });
}

#[test]
fn a_session_is_opened_once_by_whichever_server_and_its_row_of_memory_with_it() {
    on_two_servers(async |two: Two| {
        let now = clock::now();
        let session = two.session(now).await;
        // A sign of life that knows of a verb does not open it.
        two.two.store.touch_sessions(
            vec![Seen {
                last_verb_at: Some(now),
                ..read(&two.two.store, session).await.seen()
            }],
            now,
        );
        two.two.store.settle().await.unwrap();
        let first = || NewMemory {
            id: new_id(),
            by: Author {
                project_id: two.project.id,
                session_id: Some(session),
                identity: Identity::parse("Texi").unwrap(),
                surface: "test".into(),
                now,
            },
            row: Row::Delta(DeltaRow::of(DeltaKind::Start, "it starts")),
            indexed: None,
            entities: Vec::new(),
            edges: Vec::new(),
            supersedes: None,
            imported_session: None,
        };
        let (a, b) = tokio::join!(
            two.one.store.open_session(session, first()),
            two.two.store.open_session(session, first())
        );
        assert_ne!(a.unwrap(), b.unwrap());
        assert!(!two.one.store.open_session(session, first()).await.unwrap());
        let opened = read(&two.two.store, session).await.first_verb_at;
        assert_eq!(opened, Some(now));
    });
}

#[test]
fn a_seat_that_was_taken_for_silence_comes_back_with_a_sign_of_life_from_whoever_has_it() {
    on_two_servers(async |two: Two| {
        let now = clock::now();
        let session = two.session(now).await;
        let (one, other) = (&two.one.store, &two.two.store);
        let seat = one.seat_session(session, now).await.unwrap();
        let later = now.plus_us(2 * STALE_US);
        let since = later.plus_us(-STALE_US);
        let left = other.left_since(since, Vec::new(), later).await.unwrap();
        assert_eq!(left.len(), 1, "it was silent as far as rows say");
        assert_eq!(read(one, session).await.seat, None);
        let seen = Seen {
            session,
            at: later.plus_s(1),
            last_verb_at: None,
            seat,
        };
        one.touch_sessions(vec![seen], later.plus_s(1));
        one.settle().await.unwrap();
        let back = read(other, session).await;
        assert_eq!((back.seat, back.left_at), (seat, None));
        // One that has come to another server since stays there.
        let moved = other.seat_session(session, later.plus_s(2)).await.unwrap();
        let later = later.plus_us(3 * STALE_US);
        one.touch_sessions(vec![Seen { at: later, ..seen }], later);
        one.settle().await.unwrap();
        assert_eq!(read(other, session).await.seat, moved);
    });
}

#[test]
fn whoever_came_to_another_server_lately_is_seen_there_and_nobody_else() {
    on_two_servers(async |two: Two| {
        let now = clock::now();
        let (one, other) = (&two.one.store, &two.two.store);
        let (moved, stayed) = (two.session(now).await, two.session(now).await);
        one.seat_session(stayed, now).await.unwrap();
        other.seat_session(moved, now).await.unwrap();
        assert_eq!(one.seated_elsewhere(now).await.unwrap(), [moved]);
        let before = now.plus_s(60);
        assert!(one.seated_elsewhere(before).await.unwrap().is_empty());
    });
}

#[test]
fn an_output_that_is_noted_late_meets_no_assignment_that_came_after_it() {
    on_two_servers(async |two: Two| {
        let now = clock::now();
        let session = two.session(now).await;
        let actor = Actor {
            project_id: two.project.id,
            session_id: Some(session),
            persona_id: two.texi.id,
            persona: "Texi".into(),
            surface: "test".into(),
            mode: Mode::Advisory,
        };
        let (one, other) = (&two.one.store, &two.two.store);
        let assigned = Assigned {
            actor: actor.clone(),
            assignment_id: new_id().to_string(),
            class: TaskClass::Tier1,
            arrived: now.plus_s(2),
            trigger: Trigger::TodoAdd,
            now: now.plus_s(2),
        };
        other.meet_assignment(assigned).await.unwrap();
        let outputs = async || {
            let events = one.gate_events(two.project.id, false, 10).await.unwrap();
            let outputs = events.iter().filter(|e| e.trigger == "material_output");
            outputs.count()
        };
        // Gathered at the one server while the other was asked to watch.
        one.produced_before_gate(actor.clone(), now.plus_s(1))
            .await
            .unwrap();
        assert_eq!(outputs().await, 0);
        one.produced_before_gate(actor.clone(), now.plus_s(3))
            .await
            .unwrap();
        assert_eq!(outputs().await, 1);
    });
}
