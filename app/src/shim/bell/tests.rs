//! The bell between a host that tells of its prompts, its hooks, and the server.

use super::*;
use crate::client::{Client, Locator};
use crate::home::Home;
use crate::shim::cache::Cache;
use crate::shim::session::Registered;
use crate::shim::tee::Tee;
use prism_core::Identity;
use prism_core::signal::Category;
use tokio::io::AsyncReadExt;
use tokio::net::UnixListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A shim's bell in Claude Code, with a session and an inbox socket.
struct Hosted {
    bell: Bell,
    session: Arc<Session>,
    told: UnboundedReceiver<ClientFrame>,
    inbox: UnboundedReceiver<String>,
    _dir: tempfile::TempDir,
}

impl Hosted {
    fn new(configured: Strategy) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let path = dir.path().join("inbox.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (say, inbox) = unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut host, _)) = listener.accept().await {
                let mut line = String::new();
                host.read_to_string(&mut line).await.unwrap();
                let _ = say.send(line);
            }
        });
        let identity = Identity::parse("Texi").unwrap();
        let nobody = Client::new(Locator::Url("http://127.0.0.1:1".into()), "prk_x".into());
        let session = Arc::new(Session::new(Registered {
            id: Uuid::from_u128(1),
            pid: "P".into(),
            project_id: Uuid::from_u128(2),
            surface: Surface::ClaudeCode,
            client: nobody.unwrap(),
            cache: Cache::new(home.clone(), &identity),
            tee: Tee::new(home, "Texi"),
            identity,
        }));
        let env = Env {
            claude_inbox: Some(path.to_string_lossy().into_owned()),
            ..Env::default()
        };
        let bell = Bell::new(configured, &env, "/w", Moment(0));
        let (reports, told) = unbounded_channel();
        bell.attach(session.clone(), reports);
        Self {
            bell,
            session,
            told,
            inbox,
            _dir: dir,
        }
    }

    /// What was told since, in words.
    fn told(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        while let Ok(frame) = self.told.try_recv() {
            let numbers = |ids: &[Uuid]| {
                let numbers = ids.iter().map(|id| id.as_u128().to_string());
                numbers.collect::<Vec<_>>().join("+")
            };
            said.push(match frame {
                ClientFrame::Receipt {
                    state,
                    signal_ids,
                    strategy,
                    via,
                } => {
                    let via = via.map(|id| format!(" via {}", id.as_u128()));
                    let by = strategy.unwrap_or_default();
                    let via = via.unwrap_or_default();
                    format!("{state} {} {by}{via}", numbers(&signal_ids))
                }
                ClientFrame::Bell {
                    note, signal_ids, ..
                } => format!("{note} {}", numbers(&signal_ids)),
                other => format!("{other:?}"),
            });
        }
        said
    }

    fn rings(&mut self) -> usize {
        std::iter::from_fn(|| self.inbox.try_recv().ok()).count()
    }

    async fn ten_seconds_later(&self) {
        let late = clock::now().plus_us(BELL_UNRENDERED_US);
        self.bell.ring_overdue(late).await;
    }

    fn take(&self) -> Option<u128> {
        self.bell.take_for_hook().map(|n| n.signal_id.as_u128())
    }
}

fn task(n: u128) -> Notice {
    Notice {
        signal_id: Uuid::from_u128(n),
        from: "Ada".into(),
        signal_type: "TaskAssigned".into(),
        category: Category::Task,
    }
}

#[tokio::test]
async fn a_prompt_with_our_sentence_renders_its_bell_and_what_was_coalesced_behind_it() {
    let mut host = Hosted::new(Strategy::Auto);
    host.bell.ring(vec![task(1), task(2)]).await;
    host.bell.ring(vec![task(3)]).await;
    assert_eq!(host.told(), ["rung 1+2 claude_inbox"], "one bell for all");
    let sentence = task(2).sentence();
    assert!(!host.bell.prompt_was("fix the build"));
    assert!(!host.bell.prompt_was(&format!("{sentence} please")));
    assert_eq!(host.told(), [""; 0]);
    assert!(host.bell.prompt_was(&sentence));
    let rendered = ["rendered 2 claude_inbox", "rendered 1+3 claude_inbox via 2"];
    assert_eq!(host.told(), rendered);
    assert!(
        host.bell.prompt_was(&sentence),
        "still no words of a person"
    );
    assert_eq!((host.told(), host.rings()), (vec![], 1));
}

