//! Words as they are looked up: folded, and reduced to their stems as FTS5's `porter unicode61`
//! does it, so that what is counted here is what is found there.

use std::collections::HashMap;

/// Bytes of a word that is reduced; shorter and longer ones stay as they are.
const REDUCED: std::ops::RangeInclusive<usize> = 3..=64;

/// Calls `each` with every word of a text, folded, in order.
fn words(text: &str, mut each: impl FnMut(&str)) {
    let mut word = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        // Nearly all text is ASCII: no letter is looked at twice.
        let plain = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
        word.extend(
            rest[..plain]
                .bytes()
                .map(|b| char::from(b.to_ascii_lowercase())),
        );
        rest = &rest[plain..];
        let Some(c) = rest.chars().next() else { break };
        rest = &rest[c.len_utf8()..];
        if c.is_alphanumeric() {
            let folded = c.to_lowercase().filter(|c| !is_accent(*c));
            word.extend(folded.map(without_accent));
        } else if !word.is_empty() && !is_accent(c) {
            each(&word);
            word.clear();
        }
    }
    if !word.is_empty() {
        each(&word);
    }
}

/// A mark that is written over the letter before it.
const fn is_accent(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}')
}

/// The plain letter of one that bears an accent, in the scripts of Western and Central Europe.
fn without_accent(c: char) -> char {
    const PLAIN: [(char, &str); 21] = [
        ('a', "àáâãäåāăą"),
        ('c', "çćĉċč"),
        ('d', "ď"),
        ('e', "èéêëēĕėęě"),
        ('g', "ĝğġģ"),
        ('h', "ĥ"),
        ('i', "ìíîïĩīĭį"),
        ('j', "ĵ"),
        ('k', "ķ"),
        ('l', "ĺļľ"),
        ('n', "ñńņň"),
        ('o', "òóôõöōŏő"),
        ('r', "ŕŗř"),
        ('s', "śŝşš"),
        ('t', "ţť"),
        ('u', "ùúûüũūŭůűų"),
        ('w', "ŵ"),
        ('y', "ýÿŷ"),
        ('z', "źżž"),
        ('o', "ơ"),
        ('u', "ư"),
    ];
    if !('\u{c0}'..='\u{1b0}').contains(&c) {
        return c;
    }
    let of = |(_, accented): &&(char, &str)| accented.contains(c);
    PLAIN.iter().find(of).map_or(c, |(plain, _)| *plain)
}

/// The stem of each word of a text, once each, with how often it stands there.
pub fn stems(text: &str) -> HashMap<String, u32> {
    let mut found: HashMap<String, u32> = HashMap::new();
    words(text, |word| {
        let stem = stem(word);
        match found.get_mut(&stem) {
            Some(n) => *n += 1,
            None => drop(found.insert(stem, 1)),
        }
    });
    found
}

/// The stem of each word of a text, in their order.
pub fn in_order(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    words(text, |word| found.push(stem(word)));
    found
}

/// The stems of some words, ready to be sought in texts.
pub struct Sought {
    stems: Vec<String>,
    /// By the first byte: which stems begin with it.
    first: Box<[u32; 256]>,
}

impl Sought {
    /// The first 32 words; a question has no more.
    pub fn new<'a>(terms: impl Iterator<Item = &'a str>) -> Self {
        let stems: Vec<String> = terms.take(32).map(stem_of_term).collect();
        let mut first = Box::new([0; 256]);
        for (i, stem) in stems.iter().enumerate() {
            if let Some(byte) = stem.bytes().next() {
                first[byte as usize] |= 1 << i;
            }
        }
        Self { stems, first }
    }

    pub fn stems(&self) -> &[String] {
        &self.stems
    }

    /// How often each of them stands in a text, and how many words the text has.
    pub fn count(&self, text: &str) -> (Vec<u32>, u32) {
        let (mut counts, mut all) = (vec![0; self.stems.len()], 0);
        words(text, |word| {
            all += 1;
            let bits = word.bytes().next().map_or(0, |b| self.first[b as usize]);
            let places = (0..self.stems.len()).filter(|i| bits & (1 << i) != 0);
            // Reducing changes no more than the last two letters of what is left.
            let may_be = |i: &usize| {
                let stem = self.stems[*i].as_bytes();
                let begins = &stem[..stem.len().saturating_sub(2)];
                word.as_bytes().starts_with(begins)
            };
            let mut places = places.filter(may_be).peekable();
            if places.peek().is_some() {
                let stem = stem(word);
                for i in places.filter(|i| self.stems[*i] == stem) {
                    counts[i] += 1;
                }
            }
        });
        (counts, all)
    }
}

