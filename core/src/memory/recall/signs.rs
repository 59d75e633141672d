//! The signs by which a row is judged, and what each of them is worth.

/// Declares the signs by which a row is judged, each with its weight: a row's signs and the weights
/// are two lists of the same names, and a score is their product.
macro_rules! signs {
    ($($(#[$doc:meta])* $name:ident = $weight:literal;)+) => {
        /// How much of each sign a row shows; nothing is 0.
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct Signs {
            $($(#[$doc])* pub $name: f64,)+
        }

        /// What each sign is worth. One set for everything; `prism bench recall --fit` finds it.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct Weights {
            $($(#[$doc])* pub $name: f64,)+
        }

        impl Default for Weights {
            fn default() -> Self {
                Self { $($name: $weight,)+ }
            }
        }

        impl Signs {
            pub const NAMES: [&'static str; [$(stringify!($name)),+].len()] =
                [$(stringify!($name)),+];

            /// In the order of the names.
            pub const fn values(&self) -> [f64; Self::NAMES.len()] {
                [$(self.$name),+]
            }
        }

        impl Weights {
            /// In the order of the names.
            pub const fn values(&self) -> [f64; Signs::NAMES.len()] {
                [$(self.$name),+]
            }

            pub const fn of(values: [f64; Signs::NAMES.len()]) -> Self {
                let [$($name),+] = values;
                Self { $($name),+ }
            }
        }
    };
}

signs! {
    /// The question's words, in the row or beside it.
    lexical = 2.8;
    /// The meaning of the row's best field, or of its best sentence.
    field = 4.2;
    /// The meaning of the row as a whole.
    joined = 3.3;
    /// The meaning of the row after what it speaks of.
    context = 3.0;
    /// Other phrasings of the question find it, too.
    agreement = 0.5;
    /// How far the best row of its session stands out.
    session = 0.5;
    /// How much better a row beside it is.
    beside = 0.5;
    /// The same where it is of the kind asked for: what is asked for is the word on that row.
    kind_beside = 0.2;
    /// How far a row right before it stands out that asks something: it answers that.
    answer = 0.25;
    /// The question's words in the row itself: it comes before its neighbours.
    own_words = 0.5;
    /// It mentions what the question names.
    graph = 1.0;
    recency = 0.3;
    /// It is by the one person the question names.
    person = 1.1;
    /// It is by one of the people the question names and speaks of another.
    between = 4.0;
    /// It holds words of the question that hardly any other row holds: more than nearness alone
    /// can be worth.
    pointed = 14.0;
    length = 0.2;
    /// It asks something itself.
    asks = -1.3;
    /// The question asks when, and it speaks of a time.
    when = 1.4;
    day = 4.0;
    month = 3.5;
    /// It is from the asked side of a release.
    release = 1.7;
    /// It is from the asked side of a release, and near it.
    near_release = 3.5;
    latest = 1.0;
    earliest = 1.2;
    /// It is of the kind asked for.
    kind = 3.2;
    /// It is of a kind the question hints at.
    hint = 1.3;
    /// It is of the sort that the question's meaning asks for.
    asked_for = 0.35;
    /// It is the operator's word, and the question asks for that.
    operator = 1.7;
    works = 0.6;
    broken = -0.8;
    corrected = -0.6;
    superseded = -2.0;
}
