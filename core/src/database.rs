//! What a database must be for Prism to stand on it, and what is worth saying about one.

use crate::limits::{CLOCK_OFF_MS_MAX, CLOCK_SLACK_US, POSTGRES_MIN};
use crate::problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What is to be done about a pooler that keeps no sessions.
pub const POOLER: &str =
    "let the pooler keep sessions (PgBouncer: pool_mode = session), or leave it out";

/// Statements that a hint shows at the most.
const GRANTS_SHOWN: usize = 3;

/// What to do about what PostgreSQL, or the way to it, said; nothing where there is nothing better to say than that.
pub fn remedy(said: &str) -> Option<Cow<'static, str>> {
    let denied = said.split_once("permission denied for table ");
    if let Some((table, _)) = denied.and_then(|(_, rest)| rest.split_once(" (42501)")) {
        return Some(Cow::Owned(format!(
            "as the owner of that table or a superuser, there: `grant select, insert, update, delete on {table} to \
             prism_member` (where there is no such role, to the server's user); `prism doctor` says what else is missing"
        )));
    }
    known(said).map(Cow::Borrowed)
}

fn known(said: &str) -> Option<&'static str> {
    // What is said more closely comes first: the codes behind it stand for much.
    const KNOWN: [(&str, &str); 14] = [
        (
            "no encryption (28000)",
            "where pg_hba.conf asks for TLS, take sslmode=disable out of the URL; where it names this machine, user or \
             database in no line or refuses them, add one there",
        ),
        (
            "does not support TLS",
            "switch TLS on there (`ssl = on`), or take sslmode and sslrootcert out of the URL where nobody can listen",
        ),
        (
            "authority that is not known",
            "name that authority's certificate in the URL (sslrootcert=FILE, PEM); sslmode=require hides what is \
             said and does not ask who it is said to",
        ),
        (
            "certificate is for another name",
            "call the database by a name that its certificate has, or say sslmode=verify-ca, which asks for its \
             authority alone",
        ),
        (
            "certificate has expired",
            "renew it where the database runs, or mend this machine's clock",
        ),
        (
            "certificate is not valid yet",
            "compare this machine's clock with the database's",
        ),
        (
            "TLS handshake",
            "`openssl s_client -starttls postgres -connect host:port` shows what the database shows",
        ),
        (
            "(28P01)",
            "check user and password of the URL (letters such as @ : / are written %40 %3A %2F there), and pg_hba.conf",
        ),
        (
            "(28000)",
            "check user and password of the URL (letters such as @ : / are written %40 %3A %2F there), and pg_hba.conf",
        ),
        (
            "(3D000)",
            "make it first: `createdb NAME`, by a user who may",
        ),
        (
            "(42501)",
            "since PostgreSQL 15 only a database's owner may make tables in it: as that one or a superuser, there, \
             `grant create, usage on schema public to USER`, or `alter database NAME owner to USER`",
        ),
        (
            "(53300)",
            "each prism holds up to 19 connections, and 3 more for each further tenant: raise max_connections, or \
             run fewer servers",
        ),
        (
            "(53100)",
            "make room on the disk that the database is on; servers go on by themselves then",
        ),
        (
            "(58030)",
            "the disk that the database is on fails: PostgreSQL's log names the file that it could not read or write",
        ),
    ];
    let found = KNOWN.iter().find(|(words, _)| said.contains(words));
    found.map(|(_, next)| *next)
}

/// What was found out about the database in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// `sqlite` or `postgres`.
    pub engine: String,
    /// The engine's version, as it says it.
    pub version: String,
    /// The schema of Prism's tables; 0 where there are none yet.
    pub schema: u64,
    /// The schema that the server knows which stands on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knows: Option<u64>,
    /// The version of pgvector, where it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pgvector: Option<String>,
    /// How far its index of meaning is, where there is one or is to be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<Index>,
    /// A replica, or a database that was set to be read only.
    #[serde(default)]
    pub read_only: bool,
    /// How far the database's clock is ahead of the server's; negative when it is behind.
    #[serde(default)]
    pub clock_off_ms: i64,
    /// What keeps the rows of tenants apart, where there may be several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<Apart>,
    /// Something in front of it gives each transaction another connection.
    #[serde(default)]
    pub pooled: bool,
    /// Its user may make no tables there.
    #[serde(default)]
    pub closed: bool,
    /// What would give back rights that somebody took away: a statement for each table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
}

/// How far pgvector's index of a tenant's vectors is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// It answers; before that the scan in memory does.
    pub in_use: bool,
    /// It is being made now, by this server.
    pub being_made: bool,
    /// The last try to make it or to keep it up failed; the server's log says why.
    #[serde(default)]
    pub failed: bool,
    /// Vectors that it lacks, as far as they were counted.
    pub behind: u64,
}