/// The stem of a word that was taken from a question.
pub fn stem_of_term(term: &str) -> String {
    let mut found = String::new();
    words(term, |word| {
        if found.is_empty() {
            found = stem(word);
        }
    });
    found
}

/// Reduces a folded word to its stem.
pub fn stem(word: &str) -> String {
    if !REDUCED.contains(&word.len()) {
        return word.to_owned();
    }
    let mut stem = Stem(word.as_bytes().to_vec());
    stem.plural();
    stem.past_and_progress();
    stem.final_y();
    stem.replace(&DOUBLE_SUFFIXES, measures_more_than_0);
    stem.replace(&SUFFIXES, measures_more_than_0);
    stem.remove();
    stem.tidy();
    // Only letters of ASCII were taken off or put on.
    String::from_utf8(stem.0).unwrap_or_else(|_| word.to_owned())
}

struct Stem(Vec<u8>);

/// The first ending that fits is the one that counts, whether its condition holds or not.
type Endings = [(&'static str, &'static str)];

const DOUBLE_SUFFIXES: [(&str, &str); 21] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("logi", "log"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
];
const SUFFIXES: [(&str, &str); 7] = [
    ("ical", "ic"),
    ("ness", ""),
    ("icate", "ic"),
    ("iciti", "ic"),
    ("ful", ""),
    ("ative", ""),
    ("alize", "al"),
];
const REMOVED: [&str; 19] = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou",
    "ism", "ate", "iti", "ous", "ive", "ize",
];

impl Stem {
    /// What is left of the word without this ending, when something is.
    fn without(&self, ending: &str) -> Option<&[u8]> {
        let left = self.0.strip_suffix(ending.as_bytes())?;
        (!left.is_empty()).then_some(left)
    }

    fn end_with(&mut self, kept: usize, ending: &str) {
        self.0.truncate(kept);
        self.0.extend_from_slice(ending.as_bytes());
    }

    fn last(&self) -> u8 {
        self.0.last().copied().unwrap_or_default()
    }

    fn plural(&mut self) {
        let n = self.0.len();
        match self.0.as_slice() {
            [.., b's', b's', b'e', b's'] if n > 4 => self.0.truncate(n - 2),
            [.., b'i', b'e', b's'] if n > 3 => self.0.truncate(n - 2),
            [.., b's', b's'] => {}
            [.., b's'] => self.0.truncate(n - 1),
            _ => {}
        }
    }

    fn past_and_progress(&mut self) {
        if let Some(left) = self.without("eed") {
            if measures_more_than_0(left) {
                let kept = left.len();
                self.end_with(kept, "ee");
            }
            return;
        }
        let left = self.without("ed").or_else(|| self.without("ing"));
        let Some(kept) = left.filter(|left| has_vowel(left)).map(<[u8]>::len) else {
            return;
        };
        self.0.truncate(kept);
        for ending in ["at", "bl", "iz"] {
            if self.without(ending).is_some() {
                return self.0.push(b'e');
            }
        }
        let last = self.last();
        let doubled = self.0.len() > 1 && self.0[self.0.len() - 2] == last;
        if doubled && !is_vowel(last, false) && !b"lsz".contains(&last) {
            self.0.pop();
        } else if measures_1(&self.0) && ends_short(&self.0) {
            self.0.push(b'e');
        }
    }

    fn final_y(&mut self) {
        let n = self.0.len();
        if self.last() == b'y' && has_vowel(&self.0[..n - 1]) {
            self.0[n - 1] = b'i';
        }
    }

    fn replace(&mut self, endings: &Endings, holds: fn(&[u8]) -> bool) {
        for (ending, other) in endings {
            if let Some(left) = self.without(ending) {
                if holds(left) {
                    let kept = left.len();
                    self.end_with(kept, other);
                }
                return;
            }
        }
    }

    fn remove(&mut self) {
        for ending in REMOVED {
            if let Some(left) = self.without(ending) {
                let fits = ending != "ion" || left.ends_with(b"s") || left.ends_with(b"t");
                if fits && measures_more_than_1(left) {
                    let kept = left.len();
                    self.0.truncate(kept);
                }
                return;
            }
        }
    }

