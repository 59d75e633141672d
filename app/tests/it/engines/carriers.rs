//! News between servers, by a real Redis and by PostgreSQL's NOTIFY: there, gone at start, gone later, back again.

use crate::harness::engines::{Postgres, Redis};
use crate::harness::{PATIENCE, wait_until};
use prism::bus::{Carrier, Condition, Heard, Incoming, Member};
use prism::clock::new_id;
use prism_core::bus::News;
use uuid::Uuid;

/// An engine that carries news and can be stopped.
enum Engine {
    Redis(Redis),
    Postgres(Postgres),
}

impl Engine {
    fn both() -> [Self; 2] {
        [
            Self::Redis(Redis::start()),
            Self::Postgres(Postgres::start()),
        ]
    }

    fn stop(&mut self) {
        match self {
            Self::Redis(redis) => redis.stop(),
            Self::Postgres(postgres) => postgres.stop(),
        }
    }

    fn start_again(&mut self) {
        match self {
            Self::Redis(redis) => redis.start_again(),
            Self::Postgres(postgres) => postgres.start_again(),
        }
    }

    fn carrier(&self, member: Member) -> (Carrier, Incoming) {
        match self {
            Self::Redis(redis) => Carrier::redis(&redis.url, member).unwrap(),
            Self::Postgres(postgres) => Carrier::pg_notify(postgres.url(), member).unwrap(),
        }
    }

    /// Two servers of one Prism.
    fn pair(&self) -> [Server; 2] {
        let (tenant, channel) = (new_id(), format!("prism_{}", new_id().simple()));
        ["one", "two"].map(|name| {
            let member = Member {
                tenant,
                server: new_id(),
                name: name.into(),
                channel: channel.clone(),
            };
            let id = member.server;
            let (carrier, incoming) = self.carrier(member);
            Server {
                id,
                carrier,
                incoming,
            }
        })
    }
}

struct Server {
    id: Uuid,
    carrier: Carrier,
    incoming: Incoming,
}

impl Server {
    fn condition(&self) -> Condition {
        self.carrier.health().unwrap().condition()
    }

    async fn is(&self, connected: bool) -> Condition {
        let what = format!("connected: {connected}");
        wait_until(&what, async || {
            Some(self.condition()).filter(|c| c.connected == connected)
        })
        .await
    }

    fn revokes(&self, n: u128) {
        let key = Uuid::from_u128(n);
        self.carrier.say(|| News::Revoked { key });
    }

    async fn next(&mut self) -> Heard {
        let next = tokio::time::timeout(PATIENCE, self.incoming.next());
        next.await.expect("nothing was heard").unwrap()
    }

    /// The next key that is said to be revoked; that something was missed is heard on the way.
    async fn hears(&mut self) -> (Uuid, u128) {
        loop {
            match self.next().await {
                Heard::Gap => {}
                Heard::News { server, news, .. } => match *news {
                    News::Revoked { key } => return (server, key.as_u128()),
                    other => panic!("{other:?}"),
                },
            }
        }
    }
}

fn on_every_carrier(test: impl AsyncFn(Engine)) {
    for engine in Engine::both() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(test(engine));
    }
}

#[test]
fn what_one_server_says_the_others_hear_in_its_order_and_it_does_not_hear_itself() {
    on_every_carrier(async |engine| {
        let [mut one, mut two] = engine.pair();
        one.is(true).await;
        two.is(true).await;
        for n in 0..500 {
            one.revokes(n);
        }
        for n in 0..500 {
            assert_eq!(two.hears().await, (one.id, n));
        }
        two.revokes(7);
        assert_eq!(one.hears().await, (two.id, 7), "and nothing of its own");
        let met = wait_until("a sign of life", async || {
            let met = one.condition();
            (met.peers == ["two"] && met.hop_ms.is_some()).then_some(met)
        });
        assert_eq!(met.await.lost, 0);
    });
}

#[test]
fn a_server_that_stops_says_what_is_left_and_goodbye_and_is_counted_on_no_more() {
    on_every_carrier(async |engine| {
        let [one, mut two] = engine.pair();
        one.is(true).await;
        two.is(true).await;
        wait_until("they have met", async || {
            (two.condition().peers == ["one"]).then_some(())
        })
        .await;
        for n in 0..500 {
            one.revokes(n);
        }
        one.carrier.leave().await;
        for n in 0..500 {
            assert_eq!(two.hears().await, (one.id, n));
        }
        let last = two.next().await;
        assert!(
            matches!(&last, Heard::News { server, news, .. } if *server == one.id && matches!(**news, News::Gone)),
            "{last:?}"
        );
        assert!(two.condition().peers.is_empty());
        assert!(!two.carrier.reaches(one.id, prism::clock::now()));
    });
}

