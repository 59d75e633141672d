//! The operator's own words: verdicts, corrections, pivots, and their review.

use crate::signal::names;

names! {
    Verdict { Works = "works", Broken = "broken", Partial = "partial" }
}

names! {
    Class { Correction = "correction", Confirmation = "confirmation", DirectionPivot = "direction_pivot" }
}

names! {
    Confidence { High = "high", Low = "low" }
}

names! {
    Review { Accepted = "accepted", Rejected = "rejected" }
}

names! {
    /// Whether the operator gave a verdict with their own hands or an agent passed it on.
    Directness { Direct = "direct", Reported = "reported" }
}

/// Prompts that change nothing, as whole prompts.
const ROUTINE: [&str; 34] = [
    "ok",
    "okay",
    "k",
    "kk",
    "yes",
    "y",
    "yep",
    "yeah",
    "yup",
    "next",
    "continue",
    "go on",
    "go ahead",
    "go",
    "proceed",
    "sure",
    "fine",
    "thanks",
    "thank you",
    "thx",
    "ty",
    "great",
    "good",
    "nice",
    "cool",
    "alright",
    "right",
    "done",
    "hi",
    "hello",
    "please",
    "yes please",
    "ok thanks",
    "carry on",
];

/// Says whether a prompt is a routine acknowledgment: never captured.
pub fn is_routine(prompt: &str) -> bool {
    let bare: String = prompt
        .chars()
        .filter(|c| c.is_alphanumeric() || c.is_whitespace())
        .collect::<String>()
        .to_lowercase();
    let folded = bare.split_whitespace().collect::<Vec<_>>().join(" ");
    folded.is_empty() || ROUTINE.contains(&folded.as_str())
}

/// Whether an input counts in quality metrics.
pub fn counts(confidence: Confidence, review: Option<Review>) -> bool {
    match review {
        Some(Review::Rejected) => false,
        Some(Review::Accepted) => true,
        None => confidence == Confidence::High,
    }
}

/// What an agent's report on its own work weighs.
pub const OWN_WORK_WEIGHT: f64 = 0.5;

/// How much a verdict weighs when it lifts or lowers what it speaks of.
pub fn verdict_weight(directness: Directness, on_own_delta: bool) -> f64 {
    if directness == Directness::Reported && on_own_delta {
        OWN_WORK_WEIGHT
    } else {
        1.0
    }
}

impl Class {
    /// What the operator did, as a sentence's verb.
    pub const fn deed(self) -> &'static str {
        match self {
            Self::Correction => "corrected",
            Self::Confirmation => "confirmed",
            Self::DirectionPivot => "redirected",
        }
    }
}

impl Verdict {
    pub const fn says(self) -> &'static str {
        match self {
            Self::Works => "confirmed that it works",
            Self::Broken => "said that it is broken",
            Self::Partial => "said that it partly works",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routine_acks_are_whole_prompts_without_case_and_punctuation() {
        for routine in [
            "ok",
            "OK.",
            "Next!",
            "k",
            "thanks :)",
            "Yes",
            "...",
            "  go   ahead ",
        ] {
            assert!(is_routine(routine), "{routine}");
        }
        for said in [
            "perfect",
            "yes commit",
            "ok but not the title bar",
            "stop",
            "lets GO!!!!",
            "no, wrong layer",
            // It may be all there is of a correction.
            "no",
            "No!",
            "nope",
            "next time look in memory first",
        ] {
            assert!(!is_routine(said), "{said}");
        }
    }

    #[test]
    fn low_confidence_counts_once_accepted_and_rejected_never() {
        use Confidence::{High, Low};
        for (confidence, review, counted) in [
            (High, None, true),
            (Low, None, false),
            (Low, Some(Review::Accepted), true),
            (High, Some(Review::Rejected), false),
            (Low, Some(Review::Rejected), false),
        ] {
            assert_eq!(counts(confidence, review), counted);
        }
    }

    #[test]
    fn a_reported_verdict_on_ones_own_work_weighs_half() {
        assert_eq!(verdict_weight(Directness::Reported, true), 0.5);
        assert_eq!(verdict_weight(Directness::Reported, false), 1.0);
        assert_eq!(verdict_weight(Directness::Direct, true), 1.0);
    }
}
