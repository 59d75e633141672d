//! Starting things: which server stays when versions meet, which store it stands on, and how a host's
//! command is run.

use crate::problem::{Code, Problem};
use semver::Version;

/// The oldest client that this server understands; an older one is told which it needs.
pub const OLDEST_CLIENT: &str = "0.1.0";

/// What a starting Prism does about the server that runs already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// It serves: of the same version, or newer.
    Use,
    /// It was started in the background by an older Prism, and makes room.
    Replace,
    /// It is older, and runs in somebody's terminal: it is theirs to restart.
    Leave,
}

/// Whether a server of version `running` makes room for this program.
///
/// A version that cannot be read is not known to be older, and stays.
pub fn meet(running: &str, in_background: bool, mine: &str) -> Meeting {
    if !is_older(running, mine) {
        Meeting::Use
    } else if in_background {
        Meeting::Replace
    } else {
        Meeting::Leave
    }
}

/// Whether one version comes before another; of what is no version nothing is known.
pub fn is_older(version: &str, than: &str) -> bool {
    match (Version::parse(version), Version::parse(than)) {
        (Ok(version), Ok(than)) => version.cmp_precedence(&than).is_lt(),
        _ => false,
    }
}

/// Refuses a client that this server no longer understands.
pub fn admit(client: &str, server: &str) -> Result<(), Problem> {
    if !is_older(client, OLDEST_CLIENT) {
        return Ok(());
    }
    Err(Problem::new(
        Code::ClientTooOld,
        format!(
            "this prism is {}, and the server ({server}) needs {OLDEST_CLIENT} or newer",
            crate::text::clip(&crate::text::one_line(client), 40)
        ),
        "install the newer prism, then start this host again",
    )
    .with("needs", OLDEST_CLIENT))
}

/// How the file in a server's own home is called where a database is named.
pub const OWN_FILE: &str = "sqlite:";

/// What somebody said of the store, and where they said it.
pub type Named<'a> = (&'a str, Option<&'a str>);

/// The database that a server is to stand on: what is named first counts, and none is the file in its home. Where
/// nobody names anything, a home goes on with the store it had, or not at all: an empty file in the place of a
/// database would look as if everything were gone.
pub fn choose_store(named: &[Named<'_>], last: Option<&str>) -> Result<Option<String>, Problem> {
    let no = |message: String, hint: String| Err(Problem::new(Code::InvalidRequest, message, hint));
    let said = named
        .iter()
        .find_map(|(place, said)| Some((place, (*said)?.trim())));
    match (said, last) {
        (Some((place, "")), _) => no(
            format!("{place} is there and empty, so nobody can tell which store is meant"),
            format!(
                "give it the URL of the database, or take it away; `{OWN_FILE}` means the file in this home"
            ),
        ),
        (Some((_, OWN_FILE | "sqlite")), _) => Ok(None),
        (Some((place, url)), _) if url.starts_with(OWN_FILE) => no(
            format!("{place} names a file, and a server's file is always the one in its home"),
            format!("say `{OWN_FILE}` alone, and name the home with PRISM_HOME"),
        ),
        (Some((_, url)), _) => Ok(Some(url.to_owned())),
        (None, Some(last)) if last != OWN_FILE => no(
            format!(
                "the rows of this home are in {last}, and nothing here names that database: a server would \
                 begin with an empty file instead"
            ),
            format!(
                "set PRISM_DATABASE to its URL, or put `database = \"URL\"` under [server] in config.toml; to \
                 leave it for the file in this home, say `--database {OWN_FILE}` once"
            ),
        ),
        (None, _) => Ok(None),
    }
}

/// The database that a server stood on when it last listened, as its log tells it: `host:port/name`, without who
/// came in. Servers of earlier versions left no other word of it.
pub fn stood_on<'a>(log: impl Iterator<Item = &'a str>) -> Option<String> {
    let (mut opened, mut stood) = (None, None);
    for line in log {
        if line.contains(" The database is PostgreSQL ") {
            opened = line.rsplit_once(" database=").map(|(_, place)| place);
        } else if line.starts_with("prism: ") {
            // That one did not begin.
            opened = None;
        } else if line.contains(" INFO Prism ") && line.contains(" is listening ") {
            stood = opened.take();
        }
    }
    // A name may have an @ in it, and so may who comes in: what follows the last one is the place.
    let place = stood?.rsplit_once('@').map_or(stood?, |(_, place)| place);
    Some(place.trim().to_owned())
}

/// A coding agent's host, as far as its launcher treats it differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    ClaudeCode,
    Codex,
    Other,
}

impl Host {
    /// By the name of the program, wherever it lies.
    pub fn of_program(program: &str) -> Self {
        match program.rsplit('/').next() {
            Some("claude") => Self::ClaudeCode,
            Some("codex") => Self::Codex,
            _ => Self::Other,
        }
    }
}