#[test]
fn servers_of_another_database_are_not_heard() {
    on_every_carrier(async |engine| {
        let [mut one, two] = engine.pair();
        let [stranger, _other] = engine.pair();
        for server in [&one, &two, &stranger] {
            server.is(true).await;
        }
        stranger.revokes(1);
        // Its news went through before this one's does.
        stranger.is(true).await;
        two.revokes(2);
        assert_eq!(one.hears().await, (two.id, 2));
    });
}

#[test]
fn a_carrier_that_is_gone_at_start_holds_nobody_up_and_is_used_once_it_is_there() {
    on_every_carrier(async |mut engine| {
        engine.stop();
        let [mut one, two] = engine.pair();
        let condition = one.is(false).await;
        assert!(!one.carrier.reaches_others());
        assert!(condition.why.is_some());
        // Taken along without waiting.
        two.revokes(1);
        engine.start_again();
        one.is(true).await;
        let condition = two.is(true).await;
        assert!(condition.why.is_none(), "{condition:?}");
        assert!(condition.since >= one.condition().since.min(condition.since));
        two.revokes(2);
        let mut heard = one.hears().await;
        if heard == (two.id, 1) {
            // Who listens in time hears what waited; who does not reads it, as a gap tells it to.
            heard = one.hears().await;
        }
        assert_eq!(heard, (two.id, 2));
    });
}

#[test]
fn a_carrier_that_goes_and_comes_back_costs_a_gap_and_no_more() {
    on_every_carrier(async |mut engine| {
        let [mut one, two] = engine.pair();
        one.is(true).await;
        two.is(true).await;
        assert!(matches!(one.next().await, Heard::Gap), "it begins with one");
        engine.stop();
        let condition = one.is(false).await;
        assert!(condition.why.is_some());
        engine.start_again();
        one.is(true).await;
        two.is(true).await;
        assert!(matches!(one.next().await, Heard::Gap));
        two.revokes(3);
        assert_eq!(one.hears().await, (two.id, 3));
    });
}

#[test]
fn what_does_not_fit_is_told_as_lost() {
    on_every_carrier(async |engine| {
        let [mut one, two] = engine.pair();
        one.is(true).await;
        two.is(true).await;
        assert!(matches!(one.next().await, Heard::Gap), "it begins with one");
        // On one thread: nothing leaves the queue meanwhile.
        for n in 0..20_000 {
            two.revokes(n);
        }
        assert!(two.condition().lost > 0);
        while !matches!(one.next().await, Heard::Gap) {}
        two.revokes(20_000);
        while one.hears().await != (two.id, 20_000) {}
    });
}

#[tokio::test]
async fn a_redis_that_lets_nothing_be_published_carries_nothing_until_it_does() {
    let engine = Redis::start();
    let url = engine.url.clone();
    let tell = async |words: &str| {
        let client = redis::Client::open(url.as_str()).unwrap();
        let mut link = client.get_multiplexed_async_connection().await.unwrap();
        let mut command = redis::Cmd::new();
        for word in words.split(' ') {
            command.arg(word);
        }
        let said: redis::Value = command.query_async(&mut link).await.unwrap();
        format!("{said:?}")
    };
    let refused = async || {
        let stats = tell("INFO commandstats").await;
        let (_, of_publish) = stats.split_once("cmdstat_publish:")?;
        let (_, refused) = of_publish.split_once("rejected_calls=")?;
        let digits = refused.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<u64>().ok()
    };
    let engine = Engine::Redis(engine);
    let [one, _two] = engine.pair();
    one.is(true).await;
    tell("ACL SETUSER default -publish").await;
    one.revokes(1);
    let down = one.is(false).await;
    let why = down.why.unwrap();
    assert!(why.contains("no permissions"), "{why}");
    let before = refused().await.unwrap();
    wait_until("it was tried again and again", async || {
        (refused().await? > before + 3).then_some(())
    })
    .await;
    let still = one.condition();
    assert_eq!((still.connected, still.since), (false, down.since));
    tell("ACL SETUSER default +publish").await;
    one.is(true).await;
}
