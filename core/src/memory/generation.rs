//! Generations: which models made a vector together, and how their cosines become one.
//!
//! The id of a generation is on every vector; vectors of two generations are never
//! compared. A row's vector holds the halves of all models side by side, each with
//! the same weight; how much a model's opinion counts is the question's to say, so
//! that shares can change without a row being embedded anew.

use super::vector::{DIMENSIONS, normalise};

/// An embedding model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Model {
    /// all-MiniLM-L6-v2
    MiniLm,
    /// bge-small-en-v1.5
    BgeSmall,
}

impl Model {
    pub const ALL: [Self; 2] = [Self::MiniLm, Self::BgeSmall];

    pub const fn name(self) -> &'static str {
        match self {
            Self::MiniLm => "minilm",
            Self::BgeSmall => "bge-small",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|model| model.name() == name)
    }
}

/// One model's part of a vector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Half {
    pub model: Model,
    /// How much its cosine counts; the shares of a generation make one.
    pub share: f32,
    /// Whether it is worked out in floats, as vectors were before the int8 pass.
    pub exact: bool,
}

/// Models that make vectors together.
#[derive(Debug, PartialEq)]
pub struct Generation {
    /// On every vector. What changes the vectors of rows changes the id.
    pub id: &'static str,
    pub halves: &'static [Half],
    /// The line from its cosine to the scale that the ranking's weights were fitted on.
    scale: Line,
}

#[derive(Debug, PartialEq)]
struct Line {
    times: f64,
    plus: f64,
}

const AS_IT_IS: Line = Line {
    times: 1.0,
    plus: 0.0,
};

const fn half(model: Model, share: f32) -> Half {
    Half {
        model,
        share,
        exact: false,
    }
}

/// Both models side by side.
pub static BOTH: Generation = Generation {
    id: "minilm-8199be6f+bge-small-68807e3f/1",
    halves: &[half(Model::MiniLm, 0.45), half(Model::BgeSmall, 0.55)],
    scale: Line {
        times: 1.3,
        plus: -0.28,
    },
};
pub static MINILM: Generation = Generation {
    id: "minilm-8199be6f/1",
    halves: &[half(Model::MiniLm, 1.0)],
    scale: AS_IT_IS,
};
pub static BGE_SMALL: Generation = Generation {
    id: "bge-small-68807e3f/1",
    halves: &[half(Model::BgeSmall, 1.0)],
    scale: Line {
        times: 1.7,
        plus: -0.66,
    },
};
/// What homes were embedded with before there were generations.
pub static FIRST: Generation = Generation {
    id: "all-minilm-l6-v2-int8/8199be6f",
    halves: &[Half {
        model: Model::MiniLm,
        share: 1.0,
        exact: true,
    }],
    scale: AS_IT_IS,
};

