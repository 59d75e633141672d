//! What the servers of one Prism tell each other: doorbells with ids, never a signal's text.
//!
//! Each message says what to read again from the store, which every server has. Who misses one reads
//! later what it would have read at once.

use crate::api::ServerFrame;
use crate::limits::{BUS_LIST_MAX, BUS_MESSAGE_BYTES_MAX};
use crate::moment::Moment;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// One message, as it travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Message {
    pub tenant: Uuid,
    /// The server that says it; nobody listens to itself.
    pub server: Uuid,
    pub at: Moment,
    #[serde(flatten)]
    pub news: News,
}

/// What happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "news", rename_all = "snake_case")]
pub enum News {
    /// A signal was committed: the inbox reaches this far.
    Sent {
        project: Uuid,
        persona: Uuid,
        seq: i64,
        signal_id: Uuid,
    },
    /// Something for the sessions of an identity, except one.
    Tell {
        persona: Uuid,
        except: Option<Uuid>,
        frame: ServerFrame,
    },
    /// Something for everybody in a project, except one session.
    TellProject {
        project: Uuid,
        except: Option<Uuid>,
        frame: ServerFrame,
    },
    /// Keys, projects or personas changed.
    Directory,
    /// A key opens nothing any more, from now on.
    Revoked { key: Uuid },
    /// A session has begun, has moved to another server, or has left.
    Session { session: Uuid },
    /// A session has ended.
    Released { session: Uuid, reason: String },
    /// Rows that an open page may show.
    Touched(TouchedRows),
    /// The server had more to say than there was room for: read everything again.
    Lost,
    /// A sign of life, which its own sender listens for as well.
    Here { name: String },
    /// The server stops; it says nothing after this.
    Gone,
    /// From a newer server.
    #[serde(other)]
    Unknown,
}

/// Rows by table and number, as the engine counts them, and what is known by id alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TouchedRows {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<(String, i64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<Uuid>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<Uuid>,
    /// More than can be listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub too_many: bool,
}

impl Message {
    /// None when it is longer than a message may be; the sweep makes up for it.
    pub fn encode(&self) -> Option<String> {
        let text = serde_json::to_string(self).ok()?;
        (text.len() <= BUS_MESSAGE_BYTES_MAX).then_some(text)
    }

