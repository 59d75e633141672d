//! Texts become vectors: the tokenizers and networks of a generation.

use super::model::{self, Stamp};
use anyhow::{Context, Result};
use prism_bert::{Arithmetic, Bert, Pooling};
use prism_core::memory::generation::{Generation, Half, Model};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokenizers::{Tokenizer, TruncationDirection, TruncationParams, TruncationStrategy};

/// Tokens of one text; what MiniLM was trained to read at once.
const TOKENS_MAX: usize = 256;

/// One model in memory.
struct Network {
    model: Model,
    tokenizer: Tokenizer,
    bert: Bert,
}

/// The models of a home; each is loaded when it is first asked for.
pub struct Encoder {
    models: PathBuf,
    loaded: Mutex<HashMap<(Model, bool), Loaded>>,
}

/// A model that is there, or cannot be loaded: then it is looked at again when its files are others.
enum Loaded {
    Here(Arc<Network>),
    Broken { stamp: Stamp, reason: String },
}

/// A question's vectors, and who made them.
pub struct Questions {
    pub vectors: Vec<Vec<f32>>,
    /// The models that took part, and why another did not.
    pub models: Vec<&'static str>,
    pub lacks: Option<String>,
}

/// Why there are no vectors.
#[derive(Debug)]
pub enum Trouble {
    /// A model cannot be loaded: no text is to blame.
    Model(anyhow::Error),
    /// These texts cannot be embedded.
    Texts(anyhow::Error),
}

impl From<Trouble> for anyhow::Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Model(error) | Trouble::Texts(error) => error,
        }
    }
}

impl Encoder {
    /// An encoder of the models in this folder.
    pub fn new(models: &Path) -> Self {
        Self {
            models: models.to_owned(),
            loaded: Mutex::default(),
        }
    }

    /// The vectors of texts of rows, on the threads of the pool that this runs in. Between any two
    /// small groups of texts it asks for leave to go on.
    pub fn rows(
        &self,
        generation: &Generation,
        texts: &[String],
        leave: &(dyn Fn() + Sync),
    ) -> Result<Vec<Vec<f32>>, Trouble> {
        // A short row says the same as a whole and in its part; once is enough.
        let (mut different, mut places) = (Vec::new(), Vec::with_capacity(texts.len()));
        let mut known: HashMap<&str, usize> = HashMap::new();
        for text in texts {
            places.push(*known.entry(text).or_insert_with(|| {
                different.push(text.as_str());
                different.len() - 1
            }));
        }
        let mut halves = Vec::with_capacity(generation.halves.len());
        for half in generation.halves {
            let network = self.network(half).map_err(Trouble::Model)?;
            let vectors = network.embed(&different, leave);
            halves.push(vectors.map_err(Trouble::Texts)?);
        }
        let row = |at: usize| {
            let of_row: Vec<&[f32]> = halves.iter().map(|half| half[at].as_slice()).collect();
            generation.row(&of_row)
        };
        Ok(places.into_iter().map(row).collect())
    }

    /// The vectors of a question's phrasings, by these models of the generation. Where one of two is
    /// gone, the other answers.
    pub fn questions(
        &self,
        generation: &Generation,
        by: &[Model],
        texts: &[String],
    ) -> Result<Questions, Trouble> {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let ask = |half: &Half| {
            if !by.contains(&half.model) {
                let gone = anyhow::anyhow!("{} is not here", half.model.name());
                return Err(Trouble::Model(gone));
            }
            let network = self.network(half).map_err(Trouble::Model)?;
            network.embed(&texts, &|| ()).map_err(Trouble::Texts)
        };
        // Enough phrasings keep every thread busy with one model after the other. Side by side the
        // larger model would end on one thread, long after the smaller.
        let few = texts.len() < rayon::current_num_threads();
        let asked: Vec<Result<_, Trouble>> = match generation.halves {
            [first, second] if few => {
                let (first, second) = rayon::join(|| ask(first), || ask(second));
                vec![first, second]
            }
            halves => halves.iter().map(ask).collect(),
        };
        let mut halves = Vec::with_capacity(asked.len());
        let mut gone = None;
        for half in asked {
            match half {
                Ok(vectors) => halves.push(Some(vectors)),
                Err(Trouble::Model(reason)) => {
                    gone = Some(reason);
                    halves.push(None);
                }
                Err(trouble) => return Err(trouble),
            }
        }
        let lacks = match gone {
            Some(reason) if halves.iter().all(Option::is_none) => {
                return Err(Trouble::Model(reason));
            }
            gone => gone.map(|reason| format!("{reason:#}")),
        };
        let made = generation.halves.iter().zip(&halves);
        let made = made.filter(|(_, vectors)| vectors.is_some());
        let models = made.map(|(half, _)| half.model.name()).collect();
        let question = |at: usize| {
            let of_text: Vec<Option<&[f32]>> = halves
                .iter()
                .map(|half| half.as_ref().map(|vectors| vectors[at].as_slice()))
                .collect();
            generation.question(&of_text)
        };
        Ok(Questions {
            vectors: (0..texts.len()).map(question).collect(),
            models,
            lacks,
        })
    }