impl Generation {
    /// The generation with this id, when this prism can make its vectors.
    pub fn of(id: &str) -> Option<&'static Self> {
        let known = [&BOTH, &MINILM, &BGE_SMALL, &FIRST];
        known.into_iter().find(|generation| generation.id == id)
    }

    /// The best generation that the installed models can make.
    pub fn wanted(installed: &[Model]) -> Option<&'static Self> {
        let wanted = [&BOTH, &MINILM, &BGE_SMALL];
        let whole = |g: &&Self| g.models().all(|model| installed.contains(&model));
        wanted.into_iter().find(whole)
    }

    /// Whether rows are found better by its vectors than by those of the other.
    pub fn is_better_than(&self, other: &Self) -> bool {
        let worse_to_better = [&FIRST, &BGE_SMALL, &MINILM, &BOTH];
        let place = |of: &Self| worse_to_better.iter().position(|g| g.id == of.id);
        place(self) > place(other)
    }

    pub fn models(&self) -> impl Iterator<Item = Model> {
        self.halves.iter().map(|half| half.model)
    }

    /// Names of its models, as people read them.
    pub fn names(&self) -> Vec<&'static str> {
        self.models().map(Model::name).collect()
    }

    /// Numbers in one vector.
    pub const fn dimensions(&self) -> usize {
        self.halves.len() * DIMENSIONS
    }

    /// A cosine on the scale that the ranking's weights were fitted on.
    pub fn scaled(&self, cosine: f64) -> f64 {
        cosine * self.scale.times + self.scale.plus
    }

    /// The generation on whose scale the cosines of a question lie: where one of two models took no
    /// part in it, that of the other.
    pub fn heard_by(&'static self, question: &[f32]) -> &'static Self {
        let [_, _] = self.halves else { return self };
        let spoke = |model: &Model| self.half(*model, question).is_some();
        let spoke: Vec<Model> = self.models().filter(spoke).collect();
        match spoke.as_slice() {
            [Model::MiniLm] => &MINILM,
            [Model::BgeSmall] => &BGE_SMALL,
            _ => self,
        }
    }

    /// A row's vector, of length one, from its halves of length one.
    pub fn row(&self, halves: &[&[f32]]) -> Vec<f32> {
        let part = (self.halves.len() as f32).sqrt().recip();
        let numbers = halves.iter().flat_map(|half| half.iter());
        numbers.map(|x| x * part).collect()
    }

    /// A question's vector from its halves of length one: its product with a row's vector is the mean
    /// of the cosines by their shares. A half whose model is gone is none, and the others share its
    /// part.
    pub fn question(&self, halves: &[Option<&[f32]>]) -> Vec<f32> {
        let present = self.halves.iter().zip(halves).filter(|(_, h)| h.is_some());
        let shares: f32 = present.map(|(half, _)| half.share).sum();
        let whole = (self.halves.len() as f32).sqrt();
        let mut vector = Vec::with_capacity(self.dimensions());
        for (half, numbers) in self.halves.iter().zip(halves) {
            match numbers {
                Some(numbers) => {
                    let part = half.share / shares * whole;
                    vector.extend(numbers.iter().map(|x| x * part));
                }
                None => vector.resize(vector.len() + DIMENSIONS, 0.0),
            }
        }
        vector
    }

    /// What one model said of a question, of length one, out of the vector of all; none when it took
    /// no part.
    pub fn half(&self, model: Model, question: &[f32]) -> Option<Vec<f32>> {
        let at = self.models().position(|one| one == model)?;
        let mut half = question.chunks(DIMENSIONS).nth(at)?.to_vec();
        normalise(&mut half);
        half.iter().any(|x| *x != 0.0).then_some(half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(at: usize, towards: usize, cosine: f32) -> Vec<f32> {
        let mut vector = vec![0.0; DIMENSIONS];
        vector[at] = cosine;
        vector[towards] = (1.0 - cosine * cosine).sqrt();
        vector
    }

    fn dot(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn what_is_installed_says_which_generation_is_wanted() {
        for (installed, wanted) in [
            (&[][..], None),
            (&[Model::MiniLm], Some(&MINILM)),
            (&[Model::BgeSmall], Some(&BGE_SMALL)),
            (&[Model::BgeSmall, Model::MiniLm], Some(&BOTH)),
        ] {
            assert_eq!(Generation::wanted(installed), wanted, "{installed:?}");
        }
    }

    #[test]
    fn of_two_generations_one_is_better_so_that_nobody_switches_back_and_forth() {
        for (better, worse) in [
            (&BOTH, &MINILM),
            (&BOTH, &BGE_SMALL),
            (&MINILM, &BGE_SMALL),
            (&MINILM, &FIRST),
            (&BGE_SMALL, &FIRST),
        ] {
            assert!(better.is_better_than(worse), "{} {}", better.id, worse.id);
            assert!(!worse.is_better_than(better), "{} {}", worse.id, better.id);
            assert!(!better.is_better_than(better));
        }
    }

    #[test]
    fn a_generation_is_found_by_the_id_on_its_vectors_and_shares_make_one() {
        for generation in [&BOTH, &MINILM, &BGE_SMALL, &FIRST] {
            assert_eq!(Generation::of(generation.id), Some(generation));
            let shares: f32 = generation.halves.iter().map(|half| half.share).sum();
            assert!((shares - 1.0).abs() < 1e-6, "{}", generation.id);
        }
        assert_eq!(Generation::of("some-other-model"), None);
        assert_eq!((BOTH.dimensions(), MINILM.dimensions()), (768, 384));
        assert!(FIRST.halves[0].exact && !MINILM.halves[0].exact);
        for model in Model::ALL {
            assert_eq!(Model::from_name(model.name()), Some(model));
        }
    }

    #[test]
    fn where_one_model_is_gone_cosines_lie_on_the_scale_of_the_other() {
        let asked = unit(0, 1, 1.0);
        let (here, gone) = (Some(asked.as_slice()), None);
        for (generation, halves, scale) in [
            (&BOTH, &[here, here][..], &BOTH),
            (&BOTH, &[here, gone], &MINILM),
            (&BOTH, &[gone, here], &BGE_SMALL),
            (&FIRST, &[here], &FIRST),
        ] {
            let question = generation.question(halves);
            assert_eq!(generation.heard_by(&question), scale, "{halves:?}");
        }
    }

    #[test]
    fn the_product_of_a_question_and_a_row_is_the_mean_of_the_cosines_by_share() {
        let asked = unit(0, 1, 1.0);
        let (near, far) = (unit(0, 1, 0.8), unit(0, 1, 0.2));
        let row = BOTH.row(&[&near, &far]);
        assert!((dot(&row, &row) - 1.0).abs() < 1e-5, "of length one");
        let [first, second] = [BOTH.halves[0].share, BOTH.halves[1].share];
        let question = BOTH.question(&[Some(&asked), Some(&asked)]);
        assert_eq!(question.len(), BOTH.dimensions());
        let mean = 0.8 * first + 0.2 * second;
        assert!((dot(&question, &row) - mean).abs() < 1e-5);
        for (halves, cosine) in [
            ([Some(asked.as_slice()), None], 0.8),
            ([None, Some(asked.as_slice())], 0.2),
        ] {
            let one = dot(&BOTH.question(&halves), &row);
            assert!(
                (one - cosine).abs() < 1e-5,
                "the other model is gone: {one}"
            );
        }
        assert_eq!(MINILM.row(&[&near]), near);
        assert_eq!(MINILM.question(&[Some(&near)]), near);
    }
}
