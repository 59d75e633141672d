//! What a question asks for: its words, its people, its times, and the kind of row it points at.
//!
//! Everything here is plain English and knows no project. A cue never
//! excludes a row; it only lifts the rows it points at.

pub mod asked_for;

use crate::moment::Moment;
use asked_for::AskedFor;
use jiff::civil::Date;
use regex::Regex;
use std::collections::HashSet;
use std::sync::LazyLock;

/// Words of one question that are looked up: of a longer one those that tell most, which only whoever
/// knows how rare they are can say.
pub const TERMS_MAX: usize = 32;
/// Words of one question that are read at all.
const READ_MAX: usize = 512;
/// Microseconds of a day.
const DAY_US: i64 = 86_400_000_000;

/// How far "right after a release" reaches.
const NEAR_DAYS: i64 = 7;

/// What a row is, and what a question may point at: one bit each.
pub mod cue {
    pub const CORRECTION: u32 = 1;
    pub const PIVOT: u32 = 1 << 1;
    pub const DEAD_END: u32 = 1 << 2;
    pub const CONFIRMATION: u32 = 1 << 3;
    pub const NARRATIVE: u32 = 1 << 4;
    pub const TROUBLE: u32 = 1 << 5;
    pub const DECISION: u32 = 1 << 6;
    /// The row says what a person sees now.
    pub const EFFECT: u32 = 1 << 7;
    /// The row is the operator's own word.
    pub const OPERATOR: u32 = 1 << 8;
    /// The row speaks of a time.
    pub const TIME: u32 = 1 << 9;
    /// The row itself asks.
    pub const ASKS: u32 = 1 << 10;
    /// An agent reported that the operator confirmed its own work: that counts by half.
    pub const HALF_CONFIRMED: u32 = 1 << 11;
    /// What a verdict shows that was not good.
    pub const BAD_VERDICT: u32 = TROUBLE | OPERATOR;
    /// Kinds that a question names clearly; the others it only hints at.
    pub const CLEAR: u32 = CORRECTION | PIVOT | DEAD_END | CONFIRMATION | NARRATIVE;
}

/// Words that say nothing about what is sought.
const STOPWORDS: &str = "a about above after again against all also am an and any are aren as at be because been before being below between both but by can cannot could couldn d did didn do does doesn doing don down during each few for from further get got had hadn has hasn have haven having he her here hers herself him himself his how i if in into is isn it its itself just ll m me more most my myself no nor not now of off on once only or other our ours ourselves out over own re s same she should shouldn so some such t than that the their theirs them themselves then there these they this those through to too under until up us ve very was wasn we were weren what when where which while who whom why will with won would wouldn you your yours yourself yourselves";

static STOP: LazyLock<HashSet<&str>> = LazyLock::new(|| STOPWORDS.split(' ').collect());

/// A pattern of words; one that does not compile is caught by the tests. The words sought are
/// English: letters of all the world's scripts would only make a server's patterns ten times as
/// large.
pub(crate) fn pattern(text: &str) -> Regex {
    let ascii = text
        .replace(r"\b", r"(?-u:\b)")
        .replace(r"\w", "[0-9A-Za-z_]")
        .replace(r"\d", "[0-9]")
        .replace(r"\s", "[ \t]");
    Regex::new(&ascii).unwrap_or_else(|e| unreachable!("{e}"))
}

macro_rules! patterns {
    ($($name:ident = $text:expr;)+) => { $(static $name: LazyLock<Regex> = LazyLock::new(|| $crate::memory::question::pattern($text));)+ };
}
pub(super) use patterns;

const MONTH: &str = "(january|february|march|april|may|june|july|august|september|october|november|december|jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec)";