#[tokio::test]
async fn a_bell_that_is_not_rendered_in_ten_seconds_is_rung_once_more_on_the_next_rung() {
    let mut host = Hosted::new(Strategy::Auto);
    host.bell.hook_heard();
    host.bell.ring(vec![task(1)]).await;
    host.bell.ring_overdue(clock::now()).await;
    assert_eq!(host.told(), ["rung 1 claude_inbox"]);
    assert_eq!(host.take(), None, "not yet");
    host.ten_seconds_later().await;
    host.ten_seconds_later().await;
    assert_eq!(host.told(), ["bell_waits 1"]);
    assert_eq!(
        (host.take(), host.take()),
        (Some(1), None),
        "one hook carries it"
    );
    assert_eq!(host.told(), [""; 0], "offered is not taken");
    host.bell.hook_carried(Uuid::from_u128(1));
    host.bell.hook_carried(Uuid::from_u128(1));
    let said = ["rung 1 hooks", "rung_again 1", "rendered 1 hooks"];
    assert_eq!(
        (host.told(), host.rings()),
        (said.map(str::to_owned).into(), 1)
    );
}

#[tokio::test]
async fn a_host_whose_hooks_were_not_heard_or_whose_bell_is_pinned_is_rung_once() {
    for (configured, hooks) in [(Strategy::Auto, false), (Strategy::ClaudeInbox, true)] {
        let mut host = Hosted::new(configured);
        if hooks {
            host.bell.hook_heard();
        }
        host.bell.ring(vec![task(1)]).await;
        assert!(!host.bell.any_unrendered());
        host.ten_seconds_later().await;
        assert_eq!(host.told(), ["rung 1 claude_inbox"], "{configured}");
        assert_eq!(host.take(), None);
    }
}

#[tokio::test]
async fn the_prompt_that_comes_late_takes_the_bell_back_from_the_hooks() {
    let mut host = Hosted::new(Strategy::Auto);
    host.bell.hook_heard();
    host.bell.ring(vec![task(1)]).await;
    host.ten_seconds_later().await;
    assert!(host.bell.prompt_was(&task(1).sentence()));
    assert_eq!(host.take(), None);
    let said = [
        "rung 1 claude_inbox",
        "bell_waits 1",
        "rendered 1 claude_inbox",
    ];
    assert_eq!(host.told(), said);
}

#[tokio::test]
async fn what_was_read_meanwhile_is_neither_rung_again_nor_carried_by_a_hook() {
    let mut host = Hosted::new(Strategy::Auto);
    host.bell.hook_heard();
    host.bell.ring(vec![task(1)]).await;
    host.session.note_handed(&[Uuid::from_u128(1)]);
    host.ten_seconds_later().await;
    assert_eq!(host.told(), ["rung 1 claude_inbox"]);
    let mut host = Hosted::new(Strategy::Hooks);
    host.bell.ring(vec![task(1)]).await;
    host.session.note_handed(&[Uuid::from_u128(1)]);
    assert_eq!(host.take(), None);
    assert_eq!(host.told(), ["bell_waits 1", "not_needed 1"]);
    host.bell.drained(&[Uuid::from_u128(1)]);
    host.bell.ring(vec![task(1), task(2)]).await;
    assert_eq!(host.told(), ["not_needed 1", "bell_waits 2"]);
    assert_eq!(host.take(), Some(2));
}