/// How a `codex` command gets the identity of its terminal, and nobody else's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodexRun {
    /// It opens a terminal that can work on an app-server of its own; these arguments are the
    /// server's to know as well.
    OwnServer(Vec<String>),
    /// It opens a terminal that cannot: without the shared server it still has its own identity.
    NoDaemon,
    /// It opens none, or says itself which server it means.
    AsIs,
}

/// Options of `codex` that take a value as the next argument.
const TAKES_VALUE: [&str; 22] = [
    "-c",
    "--config",
    "--enable",
    "--disable",
    "--remote",
    "--remote-auth-token-env",
    "-i",
    "--image",
    "-m",
    "--model",
    "--local-provider",
    "-p",
    "--profile",
    "-s",
    "--sandbox",
    "-C",
    "--cd",
    "--add-dir",
    "-a",
    "--ask-for-approval",
    "--color",
    "--output-schema",
];
/// Those that the process which runs the threads must know.
const OF_THE_SERVER: [&str; 5] = ["-c", "--config", "--enable", "--disable", "--strict-config"];
/// Those that lay out another configuration than an app-server's own.
const OF_ANOTHER_SETUP: [&str; 5] = ["-p", "--profile", "--oss", "--local-provider", "--worktree"];
/// Those that settle the matter themselves, or open no terminal at all.
const SETTLED: [&str; 7] = [
    "--remote",
    "--remote-auth-token-env",
    "--no-daemon",
    "-h",
    "--help",
    "-V",
    "--version",
];
/// Commands of `codex` that open no terminal, or another program's.
const NO_TERMINAL: [&str; 30] = [
    "agents",
    "exec",
    "e",
    "review",
    "login",
    "logout",
    "mcp",
    "plugin",
    "app-server",
    "remote-control",
    "completion",
    "update",
    "doctor",
    "sandbox",
    "debug",
    "apply",
    "a",
    "queue",
    "archive",
    "delete",
    "migrate-rollouts",
    "migrate-nfs-db",
    "unarchive",
    "cloud",
    "exec-server",
    "features",
    "help",
    "proto",
    "mcp-server",
    "responses-api-proxy",
];