patterns! {
    CORRECTIONS = r"(?i)\b(correct(ed|ion|ions|s)?|t(old|ell|elling|ells) (\w+ )?off|i (tell|told)|complain\w*|grumbl\w+|moan\w*|gripe\w*|grip(ed|ing)|whin(e|ed|ing)|nag(ged|ging)?|annoy\w*|irritat\w+|bother(ed|s)?|angry|anger(ed)?|mad|cross|upset|furious|yell\w*|shout\w*|scold\w*|mock\w*|critici\w+|object(ed|ion|ions)|protest\w*|hate[ds]?|dislik\w+|unhappy|fed up|rant\w*|insist\w*|reprimand\w*|rebuk\w+|remind\w*|snap(ped)? at|los[et] my temper|pull(ed)? \w+ up|call(ed)? \w+ out|displeas\w+|fuss(ed)?|vent(ed)?|bug(s|ged)? me|drove me (mad|crazy|nuts)|sick of|tired of)\b";
    TELLS = r"(?i)\b(tell|tells|told)\b";
    PIVOTS = r"(?i)\b(g[ia]v(e|ing|en) up|abandon\w*|quit|drop(ped)?|ditch\w*|switch\w*|chang\w+ (course|direction|tack|plans?|our minds?|my mind)|(an)?other (way|route|direction)|different (way|route|direction)|instead|no longer|mov\w+ away|turn\w* away|back\w* out|replac\w+|pivot\w*|scrap\w*|stop(ped)? using|u-turn|walk(ed)? away|let go of|shelv\w+|thr(ow|ew|own) out|toss(ed)?|rethink|rethought|revers(e|ed|al)|(go|going|went) back to|in place of)\b";
    DEAD_ENDS = r"(?i)\b(tried|try|tries|trying|attempt\w*|experiment\w*|rul\w+ out|discard\w*|fail(ed|s|ure|ures|ing)?|useless|vain|pointless|fruitless|futile|no avail|unsuccessful\w*|no use|no good|no help|nowhere|dead ends?|(didn't|did not|doesn't|does not|never|not) (work|help)(ed)?|reject\w*|without success|wast\w+|no luck|c[oa]me to nothing|flop\w*|backfir\w+|blind alleys?|wrong track|pan(ned)? out)\b";
    CONFIRMATIONS = r"(?i)\b(confirm\w*|approv\w+|accept\w*|(was|is|were) (finally |now |all )*(right|good|fine|ok|okay|solved)|works|worked|happy|pleas(ed|ing)|satisf\w+|sign(ed)? off|verif\w+|prais\w+|thumbs up|liked|blessing|(gave|got) the nod|okayed|good enough|green light|go-ahead)\b";
    NARRATIVES = r"(?i)\b(in place|depend\w*|together|line up|rel(y|ies|ying)|required|needed|prerequisite\w*|has to|have to|must|hinges?|rests? on|pieces|parts|h[ao]ngs? together|holds? together|ingredients)\b";
    // Ways of asking that name no kind and mean one all the same.
    REJECTIONS = r"(?i)\bwhy (not|no|never)\b|\bwhy (did|do|does|is|are|was|were|have|has|had|could|would|can)(n'?t| not)\b|\bwhy (did|do|does|is|are|was|were|have|has|had|can|could|would)( \w+){1,4}? (not|no|never)\b|\bwhy\b.{0,40}\b(drop|dropped|drops|reject\w*|remov\w+|cancel\w*|kill(ed)?|kick\w*|go away|have to go|had to go|gone|disappear\w*)\b|\b(spoke|speaks|speak|said|decid\w+|argu\w+|reasons?|vot\w+) against\b|\b(said|say|says) no to\b|\bturn\w* down\b|\b(down ?sides?|drawbacks?|snags?|the catch)\b|\bbec[oa]me of\b|\bwas(n'?t| not) there (going|meant|supposed|once|a plan)\b|\bwhat was (so |too )?(bad|wrong|the (trouble|problem|matter|issue|catch))\b|\bworth (it|the|doing|keeping)\b|\bdid (it|that|this|they|those|the \w+) (ever |even |really )?(help|work|pay off)\b|\bno (good|option|use|solution|help)\b|\byes or no\b|\bor not\b|\bcancel+ed\b|\btoo (dear|expensive|slow|costly|heavy|risky|complicated|much work)\b|\b(planned|going|meant|supposed) to\b.{0,40}\?$";
    WISHES = r"(?i)\bi (did(n'?t| not) )?(want|wanted|wish|wished|demand|demanded|forbid|forbade|forbidden|prefer|preferred|insist|insisted|ask|asked|request\w*|object\w*|call|called|rather|refus\w+|banned)\b|\b(had|have|did) i (want|wish|demand|forb|ask|request|said|say|prefer|insist|object|ban|call)\w*|\bmy (wish|wishes|rule|rules|demand|request|requests|preference)\b|\bshould\b|\bsupposed to\b|\bmay (that|it|they|people|we|i|anyone|customers?|users?|clients?)\b|\b(allowed|permitted|forbidden|reserved for)\b";
    REACTIONS = r"(?i)\b(was|were|am|is|are) (i|we|he|she|they|(the |our |my )?\w+) (really |then |finally |ever )?(happy|pleased|content|satisfied|glad|ok|okay|fine|impressed|relieved)\b|\b(think|thought|make|made|thinks) of\b|\bdescrib\w+|\bi (looked|saw|noticed|checked|tested|tried|found|heard|felt|reported)\b|\bmy (own )?(opinion|reaction|verdict|impression|ears|eyes|feedback|words|test|judg\w+)\b|\b(help(ed)?|lie[ds]?|save[ds]?|fool(ed)?) (to )?me\b|\bwas (that|it) me\b|\b(right|fine|correct|ok|good) when i\b|\b(did|has|have) (it|that|they|the \w+|this) (really |finally |ever )?(function|work|turn out|satisf)\w*";
    NEEDS = r"(?i)\bcheck ?lists?\b|\brequire(s|ments?)?\b|\bpre-?(conditions?|requisites?)\b|\b(lacking|missing)\b|\b(do|does|did|would) (we|i|it|you|one|they) need\b|\bneed(s|ed)? (so|for|to|in order)\b|\bwhat all\b|\beverything (it|that|we|you|needed)\b|\bha(s|ve) to (be|fit|happen|work)\b|\bcould (that|it) be\b|\bin order\b|\ball (the )?(steps|pieces|parts|things|conditions)\b|\bstep by step\b|\bconditions?\b|\bchain\b";
    NOWADAYS = r"(?i)^(do|does|is|are|can|could|will|where (do|does|can|is|are)|how (do|does|can)|what (happens|shows|does|do|appears)|who (gets|can|is|sees))\b|\b(possible|nowadays|now|by now|these days|today|dealt with|sorted? (that )?out|anything that helps|solved|still|already|anymore|any more)\s*\??$|\bstill\b|, (do|does|is|are|can|could|will|how do|where do|where does) ";
    TROUBLES = r"(?i)\b(went wrong|go(es)? wrong|wrong with|mistakes?|mishaps?|blunders?|br[eo]ke|broken|outages?|incidents?|accidents?|caus(e|ed|es)|crash\w*|t(ook|ake) .{0,20}(out|down)|disasters?|mess(ed)?|fault)\b";
    EFFECTS = r"(?i)^(what|who|which \w+) (made|makes|lets?|got|gets|kept|keeps|brought|gave|gives|put|cut)\b|^since when\b|\b(fix|fixed|repair|repaired|remedy|cure)\b";
    ASKS_WHEN = r"(?i)^\s*(when|since when)\b";
    ASKS_LATEST = r"(?i)\b(last|latest|newest|most recent(ly)?|recent(ly)?)\b";
    ASKS_EARLIEST = r"(?i)\b(first|earliest|originally|initially|at the (start|beginning|outset)|to begin with|formerly|used to be|back then)\b";
    SPEAKS_OF_TIME = r"(?i)\b(yesterday|today|tonight|tomorrow|ago|last|next|this (week|month|year|morning|weekend)|weekends?|monday|tuesday|wednesday|thursday|friday|saturday|sunday|january|february|march|april|june|july|august|september|october|november|december|(19|20)\d\d|recently|soon)\b";
    ISO_DAY = r"\b(\d{4})-(\d{2})-(\d{2})\b";
    DAY_MONTH = &format!(r"\b(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {MONTH}\b\.?,? ?(\d{{4}})?");
    MONTH_DAY = &format!(r"\b{MONTH}\.? (\d{{1,2}})(?:st|nd|rd|th)?\b,? ?(\d{{4}})?");
    WHOLE_MONTH = &format!(r"\b(?:(in|of|during|since|late|early|mid|until|by|around|last)[ -])?{MONTH}\b,? ?(\d{{4}})?");
    AROUND_RELEASE = &format!(r"\b(?:(right|shortly|just|soon|directly|immediately|day|morning|evening|night|weekend|week|hours?) )?(before|until|prior to|ahead of|after|since|following)\b[^,;?]{{0,20}}?\b(?:(first|second|third|last|latest|newest|most recent) (?:release|launch|version|update)|(?:release |version |v)?(\d+\.\d+)|{MONTH} (?:release|launch|version|update))");
    RELEASE_NOTE = r"(?im)\b(\d+\.\d+)(?:\.0)?\b[^.\n]{0,30}?\b(?:shipped|released|deployed|published|went live|went out|launched|is live|is out|rolled out|in production)\b|\b(?:shipped|released|launched|deployed|published|rolled out)\b[^.\n]{0,30}?\b(\d+\.\d+)(?:\.0)?\b|^(?:release|version) v?(\d+\.\d+)(?:\.0)?\b";
}

