//! When two sentences say the same: plain counting of shared stems, which anybody can check.

use std::collections::BTreeSet;

/// Shared stems over all stems of both, from which on two sentences say the same.
pub const ALIKE: f64 = 0.5;
/// Stems that two sentences must share at the least.
pub const SHARED_MIN: usize = 2;

/// Words that say nothing of what a sentence is about.
const SMALL: &[&str] = &[
    "a", "about", "again", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be",
    "been", "but", "by", "can", "could", "did", "do", "does", "for", "from", "had", "has", "have",
    "how", "i", "if", "in", "into", "is", "it", "its", "just", "me", "my", "no", "not", "now",
    "of", "on", "or", "our", "out", "please", "should", "so", "some", "stop", "than", "that",
    "the", "their", "them", "then", "there", "these", "they", "this", "those", "to", "up", "was",
    "we", "were", "what", "when", "where", "which", "who", "why", "will", "with", "would", "you",
    "your", "keep", "kept", "don", "t", "s",
];

/// The stems of a sentence: its words in small letters, without endings, without small words.
pub fn stems(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .map(str::to_lowercase)
        .filter(|word| !word.is_empty() && !SMALL.contains(&word.as_str()))
        .map(|word| stem(&word))
        .collect()
}

/// A word without the endings that English gives to one and the same.
fn stem(word: &str) -> String {
    let mut stem = word.to_owned();
    for (ending, instead, least) in [
        ("ies", "y", 2),
        ("sses", "ss", 2),
        ("ing", "", 3),
        ("ed", "", 3),
        ("es", "", 3),
        ("s", "", 3),
        ("ly", "", 3),
    ] {
        let Some(rest) = stem.strip_suffix(ending) else {
            continue;
        };
        if rest.chars().count() < least || (ending == "s" && rest.ends_with('s')) {
            continue;
        }
        stem = format!("{rest}{instead}");
        break;
    }
    // "stopping" and "stop", "write" and "writing".
    let mut letters = stem.chars().rev();
    let (last, before) = (letters.next(), letters.next());
    if stem.len() > 3 && last == before && last.is_some_and(|c| !"aeiouls".contains(c)) {
        stem.pop();
    }
    if stem.len() > 3 && stem.ends_with('e') {
        stem.pop();
    }
    stem
}

/// How alike two sentences are, 0 to 1, and by which stems; none where they do not say the same.
pub fn alike(one: &BTreeSet<String>, other: &BTreeSet<String>) -> Option<(f64, Vec<String>)> {
    let shared: Vec<String> = one.intersection(other).cloned().collect();
    let all = one.union(other).count();
    // A sentence of one telling word is repeated by that word.
    let least = SHARED_MIN.min(one.len()).min(other.len()).max(1);
    let similarity = shared.len() as f64 / all.max(1) as f64;
    (shared.len() >= least && similarity >= ALIKE)
        .then(|| ((similarity * 100.0).round() / 100.0, shared))
}

/// Groups sentences by what they share: the stem that most of those left have in common makes a
/// group of them, until no two share one. A stem that nearly all have tells none apart.
pub fn groups(sentences: &[BTreeSet<String>]) -> Vec<(Vec<String>, Vec<usize>)> {
    let too_common = match sentences.len() {
        n if n >= 10 => n * 6 / 10,
        _ => usize::MAX,
    };
    let mut left: Vec<usize> = (0..sentences.len()).collect();
    let mut found = Vec::new();
    loop {
        let mut counts = std::collections::BTreeMap::<&String, usize>::new();
        for i in &left {
            for stem in &sentences[*i] {
                *counts.entry(stem).or_default() += 1;
            }
        }
        let best = counts
            .into_iter()
            .filter(|(_, n)| (2..=too_common).contains(n))
            .max_by(|(a, n), (b, m)| n.cmp(m).then(a.len().cmp(&b.len())).then(b.cmp(a)));
        let Some((stem, _)) = best else { break };
        let (group, rest) = left.iter().partition(|i| sentences[**i].contains(stem));
        left = rest;
        found.push((shared(sentences, &group), group));
    }
    for i in left {
        found.push((shared(sentences, &[i]), vec![i]));
    }
    found
}

fn shared(sentences: &[BTreeSet<String>], group: &[usize]) -> Vec<String> {
    let mut all = group.iter().map(|i| &sentences[*i]);
    let Some(first) = all.next() else {
        return Vec::new();
    };
    let common = all.fold(first.clone(), |common, next| {
        common.intersection(next).cloned().collect()
    });
    common.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        stems(text).into_iter().collect()
    }

    #[test]
    fn forms_of_a_word_are_one_stem_and_small_words_are_none() {
        for (one, other) in [
            ("stopping", "Stopped"),
            ("write", "writing"),
            ("files", "file"),
            ("retries", "retry"),
            ("committed", "commits"),
        ] {
            assert_eq!(of(one), of(other), "{one} {other}");
        }
        assert_eq!(of("you don't, please"), Vec::<String>::new());
    }

    #[test]
    fn the_same_correction_is_known_again_in_other_words() {
        for (one, other, same) in [
            (
                "stop going to git first",
                "you are going to git first again",
                true,
            ),
            (
                "read the test before you change it",
                "Read tests before changing them!",
                true,
            ),
            ("use the staging database", "the colours are wrong", false),
            ("git", "git again", true),
            ("not the title bar", "the title of the plan", false),
        ] {
            let found = alike(&stems(one), &stems(other));
            assert_eq!(found.is_some(), same, "{one} / {other}: {found:?}");
        }
    }

    #[test]
    fn actions_are_grouped_by_the_stem_that_most_of_them_share() {
        let actions = [
            "ran git reset",
            "git log before reading",
            "edited the title bar",
            "renamed the title",
            "slept",
        ];
        let sentences: Vec<_> = actions.iter().map(|a| stems(a)).collect();
        let found = groups(&sentences);
        let named: Vec<(Vec<&str>, usize)> = found
            .iter()
            .map(|(shared, group)| (shared.iter().map(String::as_str).collect(), group.len()))
            .collect();
        assert_eq!(
            named,
            [(vec!["titl"], 2), (vec!["git"], 2), (vec!["slept"], 1)]
        );
        assert!(groups(&[]).is_empty());
    }
}
