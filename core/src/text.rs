//! Making other people's text safe to show and to keep.

use serde_json::Value;

/// Cuts text to `max` characters, the last one an ellipsis when something was cut.
pub fn clip(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// The longest beginning of a text that takes at most so many bytes inside JSON.
pub fn within_json(text: &str, bytes: usize) -> &str {
    let mut taken = 0;
    let over = text.char_indices().find(|(_, c)| {
        taken += json_bytes(*c);
        taken > bytes
    });
    over.map_or(text, |(at, _)| &text[..at])
}

/// Bytes that a text takes inside JSON, without its quotes.
pub fn json_len(text: &str) -> usize {
    text.chars().map(json_bytes).sum()
}

fn json_bytes(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    }
}

/// Removes whole escape sequences, control characters and bidi controls, and
/// folds white space, so that another agent's text stays text on one line.
pub fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut space = false;
    visible(text, |c| {
        if c.is_whitespace() {
            space = !out.is_empty();
        } else {
            if std::mem::take(&mut space) {
                out.push(' ');
            }
            out.push(c);
        }
    });
    out
}

/// The same, but lines and tabs stay as they are.
pub fn lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    visible(text, |c| match c {
        '\n' | '\t' => out.push(c),
        c if c.is_control() => {}
        '\u{2028}' | '\u{2029}' => out.push(' '),
        c => out.push(c),
    });
    out
}

/// Escapes, in JSON text, what a terminal would obey: it may stand inside strings only, where
/// `\uXXXX` means the same.
pub fn escape_json(json: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        let obeyed = c != '\n' && c.is_control() || is_bidi_control(c) || is_invisible(c);
        if obeyed {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string never fails.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Where something that was sent holds U+0000, which not every engine can keep: the way to it, by names and places.
pub fn nul_in(value: &Value) -> Option<String> {
    let below = |name: String, value: &Value| match nul_in(value)? {
        rest if rest.is_empty() || rest.starts_with('[') => Some(name + &rest),
        rest => Some(format!("{name}.{rest}")),
    };
    match value {
        Value::String(text) => text.contains('\0').then(String::new),
        Value::Array(list) => {
            (list.iter().enumerate()).find_map(|(place, value)| below(format!("[{place}]"), value))
        }
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let shown = name.replace('\0', "\u{fffd}");
            match name.contains('\0') {
                true => Some(shown),
                false => below(shown, value),
            }
        }),
        _ => None,
    }
}

/// Whether JSON text may hold U+0000: nobody need look for it in any other.
pub fn may_hold_nul(json: &[u8]) -> bool {
    json.windows(6).any(|part| part == br"\u0000")
}

/// The same text with another sign where U+0000 was, or was meant in a JSON object or list; none when there is nothing
/// to change.
pub fn without_nul(text: &str) -> Option<String> {
    if !text.contains('\0') && !may_hold_nul(text.as_bytes()) {
        return None;
    }
    let changed = text.replace('\0', "\u{fffd}");
    let is_json = changed.starts_with(['{', '[']) && may_hold_nul(changed.as_bytes());
    if !is_json || serde_json::from_str::<serde::de::IgnoredAny>(&changed).is_err() {
        return (changed != text).then_some(changed);
    }
    let mut rest = changed.as_str();
    let mut out = String::with_capacity(changed.len());
    while let Some(at) = rest.find('\\') {
        let (before, escaped) = rest.split_at(at);
        out.push_str(before);
        // An escape is a backslash and one character of ASCII; what follows it stands for itself.
        let taken = if escaped.starts_with(r"\u0000") { 6 } else { 2 };
        let (escape, after) = escaped.split_at(taken);
        out.push_str(if taken == 6 { r"\ufffd" } else { escape });
        rest = after;
    }
    out.push_str(rest);
    (out != text).then_some(out)
}

/// Blanks whatever looks like a key of ours.
pub fn without_keys(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("prk_") {
        out.push_str(&rest[..at]);
        out.push_str("prk_…");
        rest = rest[at + 4..].trim_start_matches(|c: char| c.is_alphanumeric() || "_-".contains(c));
    }
    out.push_str(rest);
    out
}

/// Hands over what is left when escape sequences, controls and bidi controls are gone; white
/// space stays.
fn visible(text: &str, mut keep: impl FnMut(char)) {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\u{9b}' => skip_csi(&mut chars),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => skip_string(&mut chars),
            c if c.is_whitespace() => keep(c),
            c if c.is_control() || is_bidi_control(c) || is_invisible(c) => {}
            c => keep(c),
        }
    }
}

fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_csi(chars);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            skip_string(chars);
        }
        Some(' '..='/') => {
            // Intermediate bytes, then one final byte.
            while chars.next_if(|c| (' '..='/').contains(c)).is_some() {}
            chars.next_if(|c| ('0'..='~').contains(c));
        }
        Some('0'..='~') => {
            chars.next();
        }
        _ => {}
    }
}