    fn tidy(&mut self) {
        if let [left @ .., b'e'] = self.0.as_slice()
            && (measures_more_than_1(left) || (measures_1(left) && !ends_short(left)))
        {
            self.0.pop();
        }
        if let [left @ .., b'l'] = self.0.as_slice()
            && left.ends_with(b"l")
            && measures_more_than_1(left)
        {
            self.0.pop();
        }
    }
}

const fn is_vowel(letter: u8, after_consonant: bool) -> bool {
    matches!(letter, b'a' | b'e' | b'i' | b'o' | b'u') || (after_consonant && letter == b'y')
}

/// Where the first vowels and the consonant after them end; 0 when there is none.
fn after_vowels(stem: &[u8], mut consonant: bool) -> usize {
    let mut vowels = false;
    for (i, letter) in stem.iter().enumerate() {
        consonant = !is_vowel(*letter, consonant);
        if vowels && consonant {
            return i + 1;
        }
        vowels |= !consonant;
    }
    0
}

fn measures_more_than_0(stem: &[u8]) -> bool {
    after_vowels(stem, false) > 0
}

fn measures_more_than_1(stem: &[u8]) -> bool {
    let n = after_vowels(stem, false);
    n > 0 && after_vowels(&stem[n..], true) > 0
}

fn measures_1(stem: &[u8]) -> bool {
    let n = after_vowels(stem, false);
    n > 0 && after_vowels(&stem[n..], true) == 0
}

/// Ends in consonant, vowel, consonant, the last one none of w, x, y.
fn ends_short(stem: &[u8]) -> bool {
    if matches!(stem.last(), Some(b'w' | b'x' | b'y')) {
        return false;
    }
    let (mut consonant, mut last_three) = (false, 0u8);
    for letter in stem {
        consonant = !is_vowel(*letter, consonant);
        last_three = (last_three << 1 | u8::from(consonant)) & 7;
    }
    last_three == 5
}

fn has_vowel(stem: &[u8]) -> bool {
    let mut letters = stem.iter().enumerate();
    letters.any(|(i, letter)| is_vowel(*letter, i > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_one_stem_are_one_word() {
        for (word, expected) in [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("ties", "ti"),
            ("agreed", "agre"),
            ("plastered", "plaster"),
            ("sing", "sing"),
            ("hopping", "hop"),
            ("hoping", "hope"),
            ("falling", "fall"),
            ("happy", "happi"),
            ("sky", "sky"),
            ("relational", "relat"),
            ("generalizations", "gener"),
            ("hopefulness", "hope"),
            ("adjustment", "adjust"),
            ("adoption", "adopt"),
            ("controlling", "control"),
            ("go", "go"),
            ("is", "is"),
            ("1234", "1234"),
        ] {
            assert_eq!(stem(word), expected, "{word}");
        }
        assert_eq!(stem(&"s".repeat(65)).len(), 65, "too long to be a word");
    }

    #[test]
    fn accents_case_and_punctuation_make_no_other_word() {
        let found = stems("Café CAFE\u{301} cafe; Größe, naïve_deploys: x2");
        let expected = [
            ("cafe", 3),
            ("groß", 1),
            ("naiv", 1),
            ("deploi", 1),
            ("x2", 1),
        ];
        let expected = expected.map(|(stem, n)| (stem.to_owned(), n));
        assert_eq!(found, HashMap::from(expected));
    }

    #[test]
    fn what_is_sought_is_counted_as_if_every_word_were_reduced() {
        let text = "She was saying that the deployments deployed by deployers dyed, died and \
            relied on possibilities; possible, impossible; the is are relational relating";
        let terms = [
            "say", "deployed", "dying", "relies", "possible", "relate", "is", "x",
        ];
        let (counts, all) = Sought::new(terms.into_iter()).count(text);
        let every = stems(text);
        for (term, count) in terms.iter().zip(&counts) {
            let expected = every.get(&stem(term)).copied().unwrap_or_default();
            assert_eq!(*count, expected, "{term}");
        }
        assert_eq!(all, every.values().sum::<u32>());
        assert!(counts.iter().sum::<u32>() >= 8, "{counts:?}");
    }
}
