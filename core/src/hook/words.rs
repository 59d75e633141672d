//! Whose words a prompt is, and whether they correct, confirm or turn the work.
//!
//! The agent decides whether to keep them; here it is only offered, and only when the words are
//! plain. A correction that is missed costs one line; an offer at every second prompt costs the
//! whole thing. So: whole phrases at the beginning of a sentence, no questions, no conditions,
//! nothing out of code or quotes.

use crate::bell;
use crate::limits::HOOK_PROMPT_CHARS_MAX;
use crate::memory::operator::{Class, is_routine};
use crate::memory::question::pattern;
use crate::text;
use regex::Regex;
use std::sync::LazyLock;

/// Beginnings of what hosts put in as a prompt by themselves.
const PUT_IN: [&str; 11] = [
    "another claude session sent a message",
    "this came from another claude session",
    "stop hook feedback",
    "stop hook blocking error",
    "[system notification",
    "[request interrupted",
    "this session is being continued from a previous conversation",
    "caveat: the messages below",
    "continue from where you left off",
    "signal from ",
    "prism: ",
];
/// Characters of an earlier prompt by which an agent knows it again.
const QUOTED_CHARS_MAX: usize = 60;
/// What stands in every bell, wherever a host put it.
const OF_A_BELL: &str = "use prism_signals_pending to read";

/// Whether the operator typed it: no bell and nothing around one, no notification, no feedback of
/// a hook, no command, nothing pasted. In doubt it is not theirs.
pub fn is_operators(prompt: &str) -> bool {
    let text = prompt.trim();
    let small = text.to_lowercase();
    !text.is_empty()
        && text.chars().count() <= HOOK_PROMPT_CHARS_MAX
        && !text.starts_with(['<', '/', '!', '{'])
        && !bell::is_bell(text)
        && !small.contains(OF_A_BELL)
        && !small.contains("<task-notification>")
        && !small.contains("<hook_prompt")
        && !PUT_IN.iter().any(|begin| small.starts_with(begin))
}

/// What a prompt looks like, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    pub class: Class,
    /// What the rule saw, for whoever asks why.
    pub because: &'static str,
}

impl Looks {
    /// The one line that offers the agent to keep the words.
    pub fn offer(self) -> String {
        self.offered("the operator's prompt")
    }

    /// The same for words that were known to be the operator's only after a while.
    pub fn offer_later(self, prompt: &str) -> String {
        let words = text::clip(&text::one_line(prompt), QUOTED_CHARS_MAX);
        self.offered(&format!("the operator's prompt \"{words}\""))
    }

    fn offered(self, prompt: &str) -> String {
        let class = self.class.name();
        let also = match self.class {
            Class::Confirmation => {
                "; if they say that something works, also prism_confirm with verdict=works"
            }
            Class::Correction => {
                "; if they say that something is broken, also prism_confirm with verdict=broken"
            }
            Class::DirectionPivot => "",
        };
        format!(
            "Prism: {prompt} may be a {class} (it {}). If it is, keep their words: \
             prism_operator_input with class={class}, prompt_text as they typed it, \
             triggered_action and confidence{also}. If not, pass over this.",
            self.because
        )
    }
}

/// One way of speaking that means one thing.
struct Rule {
    class: Class,
    because: &'static str,
    says: Regex,
    /// A sentence that also holds this says something else.
    unless: Option<Regex>,
}

fn rule(class: Class, because: &'static str, says: &str, unless: &str) -> Rule {
    Rule {
        class,
        because,
        says: pattern(says),
        unless: (!unless.is_empty()).then(|| pattern(unless)),
    }
}

/// Where a clause begins.
const AT: &str = r"(^|[,;:-] *|\b(but|and|because|now|again|so) )";
/// Where a phrase ends.
const END: &str = r"( *[,;:-]|$)";