fn skip_csi(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while chars.next_if(|c| (' '..='?').contains(c)).is_some() {}
    chars.next_if(|c| ('@'..='~').contains(c));
}

/// Skips to the string terminator (ST or BEL); an unterminated one swallows the rest.
fn skip_string(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while let Some(c) = chars.next() {
        if c == '\u{7}' || c == '\u{9c}' {
            return;
        }
        if c == '\u{1b}' && chars.next_if_eq(&'\\').is_some() {
            return;
        }
    }
}

fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{200b}' | '\u{2060}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_character_that_no_engine_need_keep_is_found_wherever_it_stands() {
        for (sent, found) in [
            (json!({"text": "a\0b"}), Some("text")),
            (
                json!({"payload": {"paths": ["a", "b\0"]}}),
                Some("payload.paths[1]"),
            ),
            (
                json!({"payload": {"deep": [[{"x": "\0"}]]}}),
                Some("payload.deep[0][0].x"),
            ),
            (json!({"payload": {"a\0": 1}}), Some("payload.a\u{fffd}")),
            (json!({"text": "a\\u0000b", "n": 0, "no": null}), None),
        ] {
            assert_eq!(nul_in(&sent).as_deref(), found, "{sent}");
            assert!(found.is_none() || may_hold_nul(sent.to_string().as_bytes()));
        }
    }

    #[test]
    fn a_text_is_kept_with_another_sign_in_place_of_the_one_that_cannot_be() {
        for (text, kept) in [
            ("a\0b", Some("a\u{fffd}b")),
            (r#"{"a":"x\u0000y"}"#, Some(r#"{"a":"x\ufffdy"}"#)),
            (
                r#"{"a":"\\\u0000","b":"é\\u0000"}"#,
                Some(r#"{"a":"\\\ufffd","b":"é\\u0000"}"#),
            ),
            (r#"{"a":"\\u0000"}"#, None),
            (r"someone wrote of \u0000", None),
            ("{ no JSON \\u0000", None),
            ("plain", None),
        ] {
            assert_eq!(without_nul(text).as_deref(), kept, "{text:?}");
        }
    }

    #[test]
    fn whole_escape_sequences_leave_nothing_behind() {
        for (dirty, clean) in [
            ("\u{1b}[31mred\u{7} stuck", "red stuck"),
            ("\u{1b}]0;title\u{7}text", "text"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{9b}1;31mred", "red"),
            ("a\u{202e}b\u{2066}c", "abc"),
            ("line\nbreak\t tab", "line break tab"),
            ("  edges  ", "edges"),
            ("\u{1b}(Bplain", "plain"),
            ("\u{1b}cplain", "plain"),
            ("\u{1b}", ""),
            ("\u{1b}Pdevice string", ""),
            ("héllo 🔔", "héllo 🔔"),
        ] {
            assert_eq!(one_line(dirty), clean, "{dirty:?}");
        }
    }

    #[test]
    fn a_clip_counts_characters_and_ends_in_an_ellipsis() {
        assert_eq!(clip("abc", 3), "abc");
        assert_eq!(clip("abcd", 3), "ab…");
        assert_eq!(clip("éééé", 3), "éé…");
    }

    #[test]
    fn lines_stay_lines() {
        for (dirty, clean) in [
            ("a\u{1b}[2Jb\n\tc\rd\u{85}e", "ab\n\tcde"),
            ("\u{1b}]52;c;x\u{7}a\u{2028}b", "a b"),
        ] {
            assert_eq!(lines(dirty), clean, "{dirty:?}");
        }
    }

    #[test]
    fn json_says_the_same_without_a_raw_control() {
        let value = serde_json::json!({"a\u{202e}": "\u{9b}31m \u{7f}\u{e0041} é 🔔\n"});
        let text = escape_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(
            text.contains("\\u202e") && text.contains("\\u009b31m \\u007f"),
            "{text}"
        );
        assert!(
            text.chars()
                .all(|c| c == '\n' || !c.is_control() && !is_invisible(c))
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            value
        );
    }

    #[test]
    fn a_key_is_blanked_wherever_it_stands() {
        assert_eq!(without_keys("x prk_a-B_9\" y prk_"), "x prk_…\" y prk_…");
        assert_eq!(without_keys("nothing"), "nothing");
    }

    proptest! {
        #[test]
        fn no_text_smuggles_a_control_character(text in any::<String>()) {
            let kept = lines(&text);
            prop_assert!(kept.chars().all(|c| "\n\t".contains(c) || !c.is_control()));
            prop_assert!(!kept.chars().any(is_bidi_control));
            let line = one_line(&text);
            prop_assert!(line.chars().all(|c| !c.is_control() && !is_bidi_control(c)));
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(json_len(&text) + 2, json.len());
            let begun = within_json(&text, 20);
            prop_assert!(text.starts_with(begun) && json_len(begun) <= 20);
            prop_assert!(begun == text || json_len(&text) > 20);
            prop_assert!(clip(&line, 60).chars().count() <= 60);
        }
    }
}
