//! TOML edited as text: whole lines go in or out, everything else keeps its bytes.

use super::command::{Launch, hook_program};
use super::parts::{Added, Undo, server, taken, was_made};
use super::{CODEX_ENV_VARS, HookShape, Part, Pins, Refusal, SERVER};
use serde_json::Value as Json;
use std::ops::Range;
use toml_edit::{Document, Item, Table, TableLike, Value};

/// The switch that has Codex start one server for all terminals.
pub const DAEMON: &str = "daemon_auto_start";
const FEATURES: &str = "features";

fn parse(text: &str) -> Result<Document<&str>, Refusal> {
    Document::parse(text).map_err(|e| {
        let at = e.span().map_or(0, |s| s.start);
        Refusal::at(text, at, e.message().trim().replace('\n', "; "))
    })
}

/// The whole file as plain values.
pub fn to_value(text: &str) -> Result<Json, Refusal> {
    let document = parse(text)?;
    Ok(table_value(document.as_table()))
}

fn table_value(table: &dyn TableLike) -> Json {
    let members = table.iter().map(|(k, v)| (k.to_owned(), item_value(v)));
    Json::Object(members.collect())
}

fn item_value(item: &Item) -> Json {
    match item {
        Item::None => Json::Null,
        Item::Value(value) => value_of(value),
        Item::Table(table) => table_value(table),
        Item::ArrayOfTables(tables) => tables.iter().map(|t| table_value(t)).collect(),
    }
}