/// A span of days a question names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from: Moment,
    /// The first moment after it.
    pub until: Moment,
    /// One day, not a whole month.
    pub is_day: bool,
}

impl Window {
    pub fn holds(&self, at: Moment) -> bool {
        self.from <= at && at < self.until
    }
}

/// A question about what came before or after a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AroundRelease {
    pub before: bool,
    /// Not just any time before or after it.
    pub near: bool,
    pub release: Release,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// Counted from the first; None is the last.
    Nth(Option<usize>),
    Version(String),
    /// The one in this month, January is 1.
    Month(i8),
}

/// A question, taken apart.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// What is embedded: without names of people. Empty when nothing is left.
    pub embedded: String,
    /// Words to look up, without names of people unless there is nothing else.
    pub terms: Vec<String>,
    /// Those of its words that read as identifiers: somebody made them up to mean one thing.
    pub identifiers: Vec<String>,
    /// Agents it names, as they spell themselves.
    pub named: Vec<String>,
    /// The kinds of row it points at.
    pub cues: u32,
    /// The kinds it may mean, when it points at none clearly.
    pub hints: u32,
    /// It asks how something was received: a verdict, good or bad.
    pub verdict: bool,
    /// It asks for what the operator said.
    pub operator: bool,
    /// What sort of row its meaning asks for, once it has been embedded.
    pub asked_for: Option<AskedFor>,
    pub when: bool,
    pub latest: bool,
    pub earliest: bool,
    pub around_release: Option<AroundRelease>,
    lower: String,
}