#[tokio::test]
async fn what_came_while_a_drain_was_on_its_way_rings_once_after_it() {
    let mut host = Hosted::new(Strategy::Auto);
    let ids: Vec<Uuid> = (0..9).map(Uuid::from_u128).collect();
    host.bell.ring(vec![task(1)]).await;
    host.bell.ring(vec![task(2)]).await;
    host.bell.ring(vec![task(3)]).await;
    assert_eq!(host.told(), ["rung 1 claude_inbox"]);
    // The drain was listed before the third came.
    host.session.note_handed(&ids[1..3]);
    host.bell.drained(&ids[1..3]);
    host.bell.something_is_left().await;
    host.bell.ring_for_left().await;
    assert_eq!(host.told(), ["rung 3 claude_inbox"]);
    host.bell.drained(&ids[1..3]);
    host.bell.ring_for_left().await;
    assert_eq!((host.told(), host.rings()), (vec![], 2), "and once");
    // Whatever a drain carried is not rung for, even if the ring could not be written.
    host.bell.ring(vec![task(4)]).await;
    host.bell.ring(vec![task(5), task(6)]).await;
    host.session.note_handed(&ids[5..6]);
    host.bell.drained(&[ids[4], ids[6]]);
    host.bell.ring_for_left().await;
    assert_eq!(host.told(), ["rung 4 claude_inbox"]);
}

#[tokio::test]
async fn a_hook_that_carries_a_bell_rings_and_renders_it() {
    let mut host = Hosted::new(Strategy::Hooks);
    host.bell.ring(vec![task(1), task(2)]).await;
    assert_eq!(host.take(), Some(2));
    host.bell.hook_carried(Uuid::from_u128(2));
    let said = [
        "bell_waits 1+2",
        "rung 1+2 hooks",
        "rendered 2 hooks",
        "rendered 1 hooks via 2",
    ];
    assert_eq!(
        (host.told(), host.take()),
        (said.map(str::to_owned).into(), None)
    );
    host.bell.hook_carried(Uuid::from_u128(9));
    assert_eq!(host.told(), [""; 0], "nobody asked it to carry that");
}

#[tokio::test]
async fn what_waits_too_long_climbs_one_rung_a_time_and_no_rung_rings_twice() {
    let mut host = Hosted::new(Strategy::Auto);
    host.bell.hook_heard();
    host.bell.ring(vec![task(1)]).await;
    // It stands behind the first bell, so it has had that rung.
    host.bell.ring(vec![task(2)]).await;
    assert_eq!(host.told(), ["rung 1 claude_inbox"]);
    host.bell.escalate(vec![task(1), task(2)]).await;
    assert_eq!(host.told(), ["bell_waits 1+2"]);
    host.bell.escalate(vec![task(1), task(2)]).await;
    assert_eq!(host.told(), ["no_rung_left 1+2"]);
    host.session
        .note_handed(&[Uuid::from_u128(1), Uuid::from_u128(2)]);
    host.bell.escalate(vec![task(1), task(2)]).await;
    assert_eq!(
        (host.told(), host.rings()),
        (vec![], 1),
        "silent after the drain"
    );
    let mut pinned = Hosted::new(Strategy::ClaudeInbox);
    pinned.bell.hook_heard();
    pinned.bell.ring(vec![task(1)]).await;
    pinned.bell.escalate(vec![task(1)]).await;
    assert_eq!(pinned.told(), ["rung 1 claude_inbox", "no_rung_left 1"]);
    assert_eq!(pinned.rings(), 1);
}

#[tokio::test]
async fn a_probe_rings_whatever_stands_and_is_never_repeated() {
    let mut host = Hosted::new(Strategy::Auto);
    host.bell.hook_heard();
    host.bell.ring(vec![task(1)]).await;
    let probe = Notice {
        signal_type: "Loopback".into(),
        ..task(2)
    };
    let rang = host.bell.ring_probe(&probe).await;
    assert_eq!(
        (rang.strategy, rang.handover),
        (Strategy::ClaudeInbox, Handover::Handed)
    );
    assert!(host.bell.prompt_was(&task(1).sentence()));
    host.ten_seconds_later().await;
    assert_eq!(host.take(), None);
    assert!(host.bell.prompt_was(&probe.sentence()));
    let last = host.told().pop();
    assert_eq!(last.as_deref(), Some("rendered 2 claude_inbox"));
    let waits = Hosted::new(Strategy::Hooks);
    let rang = waits.bell.ring_probe(&probe).await;
    assert_eq!(rang.handover.evidence(), None, "{rang:?}");
    assert_eq!(waits.take(), None, "a probe does not wait");
}
