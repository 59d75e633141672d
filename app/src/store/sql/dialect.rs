//! A statement as SQLite reads it, turned into what PostgreSQL reads.
//!
//! Only spelling is turned here. Where the engines mean different things by the same words, the
//! statement says it in a way that both understand.

/// Turns one statement.
pub fn for_postgres(sql: &str) -> String {
    // Where a number is compared that was text a moment ago no index serves behind a policy.
    let sql = &sql.replace("cast(j.value as integer)", "j.number");
    let mut out = String::with_capacity(sql.len() + 64);
    let mut words = Words { sql, at: 0 };
    let (mut places, mut is_query) = (0, false);
    // For each bracket that is open, whether rows come from it.
    let mut open: Vec<bool> = Vec::new();
    let mut unnamed = 0;
    while let Some(piece) = words.next() {
        match piece {
            Piece::Place(number) => {
                let number = number.unwrap_or(places + 1);
                places = places.max(number);
                match std::mem::take(&mut is_query) {
                    // What is sought was said where the rows come from.
                    true => out.push_str("true"),
                    false => out.push_str(&format!("${number}")),
                }
            }
            Piece::Word(word) => match word.to_ascii_lowercase().as_str() {
                // A hint for SQLite's planner.
                "not" if words.skip_word("indexed") => {}
                "indexed" if words.skip_word("by") => words.skip_name(),
                // SQLite keeps the order of a cross join; here every join's order is kept.
                "cross" if words.rest_is_join_on() => {}
                "memory_fts" if words.skip_word("match") => {
                    words.skip_space();
                    is_query = true;
                }
                // Behind a policy no query comes to the index of words; a function does. What is
                // sought is a statement's first value.
                "memory_fts" if words.rest().contains("memory_fts match ?") => {
                    out.push_str("words_held(cast($1 as tsquery))");
                }
                // Whatever tells rows apart does so within a tenant.
                "conflict" if words.skip_open() => out.push_str("conflict (tenant_id, "),
                "like" => out.push_str("ilike"),
                "json_each" => out.push_str("each_of"),
                "char" if words.rest().starts_with("(10)") => out.push_str("chr"),
                "integer" if out.trim_end().ends_with(" as") => out.push_str("bigint"),
                "max" if words.has_second_argument() => out.push_str("greatest"),
                "min" if words.has_second_argument() => out.push_str("least"),
                _ => out.push_str(word),
            },
            // Keeps SQLite from using an index.
            Piece::Other("+") if words.hints_at(&out) => {}
            Piece::Other("(") => {
                open.push(words.is_question() && ends_in(&out, &["from", "join"]));
                out.push('(');
            }
            // Up to 15 it wants a name for whatever rows come from.
            Piece::Other(")") => {
                out.push(')');
                if open.pop() == Some(true) && !words.is_named() {
                    unnamed += 1;
                    out.push_str(&format!(" as unnamed_{unnamed}"));
                }
            }
            Piece::Other(text) | Piece::Quoted(text) => out.push_str(text),
        }
    }
    out
}

