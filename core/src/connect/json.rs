//! JSON edited as text: a member or an element goes in or out, and no other byte changes.

use super::Refusal;
use serde_json::Value;
use std::ops::Range;

/// Levels of objects and arrays that are read; hosts write a handful.
const DEPTH_MAX: usize = 128;
/// How far a level is indented where the file does not say.
const INDENT: &str = "  ";

/// A value and where it stands.
#[derive(Debug)]
pub struct Node {
    pub span: Range<usize>,
    pub kind: Kind,
}

#[derive(Debug)]
pub enum Kind {
    Object(Vec<Member>),
    Array(Vec<Node>),
    Scalar(Value),
}

#[derive(Debug)]
pub struct Member {
    pub key: String,
    pub key_at: usize,
    pub value: Node,
}

/// A value to write, with its members in the order they are to have.
#[derive(Clone, Debug, PartialEq)]
pub enum New {
    Text(String),
    Number(i64),
    Bool(bool),
    List(Vec<New>),
    Object(Vec<(String, New)>),
}

impl New {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub fn object<const N: usize>(members: [(&str, New); N]) -> Self {
        Self::Object(members.map(|(key, value)| (key.to_owned(), value)).into())
    }

    pub fn to_value(&self) -> Value {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Number(number) => (*number).into(),
            Self::Bool(bool) => (*bool).into(),
            Self::List(list) => list.iter().map(Self::to_value).collect(),
            Self::Object(members) => {
                let members = members.iter().map(|(k, v)| (k.clone(), v.to_value()));
                Value::Object(members.collect())
            }
        }
    }
}

impl Node {
    /// The member of that name; of two of one name the last counts, as it does for the hosts.
    pub fn member(&self, key: &str) -> Option<&Member> {
        self.members().iter().rev().find(|m| m.key == key)
    }

    pub fn members(&self) -> &[Member] {
        match &self.kind {
            Kind::Object(members) => members,
            _ => &[],
        }
    }

    pub fn elements(&self) -> &[Node] {
        match &self.kind {
            Kind::Array(elements) => elements,
            _ => &[],
        }
    }

    /// What stands at a path of names; a name that is a number counts into an array.
    pub fn find(&self, path: &[String]) -> Option<&Node> {
        path.iter().try_fold(self, |node, name| match &node.kind {
            Kind::Object(_) => node.member(name).map(|m| &m.value),
            Kind::Array(elements) => elements.get(name.parse::<usize>().ok()?),
            Kind::Scalar(_) => None,
        })
    }

    pub fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Object(members) => {
                let members = members.iter().map(|m| (m.key.clone(), m.value.to_value()));
                Value::Object(members.collect())
            }
            Kind::Array(elements) => elements.iter().map(Node::to_value).collect(),
            Kind::Scalar(value) => value.clone(),
        }
    }
}

/// What a host's reader takes besides plain JSON.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Dialect {
    Plain,
    /// Comments and commas at the end.
    Commented,
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    dialect: Dialect,
}