impl Question {
    /// Takes a question apart, knowing the people of the project and which of them is the operator.
    pub fn of(text: &str, names: &[String], operator: &str) -> Self {
        let text = text.replace('\u{2019}', "'");
        let is = |p: &LazyLock<Regex>| p.is_match(&text);
        let kinds = [
            (&CORRECTIONS, cue::CORRECTION),
            (&PIVOTS, cue::PIVOT),
            (&DEAD_ENDS, cue::DEAD_END),
            (&CONFIRMATIONS, cue::CONFIRMATION),
            (&NARRATIVES, cue::NARRATIVE),
            (&REJECTIONS, cue::PIVOT | cue::DEAD_END),
            (&WISHES, cue::CORRECTION),
            (&REACTIONS, cue::CONFIRMATION),
            (&NEEDS, cue::NARRATIVE),
            (&TROUBLES, cue::TROUBLE),
        ];
        let cues = kinds
            .iter()
            .filter(|(p, _)| is(p))
            .fold(0, |bits, (_, bit)| bits | bit);
        let named: Vec<String> = names
            .iter()
            .filter(|n| words(&text).any(|w| w.eq_ignore_ascii_case(n)))
            .cloned()
            .collect();
        let names_operator = named.iter().any(|n| n.eq_ignore_ascii_case(operator));
        // What agents tell each other is no correction; what the operator tells them mostly is.
        let told = if names_operator && is(&TELLS) {
            cue::CORRECTION
        } else {
            0
        };
        let (mut cues, mut hints) = (cues & cue::CLEAR | told, cues & !cue::CLEAR);
        if is(&EFFECTS) || is(&NOWADAYS) || asks_what_did_it(&text) {
            hints |= cue::EFFECT;
        }
        if cues != 0 {
            hints = 0;
        }
        // "in place of" is about what went, not about what must be there.
        if text.to_lowercase().contains("in place of") {
            cues &= !cue::NARRATIVE;
        }
        let lower = text.to_lowercase();
        Self {
            embedded: without_names(&text, names),
            terms: terms(&text, names),
            identifiers: identifiers(&text),
            operator: is(&WISHES) || is(&REACTIONS) || names_operator,
            named: named
                .into_iter()
                .filter(|n| !n.eq_ignore_ascii_case(operator))
                .collect(),
            cues,
            hints,
            verdict: is(&REACTIONS),
            asked_for: None,
            when: is(&ASKS_WHEN),
            latest: is(&ASKS_LATEST),
            earliest: is(&ASKS_EARLIEST),
            around_release: around_release(&lower),
            lower,
        }
    }