/// What makes a sentence a wish or a condition instead of a verdict.
static HEDGED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\b(if|unless|whether|until|in case|make sure|ensure|so that|check (that|it|this)|verify|would|could|can you|should we|shall|suppose|imagine|maybe|perhaps|when (it|that|this|you)|after (it|that|this|you)|once (it|that|this|you)|since you|because you|before you)\b",
    )
});
/// What takes a confirmation back, wherever it stands.
static MIXED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\b(but|except|however|although|though|not|no|never|nothing|only|almost|nearly|still)\b|n't\b",
    )
});

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    use Class::{Confirmation, Correction, DirectionPivot};
    vec![
        rule(
            Correction,
            "says no to something",
            r"^no(pe)? *[,!:;-]+ *.*\b(not|wrong|the other|other (one|way)|don't|dont|do not|isn't|aren't|never|stop|undo|revert|instead|use|i (said|meant|asked|told|wanted)|should|you (broke|forgot|keep|kept|misunderstood|missed|did|didn't|are|were))\b|^no(pe)? (not|that's (not|wrong)|thats (not|wrong)|wrong|the other|you're (not|wrong)|i (said|meant|told))\b",
            r"^no(pe)?\W+(problem|worries|thanks|thank you|need|rush|hurry|idea|that's (ok|okay|fine|good|all)|it's (ok|okay|fine|good)|go ahead|not (yet|now|sure|really|needed|necessary|for me))\b",
        ),
        rule(
            Correction,
            "tells you to stop",
            &[
                r"^stop *([,!:;-]|$)|^stop (it|that|this)( now| right now| please| immediately| there)?",
                END,
                r"|^stop (right there|there|doing|guessing|adding|editing|changing|touching|making|trying|rewriting|refactoring|deleting|removing|asking|going|assuming|inventing|apologi[sz]ing|ignoring|overthinking|overcomplicating|bashing)\b",
            ]
            .concat(),
            "",
        ),
        rule(
            Correction,
            "says that it is wrong",
            &[
                AT,
                r"(that's|thats|that is|this is|that was|it's|it is) (just |still |completely |totally |all |simply |plain |again )*((wrong|incorrect)( again| too)?",
                END,
                r"|not (right|correct|true|it|what i|how|where)\b|the wrong \w+",
                END,
                r"|not the (right|one|way|point|issue|problem)\b)",
            ]
            .concat(),
            "",
        ),
        rule(
            Correction,
            "says that it was not asked for",
            r"\bnot what i (asked|said|meant|wanted|want|had in mind|was asking)\b",
            "",
        ),
        rule(
            Correction,
            "says that it is wrong",
            &[
                r"^wrong( again)?",
                END,
                r"|^wrong (file|place|layer|one|branch|folder|directory|repo|function|test|order|direction|way|approach|line|page|column|project)",
                END,
                r"|^(you're|youre|your|you are) (in|on|at|editing|using|looking at|changing|reading|testing) the wrong\b",
            ]
            .concat(),
            "",
        ),
        rule(
            Correction,
            "says what you did wrong",
            &[
                AT,
                r"you (have |just |again |still |completely |also |already )*(forgot|missed|broke|deleted the|removed the|ignored|skipped|misunderstood|misread|messed|screwed|overwrote|lost the|dropped the)\b",
            ]
            .concat(),
            r"\bforgot to (say|mention|tell)\b",
        ),
        rule(
            Correction,
            "says that you do it again and again",
            &[
                AT,
                r"(you|u) (keep|kept) (on )?\w+ing\b|",
                AT,
                r"(you|u) continued? to (do|take|make|go|ignore|break|add|use|try|guess|change|edit|miss|forget|write|put|ask|run|assume)\b|^(you're|youre|your|you are) \w+ing\b.*\bagain\b|^(the )?same (error|mistake|bug|problem|thing|issue) (again|as before)\b|^not again\b",
            ]
            .concat(),
            "",
        ),
        rule(
            Correction,
            "says that you were told",
            r"\bi (already|explicitly|clearly|specifically|just) (said|told|asked)\b|\bi told you\b|\bi (said|asked for|meant|wanted) .*\bnot\b|\bi (didn't|didnt|did not|never) (ask|say|want|mean|tell)\b|\byou (should have|should not have|shouldn't have|shouldnt have|were supposed to|weren't supposed)\b",
            r"\btold you (about|so)\b",
        ),
        rule(
            Correction,
            "takes something back",
            r"^(please )?(undo|revert|roll back|take back) (that|this|it|your|the last|what you)\b|^(please )?(undo|revert)$|^(please )?(put|change) (it|that|this|them) back\b",
            "",
        ),
        rule(
            Correction,
            "forbids something",
            r"^(please )?(don't|dont|do not|never) .*\b(again|anymore|any more|ever)\b|^(please )?(don't|dont|do not) (do|touch|change|edit|delete|remove|commit|push|rewrite|refactor|invent|guess|assume) (that|this|it|anything|my|those|these|them)\b",
            r"\b(yet|worry|forget)\b",
        ),
        rule(
            Correction,
            "says that it is still broken",
            &[
                AT,
                r"((it|that|this|the \w+)('s| is| are)? )?still (broken|wrong|failing|fails|crashing|crashes|the same|not (working|right|fixed)|doesn't work|does not work|isn't (working|right|fixed))\b|",
                AT,
                r"((it|that|this) )?(doesn't|doesnt|does not|didn't|didnt|did not|isn't|is not) (work|working)( at all| either| anymore| here)?",
                END,
            ]
            .concat(),
            "",
        ),
        rule(
            Correction,
            "points elsewhere",
            &[
                r"^not (that|this|there|here|like (that|this)|the \w+)( one| way| file)?",
                END,
            ]
            .concat(),
            "",
        ),
        rule(
            DirectionPivot,
            "turns to something else",
            r"^(wait|hold on) *[,!:;-]+ *.*\b(that's the|we're (working|talking|looking)|we are (working|talking|looking)|i'd rather|instead|do the .* first|forget (that|this|it|the)|focus on)\b|^actually *,? *(let's|lets|i'd rather|forget|skip|leave|focus|do .* (first|instead)|use .* (instead|first)|we (should|need to) (do|use|go|start|focus))\b",
            r"\blet'?s (see|check|look|think|wait)\b",
        ),
        rule(
            DirectionPivot,
            "turns to something else",
            r"^let'?s (not\b|rather\b|switch to|go with|go back to|drop (that|this|it|the)|focus on|leave (that|this|it|the)|park|postpone|stick (to|with)|take a different|forget (about )?(that|this|it|the)|.* instead$|.* first$)",
            r"\bnot (forget|worry|rush|panic)\b",
        ),
        rule(
            DirectionPivot,
            "changes the plan",
            r"^(change of plans?|new plan|plan b|on second thoughts?)\b|\bi('ve)? changed my mind\b|\b(try|take|need|want) a different (approach|direction)\b|^i('d| would) rather\b|^we('re| are) (working|talking) (on|about) .*\bnot\b",
            "",
        ),
        rule(
            DirectionPivot,
            "drops something",
            &[
                r"^(forget|scrap|ditch|abandon|shelve|park|postpone|never ?mind) (about )?(that|this|it|the \w+( \w+)?)( for now| for later| and .*)?",
                END,
                r"|^(skip|drop|leave) (that|this|it|the \w+( \w+)?) (for now|for later|until later)\b|^drop (that|this|the) idea\b",
            ]
            .concat(),
            "",
        ),
        rule(
            DirectionPivot,
            "wants something else instead",
            &[
                r"^(use|do|try|make|take|go with|put|call|name|build|write|start with)\b.{1,80}\binstead",
                END,
                r"|^instead *,? *(of .{1,60}, *)?(do|use|let's|lets|make|write|focus|try|just|go)\b",
            ]
            .concat(),
            "",
        ),
        rule(
            DirectionPivot,
            "narrows the work",
            &[
                r"^(focus|concentrate) on .*\b(first|instead|only|for now)\b|^(do|finish) (the )?.{1,40} first",
                END,
                r"|^fold (it |this |that |them )?into\b|^yes please send( it)?$|^(just|only) (do |fix |change |touch |the ).*\b(nothing else|leave the rest|for now)\b",
            ]
            .concat(),
            "",
        ),
        rule(
            Confirmation,
            "says that it is right",
            &[
                r"^(that's |thats |this is |it's )?(just |absolutely |really )*(perfect|exactly( right)?|excellent|brilliant|awesome|amazing|beautiful|wonderful|fantastic|superb|spot on|bingo|bravo|lgtm)",
                END,
                r"|^(i )?love (it|this|that)( so much)?",
                END,
                r"|^(you )?nailed it\b|^(that's|thats|that is) it$|^(well done|(good|great|nice) (job|work)|ship it|much better|way better|let'?s go+)$|^finally$|^(well done|(good|great|nice) (job|work)|much better|way better) *[,;:-]",
            ]
            .concat(),
            "",
        ),
        rule(
            Confirmation,
            "says that it is what was wanted",
            r"^((that|this|it)('s| is) )?(exactly|just|precisely) what i (wanted|meant|needed|asked for|had in mind)\b|^(that|this) is what i (wanted|meant|needed|asked for|had in mind)\b",
            "",
        ),
        rule(
            Confirmation,
            "says that it works",
            &[
                AT,
                r"((it|that|this|everything|all of it|the \w+( \w+)?) )?(now |finally |all |really )*works( now| again| great| perfectly| fine| well| beautifully| like a charm| as expected)*",
                END,
                r"|",
                AT,
                r"(it|that|this|you) (fixed|solved) it",
                END,
                r"|^that did (it|the trick)",
                END,
            ]
            .concat(),
            "",
        ),
        rule(
            Confirmation,
            "says that it looks right",
            &[
                AT,
                r"((it|that|this|everything|now it) )?(now |finally |all )*looks (really |so |very )?(good|great|perfect|right|amazing|beautiful)( to me| now)*",
                END,
            ]
            .concat(),
            "",
        ),
        rule(
            Confirmation,
            "tells you to go through with it",
            r"^yes *,? *(please )?(commit|ship|merge|push|deploy|release)( it| this| that)?( now)?$",
            "",
        ),
    ]
});