/// Reads the arguments behind `codex`.
pub fn codex_run(args: &[String]) -> CodexRun {
    let mut of_server = Vec::new();
    let (mut another_setup, mut first) = (false, true);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        // What follows is the prompt, whatever it looks like.
        if word == "--" {
            break;
        }
        if !word.starts_with('-') || word == "-" {
            // Only the first can be a command; the next is a prompt or a session's name.
            if std::mem::take(&mut first) && NO_TERMINAL.contains(&word.as_str()) {
                return CodexRun::AsIs;
            }
            continue;
        }
        let (name, joined) = match word.split_once('=') {
            Some((name, _)) if name.starts_with("--") => (name, true),
            _ => (word.as_str(), false),
        };
        if SETTLED.contains(&name) {
            return CodexRun::AsIs;
        }
        another_setup |= OF_ANOTHER_SETUP.contains(&name);
        let value = match TAKES_VALUE.contains(&name) && !joined {
            true => words.next(),
            false => None,
        };
        if OF_THE_SERVER.contains(&name) {
            of_server.push(word.clone());
            of_server.extend(value.cloned());
        }
    }
    match another_setup {
        true => CodexRun::NoDaemon,
        false => CodexRun::OwnServer(of_server),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_tells_which_database_a_server_stood_on_last() {
        let opened = "2026-11-17T04:11:14Z  INFO The database is PostgreSQL 16.14, schema 22, clock 1 ms off database=me@you@db.example:5433/harbour";
        let listens = "2026-11-17T04:11:14Z  INFO Prism 0.2.0 is listening url=http://127.0.0.1:7747 home=/h operator=o";
        let failed = "prism: cannot open the database: no";
        let there = Some("db.example:5433/harbour".to_owned());
        for (log, stood) in [
            (&[][..], None),
            (&[listens], None),
            (&[opened], None),
            (&[opened, listens], there.clone()),
            (&[listens, opened, listens], there.clone()),
            (&[opened, listens, opened, failed], there),
            // Back on its file since, or never anywhere else.
            (&[opened, listens, listens], None),
            (&[opened, failed, listens], None),
        ] {
            assert_eq!(stood_on(log.iter().copied()), stood, "{log:?}");
        }
    }

    #[test]
    fn a_store_is_the_one_that_is_named_first_or_the_one_the_home_had() {
        let (one, two) = ("postgres://u:p@h/one", "postgres://u:p@h/two");
        let last = Some("postgres://h:5432/one");
        let chosen = |argument, environment, configuration, last| {
            let named = [
                ("--database", argument),
                ("PRISM_DATABASE", environment),
                ("config.toml", configuration),
            ];
            choose_store(&named, last).map_err(|p| format!("{}; {}", p.message, p.hint))
        };
        for (argument, environment, configuration, last, store) in [
            (None, None, None, None, None),
            (None, None, None, Some(OWN_FILE), None),
            (Some(one), Some(two), None, None, Some(one)),
            (None, Some(two), Some(one), None, Some(two)),
            (None, None, Some(one), None, Some(one)),
            (None, Some(two), None, last, Some(two)),
            (None, Some(one), None, Some(OWN_FILE), Some(one)),
            // The way back is said.
            (Some(OWN_FILE), Some(two), Some(one), last, None),
            (None, Some("sqlite"), None, last, None),
        ] {
            let store = Ok(store.map(str::to_owned));
            assert_eq!(chosen(argument, environment, configuration, last), store);
        }
        for (argument, environment, configuration, last, says) in [
            (None, None, None, last, "in postgres://h:5432/one, and"),
            (
                None,
                Some(""),
                Some(one),
                None,
                "PRISM_DATABASE is there and empty",
            ),
            (
                Some(" "),
                Some(one),
                None,
                last,
                "--database is there and empty",
            ),
            (None, None, Some(""), None, "config.toml is there and empty"),
            (Some("sqlite:/x/prism.db"), None, None, last, "PRISM_HOME"),
        ] {
            let said = chosen(argument, environment, configuration, last).unwrap_err();
            assert!(said.contains(says), "{said}");
            assert!(!said.contains("u:p"), "{said}");
        }
    }

    #[test]
    fn only_an_older_server_of_the_background_makes_room() {
        for (running, in_background, mine, meeting) in [
            ("0.1.0", true, "0.1.0", Meeting::Use),
            ("0.1.0", true, "0.2.0", Meeting::Replace),
            ("0.9.0", true, "0.10.0", Meeting::Replace),
            ("0.2.0-rc.1", true, "0.2.0", Meeting::Replace),
            ("0.1.0", false, "0.2.0", Meeting::Leave),
            ("0.2.0", true, "0.1.0", Meeting::Use),
            ("0.2.0", false, "0.1.0", Meeting::Use),
            ("0.2.0", true, "0.2.0-rc.1", Meeting::Use),
            ("0.2.0+a", true, "0.2.0+b", Meeting::Use),
            ("", true, "0.2.0", Meeting::Use),
            ("newest", true, "0.2.0", Meeting::Use),
        ] {
            let told = format!("{running} meets {mine}");
            assert_eq!(meet(running, in_background, mine), meeting, "{told}");
        }
    }

    #[test]
    fn a_client_is_served_unless_it_is_too_old_and_then_it_is_told_what_it_needs() {
        for client in ["0.1.0", "0.1.7", "9.0.0", "", "unknown"] {
            assert!(admit(client, "1.0.0").is_ok(), "{client}");
        }
        let refused = admit("0.0.9", "1.0.0").unwrap_err();
        assert!(refused.is(Code::ClientTooOld) && refused.message.contains(OLDEST_CLIENT));
        assert!(refused.message.contains("0.0.9") && refused.message.contains("1.0.0"));
    }

    #[test]
    fn a_host_is_known_by_its_programs_name_wherever_it_lies() {
        for (program, host) in [
            ("claude", Host::ClaudeCode),
            ("/opt/x/claude", Host::ClaudeCode),
            ("codex", Host::Codex),
            ("./bin/codex", Host::Codex),
            ("codex-nightly", Host::Other),
            ("bash", Host::Other),
            ("", Host::Other),
        ] {
            assert_eq!(Host::of_program(program), host, "{program}");
        }
    }

    #[test]
    fn a_codex_terminal_gets_a_server_of_its_own_and_nothing_else_does() {
        let own = |args: &[&str]| {
            CodexRun::OwnServer(args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>())
        };
        for (args, run) in [
            ("", own(&[])),
            ("-m gpt-9 fix", own(&[])),
            ("resume --last", own(&[])),
            ("fork", own(&[])),
            (
                "-c model=x --enable y",
                own(&["-c", "model=x", "--enable", "y"]),
            ),
            ("--config=model=x", own(&["--config=model=x"])),
            ("--strict-config", own(&["--strict-config"])),
            ("resume exec", own(&[])),
            ("-C exec", own(&[])),
            ("-m help", own(&[])),
            ("-- exec", own(&[])),
            ("-p birch", CodexRun::NoDaemon),
            ("--profile=birch", CodexRun::NoDaemon),
            ("--oss -c a=b", CodexRun::NoDaemon),
            ("exec do", CodexRun::AsIs),
            ("-c a=b e", CodexRun::AsIs),
            ("mcp list", CodexRun::AsIs),
            ("--version", CodexRun::AsIs),
            ("--remote unix://x", CodexRun::AsIs),
            ("--remote=unix://x", CodexRun::AsIs),
            ("--no-daemon", CodexRun::AsIs),
            ("resume --help", CodexRun::AsIs),
        ] {
            let words: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
            assert_eq!(codex_run(&words), run, "codex {args}");
        }
    }
}
