//! Our parts in a host's file: put in where they are missing, looked for, taken out.

use super::command::{Launch, OurLine, Runs, hook_program, our_line};
use super::json::{self, Dialect, Kind, New, Node};
use super::{ALLOW, Format, HookShape, IDENTITY, PID, Part, Pins, Refusal, SERVER, ServerShape};
use super::{block, toml};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What stood at a place before we wrote there; nothing if there was nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Undo {
    pub at: Vec<String>,
    pub before: Option<String>,
}

/// A file with our parts in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Added {
    pub text: String,
    pub undo: Vec<Undo>,
    /// What was left as it is, and why.
    pub notes: Vec<String>,
}

/// An MCP server called `prism`.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// What it starts, when it starts our shim.
    pub program: Option<String>,
    pub pins: Pins,
    /// Switched off in the host.
    pub off: bool,
}

/// Our hooks in a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hooks {
    /// Event, number of its group, number in the group, program.
    pub handlers: Vec<(String, usize, usize, String)>,
    /// Each of them as it is written: an approval is for exactly that.
    pub texts: Vec<String>,
    pub missing: Vec<String>,
}

/// A status line that is set.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    Ours(OurLine),
    Theirs,
}

/// What of ours a file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    pub server: Option<Server>,
    pub hooks: Hooks,
    pub waiters: Hooks,
    pub line: Option<Line>,
    pub allowed: bool,
    pub pins: Pins,
    /// What `features.daemon_auto_start` says.
    pub daemon: Option<bool>,
    pub block: bool,
    /// How many of the approvals asked about are there.
    pub trust: usize,
}

impl Found {
    /// Whether anything in the file is ours.
    pub fn any(&self) -> bool {
        self.server.as_ref().is_some_and(|s| s.program.is_some())
            || !self.hooks.handlers.is_empty()
            || !self.waiters.handlers.is_empty()
            || matches!(self.line, Some(Line::Ours(_)))
            || self.block
            || self.trust > 0
    }
}

/// Puts the parts in; what is there already stays as it is.
pub fn add(text: &str, format: Format, parts: &[Part], launch: &Launch) -> Result<Added, Refusal> {
    let (mark, text) = without_mark(text);
    let mut added = match format {
        Format::Json(dialect) => add_to_json(text, dialect, parts, launch)?,
        Format::Toml => toml::add(text, parts, launch)?,
        Format::Text => Added {
            text: block::add(text)?,
            ..Added::default()
        },
    };
    added.text.insert_str(0, mark);
    Ok(added)
}

/// Takes the parts out; `undo` says what stood there before, where that is known.
pub fn remove(
    text: &str,
    format: Format,
    parts: &[Part],
    undo: Option<&[Undo]>,
    launch: &Launch,
) -> Result<String, Refusal> {
    let (mark, text) = without_mark(text);
    let removed = match format {
        Format::Json(dialect) => remove_from_json(text, dialect, parts, undo, launch)?,
        Format::Toml => toml::remove(text, parts, undo, launch)?,
        Format::Text if parts.contains(&Part::Block) => block::remove(text)?,
        Format::Text => text.to_owned(),
    };
    Ok(format!("{mark}{removed}"))
}

/// What of ours is there.
pub fn look(text: &str, format: Format, parts: &[Part], launch: &Launch) -> Result<Found, Refusal> {
    let (_, text) = without_mark(text);
    let value = match format {
        Format::Text => {
            return Ok(Found {
                block: block::is_there(text),
                ..Found::default()
            });
        }
        Format::Json(dialect) if !text.trim().is_empty() => json::parse(text, dialect)?.to_value(),
        Format::Json(_) => Value::Null,
        Format::Toml => toml::to_value(text)?,
    };
    let mut found = Found::default();
    for part in parts {
        match part {
            Part::Server(at, _, _) => {
                found.server = server(walk(&value, at).get(SERVER), launch);
            }
            Part::Hooks(shape, events) => {
                found.hooks = hooks(&value["hooks"], *shape, Runs::Hook, events, launch);
            }
            Part::Waiters(shape, events) => {
                found.waiters = hooks(&value["hooks"], *shape, Runs::Waiter, events, launch);
            }
            Part::StatusLine => found.line = line(&value["statusLine"], launch),
            Part::Allow => {
                let rules = value["permissions"]["allow"].as_array();
                found.allowed = rules.is_some_and(|r| r.iter().any(|r| r == ALLOW));
            }
            Part::Env(_) => found.pins = pins(&value["env"]),
            Part::OwnServers => found.daemon = value["features"][toml::DAEMON].as_bool(),
            Part::Trust(keys) => found.trust = toml::approved(&value, keys),
            Part::Block => {}
        }
    }
    Ok(found)
}