fn value_of(value: &Value) -> Json {
    match value {
        Value::String(text) => text.value().as_str().into(),
        Value::Integer(number) => (*number.value()).into(),
        Value::Float(number) => (*number.value()).into(),
        Value::Boolean(bool) => (*bool.value()).into(),
        Value::Datetime(time) => time.value().to_string().into(),
        Value::Array(array) => array.iter().map(value_of).collect(),
        Value::InlineTable(table) => table_value(table),
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn listed(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|w| quoted(w)).collect();
    format!("[{}]", words.join(", "))
}

/// A TOML file that is being edited.
struct Editor {
    text: String,
    newline: &'static str,
    undo: Vec<Undo>,
}

/// Puts our parts in.
pub fn add(text: &str, parts: &[Part], launch: &Launch) -> Result<Added, Refusal> {
    let before = to_value(text)?;
    let mut editor = Editor {
        text: text.to_owned(),
        newline: if text.contains("\r\n") { "\r\n" } else { "\n" },
        undo: Vec::new(),
    };
    for part in parts {
        match part {
            Part::Server(_, _, pins) => editor.add_server(pins, launch)?,
            Part::Hooks(HookShape::Groups(timeout), events) => {
                editor.add_hooks(events, *timeout, launch)?;
            }
            Part::OwnServers => {
                let set = &before[FEATURES][DAEMON];
                if set != &Json::Bool(false) {
                    editor.set(&[FEATURES], DAEMON, "false")?;
                }
            }
            Part::Hooks(..)
            | Part::Waiters(..)
            | Part::StatusLine
            | Part::Allow
            | Part::Env(_)
            | Part::Block
            | Part::Trust(_) => {}
        }
    }
    Ok(Added {
        text: editor.text,
        undo: editor.undo,
        notes: Vec::new(),
    })
}

impl Editor {
    /// Puts lines behind everything but comments at the end: a comment before a table is taken for
    /// the table's own, and goes with it when a host rewrites its servers.
    fn append(&mut self, lines: &[String], hint: &str) -> Result<(), Refusal> {
        let nl = self.newline;
        let block = lines.join(nl);
        let document = parse(&self.text)?;
        let content = end_of(document.as_table()).map(|end| line_end(&self.text, end));
        let text = match content {
            None if self.text.is_empty() => format!("{block}{nl}"),
            None => format!("{block}{nl}{nl}{}", self.text),
            // The last line has no end: ours has none either.
            Some(at) if !self.text[..at].ends_with('\n') => {
                format!("{}{nl}{nl}{block}", self.text)
            }
            Some(at) => format!("{}{nl}{block}{nl}{}", &self.text[..at], &self.text[at..]),
        };
        // Some ways of writing a table forbid another part of it elsewhere.
        if let Err(problem) = parse(&text) {
            return Err(Refusal::new(format!(
                "the file is written in a way that cannot be added to ({}); {hint}",
                problem.message
            )));
        }
        self.text = text;
        Ok(())
    }

    fn add_server(&mut self, pins: &Pins, launch: &Launch) -> Result<(), Refusal> {
        let servers = to_value(&self.text)?["mcp_servers"].clone();
        let path = ["mcp_servers", SERVER];
        let Some(entry) = servers.get(SERVER) else {
            let named = |name: &&str| !pins.variables().iter().any(|(pin, _)| pin == name);
            let vars: Vec<String> = CODEX_ENV_VARS
                .iter()
                .filter(|name| named(name))
                .map(|name| (*name).to_owned())
                .collect();
            let mut lines = vec![
                format!("[mcp_servers.{SERVER}]"),
                format!("command = {}", quoted(&launch.program)),
                "args = [\"mcp\"]".to_owned(),
                format!("env_vars = {}", listed(&vars)),
            ];
            if !pins.is_empty() {
                lines.push(format!("env = {}", inline(pins)));
            }
            let hint = format!("add this table by hand:\n{}", lines.join("\n"));
            return self.append(&lines, &hint);
        };
        let Some(program) = server(Some(entry), launch).and_then(|s| s.program) else {
            let place = parse(&self.text)?;
            let at = find(place.as_table(), &path).and_then(first_of);
            return Err(Refusal::at(
                &self.text,
                at.unwrap_or(0),
                taken("mcp_servers"),
            ));
        };
        let vars: Vec<String> = strings(&entry["env_vars"]);
        let pinned: Vec<&str> = pins.variables().iter().map(|(name, _)| *name).collect();
        let set = server(Some(entry), launch)
            .map(|s| s.pins)
            .unwrap_or_default();
        let fixed = |name: &str| {
            pinned.contains(&name) || set.variables().iter().any(|(pin, _)| *pin == name)
        };
        let mut wanted: Vec<String> = vars.iter().filter(|v| !fixed(v)).cloned().collect();
        for name in CODEX_ENV_VARS {
            if !fixed(name) && !wanted.iter().any(|v| v == name) {
                wanted.push(name.to_owned());
            }
        }
        if !launch.starts(&program) {
            self.set(&path, "command", &quoted(&launch.program))?;
        }
        if wanted != vars {
            self.set(&path, "env_vars", &listed(&wanted))?;
        }
        let env = [path[0], path[1], "env"];
        match entry["env"].is_object() {
            false if !pins.is_empty() => self.set(&path, "env", &inline(pins))?,
            _ => {
                for (name, value) in pins.variables() {
                    if entry["env"][name] != value {
                        self.set(&env, name, &quoted(value))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn add_hooks(&mut self, events: &[&str], timeout: i64, launch: &Launch) -> Result<(), Refusal> {
        let known = handlers(&to_value(&self.text)?, launch);
        for handler in &known {
            if !launch.starts(&handler.program) {
                let document = parse(&self.text)?;
                let place = handler
                    .table(document.as_table())
                    .and_then(|t| t.get("command"))
                    .and_then(Item::span);
                let Some(span) = place else { continue };
                self.text.replace_range(span, &quoted(&launch.hook()));
            }
        }
        let missing = events
            .iter()
            .filter(|e| !known.iter().any(|h| h.event == **e));
        for event in missing {
            let lines = [
                format!("[[hooks.{event}]]"),
                format!("[[hooks.{event}.hooks]]"),
                "type = \"command\"".to_owned(),
                format!("command = {}", quoted(&launch.hook())),
                format!("timeout = {timeout}"),
            ];
            let hint = format!("add these lines by hand:\n{}", lines.join("\n"));
            self.append(&lines, &hint)?;
        }
        Ok(())
    }

    /// Sets one value of a table, in the way the table is written, and notes what it was.
    fn set(&mut self, table: &[&str], key: &str, value: &str) -> Result<(), Refusal> {
        let mut at: Vec<String> = table.iter().map(|n| (*n).to_owned()).collect();
        let document = parse(&self.text)?;
        let found = find(document.as_table(), table);
        let known = found.and_then(|t| t.as_table_like()?.get(key)?.span());
        let text = if let Some(span) = known {
            let before = self.text[span.clone()].to_owned();
            at.push(key.to_owned());
            self.undo.push(Undo {
                at,
                before: Some(before),
            });
            replaced(&self.text, span, value)
        } else {
            let Some(found) = found else {
                self.undo.push(Undo { at, before: None });
                let lines = [format!("[{}]", table.join(".")), format!("{key} = {value}")];
                let hint = format!("set {}.{key} = {value} by hand", table.join("."));
                return self.append(&lines, &hint);
            };
            let text = match found {
                Item::Value(Value::InlineTable(inside)) => {
                    let end = found.span().map_or(0, |s| s.end - 1);
                    let last = self.text[..end].trim_end().len();
                    let comma = if inside.is_empty() { " " } else { ", " };
                    let entry = format!("{comma}{key} = {value}");
                    let entry = if inside.is_empty() {
                        entry + " "
                    } else {
                        entry
                    };
                    replaced(&self.text, last..last, &entry)
                }
                // Only parts of it are written: a line after them would be one of the last part.
                Item::Table(inside) if inside.is_implicit() && !inside.is_dotted() => {
                    let table = table.join(".");
                    return Err(Refusal::new(format!(
                        "`{table}` is written in parts only: add the lines `[{table}]` and \
                         `{key} = {value}` by hand"
                    )));
                }
                Item::Table(inside) => {
                    let prefix = match inside.is_dotted() {
                        true => format!("{}.", table.join(".")),
                        false => String::new(),
                    };
                    let end = own_end(inside).map(|end| line_end(&self.text, end));
                    let Some(end) = end else {
                        return Err(Refusal::new(format!(
                            "cannot set {}.{key}",
                            table.join(".")
                        )));
                    };
                    let ended = self.text[..end].ends_with('\n');
                    let line = format!("{prefix}{key} = {value}");
                    let line = match ended {
                        true => format!("{line}{}", self.newline),
                        false => format!("{}{line}", self.newline),
                    };
                    replaced(&self.text, end..end, &line)
                }
                _ => {
                    let place = found.span().map_or(0, |s| s.start);
                    let what = format!("a table is expected for `{}`", table.join("."));
                    return Err(Refusal::at(&self.text, place, what));
                }
            };
            at.push(key.to_owned());
            self.undo.push(Undo { at, before: None });
            text
        };
        parse(&text).map_err(|p| {
            Refusal::new(format!(
                "cannot set {}.{key} in the way the file is written ({})",
                table.join("."),
                p.message
            ))
        })?;
        self.text = text;
        Ok(())
    }
}

fn inline(pins: &Pins) -> String {
    let pairs = pins.variables().into_iter();
    let pairs: Vec<String> = pairs.map(|(k, v)| format!("{k} = {}", quoted(v))).collect();
    format!("{{ {} }}", pairs.join(", "))
}

fn strings(list: &Json) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Json::as_str).map(str::to_owned).collect()
}

fn replaced(text: &str, range: Range<usize>, by: &str) -> String {
    format!("{}{by}{}", &text[..range.start], &text[range.end..])
}

/// Past the end of the line that a place is in.
fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |n| at + n + 1)
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |n| n + 1)
}

fn find<'t>(table: &'t dyn TableLike, path: &[&str]) -> Option<&'t Item> {
    let (last, before) = path.split_last()?;
    let table = before
        .iter()
        .try_fold(table, |table, name| table.get(name)?.as_table_like())?;
    table.get(last)
}

