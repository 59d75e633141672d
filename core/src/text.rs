//! Making other people's text safe to show on one line.

/// Cuts text to `max` characters, the last one an ellipsis when something was cut.
pub fn clip(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Removes whole escape sequences, control characters and bidi controls, and
/// folds white space, so that another agent's text stays text on one line.
pub fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut space = false;
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\u{9b}' => skip_csi(&mut chars),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => skip_string(&mut chars),
            c if c.is_whitespace() => space = !out.is_empty(),
            c if c.is_control() || is_bidi_control(c) || is_invisible(c) => {}
            c => {
                if std::mem::take(&mut space) {
                    out.push(' ');
                }
                out.push(c);
            }
        }
    }
    out
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

    proptest! {
        #[test]
        fn no_text_smuggles_a_control_character(text in any::<String>()) {
            let line = one_line(&text);
            prop_assert!(line.chars().all(|c| !c.is_control() && !is_bidi_control(c)));
            prop_assert!(clip(&line, 60).chars().count() <= 60);
        }
    }
}