    /// The days and months it names; one without a year is meant in each of the given years.
    pub fn windows(&self, years: &[i16]) -> Vec<Window> {
        let (text, mut found, mut used) = (
            self.lower.as_str(),
            Vec::new(),
            Vec::<std::ops::Range<usize>>::new(),
        );
        let years_of = |given: Option<regex::Match<'_>>| {
            given
                .and_then(|y| y.as_str().parse().ok())
                .map_or_else(|| years.to_vec(), |y| vec![y])
        };
        let number = |m: Option<regex::Match<'_>>| {
            m.and_then(|m| m.as_str().parse::<i8>().ok())
                .unwrap_or_default()
        };
        let mut day = |years: Vec<i16>,
                       month: i8,
                       day: i8,
                       span: std::ops::Range<usize>,
                       used: &mut Vec<std::ops::Range<usize>>| {
            for date in years.iter().filter_map(|y| Date::new(*y, month, day).ok()) {
                found.push(window(date, 1, true));
                used.push(span.clone());
            }
        };
        for m in ISO_DAY.captures_iter(text) {
            day(
                years_of(m.get(1)),
                number(m.get(2)),
                number(m.get(3)),
                m.get_match().range(),
                &mut used,
            );
        }
        for m in DAY_MONTH.captures_iter(text) {
            day(
                years_of(m.get(3)),
                month(&m[2]),
                number(m.get(1)),
                m.get_match().range(),
                &mut used,
            );
        }
        let free = |range: &std::ops::Range<usize>, used: &[std::ops::Range<usize>]| {
            !used
                .iter()
                .any(|u| range.start < u.end && range.end > u.start)
        };
        for m in MONTH_DAY
            .captures_iter(text)
            .filter(|m| free(&m.get_match().range(), &used.clone()))
            .collect::<Vec<_>>()
        {
            day(
                years_of(m.get(3)),
                month(&m[1]),
                number(m.get(2)),
                m.get_match().range(),
                &mut used,
            );
        }
        for m in WHOLE_MONTH
            .captures_iter(text)
            .filter(|m| free(&m.get_match().range(), &used))
        {
            // "may" and "march" are months only beside a year or a word of time.
            if matches!(&m[2], "may" | "mar" | "march") && m.get(1).is_none() && m.get(3).is_none()
            {
                continue;
            }
            for date in years_of(m.get(3))
                .iter()
                .filter_map(|y| Date::new(*y, month(&m[2]), 1).ok())
            {
                found.push(window(date, i64::from(date.days_in_month()), false));
            }
        }
        found
    }
}

/// "What stopped the flicker", "what lets me scroll": asks for the change behind what is seen.
fn asks_what_did_it(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut words = lower.split_whitespace();
    let (Some("what"), Some(verb)) = (words.next(), words.next()) else {
        return false;
    };
    if matches!(verb, "does" | "is" | "was" | "has" | "happens") {
        return false;
    }
    let is_deed =
        verb.ends_with("ed") || (verb.len() > 2 && verb.ends_with('s') && !verb.ends_with("ss"));
    is_deed
        && !matches!(
            words.next(),
            Some(
                "did"
                    | "do"
                    | "does"
                    | "have"
                    | "has"
                    | "had"
                    | "were"
                    | "are"
                    | "was"
                    | "by"
                    | "of"
                    | "for"
                    | "we"
                    | "to"
            )
        )
}

fn window(first: Date, days: i64, is_day: bool) -> Window {
    let from = Moment(day_number(first) * DAY_US);
    Window {
        from,
        until: from.plus_us(days * DAY_US),
        is_day,
    }
}

fn day_number(date: Date) -> i64 {
    date.to_zoned(jiff::tz::TimeZone::UTC)
        .map(|z| z.timestamp().as_second() / 86_400)
        .unwrap_or_default()
}

/// The year of a moment.
pub fn year(at: Moment) -> i16 {
    jiff::Timestamp::from_microsecond(at.0)
        .map(|t| t.to_zoned(jiff::tz::TimeZone::UTC).year())
        .unwrap_or_default()
}

fn month_of(at: Moment) -> i8 {
    jiff::Timestamp::from_microsecond(at.0)
        .map(|t| t.to_zoned(jiff::tz::TimeZone::UTC).month())
        .unwrap_or_default()
}

/// The number of a month by its name or the first letters of it.
fn month(name: &str) -> i8 {
    const NAMES: [&str; 12] = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ];
    NAMES
        .iter()
        .position(|n| name.starts_with(n))
        .map_or(0, |i| i as i8 + 1)
}

fn around_release(text: &str) -> Option<AroundRelease> {
    let m = AROUND_RELEASE.captures(text)?;
    let release = match (m.get(3), m.get(4)) {
        (Some(nth), _) => Release::Nth(
            ["first", "second", "third"]
                .iter()
                .position(|n| *n == nth.as_str()),
        ),
        (None, Some(version)) => Release::Version(version.as_str().to_owned()),
        (None, None) => Release::Month(month(&m[5])),
    };
    Some(AroundRelease {
        before: matches!(&m[2], "before" | "until" | "prior to" | "ahead of"),
        near: m.get(1).is_some(),
        release,
    })
}