/// Every place where a table or a value is written: headers, and names with their values.
fn places(item: &Item, out: &mut Vec<Range<usize>>) {
    match item {
        Item::None => {}
        Item::Value(value) => out.extend(value.span()),
        Item::Table(table) => table_places(table, out),
        Item::ArrayOfTables(tables) => tables.iter().for_each(|t| table_places(t, out)),
    }
}

fn table_places(table: &Table, out: &mut Vec<Range<usize>>) {
    // A table that only others imply is written nowhere.
    out.extend(table.span().filter(|s| s.end > s.start));
    for (name, item) in table.iter() {
        let key = table.key(name).and_then(|k| k.span());
        if let (Item::Value(value), Some(key)) = (item, key) {
            let end = value.span().map_or(key.end, |v| v.end);
            out.push(key.start..end);
        } else {
            places(item, out);
        }
    }
}

fn first_of(item: &Item) -> Option<usize> {
    let mut out = Vec::new();
    places(item, &mut out);
    out.iter().map(|r| r.start).min()
}

fn end_of(table: &Table) -> Option<usize> {
    let mut out = Vec::new();
    table_places(table, &mut out);
    out.iter().map(|r| r.end).max()
}

/// Where a table's own lines end, without those of tables in it that have headers of their own.
fn own_end(table: &Table) -> Option<usize> {
    let header = table.span().filter(|s| s.end > s.start).map(|s| s.end);
    let own = table.iter().filter_map(|(_, item)| match item {
        Item::Value(value) => value.span().map(|s| s.end),
        Item::Table(dotted) if dotted.is_dotted() => own_end(dotted),
        _ => None,
    });
    own.chain(header).max()
}