impl Index {
    fn line(&self) -> String {
        let state = match (self.in_use, self.being_made) {
            (true, _) if self.failed => {
                "index in use, which cannot be kept up: see the server's log"
            }
            (true, _) => "index in use",
            (false, _) if self.failed => {
                "no index, since it cannot be made: see the server's log; vectors are compared in memory"
            }
            (false, true) => "index being made",
            (false, false) => "vectors being copied for an index",
        };
        match self.behind {
            0 => state.to_owned(),
            n => format!("{state}, {n} vectors behind"),
        }
    }
}

/// What keeps the rows of tenants apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Apart {
    /// Transactions take on a role that no policy lets pass.
    Role,
    /// There is no such role; the owner of the tables is under the policies as well. Good for one tenant.
    Force,
    /// The database's user passes every policy.
    Nothing,
}

impl Apart {
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "role" => Some(Self::Role),
            "force" => Some(Self::Force),
            "nothing" => Some(Self::Nothing),
            _ => None,
        }
    }
}

impl Facts {
    fn is_shared(&self) -> bool {
        self.engine == "postgres"
    }

    /// The version's first number.
    fn major(&self) -> Option<u32> {
        let digits = self.version.split(|c: char| !c.is_ascii_digit()).next();
        digits.and_then(|d| d.parse().ok())
    }

    /// Whether its index cannot go on where a filter lets few through.
    fn pgvector_is_old(&self) -> bool {
        let version = self.pgvector.as_deref().unwrap_or_default();
        let mut parts = version.split('.').map(|n| n.parse().unwrap_or(0));
        let (major, minor): (u32, u32) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        (major, minor) < (0, 8)
    }

    /// Why Prism cannot stand on it.
    pub fn refusal(&self, newest_schema: u64) -> Option<Problem> {
        let no = |message: String, hint: &str| Some(Problem::new(Code::StorageFull, message, hint));
        if self.is_shared() && self.major().is_some_and(|major| major < POSTGRES_MIN) {
            return no(
                format!(
                    "the database is PostgreSQL {}, and Prism needs {POSTGRES_MIN} or later",
                    self.version
                ),
                "upgrade it, or point --database at a newer one",
            );
        }
        if self.pooled {
            return no(
                "a pooler between the server and the database gives each transaction another \
                 connection, and Prism keeps statements and listens on its own"
                    .into(),
                POOLER,
            );
        }
        if self.read_only {
            return no(
                "the database can only be read: it is a replica, or was set to be read only".into(),
                "point --database at the primary (with several hosts in the URL: \
                 target_session_attrs=read-write)",
            );
        }
        if self.closed && self.schema < newest_schema {
            return no(
                "the database's user may make no tables there: permission denied (42501)".into(),
                known("(42501)").unwrap_or_default(),
            );
        }
        if self.apart == Some(Apart::Nothing) {
            return no(
                "the database's user passes row-level security (BYPASSRLS) and may not make the role \
                 prism_member, which does not"
                    .into(),
                "as a superuser: `create role prism_member nologin; grant prism_member to USER`, or \
                 `alter role USER nobypassrls`",
            );
        }
        if self.schema > newest_schema {
            return no(
                format!(
                    "the database has schema {} and this prism knows {newest_schema}: a newer prism \
                     wrote it",
                    self.schema
                ),
                "use that prism, or another database",
            );
        }
        None
    }

    /// Why not everything can be read or written there. A server that starts may mend it itself, so this keeps none from
    /// starting.
    pub fn denial(&self) -> Option<Problem> {
        let shown = &self.grants[..self.grants.len().min(GRANTS_SHOWN)];
        if shown.is_empty() {
            return None;
        }
        let more = match self.grants.len() - shown.len() {
            0 => String::new(),
            n => format!(", and so on ({n} more; `/readyz` has them in `grants`)"),
        };
        let message = match self.grants.len() {
            1 => "a right on one of Prism's tables was taken away there (42501)".to_owned(),
            n => format!("rights on {n} of Prism's tables were taken away there (42501)"),
        };
        let hint = format!(
            "as the tables' owner or a superuser, there: `{}`{more}; servers go on by themselves then",
            shown.join("; ")
        );
        let problem = Problem::new(Code::StorageFull, message, hint);
        Some(problem.with("grants", self.grants.clone()))
    }