    /// None for what is no message of ours.
    pub fn decode(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

impl News {
    /// The same in as many messages as its lists need.
    pub fn pieces(self) -> Vec<Self> {
        match self {
            Self::Tell {
                persona,
                except,
                frame,
            } => {
                let tell = |frame| Self::Tell {
                    persona,
                    except,
                    frame,
                };
                frame_pieces(frame).into_iter().map(tell).collect()
            }
            Self::Touched(touched) => touched.pieces().into_iter().map(Self::Touched).collect(),
            short => vec![short],
        }
    }
}

impl ServerFrame {
    /// Whether one server has another say it to the sessions of an identity. Signals are read from the store: what
    /// came by the bus would be nobody's.
    pub const fn is_told(&self) -> bool {
        matches!(
            self,
            Self::Drained { .. }
                | Self::Ended { .. }
                | Self::Returned { .. }
                | Self::Escalated { .. }
        )
    }

    /// Whether one server has another say it to everybody in a project.
    pub const fn is_of_the_mesh(&self) -> bool {
        matches!(self, Self::Event { .. })
    }
}

fn frame_pieces(frame: ServerFrame) -> Vec<ServerFrame> {
    match frame {
        ServerFrame::Drained {
            signal_ids,
            by_session,
        } => {
            let drained = |signal_ids| ServerFrame::Drained {
                signal_ids,
                by_session,
            };
            lists(signal_ids).map(drained).collect()
        }
        ServerFrame::Ended { signal_ids, state } => {
            let ended = |signal_ids| ServerFrame::Ended { signal_ids, state };
            lists(signal_ids).map(ended).collect()
        }
        ServerFrame::Returned { signal_ids } => {
            let returned = |signal_ids| ServerFrame::Returned { signal_ids };
            lists(signal_ids).map(returned).collect()
        }
        ServerFrame::Escalated { notices } => {
            let escalated = |notices| ServerFrame::Escalated { notices };
            lists_of(notices, BUS_LIST_MAX / 5).map(escalated).collect()
        }
        other => vec![other],
    }
}

fn lists<T: Clone>(long: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    lists_of(long, BUS_LIST_MAX)
}

fn lists_of<T: Clone>(long: Vec<T>, n: usize) -> impl Iterator<Item = Vec<T>> {
    let short: Vec<Vec<T>> = long.chunks(n).map(<[T]>::to_vec).collect();
    short.into_iter()
}

impl TouchedRows {
    fn pieces(self) -> Vec<Self> {
        if self.too_many {
            return vec![Self {
                too_many: true,
                ..Self::default()
            }];
        }
        let none = Self::default;
        let rows = lists(self.rows).map(|rows| Self { rows, ..none() });
        let signals = lists(self.signals).map(|signals| Self { signals, ..none() });
        let sessions = lists(self.sessions).map(|sessions| Self { sessions, ..none() });
        rows.chain(signals).chain(sessions).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bell::Notice;
    use crate::receipt::State;
    use crate::signal::Category;

    fn id(n: usize) -> Uuid {
        Uuid::from_u128(n as u128)
    }

    fn said(news: News) -> Message {
        Message {
            tenant: id(1),
            server: id(2),
            at: Moment(1_000_000),
            news,
        }
    }

    fn tell(frame: ServerFrame) -> News {
        News::Tell {
            persona: id(3),
            except: Some(id(4)),
            frame,
        }
    }

    #[test]
    fn no_server_has_another_say_a_signal() {
        let envelope = r#"{"signal_id":"00000000-0000-0000-0000-000000000001","signal_type":"StatusUpdate","from_identity":"Donna","to_identity":"Texi","payload":{}}"#;
        let frame = |kind: &str, rest: &str| -> ServerFrame {
            serde_json::from_str(&format!(r#"{{"kind":"{kind}",{rest}}}"#)).unwrap()
        };
        let of = format!(r#""envelope":{envelope}"#);
        for (frame, told, mesh) in [
            (frame("drained", r#""signal_ids":[]"#), true, false),
            (frame("returned", r#""signal_ids":[]"#), true, false),
            (frame("escalated", r#""notices":[]"#), true, false),
            (frame("event", &of), false, true),
            (frame("signal", &of), false, false),
            (frame("released", r#""reason":"x""#), false, false),
            (ServerFrame::Live, false, false),
        ] {
            assert_eq!(frame.is_told(), told, "{frame:?}");
            assert_eq!(frame.is_of_the_mesh(), mesh, "{frame:?}");
        }
    }

    fn every_kind() -> Vec<News> {
        vec![
            News::Session { session: id(4) },
            News::Sent {
                project: id(5),
                persona: id(3),
                seq: 7,
                signal_id: id(6),
            },
            tell(ServerFrame::Returned {
                signal_ids: vec![id(6)],
            }),
            News::TellProject {
                project: id(5),
                except: None,
                frame: ServerFrame::Live,
            },
            News::Directory,
            News::Revoked { key: id(8) },
            News::Released {
                session: id(9),
                reason: "stale".into(),
            },
            News::Touched(TouchedRows {
                rows: vec![("signals".into(), 3)],
                ..TouchedRows::default()
            }),
            News::Lost,
            News::Here { name: "one".into() },
            News::Gone,
        ]
    }

    #[test]
    fn what_one_server_says_another_hears() {
        for news in every_kind() {
            let text = said(news).encode().unwrap();
            let heard = Message::decode(&text).unwrap();
            assert!(!matches!(heard.news, News::Unknown), "{text}");
            assert_eq!(heard.encode().unwrap(), text);
        }
    }

    #[test]
    fn a_message_is_flat_and_says_its_kind() {
        let text = said(News::Revoked { key: id(8) }).encode().unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["news"], "revoked");
        assert_eq!(value["key"], id(8).to_string());
        assert_eq!(value["server"], id(2).to_string());
    }

    #[test]
    fn what_a_newer_server_says_is_skipped_and_what_is_none_of_ours_is_not_heard() {
        let text = said(News::Lost).encode().unwrap();
        let newer = text.replace("\"lost\"", "\"from_the_future\"");
        assert!(matches!(
            Message::decode(&newer).unwrap().news,
            News::Unknown
        ));
        for foreign in ["", "hello", "{}", r#"{"news":"lost"}"#] {
            assert!(Message::decode(foreign).is_none(), "{foreign}");
        }
    }

    #[test]
    fn a_list_that_is_too_long_goes_in_several_messages_and_none_is_left_out() {
        let ids: Vec<Uuid> = (0..1_000).map(id).collect();
        let notice = |n| Notice {
            signal_id: id(n),
            from: "a".repeat(64),
            signal_type: "b".repeat(64),
            category: Category::Blocker,
        };
        let long = [
            tell(ServerFrame::Drained {
                signal_ids: ids.clone(),
                by_session: Some(id(1)),
            }),
            tell(ServerFrame::Ended {
                signal_ids: ids.clone(),
                state: State::Expired,
            }),
            tell(ServerFrame::Returned {
                signal_ids: ids.clone(),
            }),
            tell(ServerFrame::Escalated {
                notices: (0..1_000).map(notice).collect(),
            }),
            News::Touched(TouchedRows {
                signals: ids.clone(),
                sessions: Vec::new(),
                ..TouchedRows::default()
            }),
            News::Touched(TouchedRows {
                rows: (0..1_000).map(|n| ("sessions".to_owned(), n)).collect(),
                ..TouchedRows::default()
            }),
        ];
        for news in long {
            let kind = format!("{news:.40?}");
            let texts: Vec<String> = news
                .pieces()
                .into_iter()
                .map(|piece| said(piece).encode().expect("it fits"))
                .collect();
            assert!(texts.len() > 1, "{kind}");
            if kind.contains("rows") && !kind.contains("signals: [0") {
                continue;
            }
            for id in &ids {
                let quoted = format!("\"{id}\"");
                assert!(texts.iter().any(|t| t.contains(&quoted)), "{kind} {id}");
            }
        }
    }

    #[test]
    fn more_rows_than_can_be_listed_are_one_word() {
        let touched = TouchedRows {
            signals: vec![id(1)],
            too_many: true,
            ..TouchedRows::default()
        };
        let pieces = News::Touched(touched).pieces();
        assert!(
            matches!(&pieces[..], [News::Touched(t)] if t.too_many && t.signals.is_empty()),
            "{pieces:?}"
        );
    }
}