/// Makes the rules ready: a hook has no time to wait for that.
pub fn prepare() {
    LazyLock::force(&RULES);
    LazyLock::force(&HEDGED);
    LazyLock::force(&MIXED);
}

/// Sentences of a prompt that are looked at; what follows is the work itself.
const SENTENCES_MAX: usize = 3;
/// Prompts above this describe work; only how they begin is looked at.
const LONG_PROMPT_CHARS: usize = 400;
/// Words that only clear the throat.
const FILLERS: [&str; 24] = [
    "ok", "okay", "hmm", "hm", "um", "uh", "well", "hey", "ah", "oh", "ugh", "argh", "sorry",
    "yeah", "yep", "yes", "great", "nice", "cool", "good", "right", "wow", "so", "thanks",
];

/// What the operator's prompt looks like, when it plainly looks like anything.
pub fn looks_like(prompt: &str) -> Option<Looks> {
    if is_routine(prompt) || !is_operators(prompt) {
        return None;
    }
    let spoken = spoken(prompt);
    let most = match prompt.chars().count() > LONG_PROMPT_CHARS {
        true => 1,
        false => SENTENCES_MAX,
    };
    let all = sentences(&spoken);
    let is_mixed = all.iter().take(most).any(|(s, _)| MIXED.is_match(s));
    all.iter()
        .take(most)
        .filter(|(_, asks)| !asks)
        .find_map(|(sentence, _)| {
            let bare = without_fillers(sentence);
            judge(sentence, is_mixed).or_else(|| judge(bare, is_mixed))
        })
}