/// Reads a whole document.
pub fn parse(text: &str, dialect: Dialect) -> Result<Node, Refusal> {
    let mut reader = Reader {
        text,
        at: 0,
        depth: 0,
        dialect,
    };
    reader.skip()?;
    let node = reader.value()?;
    reader.skip()?;
    match reader.peek() {
        None => Ok(node),
        Some(c) => Err(reader.refuse(format!("{c:?} after the end of the document"))),
    }
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn refuse(&self, what: impl Into<String>) -> Refusal {
        Refusal::at(self.text, self.at, what)
    }

    /// Goes past blanks and, where the host takes them, comments.
    fn skip(&mut self) -> Result<(), Refusal> {
        loop {
            let blank = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
            self.at = self.text.len() - self.rest().trim_start_matches(blank).len();
            let comment = ["//", "/*"].iter().find(|c| self.rest().starts_with(**c));
            match (comment, self.dialect) {
                (None, _) => return Ok(()),
                (Some(_), Dialect::Plain) => {
                    return Err(self.refuse(
                        "a comment, which this host does not take: it skips the whole file",
                    ));
                }
                (Some(&"//"), _) => {
                    self.at += self.rest().find('\n').unwrap_or(self.rest().len());
                }
                (Some(_), _) => match self.rest()[2..].find("*/") {
                    Some(end) => self.at += end + 4,
                    None => return Err(self.refuse("a comment without an end")),
                },
            }
        }
    }

    fn value(&mut self) -> Result<Node, Refusal> {
        let start = self.at;
        let kind = match self.peek() {
            Some('{') => Kind::Object(self.list('}', Self::member)?),
            Some('[') => Kind::Array(self.list(']', Self::value)?),
            Some('"') => Kind::Scalar(Value::String(self.string()?)),
            Some(_) => Kind::Scalar(self.word()?),
            None => return Err(self.refuse("the file ends where a value is expected")),
        };
        Ok(Node {
            span: start..self.at,
            kind,
        })
    }

    fn list<T>(
        &mut self,
        close: char,
        item: fn(&mut Self) -> Result<T, Refusal>,
    ) -> Result<Vec<T>, Refusal> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.refuse(format!("more than {DEPTH_MAX} levels")));
        }
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.skip()?;
            if self.peek() == Some(close) {
                break;
            }
            items.push(item(self)?);
            self.skip()?;
            match self.peek() {
                Some(',') => {
                    let comma = self.at;
                    self.at += 1;
                    self.skip()?;
                    if self.peek() == Some(close) && self.dialect == Dialect::Plain {
                        return Err(Refusal::at(
                            self.text,
                            comma,
                            format!("a comma before {close:?}"),
                        ));
                    }
                }
                Some(c) if c == close => break,
                Some(c) => {
                    return Err(
                        self.refuse(format!("{c:?} where a comma or {close:?} is expected"))
                    );
                }
                None => return Err(self.refuse(format!("the file ends before {close:?}"))),
            }
        }
        self.at += 1;
        self.depth -= 1;
        Ok(items)
    }

    fn member(&mut self) -> Result<Member, Refusal> {
        let key_at = self.at;
        if self.peek() != Some('"') {
            return Err(self.refuse("a name in double quotes is expected"));
        }
        let key = self.string()?;
        self.skip()?;
        if self.peek() != Some(':') {
            return Err(self.refuse("a colon is expected"));
        }
        self.at += 1;
        self.skip()?;
        let value = self.value()?;
        Ok(Member { key, key_at, value })
    }

    fn string(&mut self) -> Result<String, Refusal> {
        let start = self.at;
        let mut escaped = false;
        let end = self.rest()[1..].char_indices().find(|(_, c)| {
            let ends = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            ends || *c == '\n'
        });
        let Some((end, '"')) = end else {
            return Err(self.refuse("a text without an end"));
        };
        let written = &self.text[start..start + end + 2];
        let text = serde_json::from_str(written)
            .map_err(|_| self.refuse("a text that is not valid JSON"))?;
        self.at += written.len();
        Ok(text)
    }

    fn word(&mut self) -> Result<Value, Refusal> {
        let end = |c: char| matches!(c, ',' | ']' | '}' | ':' | '/' | '"') || c.is_whitespace();
        let word = self.rest().split(end).next().unwrap_or_default();
        let value = serde_json::from_str(word).map_err(|_| {
            let shown = crate::text::clip(word, 40);
            self.refuse(format!("{shown:?} is no value"))
        })?;
        self.at += word.len();
        Ok(value)
    }
}

/// How a file is laid out, so that what is added looks like what is there.
struct Style {
    newline: &'static str,
    indent: String,
    /// Between a colon or a comma and what follows on the same line.
    gap: &'static str,
}

impl Style {
    fn of(text: &str, root: &Node) -> Self {
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let first = root.members().first();
        let own = first.and_then(|m| indent_before(text, m.key_at));
        let gap = first.map(|m| {
            let after = &text[m.key_at..m.value.span.start];
            if after.ends_with(':') { "" } else { " " }
        });
        Self {
            newline,
            indent: own.filter(|i| !i.is_empty()).unwrap_or(INDENT).to_owned(),
            gap: gap.unwrap_or(" "),
        }
    }