enum Piece<'s> {
    /// A place for a value, with its number if it has one.
    Place(Option<usize>),
    Word(&'s str),
    Quoted(&'s str),
    Other(&'s str),
}

struct Words<'s> {
    sql: &'s str,
    at: usize,
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

impl<'s> Words<'s> {
    fn rest(&self) -> &'s str {
        &self.sql[self.at..]
    }

    fn take(&mut self, bytes: usize) -> &'s str {
        let piece = &self.rest()[..bytes];
        self.at += bytes;
        piece
    }

    fn next(&mut self) -> Option<Piece<'s>> {
        let rest = self.rest();
        let first = rest.chars().next()?;
        Some(match first {
            '?' => {
                self.take(1);
                let rest = self.rest();
                let digits = rest
                    .find(|c: char| !c.is_ascii_digit())
                    .unwrap_or(rest.len());
                Piece::Place(self.take(digits).parse().ok())
            }
            '\'' | '"' => {
                let end = rest[1..].find(first).map_or(rest.len(), |at| at + 2);
                Piece::Quoted(self.take(end))
            }
            '-' if rest.starts_with("--") => {
                let end = rest.find('\n').unwrap_or(rest.len());
                Piece::Other(self.take(end))
            }
            c if is_word(c) => {
                let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                Piece::Word(self.take(end))
            }
            c => Piece::Other(self.take(c.len_utf8())),
        })
    }

    /// The next word, and where it ends.
    fn peek(&self) -> (&'s str, usize) {
        let rest = self.rest();
        let begin = rest.len() - rest.trim_start().len();
        let word = &rest[begin..];
        let end = word.find(|c| !is_word(c)).unwrap_or(word.len());
        (&word[..end], begin + end)
    }

    fn skip_word(&mut self, word: &str) -> bool {
        let (next, end) = self.peek();
        let is = next.eq_ignore_ascii_case(word);
        if is {
            self.at += end;
        }
        is
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn skip_open(&mut self) -> bool {
        let rest = self.rest().trim_start();
        let is = rest.starts_with('(');
        if is {
            self.at = self.sql.len() - rest.len() + 1;
        }
        is
    }

    fn skip_name(&mut self) {
        self.at += self.peek().1;
    }

    /// Whether what follows is a join that has its condition.
    fn rest_is_join_on(&self) -> bool {
        let mut ahead = Words {
            sql: self.sql,
            at: self.at,
        };
        let mut depth = 0;
        let mut joins = 0;
        while let Some(piece) = ahead.next() {
            match piece {
                Piece::Other("(") => depth += 1,
                Piece::Other(")") if depth == 0 => return false,
                Piece::Other(")") => depth -= 1,
                Piece::Word(word) if depth == 0 => match word.to_ascii_lowercase().as_str() {
                    "on" | "using" => return true,
                    "join" => {
                        joins += 1;
                        if joins > 1 {
                            return false;
                        }
                    }
                    "where" | "group" | "order" | "limit" | "union" => return false,
                    _ => {}
                },
                _ => {}
            }
        }
        false
    }

    /// Whether a function's arguments follow, and more than one.
    fn has_second_argument(&self) -> bool {
        let mut ahead = Words {
            sql: self.sql,
            at: self.at,
        };
        let mut depth = 0;
        while let Some(piece) = ahead.next() {
            match piece {
                Piece::Other("(") => depth += 1,
                Piece::Other(")") if depth <= 1 => return false,
                Piece::Other(")") => depth -= 1,
                Piece::Other(",") if depth == 1 => return true,
                _ if depth == 0 => return false,
                _ => {}
            }
        }
        false
    }

    /// Whether a plus sign stands before a column and adds nothing.
    fn hints_at(&self, before: &str) -> bool {
        let next = self.rest().chars().next();
        let before = before.trim_end().to_ascii_lowercase();
        next.is_some_and(|c| c.is_ascii_alphabetic())
            && ["and", "where", "on", "or", "("]
                .iter()
                .any(|word| before.ends_with(word))
    }

    /// Whether a question begins here that may stand in brackets.
    fn is_question(&self) -> bool {
        let next = self.peek().0;
        ["select", "values", "with"]
            .iter()
            .any(|word| next.eq_ignore_ascii_case(word))
    }

    /// Whether a name follows.
    fn is_named(&self) -> bool {
        let next = self.peek().0.to_ascii_lowercase();
        const OTHERS: [&str; 17] = [
            "where",
            "group",
            "order",
            "limit",
            "on",
            "union",
            "having",
            "returning",
            "cross",
            "join",
            "left",
            "inner",
            "for",
            "except",
            "intersect",
            "using",
            "set",
        ];
        !next.is_empty() && !OTHERS.contains(&next.as_str())
    }
}

/// Whether the last word is one of these.
fn ends_in(out: &str, words: &[&str]) -> bool {
    let last = out.trim_end().rsplit(|c| !is_word(c)).next();
    last.is_some_and(|last| words.iter().any(|word| last.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_sqlite_spells_so_is_spelt_as_postgresql_does() {
        for (sqlite, postgres) in [
            ("select ? where a = ?", "select $1 where a = $2"),
            ("select ?2, ?1, ?", "select $2, $1, $3"),
            ("select '?', \"a?\", ?", "select '?', \"a?\", $1"),
            ("from a indexed by ix_a where x = 1", "from a  where x = 1"),
            (
                "from a cross join b indexed by ix_b on b.x = a.x where 1",
                "from a  join b  on b.x = a.x where 1",
            ),
            ("from a cross join b where c", "from a cross join b where c"),
            (
                "from a cross join b cross join c on c.x = a.x",
                "from a cross join b  join c on c.x = a.x",
            ),
            ("from a not indexed where b", "from a  where b"),
            (
                "select n from (select 1 as n from (values (1))) where n in (select 2)",
                "select n from (select 1 as n from (values (1)) as unnamed_1) as unnamed_2 where n in (select 2)",
            ),
            (
                "from (select 1) a join (select 2) as b on max(1)",
                "from (select 1) a join (select 2) as b on max(1)",
            ),
            ("a like 'x%'", "a ilike 'x%'"),
            ("select max(a), max(a, b)", "select max(a), greatest(a, b)"),
            ("min(coalesce(a, 0))", "min(coalesce(a, 0))"),
            ("a and +b = 1 and c + d", "a and b = 1 and c + d"),
            ("cast(a.value as integer)", "cast(a.value as bigint)"),
            ("m.rowid = cast(j.value as integer)", "m.rowid = j.number"),
            ("from json_each(?1) j", "from each_of($1) j"),
            (
                "from memory_fts f where memory_fts match ?1 and a = ?2",
                "from words_held(cast($1 as tsquery)) f where true and a = $2",
            ),
            (
                "from memory_fts where memory_fts match ? limit ?",
                "from words_held(cast($1 as tsquery)) where true limit $2",
            ),
            (
                "delete from memory_fts where rowid = ?",
                "delete from memory_fts where rowid = $1",
            ),
            (
                "on conflict (a, b) do update set c = 1",
                "on conflict (tenant_id, a, b) do update set c = 1",
            ),
            ("on conflict do nothing", "on conflict do nothing"),
            ("a || char(10)", "a || chr(10)"),
        ] {
            assert_eq!(for_postgres(sqlite), postgres);
        }
    }
}