fn without_mark(text: &str) -> (&str, &str) {
    match text.strip_prefix('\u{feff}') {
        Some(rest) => ("\u{feff}", rest),
        None => ("", text),
    }
}

fn walk<'v>(value: &'v Value, at: &[String]) -> &'v Value {
    at.iter().fold(value, |value, name| &value[name.as_str()])
}

/// An entry called `prism`, and whether it starts our shim.
pub(super) fn server(entry: Option<&Value>, launch: &Launch) -> Option<Server> {
    let entry = entry?;
    let words: Vec<&str> = match &entry["command"] {
        Value::String(program) => {
            let args = entry["args"].as_array().into_iter().flatten();
            std::iter::once(program.as_str())
                .chain(args.filter_map(Value::as_str))
                .collect()
        }
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let program = match words.as_slice() {
        [program, "mcp", ..] if launch.is_ours(program) => Some((*program).to_owned()),
        _ => None,
    };
    let mut named = pins(&entry["env"]);
    if entry["env"].is_null() {
        named = pins(&entry["environment"]);
    }
    Some(Server {
        program,
        pins: named,
        off: entry["enabled"] == false || entry["disabled"] == true,
    })
}

fn pins(env: &Value) -> Pins {
    let named = |name: &str| env[name].as_str().map(str::to_owned);
    Pins {
        identity: named(IDENTITY),
        pid: named(PID),
    }
}

fn hooks(
    events: &Value,
    shape: HookShape,
    wanted_runs: Runs,
    wanted: &[&str],
    launch: &Launch,
) -> Hooks {
    let mut found = Hooks::default();
    for (event, list) in events.as_object().into_iter().flatten() {
        let list = list.as_array().into_iter().flatten().enumerate();
        for (group, entry) in list {
            let handlers = match shape {
                HookShape::Groups(_) => entry["hooks"].as_array().map(Vec::as_slice),
                _ => Some(std::slice::from_ref(entry)),
            };
            for (n, handler) in handlers.unwrap_or_default().iter().enumerate() {
                let command = handler["command"].as_str();
                let ours = command.and_then(|c| hook_program(c, launch));
                if let Some((program, runs)) = ours
                    && runs == wanted_runs
                {
                    found.texts.push(handler.to_string());
                    found.handlers.push((event.clone(), group, n, program));
                }
            }
        }
    }
    let is_there = |event: &str| found.handlers.iter().any(|(e, ..)| e == event);
    let missing = wanted.iter().filter(|e| !is_there(e));
    found.missing = missing.map(|e| (*e).to_owned()).collect();
    found
}

fn line(set: &Value, launch: &Launch) -> Option<Line> {
    if set.is_null() {
        return None;
    }
    let ours = set["command"].as_str().and_then(|c| our_line(c, launch));
    Some(ours.map_or(Line::Theirs, Line::Ours))
}

/// A JSON file that is being edited.
struct Editor {
    text: String,
    dialect: Dialect,
    undo: Vec<Undo>,
    notes: Vec<String>,
}

impl Editor {
    fn new(text: &str, dialect: Dialect) -> Result<Self, Refusal> {
        let text = match text.trim() {
            "" => "{}\n".to_owned(),
            _ => text.to_owned(),
        };
        let editor = Self {
            text,
            dialect,
            undo: Vec::new(),
            notes: Vec::new(),
        };
        let root = editor.root()?;
        match root.kind {
            Kind::Object(_) => Ok(editor),
            _ => Err(Refusal::at(
                &editor.text,
                root.span.start,
                "an object is expected here",
            )),
        }
    }

    fn root(&self) -> Result<Node, Refusal> {
        json::parse(&self.text, self.dialect)
    }

    fn value(&self, path: &[String]) -> Result<Option<Value>, Refusal> {
        Ok(self.root()?.find(path).map(Node::to_value))
    }

    fn written(&self, path: &[String]) -> Result<Option<String>, Refusal> {
        let root = self.root()?;
        Ok(root
            .find(path)
            .map(|n| self.text[n.span.clone()].to_owned()))
    }

    /// Makes sure that there is an object or a list at a path.
    fn ensure(&mut self, path: &[String], empty: New) -> Result<(), Refusal> {
        for depth in 1..=path.len() {
            let root = self.root()?;
            let wanted = match depth == path.len() {
                true => empty.clone(),
                false => New::Object(Vec::new()),
            };
            let Some(found) = root.find(&path[..depth]) else {
                self.set(&path[..depth], wanted)?;
                continue;
            };
            let fits = match found.kind {
                Kind::Object(_) => matches!(wanted, New::Object(_)),
                Kind::Array(_) => matches!(wanted, New::List(_)),
                Kind::Scalar(_) => false,
            };
            if !fits {
                let what = if matches!(wanted, New::List(_)) {
                    "a list"
                } else {
                    "an object"
                };
                return Err(Refusal::at(
                    &self.text,
                    found.span.start,
                    format!("{what} is expected for `{}`", path[depth - 1]),
                ));
            }
        }
        Ok(())
    }

    /// Sets a member of an object that is there, and notes what it was.
    fn set(&mut self, path: &[String], value: New) -> Result<(), Refusal> {
        let root = self.root()?;
        let Some((key, parent)) = path.split_last() else {
            return Ok(());
        };
        let before = match root.find(path) {
            Some(found) if found.to_value() == value.to_value() => return Ok(()),
            Some(found) => {
                let before = self.text[found.span.clone()].to_owned();
                self.text = json::replace(&self.text, &root, found, &value);
                Some(before)
            }
            None => {
                let Some(into) = root.find(parent) else {
                    return Ok(());
                };
                self.text = json::insert(&self.text, &root, into, Some(key), &value);
                None
            }
        };
        let at = path.to_vec();
        self.undo.push(Undo { at, before });
        Ok(())
    }

    fn push(&mut self, path: &[String], value: &New) -> Result<(), Refusal> {
        let root = self.root()?;
        if let Some(into) = root.find(path) {
            self.text = json::insert(&self.text, &root, into, None, value);
        }
        Ok(())
    }

    /// Takes out what stands at a path, and what that leaves empty if it was ours.
    fn take_out(&mut self, path: &[String], undo: Option<&[Undo]>) -> Result<(), Refusal> {
        let root = self.root()?;
        let Some((key, parent_path)) = path.split_last() else {
            return Ok(());
        };
        let Some(parent) = root.find(parent_path) else {
            return Ok(());
        };
        let number = match &parent.kind {
            Kind::Object(members) => members.iter().rposition(|m| m.key == *key),
            _ => key.parse().ok(),
        };
        let Some(number) = number else {
            return Ok(());
        };
        self.text = json::remove(&self.text, parent, number);
        self.close_up(parent_path, undo)
    }

    fn close_up(&mut self, path: &[String], undo: Option<&[Undo]>) -> Result<(), Refusal> {
        let root = self.root()?;
        let Some(node) = root.find(path).filter(|_| !path.is_empty()) else {
            return Ok(());
        };
        if !node.members().is_empty() || !node.elements().is_empty() {
            return Ok(());
        }
        // A group of hooks without a hook is nothing, whoever made it.
        if let [hooks, _, _, list] = path
            && (hooks.as_str(), list.as_str()) == ("hooks", "hooks")
        {
            return self.take_out(&path[..3], undo);
        }
        match was_made(undo, path) {
            true => self.take_out(path, undo),
            false => Ok(()),
        }
    }
}

/// Whether we made what stands at a path. Where nothing is known of the past, what is empty now was.
pub(super) fn was_made(undo: Option<&[Undo]>, path: &[String]) -> bool {
    undo.is_none_or(|undo| undo.iter().any(|u| u.at == path && u.before.is_none()))
}

fn path<const N: usize>(names: [&str; N]) -> Vec<String> {
    super::names(names)
}

fn under(parent: &[String], name: &str) -> Vec<String> {
    [parent, &[name.to_owned()]].concat()
}

fn add_to_json(
    text: &str,
    dialect: Dialect,
    parts: &[Part],
    launch: &Launch,
) -> Result<Added, Refusal> {
    let mut editor = Editor::new(text, dialect)?;
    for part in parts {
        match part {
            Part::Server(at, shape, pins) => add_server(&mut editor, at, *shape, pins, launch)?,
            Part::Hooks(shape, events) => {
                add_hooks(&mut editor, *shape, Runs::Hook, events, launch)?;
            }
            Part::Waiters(shape, events) => {
                add_hooks(&mut editor, *shape, Runs::Waiter, events, launch)?;
            }
            Part::StatusLine => add_line(&mut editor, launch)?,
            Part::Allow => add_allow(&mut editor)?,
            Part::Env(pins) => {
                let env = path(["env"]);
                editor.ensure(&env, New::Object(Vec::new()))?;
                for (name, value) in pins.variables() {
                    editor.set(&under(&env, name), New::text(value))?;
                }
            }
            Part::OwnServers | Part::Block | Part::Trust(_) => {}
        }
    }
    // An empty file that needed nothing stays empty.
    if editor.undo.is_empty() && text.trim().is_empty() {
        editor.text = text.to_owned();
    }
    Ok(Added {
        text: editor.text,
        undo: editor.undo,
        notes: editor.notes,
    })
}

/// What a file says when another server has our name.
pub(super) fn taken(place: &str) -> String {
    format!(
        "another MCP server is called `{SERVER}` in {place}: give it another name there, and connect again"
    )
}

fn add_server(
    editor: &mut Editor,
    at: &[String],
    shape: ServerShape,
    pins: &Pins,
    launch: &Launch,
) -> Result<(), Refusal> {
    let entry = under(at, SERVER);
    let program = New::text(&launch.program);
    let variables = pins.variables();
    let env = if shape == ServerShape::Local {
        "environment"
    } else {
        "env"
    };
    let words = New::List(vec![program.clone(), New::text("mcp")]);
    if let Some(known) = editor.value(&entry)? {
        let Some(known) = server(Some(&known), launch).and_then(|s| s.program) else {
            let root = editor.root()?;
            let offset = root.find(&entry).map_or(0, |n| n.span.start);
            return Err(Refusal::at(&editor.text, offset, taken(&at.join("."))));
        };
        if !launch.starts(&known) {
            let command = if shape == ServerShape::Local {
                words
            } else {
                program
            };
            editor.set(&under(&entry, "command"), command)?;
        }
        if !variables.is_empty() {
            editor.ensure(&under(&entry, env), New::Object(Vec::new()))?;
        }
        for (name, value) in variables {
            editor.set(&under(&under(&entry, env), name), New::text(value))?;
        }
        return Ok(());
    }
    editor.ensure(at, New::Object(Vec::new()))?;
    let mut members = match shape {
        ServerShape::Plain => vec![],
        ServerShape::Stdio => vec![("type".to_owned(), New::text("stdio"))],
        ServerShape::Local => vec![("type".to_owned(), New::text("local"))],
    };
    if shape == ServerShape::Local {
        members.push(("command".into(), words));
        members.push(("enabled".into(), New::Bool(true)));
    } else {
        members.push(("command".into(), program));
        members.push(("args".into(), New::List(vec![New::text("mcp")])));
    }
    if !variables.is_empty() {
        let pairs = variables
            .into_iter()
            .map(|(k, v)| (k.to_owned(), New::text(v)));
        members.push((env.into(), New::Object(pairs.collect())));
    }
    editor.set(&entry, New::Object(members))
}

fn add_hooks(
    editor: &mut Editor,
    shape: HookShape,
    runs: Runs,
    events: &[&str],
    launch: &Launch,
) -> Result<(), Refusal> {
    let root = path(["hooks"]);
    if shape == HookShape::Versioned && editor.value(&path(["version"]))?.is_none() {
        editor.set(&path(["version"]), New::Number(1))?;
    }
    editor.ensure(&root, New::Object(Vec::new()))?;
    let known = hooks(
        &editor.value(&root)?.unwrap_or_default(),
        shape,
        runs,
        events,
        launch,
    );
    let command = match runs {
        Runs::Hook => launch.hook(),
        Runs::Waiter => launch.waiter(),
    };
    for (event, group, n, program) in &known.handlers {
        if !launch.starts(program) {
            let mut at = under(&under(&root, event), &group.to_string());
            if matches!(shape, HookShape::Groups(_)) {
                at = under(&under(&at, "hooks"), &n.to_string());
            }
            editor.set(&under(&at, "command"), New::text(&command))?;
        }
    }
    for event in events
        .iter()
        .filter(|e| known.missing.iter().any(|m| m == *e))
    {
        let list = under(&root, event);
        editor.ensure(&list, New::List(Vec::new()))?;
        editor.push(&list, &handler(shape, runs, &command))?;
    }
    Ok(())
}

fn handler(shape: HookShape, runs: Runs, command: &str) -> New {
    let command = ("command", New::text(command));
    let kind = ("type", New::text("command"));
    match shape {
        HookShape::Groups(timeout) if runs == Runs::Waiter => {
            // Beside the session, which goes on at once, and woken by its exit code.
            let beside = ("asyncRewake", New::Bool(true));
            let handler = New::object([kind, command, beside, ("timeout", New::Number(timeout))]);
            New::object([("hooks", New::List(vec![handler]))])
        }
        HookShape::Versioned => New::object([command]),
        HookShape::Typed(timeout) => {
            New::object([kind, command, ("timeout", New::Number(timeout))])
        }
        HookShape::Groups(timeout) => {
            let handler = New::object([kind, command, ("timeout", New::Number(timeout))]);
            New::object([("hooks", New::List(vec![handler]))])
        }
    }
}

fn add_line(editor: &mut Editor, launch: &Launch) -> Result<(), Refusal> {
    let at = path(["statusLine"]);
    let Some(set) = editor.value(&at)?.filter(|v| !v.is_null()) else {
        let line = New::object([
            ("type", New::text("command")),
            ("command", New::text(launch.statusline(None))),
            ("refreshInterval", New::Number(1)),
            ("padding", New::Number(0)),
        ]);
        return editor.set(&at, line);
    };
    let command = under(&at, "command");
    match (line(&set, launch), set["command"].as_str()) {
        (Some(Line::Ours(ours)), _) => {
            if !launch.starts(&ours.program) {
                let text = launch.statusline(ours.theirs.as_deref());
                editor.set(&command, New::text(text))?;
            }
        }
        (_, Some(theirs)) if set["type"] == "command" => {
            // The whole of it comes back at the end, so one note of it is enough.
            let before = editor.written(&at)?;
            let kept = editor.undo.len();
            editor.set(&command, New::text(launch.statusline(Some(theirs))))?;
            editor.set(&under(&at, "refreshInterval"), New::Number(1))?;
            editor.undo.truncate(kept);
            editor.undo.push(Undo { at, before });
        }
        _ => editor
            .notes
            .push("the status line is not a command: it stays as it is".into()),
    }
    Ok(())
}

fn add_allow(editor: &mut Editor) -> Result<(), Refusal> {
    let list = path(["permissions", "allow"]);
    editor.ensure(&list, New::List(Vec::new()))?;
    let rules = editor.value(&list)?.unwrap_or_default();
    if rules
        .as_array()
        .is_some_and(|r| r.iter().any(|r| r == ALLOW))
    {
        return Ok(());
    }
    editor.push(&list, &New::text(ALLOW))?;
    let at = under(&list, ALLOW);
    editor.undo.push(Undo { at, before: None });
    Ok(())
}

fn remove_from_json(
    text: &str,
    dialect: Dialect,
    parts: &[Part],
    undo: Option<&[Undo]>,
    launch: &Launch,
) -> Result<String, Refusal> {
    if text.trim().is_empty() {
        return Ok(text.to_owned());
    }
    let mut editor = Editor::new(text, dialect)?;
    for part in parts {
        match part {
            Part::Server(at, _, _) => {
                let entry = under(at, SERVER);
                let known = editor.value(&entry)?;
                if server(known.as_ref(), launch).is_some_and(|s| s.program.is_some()) {
                    editor.take_out(&entry, undo)?;
                }
            }
            Part::Hooks(shape, _) => remove_hooks(&mut editor, *shape, Runs::Hook, undo, launch)?,
            Part::Waiters(shape, _) => {
                remove_hooks(&mut editor, *shape, Runs::Waiter, undo, launch)?;
            }
            Part::StatusLine => remove_line(&mut editor, undo, launch)?,
            Part::Allow => {
                let list = path(["permissions", "allow"]);
                let rules = editor.value(&list)?.unwrap_or_default();
                let rules = rules.as_array().map(Vec::as_slice).unwrap_or_default();
                let ours = rules.iter().rposition(|r| r == ALLOW);
                if let Some(n) = ours.filter(|_| was_made(undo, &under(&list, ALLOW))) {
                    editor.take_out(&under(&list, &n.to_string()), undo)?;
                }
            }
            Part::Env(_) => {
                for name in [IDENTITY, PID] {
                    put_back(&mut editor, &path(["env", name]), undo)?;
                }
            }
            Part::OwnServers | Part::Block | Part::Trust(_) => {}
        }
    }
    Ok(editor.text)
}

/// A value that we set: what it was, or nothing.
fn put_back(editor: &mut Editor, at: &[String], undo: Option<&[Undo]>) -> Result<(), Refusal> {
    let root = editor.root()?;
    let Some(node) = root.find(at) else {
        return Ok(());
    };
    let known = undo.into_iter().flatten().find(|u| u.at == at);
    match known.and_then(|u| u.before.as_deref()) {
        Some(before) => editor.text = json::put_back(&editor.text, node, before),
        None if was_made(undo, at) => editor.take_out(at, undo)?,
        None => {}
    }
    Ok(())
}

fn remove_hooks(
    editor: &mut Editor,
    shape: HookShape,
    runs: Runs,
    undo: Option<&[Undo]>,
    launch: &Launch,
) -> Result<(), Refusal> {
    let root = path(["hooks"]);
    let known = hooks(
        &editor.value(&root)?.unwrap_or_default(),
        shape,
        runs,
        &[],
        launch,
    );
    // From the last to the first, so that numbers stay true.
    for (event, group, n, _) in known.handlers.iter().rev() {
        let mut at = under(&under(&root, event), &group.to_string());
        if matches!(shape, HookShape::Groups(_)) {
            at = under(&under(&at, "hooks"), &n.to_string());
        }
        editor.take_out(&at, undo)?;
    }
    let version = path(["version"]);
    if shape == HookShape::Versioned
        && undo.is_some()
        && was_made(undo, &version)
        && editor.value(&root)?.is_none()
    {
        editor.take_out(&version, undo)?;
    }
    Ok(())
}

fn remove_line(editor: &mut Editor, undo: Option<&[Undo]>, launch: &Launch) -> Result<(), Refusal> {
    let at = path(["statusLine"]);
    let set = editor.value(&at)?.unwrap_or_default();
    let Some(Line::Ours(ours)) = line(&set, launch) else {
        return Ok(());
    };
    let Some(theirs) = ours.theirs else {
        return put_back(editor, &at, undo.filter(|u| u.iter().any(|u| u.at == at)));
    };
    let known = undo.into_iter().flatten().find(|u| u.at == at);
    let before = known.and_then(|u| u.before.as_deref()).filter(|before| {
        let before = json::parse(before, editor.dialect).map(|n| n.to_value());
        before.is_ok_and(|b| b["command"].as_str() == Some(&theirs))
    });
    match before {
        Some(_) => put_back(editor, &at, undo),
        None => editor.set(&under(&at, "command"), New::text(theirs)),
    }
}