impl AroundRelease {
    /// The span that is meant, from the releases that memory knows of.
    pub fn span(&self, releases: &[(String, Moment)]) -> Option<(Moment, Moment)> {
        let mut dated: Vec<Moment> = releases.iter().map(|(_, at)| *at).collect();
        dated.sort_unstable();
        let at = match &self.release {
            Release::Nth(None) => dated.last().copied(),
            Release::Nth(Some(n)) => dated.get(*n).copied(),
            Release::Version(version) => releases
                .iter()
                .find(|(v, _)| v == version)
                .map(|(_, at)| *at),
            Release::Month(month) => dated.into_iter().find(|at| month_of(*at) == *month),
        }?;
        let day = Moment(at.0.div_euclid(DAY_US) * DAY_US);
        Some(match (self.before, self.near) {
            (true, true) => (day.plus_us(-NEAR_DAYS * DAY_US), day.plus_us(DAY_US)),
            (true, false) => (Moment(i64::MIN), day.plus_us(DAY_US)),
            (false, true) => (day, day.plus_us(NEAR_DAYS * DAY_US)),
            (false, false) => (day, Moment(i64::MAX)),
        })
    }
}

/// The version that a text says was released, if it says so.
pub fn released_version(text: &str) -> Option<String> {
    let m = RELEASE_NOTE.captures(text)?;
    // The whole match comes first, then the one group that took part.
    m.iter().flatten().nth(1).map(|v| v.as_str().to_owned())
}

/// Words under which a note of a release is found.
pub const RELEASE_WORDS: [&str; 8] = [
    "shipped",
    "released",
    "launched",
    "live",
    "deployed",
    "published",
    "rolled",
    "version",
];

/// What a row's own words say of it.
pub fn cues_of_text(main: &str, whole: &str) -> u32 {
    // A picture's caption in brackets is no part of the sentence.
    let sentence = main.trim_end();
    let sentence = sentence
        .strip_suffix(']')
        .and_then(|s| s.rsplit_once('['))
        .map_or(sentence, |(before, _)| before.trim_end());
    let mut cues = 0;
    if sentence.ends_with('?') {
        cues |= cue::ASKS;
    }
    if SPEAKS_OF_TIME.is_match(whole) {
        cues |= cue::TIME;
    }
    cues
}

/// The words of a text, in order; a possessive is its owner.
fn words(text: &str) -> impl Iterator<Item = &str> {
    // An accent may be a sign of its own, after its letter.
    let is_accent = |c: char| ('\u{300}'..='\u{36f}').contains(&c);
    text.split(move |c: char| !(c.is_alphanumeric() || c == '\'' || is_accent(c)))
        .map(|w| w.strip_suffix("'s").unwrap_or(w))
        .flat_map(|w| w.split('\''))
        .filter(|w| !w.is_empty())
}

/// The words of a question that are worth looking up, in order, once each.
fn terms(question: &str, names: &[String]) -> Vec<String> {
    let chosen = |keep: &dyn Fn(&str) -> bool| {
        let mut seen = HashSet::new();
        words(question)
            .map(str::to_lowercase)
            .filter(|w| keep(w))
            .filter(|w| seen.insert(w.clone()))
            .take(READ_MAX)
            .collect::<Vec<_>>()
    };
    let is_name = |w: &str| names.iter().any(|n| n.eq_ignore_ascii_case(w));
    let telling = chosen(&|w| !STOP.contains(w) && !is_name(w));
    if !telling.is_empty() {
        return telling;
    }
    // A question of nothing but names, or of nothing but small words, is still a question.
    let small = chosen(&|w| !STOP.contains(w));
    if small.is_empty() {
        chosen(&|_| true)
    } else {
        small
    }
}

/// The words of a question that read as identifiers, or are part of one, as [`terms`] has them.
fn identifiers(question: &str) -> Vec<String> {
    let of_chunk = |chunk: &str| {
        let is_joined = is_joined(chunk);
        let chosen = words(chunk).filter(|word| is_joined || is_identifier(word));
        chosen.map(str::to_lowercase).collect::<Vec<_>>()
    };
    question.split_whitespace().flat_map(of_chunk).collect()
}

/// Whether a word is an id, a number that is not a year, or written in camel case.
fn is_identifier(word: &str) -> bool {
    let digits = word.chars().filter(char::is_ascii_digit).count();
    let letters = word.chars().count() - digits;
    if digits > 0 && letters > 0 {
        // A time, a place in a row, a size: 10am, 2nd, 100ms.
        let begins = word.chars().take_while(char::is_ascii_digit).count();
        let is_measure = begins == digits && letters <= 2;
        return digits + letters >= 4 && !is_measure;
    }
    if digits > 0 {
        let is_year = word.parse().is_ok_and(|n: u32| (1990..2040).contains(&n));
        return digits >= 3 && !is_year;
    }
    let mut letters = word.chars().zip(word.chars().skip(1));
    letters.any(|(a, b)| a.is_lowercase() && b.is_uppercase())
}