fn judge(sentence: &str, is_mixed: bool) -> Option<Looks> {
    let hedged = HEDGED.is_match(sentence);
    RULES
        .iter()
        .filter(|rule| match rule.class {
            Class::Confirmation => !hedged && !is_mixed,
            Class::Correction => {
                !hedged || sentence.starts_with("no") || sentence.starts_with("stop")
            }
            Class::DirectionPivot => !hedged,
        })
        .filter(|rule| rule.says.is_match(sentence))
        .find(|rule| {
            rule.unless
                .as_ref()
                .is_none_or(|not| !not.is_match(sentence))
        })
        .map(|rule| Looks {
            class: rule.class,
            because: rule.because,
        })
}

/// What was said, without code, quotes and quoted lines, in small letters.
fn spoken(prompt: &str) -> String {
    let mut out = String::with_capacity(prompt.len());
    let mut fenced = false;
    for line in prompt.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let quoted = line.starts_with('>') || line.starts_with('\t') || line.starts_with("    ");
        if fenced || quoted {
            continue;
        }
        let mut inside: Option<char> = None;
        for c in line.chars() {
            let c = match c {
                '\u{2018}' | '\u{2019}' => '\'',
                '\u{201c}' | '\u{201d}' => '"',
                '\u{2013}' | '\u{2014}' => '-',
                c => c,
            };
            match inside {
                Some(end) if c == end => inside = None,
                Some(_) => {}
                None if c == '`' || c == '"' => {
                    inside = Some(c);
                    // Something was named here, and it is not the operator speaking.
                    out.push('\u{1}');
                }
                None => out.extend(c.to_lowercase()),
            }
        }
        out.push('\n');
    }
    out
}