    /// A value over several lines, its own line being indented by `at`.
    fn tall(&self, value: &New, at: &str) -> String {
        let deeper = format!("{at}{}", self.indent);
        let lines: Vec<String> = match value {
            New::List(list) => list.iter().map(|v| self.tall(v, &deeper)).collect(),
            New::Object(members) => {
                let line = |(k, v): &(String, New)| {
                    format!("{}:{}{}", quoted(k), self.gap, self.tall(v, &deeper))
                };
                members.iter().map(line).collect()
            }
            plain => return self.flat(plain),
        };
        let (open, close) = brackets(value);
        if lines.is_empty() {
            return format!("{open}{close}");
        }
        let between = format!(",{}{deeper}", self.newline);
        format!(
            "{open}{nl}{deeper}{}{nl}{at}{close}",
            lines.join(&between),
            nl = self.newline
        )
    }

    /// A value on one line.
    fn flat(&self, value: &New) -> String {
        let parts: Vec<String> = match value {
            New::Text(text) => return quoted(text),
            New::Number(number) => return number.to_string(),
            New::Bool(bool) => return bool.to_string(),
            New::List(list) => list.iter().map(|v| self.flat(v)).collect(),
            New::Object(members) => {
                let one =
                    |(k, v): &(String, New)| format!("{}:{}{}", quoted(k), self.gap, self.flat(v));
                members.iter().map(one).collect()
            }
        };
        let (open, close) = brackets(value);
        format!("{open}{}{close}", parts.join(&format!(",{}", self.gap)))
    }
}