/// The lines of a table: from its header (or each of its values) to the end of its last value.
fn regions(text: &str, table: &Table, out: &mut Vec<Range<usize>>) {
    let header = table.span().filter(|s| s.end > s.start);
    match (header, own_end(table)) {
        (Some(header), Some(end)) => {
            out.push(line_start(text, header.start)..line_end(text, end));
        }
        _ => {
            let mut values = Vec::new();
            for (name, item) in table.iter() {
                let key = table.key(name).and_then(|k| k.span());
                if let (Item::Value(value), Some(key)) = (item, key) {
                    values.push(key.start..value.span().map_or(key.end, |v| v.end));
                }
            }
            let lines = values.iter();
            out.extend(lines.map(|v| line_start(text, v.start)..line_end(text, v.end)));
        }
    }
    for (_, item) in table.iter() {
        match item {
            Item::Table(inner) => regions(text, inner, out),
            Item::ArrayOfTables(tables) => tables.iter().for_each(|t| regions(text, t, out)),
            _ => {}
        }
    }
}

/// Takes lines out, and with them the blank line that stood before.
fn cut(text: &str, mut regions: Vec<Range<usize>>) -> String {
    regions.sort_by_key(|r| r.start);
    let mut merged: Vec<Range<usize>> = Vec::new();
    for region in regions {
        match merged.last_mut() {
            // Blank lines between two that go are ours, too.
            Some(last)
                if region.start <= last.end || text[last.end..region.start].trim().is_empty() =>
            {
                last.end = last.end.max(region.end);
            }
            _ => merged.push(region),
        }
    }
    let mut out = text.to_owned();
    for region in merged.into_iter().rev() {
        let Range { mut start, mut end } = region;
        let line = |text: &str| {
            let cut = text.strip_suffix('\n')?;
            Some(cut.strip_suffix('\r').unwrap_or(cut).len())
        };
        let blank_before = line(&out[..start]).filter(|at| *at == 0 || out[..*at].ends_with('\n'));
        if !out[..end].ends_with('\n') {
            // The file's last line had no end.
            start = blank_before.unwrap_or(start);
            start = line(&out[..start]).unwrap_or(start);
        } else if let Some(at) = blank_before {
            start = at;
        } else if start == 0 {
            let rest = &out[end..];
            end += rest.len()
                - rest
                    .strip_prefix("\r\n")
                    .or(rest.strip_prefix('\n'))
                    .unwrap_or(rest)
                    .len();
        }
        out.replace_range(start..end, "");
    }
    out
}