    /// What should be known about it although Prism stands on it.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(knows) = self.knows.filter(|knows| *knows < self.schema) {
            notes.push(format!(
                "the database is of a newer prism (schema {}, this server knows {knows}): replace this server with one \
                 of that version",
                self.schema
            ));
        }
        if self.is_shared() && self.pgvector.is_none() {
            notes.push(
                "pgvector is not there, so meaning is found by an exact scan, whose time grows with \
                 memory; install the package (postgresql-NN-pgvector), then `create extension \
                 vector` in this database"
                    .into(),
            );
        }
        if let Some(old) = self.pgvector.as_ref().filter(|_| self.pgvector_is_old()) {
            notes.push(format!(
                "pgvector {old} is older than 0.8, so meaning is found by an exact scan, whose time grows \
                 with memory; install a newer package, then `alter extension vector update`"
            ));
        }
        if self.apart == Some(Apart::Force) {
            notes.push(
                "one tenant is served here: for more, as a superuser, `create role prism_member \
                 nologin; grant prism_member to USER`, and start the server again"
                    .into(),
            );
        }
        if self.clock_off_ms.abs() > CLOCK_OFF_MS_MAX {
            let (by, how) = (self.clock_off_ms.abs(), self.clock_off_ms > 0);
            notes.push(format!(
                "the database's clock is {}.{} s {} this server's: leases, expiry and sweeps go by the \
                 database's; let NTP set both",
                by / 1000,
                by % 1000 / 100,
                if how { "ahead of" } else { "behind" }
            ));
        }
        notes
    }

    /// In one line.
    pub fn line(&self) -> String {
        let name = if self.is_shared() {
            "PostgreSQL"
        } else {
            "SQLite"
        };
        let mut line = format!("{name} {}, schema {}", self.version, self.schema);
        if let Some(pgvector) = &self.pgvector {
            line.push_str(&format!(", pgvector {pgvector}"));
        }
        if let Some(index) = &self.index {
            line.push_str(&format!(" ({})", index.line()));
        }
        if self.is_shared() {
            line.push_str(&format!(", clock {} ms off", self.clock_off_ms.abs()));
        }
        line
    }
}