    /// A question as this model reads it.
    pub fn tokens(&self, half: &Half, question: &str) -> Result<Vec<u32>> {
        let network = self.network(half)?;
        network.tokens(question)
    }

    fn network(&self, half: &Half) -> Result<Arc<Network>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (half.model, half.exact);
        let stamp = || model::stamp(&self.models, half.model);
        match loaded.get(&key) {
            Some(Loaded::Here(network)) => return Ok(network.clone()),
            Some(Loaded::Broken {
                stamp: then,
                reason,
            }) if stamp() == *then => {
                anyhow::bail!("{reason}")
            }
            _ => {}
        }
        // Before it is read: what changes meanwhile is looked at again.
        let stamp = stamp();
        match Network::load(&self.models, half) {
            Ok(network) => {
                let network = Arc::new(network);
                loaded.insert(key, Loaded::Here(network.clone()));
                Ok(network)
            }
            Err(error) => {
                let reason = format!("{error:#}");
                loaded.insert(key, Loaded::Broken { stamp, reason });
                Err(error)
            }
        }
    }
}

impl Network {
    /// Loads a model, after reading and comparing all of it.
    fn load(models: &Path, half: &Half) -> Result<Self> {
        model::verify(models, half.model)?;
        let dir = model::within(models, half.model);
        let mut tokenizer = Tokenizer::from_file(dir.join("tokenizer.json"))
            .map_err(|e| anyhow::anyhow!("the tokenizer cannot be read: {e}"))?;
        // One of the files pads every text to 128 tokens; a short question would cost eight times too
        // much.
        tokenizer.with_padding(None);
        let truncation = TruncationParams {
            max_length: TOKENS_MAX,
            strategy: TruncationStrategy::LongestFirst,
            stride: 0,
            direction: TruncationDirection::Right,
        };
        tokenizer
            .with_truncation(Some(truncation))
            .map_err(|e| anyhow::anyhow!("the tokenizer refuses its settings: {e}"))?;
        let file = dir.join("model.onnx");
        let weights =
            std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let pooling = match half.model {
            Model::MiniLm => Pooling::Mean,
            Model::BgeSmall => Pooling::First,
        };
        let arithmetic = match half.exact {
            true => Arithmetic::F32,
            false => Arithmetic::Int8,
        };
        Ok(Self {
            model: half.model,
            tokenizer,
            bert: Bert::read(&weights, pooling, arithmetic)?,
        })
    }

    fn tokens(&self, text: &str) -> Result<Vec<u32>> {
        let encoded = self.tokenizer.encode(text, true);
        encoded
            .map(|encoded| encoded.get_ids().to_vec())
            .map_err(|e| anyhow::anyhow!("a text cannot be split into tokens: {e}"))
    }

    fn embed(&self, texts: &[&str], leave: &(dyn Fn() + Sync)) -> Result<Vec<Vec<f32>>> {
        let tokens = texts.iter().map(|text| self.tokens(text));
        let tokens = tokens.collect::<Result<Vec<_>>>()?;
        let vectors = self.bert.embed(&tokens, leave);
        vectors.with_context(|| format!("{} failed", self.model.name()))
    }
}