/// The sentences, without what ends them, and whether each asks.
fn sentences(spoken: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut sentence = String::new();
    let mut chars = spoken.chars().peekable();
    while let Some(c) = chars.next() {
        let ends = match c {
            '\n' => true,
            '.' | '!' | '?' => chars
                .peek()
                .is_none_or(|n| n.is_whitespace() || ".!?)".contains(*n)),
            _ => false,
        };
        if !ends {
            sentence.push(c);
            continue;
        }
        let words = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = words.trim_matches(|c: char| !c.is_alphanumeric() && c != '\u{1}');
        let asks = c == '?';
        if words.is_empty() {
            // "what??" asks once.
            if let (true, Some((_, asked))) = (asks, found.last_mut()) {
                *asked = true;
            }
        } else {
            found.push((words.to_owned(), asks));
        }
        sentence.clear();
    }
    found
}

/// The sentence after "ok," and the like.
fn without_fillers(sentence: &str) -> &str {
    let mut rest = sentence;
    while let Some((word, after)) = rest.split_once([' ', ',']) {
        if !FILLERS.contains(&word) {
            break;
        }
        rest = after.trim_start_matches([' ', ',', '-']);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use Class::{Confirmation, Correction, DirectionPivot};

    #[track_caller]
    fn all(cases: &[&str], class: Option<Class>) {
        for prompt in cases {
            let found = looks_like(prompt);
            assert_eq!(found.map(|l| l.class), class, "{prompt:?}: {found:?}");
        }
    }

    #[test]
    fn a_correction_is_heard_where_the_operator_says_no_stop_or_wrong() {
        all(
            &[
                "stop, you keep doing the same error",
                "you continue to take the easy way out",
                "your bashing again and going after git",
                "stop",
                "STOP!!",
                "stop guessing and read the log",
                "no, the other one",
                "No, not the header. The footer.",
                "nope, that's not what i asked for",
                "no that's wrong",
                "no. that's wrong, the flag is -x",
                "that's wrong",
                "That’s not what I meant",
                "this is not what i asked for",
                "wrong file, look in core",
                "wrong",
                "you forgot the tests again",
                "you broke the build",
                "ok but you removed the retry, put it back",
                "now you broke the login",
                "you deleted the wrong branch and you ignored the rule",
                "i said tabs, not spaces",
                "i already told you to use the lock",
                "i didn't ask for a refactoring",
                "undo that",
                "please revert your last change",
                "put it back",
                "don't do that again",
                "never push to main again",
                "it's still broken",
                "still failing, same message",
                "it doesn't work",
                "not that one",
                "not the header, the footer",
                "you're editing the wrong file",
                "you should have asked memory first",
                "no, use the existing helper",
                "hmm, that's not right",
            ],
            Some(Correction),
        );
    }

    #[test]
    fn a_confirmation_is_heard_where_the_operator_is_content() {
        all(
            &[
                "perfect",
                "Perfect!",
                "perfect, now add the tests",
                "lets GO!!!!",
                "yes commit",
                "yes, ship it",
                "exactly",
                "yes, exactly",
                "that works",
                "it works now, commit",
                "ok it works now",
                "great, everything works again",
                "the fix works perfectly",
                "works like a charm",
                "looks good to me, merge it",
                "looks great now",
                "that's exactly what i wanted",
                "love it",
                "nailed it",
                "that did the trick",
                "well done",
                "much better",
                "finally!",
                "awesome, thanks",
                "that's perfect",
            ],
            Some(Confirmation),
        );
    }

    #[test]
    fn a_pivot_is_heard_where_the_operator_turns_the_work() {
        all(
            &[
                "wait, that's the title bar — we're working on the Prompt",
                "fold into SPEC",
                "yes please send",
                "let's go with sqlite",
                "lets switch to the parser",
                "let's not do the dashboard",
                "change of plan: first the cli",
                "forget the dashboard, do the cli first",
                "scrap that",
                "never mind the colours, we need the exit code",
                "use a Vec instead",
                "actually, let's do the migration first",
                "I'd rather have one file",
                "skip the docs for now",
                "focus on the parser first",
                "do the cli first",
                "instead, just print the id",
                "on second thought, keep both names",
                "i changed my mind, keep the flag",
            ],
            Some(DirectionPivot),
        );
    }

    #[test]
    fn everyday_speech_is_none_of_them() {
        all(
            &[
                // Routine, and other short words.
                "ok",
                "no",
                "nope",
                "yes",
                "great",
                "thanks!",
                "next",
                "go ahead",
                "k",
                "...",
                // No that means no harm.
                "no problem",
                "no worries, take your time",
                "no, thanks",
                "no need to rush",
                "no, that's fine",
                "no idea why, look at the log",
                "no tests were touched by this, right?",
                "no, just the code",
                "no longer needed, but keep the file",
                "not sure yet",
                "not now",
                "not bad",
                "not yet, run the tests first and tell me",
                // Reports and tasks.
                "wrong file name in the log, look",
                "the header shows the wrong year on page 2, fix it",
                "there is a wrong index in the loop of parse()",
                "stop the server and start it again",
                "the stop button is missing",
                "add a stop word list",
                "wait for the build to finish, then tag it",
                "wait, is it really three?",
                "fix the failing test in ring.rs",
                "add a test that fails when it is still broken",
                "revert commit 4b2a on the release branch",
                "the login doesn't work on safari, find out why",
                "users say that it still crashes on start, look into the dump",
                "write a changelog entry that says what was wrong",
                "drop the users table in the test database",
                "skip the first line of the csv",
                "use the other index instead of the first one",
                "finally, update the changelog",
                "exactly two columns please",
                "print perfect numbers up to 1000",
                "make it look perfect on small screens",
                "put the file back into the archive when the job ends",
                "don't forget the tests",
                "don't worry about the docs",
                "don't commit it yet",
                "do not edit generated files; add a test for the parser",
                "let's see what the log says",
                "let's not forget the changelog",
                "let's go through the list",
                "you can remove the flag now",
                "you keep the old name and add an alias",
                "can you check that it works on windows",
                "make sure it works with an empty file",
                // Conditions and mixed verdicts.
                "works for me if we keep the old name",
                "it works on my machine but not in ci",
                "looks good but the header is too large",
                "perfect would be a single command",
                "if it's still broken, revert it",
                "tell me whether that's wrong",
                "it would be great if that works",
                "almost perfect",
                "that's not exactly what i wanted, is it?",
                "since you removed the cache, measure again",
                "when it works, commit",
                // Questions.
                "is that wrong?",
                "does it work now?",
                "why did you remove the test?",
                "did you forget something?",
                "you removed it, right?",
                "should we use sqlite instead?",
                "looks good?",
                "what's the other one?",
                "perfect??",
                // Somebody else's words.
                "the reviewer wrote \"no, that's wrong\" on line 3, answer them",
                "`stop, wrong file` is the error text",
                "why does it print this:\n```\nno, that's wrong\nit works\n```\nfind it",
                "> that's not what i asked for\n\nanswer this comment",
                "answer this mail:\n    no, not the header\n    you broke it",
                "rename the test to \"it works now\"",
            ],
            None,
        );
    }

    #[test]
    fn a_long_prompt_is_judged_by_how_it_begins() {
        let work = "Then walk through every module and list what reads the clock. ".repeat(8);
        all(&[&format!("no, that's wrong. {work}")], Some(Correction));
        all(
            &[&format!("Read the plan first. {work} It's still broken.")],
            None,
        );
        all(
            &[&format!("stop. {}", "x".repeat(HOOK_PROMPT_CHARS_MAX))],
            None,
        );
    }

    #[test]
    fn only_what_was_typed_by_hand_is_the_operators() {
        let bell = bell::sentence("Donna", "TaskAssigned");
        for put_in in [
            bell.clone(),
            format!("{bell}\n"),
            format!(
                "Another Claude session sent a message:\n{bell}\n\nThis came from another Claude session"
            ),
            "Another Claude session sent a message while you were working:\nno, that's wrong"
                .into(),
            "<task-notification>\n<summary>no, wrong</summary>\n</task-notification>".into(),
            "<system-reminder>\n[SYSTEM NOTIFICATION - NOT USER INPUT]\nstop".into(),
            "[SYSTEM NOTIFICATION - NOT USER INPUT] stop".into(),
            "Stop hook feedback:\nno, that's wrong".into(),
            "<hook_prompt hook_run_id=\"stop:3\">stop</hook_prompt>".into(),
            "<channel source=\"prism\" from=\"Donna\">no, wrong</channel>".into(),
            "<command-name>/clear</command-name>".into(),
            "[Request interrupted by user]".into(),
            "This session is being continued from a previous conversation. It works now.".into(),
            "/clear".into(),
            "/review no, that's wrong".into(),
            "!ls".into(),
            String::new(),
            "   \n".into(),
            format!("no, wrong. {bell}"),
            "x".repeat(HOOK_PROMPT_CHARS_MAX + 1),
        ] {
            assert!(!is_operators(&put_in), "{put_in}");
            assert_eq!(looks_like(&put_in), None, "{put_in}");
        }
        for typed in [
            "no, not the header",
            "hello",
            "[x] is done, go on",
            "fix it",
        ] {
            assert!(is_operators(typed), "{typed}");
        }
    }

    #[test]
    fn an_offer_is_one_line_that_names_verb_and_class() {
        for (prompt, class) in [
            ("no, that's wrong", "class=correction"),
            ("it works now", "verdict=works"),
            ("scrap that", "class=direction_pivot"),
        ] {
            let offer = looks_like(prompt).unwrap().offer();
            assert!(offer.contains("prism_operator_input") && offer.contains(class));
            assert!(
                !offer.contains('\n') && offer.chars().count() < 400,
                "{offer}"
            );
            assert!(
                !offer.contains(prompt),
                "the words are in the prompt already"
            );
            let later = looks_like(prompt).unwrap().offer_later(prompt);
            assert!(later.contains(&format!("\"{prompt}\"")) && later.contains(class));
        }
    }
}