/// One of our hooks.
struct Handler {
    event: String,
    group: usize,
    number: usize,
    program: String,
    /// No other hook is in its group.
    alone: bool,
}

impl Handler {
    fn group<'t>(&self, root: &'t Table) -> Option<&'t Table> {
        let groups = find(root, &["hooks", &self.event])?.as_array_of_tables()?;
        groups.get(self.group)
    }

    fn table<'t>(&self, root: &'t Table) -> Option<&'t Table> {
        let handlers = self.group(root)?.get("hooks")?.as_array_of_tables()?;
        handlers.get(self.number)
    }
}

fn handlers(file: &Json, launch: &Launch) -> Vec<Handler> {
    let mut found = Vec::new();
    for (event, groups) in file["hooks"].as_object().into_iter().flatten() {
        for (group, entry) in groups.as_array().into_iter().flatten().enumerate() {
            let list = entry["hooks"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            for (number, handler) in list.iter().enumerate() {
                let command = handler["command"].as_str();
                let program = command.and_then(|c| hook_program(c, launch));
                found.extend(program.map(|(program, _)| Handler {
                    event: event.clone(),
                    group,
                    number,
                    program,
                    alone: list.len() == 1,
                }));
            }
        }
    }
    found
}

/// Takes our parts out.
pub fn remove(
    text: &str,
    parts: &[Part],
    undo: Option<&[Undo]>,
    launch: &Launch,
) -> Result<String, Refusal> {
    let mut text = text.to_owned();
    for part in parts {
        text = match part {
            Part::Server(..) => remove_server(&text, launch)?,
            Part::Hooks(..) => remove_hooks(&text, launch)?,
            Part::OwnServers => remove_feature(&text, undo)?,
            Part::Trust(keys) => remove_trust(&text, keys)?,
            Part::Waiters(..) | Part::StatusLine | Part::Allow | Part::Env(_) | Part::Block => {
                continue;
            }
        };
    }
    Ok(text)
}

fn remove_server(text: &str, launch: &Launch) -> Result<String, Refusal> {
    let value = to_value(text)?;
    let ours =
        server(value["mcp_servers"].get(SERVER), launch).is_some_and(|s| s.program.is_some());
    let document = parse(text)?;
    let item = find(document.as_table(), &["mcp_servers", SERVER]);
    let (Some(item), true) = (item, ours) else {
        return Ok(text.to_owned());
    };
    let mut lines = Vec::new();
    match item {
        Item::Table(table) => regions(text, table, &mut lines),
        Item::Value(value) => {
            let servers = document.as_table().get("mcp_servers");
            let key = servers
                .and_then(Item::as_table)
                .and_then(|t| t.key(SERVER)?.span());
            let Some(key) = key else {
                let at = value.span().map_or(0, |s| s.start);
                let what = "our server stands inside a table on one line: take it out by hand";
                return Err(Refusal::at(text, at, what));
            };
            let end = value.span().map_or(key.end, |s| s.end);
            lines.push(line_start(text, key.start)..line_end(text, end));
        }
        _ => {}
    }
    let cut = cut(text, lines);
    parse(&cut)?;
    Ok(cut)
}

fn remove_hooks(text: &str, launch: &Launch) -> Result<String, Refusal> {
    let document = parse(text)?;
    let mut lines = Vec::new();
    for handler in handlers(&to_value(text)?, launch) {
        let root = document.as_table();
        let table = match handler.alone {
            true => handler.group(root),
            false => handler.table(root),
        };
        let Some(table) = table else {
            let at = find(root, &["hooks", &handler.event]).and_then(Item::span);
            let what = format!(
                "our hook of {} stands in a list on one line: take it out by hand",
                handler.event
            );
            return Err(Refusal::at(text, at.map_or(0, |s| s.start), what));
        };
        regions(text, table, &mut lines);
    }
    let cut = cut(text, lines);
    parse(&cut)?;
    Ok(cut)
}

/// The name under which Codex keeps the approval of one hook.
pub fn trust_key(file: &str, event: &str, group: usize, number: usize) -> String {
    let mut name = String::new();
    for c in event.chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    format!("{file}:{name}:{group}:{number}")
}

/// How many of these hooks its user approved. Codex keeps a hash for each; that there is one says
/// that the hook was approved once.
pub(super) fn approved(file: &Json, keys: &[String]) -> usize {
    let state = &file["hooks"]["state"];
    let is_approved = |key: &&String| state[key.as_str()]["trusted_hash"].is_string();
    keys.iter().filter(is_approved).count()
}

/// The hash that Codex keeps for the first of these names that has one.
pub fn trusted_hash(file: &Json, names: &[String]) -> Option<String> {
    let state = &file["hooks"]["state"];
    let mut hashes = names
        .iter()
        .filter_map(|name| state[name.as_str()]["trusted_hash"].as_str());
    hashes.next().map(str::to_owned)
}

fn remove_trust(text: &str, keys: &[String]) -> Result<String, Refusal> {
    let document = parse(text)?;
    let state = find(document.as_table(), &["hooks", "state"]).and_then(Item::as_table);
    let Some(state) = state else {
        return Ok(text.to_owned());
    };
    let mut lines = Vec::new();
    let mut gone = 0;
    for table in keys.iter().filter_map(|key| state.get(key)?.as_table()) {
        gone += 1;
        regions(text, table, &mut lines);
    }
    if gone > 0 && gone == state.len() {
        lines.clear();
        regions(text, state, &mut lines);
    }
    let cut = cut(text, lines);
    parse(&cut)?;
    Ok(cut)
}

fn remove_feature(text: &str, undo: Option<&[Undo]>) -> Result<String, Refusal> {
    let at = [FEATURES.to_owned(), DAEMON.to_owned()];
    let made_table = undo.is_some() && was_made(undo, &at[..1]);
    let known = undo.into_iter().flatten().find(|u| u.at == at);
    // Without our own note it is the user's.
    if known.is_none() && !made_table {
        return Ok(text.to_owned());
    }
    let document = parse(text)?;
    let Some(features) = document.as_table().get(FEATURES) else {
        return Ok(text.to_owned());
    };
    let value = features.as_table_like().and_then(|t| t.get(DAEMON));
    let Some(span) = value
        .filter(|v| v.as_bool() == Some(false))
        .and_then(Item::span)
    else {
        return Ok(text.to_owned());
    };
    if let Some(before) = known.and_then(|u| u.before.as_deref()) {
        return Ok(replaced(text, span, before));
    }
    let left = features.as_table_like().map_or(0, TableLike::len);
    let cut = match features {
        Item::Table(table) if made_table && left == 1 => {
            let mut lines = Vec::new();
            regions(text, table, &mut lines);
            cut(text, lines)
        }
        Item::Table(_) => {
            // A line of its own, without a blank one of ours before it.
            let (start, end) = (line_start(text, span.start), line_end(text, span.end));
            match text[..end].ends_with('\n') {
                true => replaced(text, start..end, ""),
                false => {
                    let before = text[..start].trim_end_matches('\n').trim_end_matches('\r');
                    replaced(text, before.len()..end, "")
                }
            }
        }
        Item::Value(_) => {
            let key = text[..span.start].rfind(DAEMON).unwrap_or(span.start);
            let before = text[..key].trim_end();
            let start = before.strip_suffix(',').unwrap_or(before).len();
            // It stood first: what follows moves up.
            let rest = &text[span.end..];
            match before.ends_with(',') {
                true => replaced(text, start..span.end, ""),
                false => {
                    let after = rest.trim_start();
                    match (before.ends_with('{'), after.strip_prefix(',')) {
                        (true, None) => format!("{before}{after}"),
                        (_, Some(after)) => format!("{before} {}", after.trim_start()),
                        (false, None) => format!("{before}{rest}"),
                    }
                }
            }
        }
        _ => text.to_owned(),
    };
    parse(&cut)?;
    Ok(cut)
}