/// Whether words are joined into one name, as in a path or in code.
fn is_joined(chunk: &str) -> bool {
    let is_inner = |c: char| {
        chunk
            .trim_matches(|c: char| !c.is_alphanumeric())
            .contains(c)
    };
    let slashes = chunk.matches('/').count();
    is_inner('_')
        || chunk.contains("::")
        || is_inner('/') && (slashes > 1 || chunk.starts_with('/') || is_inner('.'))
}

/// The words that a person marks when reading a hit.
pub fn telling_words(question: &str) -> Vec<String> {
    terms(question, &[])
}

/// The question without the names of people, which would find whatever addresses them:
/// rows are told in the first person, so it is asked in the first person, too.
/// Empty when nothing but names and small words is left.
fn without_names(question: &str, names: &[String]) -> String {
    let is_name = |word: &str| names.iter().any(|n| n.eq_ignore_ascii_case(word));
    let says_something =
        words(question).any(|w| !is_name(w) && !STOP.contains(w.to_lowercase().as_str()));
    if !says_something {
        return String::new();
    }
    let replaced = question.split_whitespace().map(|word| {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        match (is_name(bare), bare.strip_suffix("'s").is_some_and(is_name)) {
            (true, _) => word.replacen(bare, "I", 1),
            (_, true) => word.replacen(bare, "my", 1),
            _ => word.to_owned(),
        }
    });
    replaced.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_made_up_to_mean_one_thing_reads_as_an_identifier() {
        let none: &[&str] = &[];
        for (question, expected) in [
            ("what was wrong in QX01046 again?", &["qx01046"][..]),
            ("qx01046's cause", &["qx01046"]),
            ("service 1046 after 900 seconds", &["1046", "900"]),
            ("does LedgerFlusher work", &["ledgerflusher"]),
            ("who calls flush_quota now", &["flush", "quota"]),
            ("in core/src/ring.rs", &["core", "src", "ring", "rs"]),
            (
                "ring::Count or /etc/hosts",
                &["ring", "count", "etc", "hosts"],
            ),
            ("on 3 May 2025 at 10am, the 2nd of 100ms", none),
            ("yes/no, and/or; _really_ Frankfurt USA", none),
        ] {
            assert_eq!(
                Question::of(question, &[], "lena").identifiers,
                expected,
                "{question}"
            );
        }
    }

    fn asked(text: &str) -> Question {
        Question::of(text, &["Mira".into(), "Wren".into(), "lena".into()], "lena")
    }

    #[test]
    fn small_words_and_names_are_not_looked_up_unless_there_is_nothing_else() {
        for (text, expected) in [
            (
                "The line that finally showed up above the INPUT bar",
                vec!["line", "finally", "showed", "input", "bar"],
            ),
            ("turn/steer turn/start", vec!["turn", "steer", "start"]),
            ("what did Wren's printer do", vec!["printer"]),
            ("what about Mira", vec!["mira"]),
            ("what was it", vec!["what", "was", "it"]),
            ("?!", vec![]),
        ] {
            assert_eq!(asked(text).terms, expected, "{text}");
        }
    }

    #[test]
    fn names_of_people_are_not_embedded() {
        for (text, expected) in [
            (
                "What did Lena tell Wren about the colours?",
                "What did I tell I about the colours?",
            ),
            (
                "Mira\u{2019}s broken printer, Wren?",
                "my broken printer, I?",
            ),
            ("what about Mira and Wren", ""),
            ("the and of", ""),
        ] {
            assert_eq!(asked(text).embedded, expected, "{text}");
        }
        assert_eq!(
            asked("What did Lena tell Wren?").named,
            ["Wren"],
            "the operator is no agent"
        );
    }

    #[test]
    fn a_question_points_at_a_kind_of_row() {
        for (text, cues) in [
            (
                "what did I complain about with the colours",
                cue::CORRECTION,
            ),
            ("when did we give up on polling", cue::PIVOT),
            ("what did we already try for the lag", cue::DEAD_END),
            ("which fix did she approve", cue::CONFIRMATION),
            (
                "what has to be in place so that tickets print",
                cue::NARRATIVE,
            ),
            ("where is the parser", 0),
        ] {
            assert_eq!(asked(text).cues & cues, cues, "{text}");
            assert!(cues != 0 || asked(text).cues == 0, "{text}");
        }
        for (text, cues) in [
            (
                "why not keep the takes compressed",
                cue::DEAD_END | cue::PIVOT,
            ),
            ("why isn't there a dark theme", cue::DEAD_END | cue::PIVOT),
            (
                "thumb scanner, what spoke against it",
                cue::DEAD_END | cue::PIVOT,
            ),
            ("how should the bills be called", cue::CORRECTION),
            ("which words did i forbid dropping", cue::CORRECTION),
            ("what did Lena tell Wren about blue", cue::CORRECTION),
            ("what did i tell Wren about blue", cue::CORRECTION),
            ("what did Mira tell Wren about blue", 0),
            ("was the accountant content after that", cue::CONFIRMATION),
            ("what did my ears make of it", cue::CONFIRMATION),
            (
                "the label does not print, give me the checklist",
                cue::NARRATIVE,
            ),
            ("what could be lacking", cue::NARRATIVE),
        ] {
            assert_eq!(asked(text).cues, cues, "{text} names no kind and means one");
        }
        assert!(
            asked("how should the bills be called").operator,
            "wishes are the operator's"
        );
        for (text, hints) in [
            ("does it survive a power cut", cue::EFFECT),
            (
                "marking a moment while it is locked, possible?",
                cue::EFFECT,
            ),
            ("what went wrong with the import", cue::TROUBLE),
            ("why did we pick blue", 0),
            ("when did the lag begin", 0),
            ("what made the flicker stop", cue::EFFECT),
            ("what cured the lag", cue::EFFECT),
            ("what is the lag", 0),
            ("what colours did we use", 0),
            ("what did we try to stop it", 0),
        ] {
            assert_eq!(asked(text).hints, hints, "{text}");
        }
        assert_eq!(
            asked("what did we use in place of the map").cues,
            cue::PIVOT
        );
        assert!(
            asked("what did I say about blue").operator
                && asked("what did Lena say").operator
                && !asked("what did Wren say").operator
        );
    }

    #[test]
    fn days_and_months_are_read_as_people_write_them() {
        let spans = |text: &str| {
            let windows = asked(text).windows(&[2026]);
            windows
                .iter()
                .map(|w| {
                    format!(
                        "{}+{}",
                        &w.from.to_string()[..10],
                        (w.until.0 - w.from.0) / DAY_US
                    )
                })
                .collect::<Vec<_>>()
        };
        for (text, expected) in [
            ("what changed in June", vec!["2026-06-01+30"]),
            ("on 8 May 2023", vec!["2023-05-08+1"]),
            ("on May 3rd, 2023", vec!["2023-05-03+1"]),
            ("the 2nd of March", vec!["2026-03-02+1"]),
            ("2026-03-14 deploy", vec!["2026-03-14+1"]),
            ("you may march on", vec![]),
            ("in may it broke", vec!["2026-05-01+31"]),
            ("late February 2024", vec!["2024-02-01+29"]),
            ("the 31st of February", vec!["2026-02-01+28"]),
        ] {
            assert_eq!(spans(text), expected, "{text}");
        }
    }

    #[test]
    fn before_and_after_a_release_are_spans_of_the_releases_memory_knows() {
        let day = |n: i64| Moment(n * DAY_US);
        let releases = [("1.0".to_owned(), day(100)), ("1.5".to_owned(), day(200))];
        for (text, span) in [
            (
                "what broke before the first release",
                Some((Moment(i64::MIN), day(101))),
            ),
            ("what changed after 1.5", Some((day(200), Moment(i64::MAX)))),
            ("since the last release", Some((day(200), Moment(i64::MAX)))),
            ("right after the newest version", Some((day(200), day(207)))),
            ("shortly before 1.5", Some((day(193), day(201)))),
            ("the day after 1.0", Some((day(100), day(107)))),
            ("before the third release", None),
            ("after version 9.9", None),
        ] {
            assert_eq!(
                asked(text).around_release.unwrap().span(&releases),
                span,
                "{text}"
            );
        }
        assert_eq!(asked("what is the release").around_release, None);
        assert_eq!(
            released_version("Harbour 1.5 shipped today").as_deref(),
            Some("1.5")
        );
        assert_eq!(
            released_version("we released 2.0.0 at noon").as_deref(),
            Some("2.0")
        );
        assert_eq!(
            released_version("Rolled out 1.4 to everyone").as_deref(),
            Some("1.4")
        );
        assert_eq!(
            released_version("Release 1.4: chapters and subtitles").as_deref(),
            Some("1.4")
        );
        assert_eq!(released_version("rounded 1.5 up"), None);
    }

    #[test]
    fn a_row_that_asks_or_dates_something_is_known() {
        assert_eq!(
            cues_of_text("is it blue? [a photo of a boat]", "is it blue?"),
            cue::ASKS
        );
        assert_eq!(cues_of_text("done yesterday", "done yesterday"), cue::TIME);
        assert_eq!(cues_of_text("plain", "plain"), 0);
    }
}