/// How far ahead of its machine's clock a server goes, by what was known and what was measured: what the
/// question took is not known of either way, and clocks that nearly agree are left alone.
pub fn ahead(known_us: i64, measured_us: i64, took_us: i64) -> i64 {
    let off = (measured_us - known_us).abs();
    if off > took_us / 2 + CLOCK_SLACK_US {
        measured_us
    } else {
        known_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn postgres(version: &str) -> Facts {
        Facts {
            engine: "postgres".into(),
            version: version.into(),
            schema: 19,
            pgvector: Some("0.8.0".into()),
            ..Facts::default()
        }
    }

    #[test]
    fn a_database_is_refused_that_is_old_pooled_read_only_or_newer_than_this_prism() {
        let with = |change: fn(&mut Facts)| {
            let mut facts = postgres("16.4 (Debian 16.4-1.pgdg120+1)");
            change(&mut facts);
            facts
        };
        for (facts, says) in [
            (with(|_| ()), None),
            (with(|f| f.version = "14.0".into()), None),
            (
                with(|f| f.version = "13.21".into()),
                Some("needs 14 or later"),
            ),
            (with(|f| f.version = "9.6.3".into()), Some("PostgreSQL 9.6")),
            (with(|f| f.version = "17beta2".into()), None),
            (with(|f| f.read_only = true), Some("only be read")),
            (with(|f| f.pooled = true), Some("a pooler between")),
            (with(|f| f.schema = 20), Some("newer prism")),
            (with(|f| f.closed = true), None),
            (
                with(|f| (f.closed, f.schema) = (true, 18)),
                Some("may make no tables"),
            ),
            (with(|f| f.apart = Some(Apart::Role)), None),
            (with(|f| f.apart = Some(Apart::Force)), None),
            (with(|f| f.apart = Some(Apart::Nothing)), Some("BYPASSRLS")),
            // SQLite 3 is no PostgreSQL 3.
            (
                with(|f| (f.engine, f.version) = ("sqlite".into(), "3.50.2".into())),
                None,
            ),
        ] {
            let refusal = facts.refusal(19).map(|p| p.message);
            match says {
                None => assert_eq!(refusal, None, "{facts:?}"),
                Some(says) => assert!(refusal.unwrap().contains(says), "{facts:?}"),
            }
        }
    }

    #[test]
    fn rights_that_were_taken_away_are_told_with_what_gives_them_back() {
        let lacking = |n: usize| Facts {
            grants: (0..n)
                .map(|n| format!("grant insert on t{n} to prism_member"))
                .collect(),
            ..postgres("16.4")
        };
        assert_eq!(lacking(0).denial(), None);
        let one = lacking(1).denial().unwrap();
        assert!(
            one.hint.contains("`grant insert on t0 to prism_member`"),
            "{one:?}"
        );
        let many = lacking(5).denial().unwrap();
        assert!(many.message.contains("on 5 of Prism's tables"), "{many:?}");
        assert!(
            many.hint.contains("t2") && !many.hint.contains("t3"),
            "{many:?}"
        );
        assert!(many.hint.contains("2 more"), "{many:?}");
        assert_eq!(
            many.body()["error"]["grants"].as_array().map(Vec::len),
            Some(5)
        );
        // It may be mended by the start.
        assert_eq!(lacking(1).refusal(19), None);
    }

    #[test]
    fn what_a_database_refuses_comes_with_what_to_do() {
        for (said, next) in [
            (
                "permission denied for table memory (42501)",
                "`grant select, insert, update, delete on memory to prism_member`",
            ),
            (
                "permission denied for schema public (42501)",
                "grant create",
            ),
            ("sorry, too many clients already (53300)", "max_connections"),
            (
                "could not extend file: No space left on device (53100)",
                "make room",
            ),
            (
                "could not write block 7: Input/output error (58030)",
                "the disk that the database is on fails",
            ),
            (
                "password authentication failed for user \"u\" (28P01)",
                "%40",
            ),
            (
                "no pg_hba.conf entry for host \"h\", user \"u\", database \"d\", no encryption (28000)",
                "sslmode=disable",
            ),
            ("role \"u\" does not exist (28000)", "pg_hba.conf"),
            (
                "error performing TLS handshake: server does not support TLS",
                "ssl = on",
            ),
            (
                "error performing TLS handshake: its certificate is of an authority that is not known here (x)",
                "sslrootcert",
            ),
            (
                "error performing TLS handshake: its certificate is for another name (x)",
                "verify-ca",
            ),
            ("error performing TLS handshake: odd", "openssl"),
        ] {
            assert!(remedy(said).unwrap_or_default().contains(next), "{said}");
        }
        assert_eq!(remedy("connection refused"), None);
        assert_eq!(remedy("syntax error (42601)"), None);
    }

    #[test]
    fn the_index_of_meaning_is_said_with_how_far_it_is() {
        let line = |in_use, being_made, behind| {
            let index = Index {
                in_use,
                being_made,
                behind,
                ..Index::default()
            };
            index.line()
        };
        let failed = |in_use| Index {
            in_use,
            failed: true,
            ..Index::default()
        };
        assert!(failed(true).line().contains("cannot be kept up"));
        assert!(failed(false).line().contains("compared in memory"));
        assert_eq!(line(true, false, 0), "index in use");
        assert_eq!(line(true, false, 7), "index in use, 7 vectors behind");
        assert_eq!(line(false, true, 0), "index being made");
        let copied = "vectors being copied for an index, 9 vectors behind";
        assert_eq!(line(false, false, 9), copied);
    }

    #[test]
    fn a_clock_that_is_off_by_more_than_two_seconds_and_a_missing_pgvector_are_said() {
        let with = |ms| Facts {
            clock_off_ms: ms,
            ..postgres("16.4")
        };
        assert!(with(2_000).notes().is_empty() && with(-2_000).notes().is_empty());
        assert!(with(2_001).notes()[0].contains("2.0 s ahead of"));
        assert!(with(-61_300).notes()[0].contains("61.3 s behind"));
        let bare = Facts {
            pgvector: None,
            ..postgres("16.4")
        };
        assert!(bare.notes()[0].contains("exact scan"));
        let with = |version: &str| Facts {
            pgvector: Some(version.into()),
            ..postgres("16.4")
        };
        assert!(with("0.7.4").notes()[0].contains("older than 0.8"));
        assert!(with("0.8.0").notes().is_empty() && with("1.0").notes().is_empty());
        let forced = Facts {
            apart: Some(Apart::Force),
            ..postgres("16.4")
        };
        assert!(forced.notes()[0].contains("one tenant is served"));
        let embedded = Facts {
            engine: "sqlite".into(),
            ..bare
        };
        assert!(embedded.notes().is_empty());
    }

    #[test]
    fn a_database_that_a_newer_prism_has_upgraded_meanwhile_is_said() {
        let with = |knows| Facts {
            knows,
            ..postgres("16.4")
        };
        assert!(with(None).notes().is_empty() && with(Some(19)).notes().is_empty());
        let said = with(Some(18)).notes();
        assert!(
            said[0].contains("schema 19, this server knows 18"),
            "{said:?}"
        );
        assert_eq!(with(Some(18)).denial(), None);
    }

    #[test]
    fn a_server_goes_by_the_databases_clock_where_the_two_do_not_nearly_agree() {
        let s = 1_000_000;
        for (known, measured, took, goes) in [
            (0, 200_000, 1_000, 0),
            (0, 60 * s, 1_000, 60 * s),
            (0, -60 * s, 1_000, -60 * s),
            (60 * s, 60 * s + 200_000, 1_000, 60 * s),
            (60 * s, 0, 1_000, 0),
            // A question that took as long as the clocks seem to differ says nothing.
            (0, 2 * s, 4 * s, 0),
        ] {
            assert_eq!(
                ahead(known, measured, took),
                goes,
                "{known} {measured} {took}"
            );
        }
    }
}