fn brackets(value: &New) -> (char, char) {
    if matches!(value, New::List(_)) {
        ('[', ']')
    } else {
        ('{', '}')
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The blanks before a place, when it is the first thing on its line.
fn indent_before(text: &str, at: usize) -> Option<&str> {
    let line = text[..at].rfind('\n')? + 1;
    let before = &text[line..at];
    before
        .chars()
        .all(|c| c == ' ' || c == '\t')
        .then_some(before)
}

/// The blanks that a place's line begins with.
fn line_indent(text: &str, at: usize) -> &str {
    let line = text[..at].rfind('\n').map_or(0, |n| n + 1);
    let end = text[line..at]
        .find(|c| c != ' ' && c != '\t')
        .unwrap_or(at - line);
    &text[line..line + end]
}

fn spliced(text: &str, range: Range<usize>, by: &str) -> String {
    format!("{}{by}{}", &text[..range.start], &text[range.end..])
}

/// Puts a member at the end of an object, or an element at the end of an array (no key).
pub fn insert(text: &str, root: &Node, into: &Node, key: Option<&str>, value: &New) -> String {
    let style = Style::of(text, root);
    let entry = |shown: String| match key {
        Some(key) => format!("{}:{}{shown}", quoted(key), style.gap),
        None => shown,
    };
    let starts: Vec<usize> = match &into.kind {
        Kind::Object(members) => members.iter().map(|m| m.key_at).collect(),
        _ => into.elements().iter().map(|e| e.span.start).collect(),
    };
    let (Some(first), Some(end)) = (starts.first(), last_end(into)) else {
        return insert_first(text, root, into, &style, value, entry);
    };
    let comma = comma_after(text, end);
    let after = comma.map_or(end, |c| c + 1);
    let (at, written) = match indent_before(text, *first) {
        Some(indent) => {
            let tall = entry(style.tall(value, indent));
            (
                after_remark(text, after),
                format!("{}{indent}{tall}", style.newline),
            )
        }
        None => (after, format!("{}{}", style.gap, entry(style.flat(value)))),
    };
    match comma {
        // A file that ends its lists with commas gets one more.
        Some(_) => spliced(text, at..at, &format!("{written},")),
        None => spliced(&spliced(text, at..at, &written), end..end, ","),
    }
}

/// Past a comment that stands on the same line: it is about what stands before it.
fn after_remark(text: &str, at: usize) -> usize {
    let line = text[at..].split('\n').next().unwrap_or_default();
    let line = line.strip_suffix('\r').unwrap_or(line);
    let remark = line.trim_start();
    let closes = remark
        .find("*/")
        .is_some_and(|n| n + 2 == remark.trim_end().len());
    if remark.starts_with("//") || (remark.starts_with("/*") && closes) {
        at + line.len()
    } else {
        at
    }
}

fn insert_first(
    text: &str,
    root: &Node,
    into: &Node,
    style: &Style,
    value: &New,
    entry: impl Fn(String) -> String,
) -> String {
    let inner = into.span.start + 1..into.span.end - 1;
    let comments = text[inner.clone()].trim_end();
    let free = inner.start + comments.len()..inner.end;
    let tall = std::ptr::eq(root, into) || text[root.span.clone()].contains('\n');
    if !tall {
        return spliced(text, free, &entry(style.flat(value)));
    }
    let base = line_indent(text, into.span.start);
    let indent = format!("{base}{}", style.indent);
    let written = entry(style.tall(value, &indent));
    spliced(
        text,
        free,
        &format!("{nl}{indent}{written}{nl}{base}", nl = style.newline),
    )
}

fn last_end(node: &Node) -> Option<usize> {
    match &node.kind {
        Kind::Object(members) => members.last().map(|m| m.value.span.end),
        Kind::Array(elements) => elements.last().map(|e| e.span.end),
        Kind::Scalar(_) => None,
    }
}

/// Where the comma after a value stands, if there is one: past blanks and comments.
fn comma_after(text: &str, end: usize) -> Option<usize> {
    let mut reader = Reader {
        text,
        at: end,
        depth: 0,
        dialect: Dialect::Commented,
    };
    reader.skip().ok()?;
    (reader.peek() == Some(',')).then_some(reader.at)
}

/// Takes out the member or element with this number.
pub fn remove(text: &str, from: &Node, number: usize) -> String {
    let places: Vec<(usize, usize)> = match &from.kind {
        Kind::Object(members) => members
            .iter()
            .map(|m| (m.key_at, m.value.span.end))
            .collect(),
        _ => from
            .elements()
            .iter()
            .map(|e| (e.span.start, e.span.end))
            .collect(),
    };
    let Some(&(start, end)) = places.get(number) else {
        return text.to_owned();
    };
    let comma = comma_after(text, end);
    let blanks = text[..start]
        .trim_end_matches([' ', '\t', '\r', '\n'])
        .len();
    if places.len() == 1 {
        let end = comma.map_or(end, |c| c + 1);
        let after = text[end..].trim_start_matches([' ', '\t', '\r', '\n']);
        // Nothing but blanks around it: the brackets close up again.
        let alone = blanks == from.span.start + 1 && text.len() - after.len() == from.span.end - 1;
        let end = if alone { from.span.end - 1 } else { end };
        return spliced(text, blanks..end, "");
    }
    if let Some(comma) = comma {
        // The first on its line: the line of the next one moves up.
        let next_first = number == 0 && blanks == from.span.start + 1;
        let start = if next_first && indent_before(text, start).is_none() {
            let next = places[1].0;
            return spliced(text, start..next, "");
        } else {
            blanks
        };
        return spliced(text, start..comma + 1, "");
    }
    // The last one: the comma before it goes with it, a comment between them stays.
    let without = spliced(text, blanks..end, "");
    match comma_after(text, places[number - 1].1) {
        Some(comma) => spliced(&without, comma..comma + 1, ""),
        None => without,
    }
}

/// Puts another value in a value's place, laid out as its surroundings are.
pub fn replace(text: &str, root: &Node, node: &Node, value: &New) -> String {
    let style = Style::of(text, root);
    let tall = text[node.span.clone()].contains('\n') || matches!(node.kind, Kind::Scalar(_));
    let base = line_indent(text, node.span.start);
    let written = match tall && text[root.span.clone()].contains('\n') {
        true => style.tall(value, base),
        false => style.flat(value),
    };
    spliced(text, node.span.clone(), &written)
}

/// Puts text back that was JSON before.
pub fn put_back(text: &str, node: &Node, written: &str) -> String {
    spliced(text, node.span.clone(), written)
}
