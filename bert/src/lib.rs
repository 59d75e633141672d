//! A BERT encoder: tokens in, one vector a text out.
//!
//! Weights are read out of the ONNX files that hold them as int8 and are packed
//! once. Tokens of all texts go through each matrix together, without padding;
//! activations are quantised token by token and attention stays within a text, so
//! that a text's vector does not depend on what else is asked for.

mod onnx;
mod rows;

use rayon::prelude::*;
use rows::{Columns, LANES, Quantised, Scratch, add_and_norm, attend, gelu};
use rten_gemm::{GemmExecutor, GemmInputA, GemmInputB, GemmOptions, PackedBMatrix};
use rten_tensor::NdTensorView;

/// Width of one attention head in the models that are read here.
const HEAD: usize = 32;
/// Tokens that go through the matrices together: enough to keep the kernels busy, few enough that what
/// they make of them stays near the processor.
const GROUP_TOKENS: usize = 256;
/// Matrices of one layer, in the order of the file: query, key, value, output, up, down.
const LAYER_MATRICES: usize = 6;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the model's weights cannot be read: {0}")]
    Weights(String),
    #[error("the model failed: {0}")]
    Run(String),
}

/// How matrices are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Weights as they are stored, activations quantised on the way.
    Int8,
    /// Weights and activations as floats: slower, exact.
    F32,
}

/// What becomes of the tokens' last states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean of all tokens.
    Mean,
    /// The first token's.
    First,
}

pub struct Bert {
    width: usize,
    words: Table,
    /// Position by position, the type of the only segment added.
    positions: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
    pooling: Pooling,
}

/// Rows of whole numbers and what they are worth.
struct Table {
    codes: Vec<i8>,
    /// One for all rows, or one a row.
    scales: Vec<f32>,
    zero: f32,
}

struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

struct Layer {
    /// Queries, keys and values side by side.
    qkv: Linear,
    out: Linear,
    out_norm: Norm,
    up: Linear,
    down: Linear,
    down_norm: Norm,
}

struct Linear {
    weights: Packed,
    columns: Columns,
}

enum Packed {
    Int8(PackedBMatrix<i8>),
    F32(PackedBMatrix<f32>),
}

/// Room that one run of the model works in.
#[derive(Default)]
struct Room {
    quantised: Quantised,
    sums: Vec<i32>,
    attention: Scratch,
}

/// Matrix kernels of this machine.
struct Kernels {
    int8: GemmExecutor<u8, i8, i32>,
    f32: GemmExecutor<f32, f32, f32>,
    /// The largest activation that no kernel of this machine overflows with.
    levels: u8,
}

impl Kernels {
    fn new() -> Self {
        let int8 = GemmExecutor::<u8, i8, i32>::default();
        // Without VNNI two products are added in sixteen bits, which hold them only up to 127.
        let levels = if int8.may_saturate() { 127 } else { 255 };
        Self {
            int8,
            f32: GemmExecutor::default(),
            levels,
        }
    }
}

impl Bert {
    /// Reads the weights of an ONNX file.
    pub fn read(file: &[u8], pooling: Pooling, arithmetic: Arithmetic) -> Result<Self, Error> {
        let weights = Weights(onnx::tensors(file)?);
        let kernels = Kernels::new();
        let norm = weights.norm("embeddings.LayerNorm")?;
        let width = norm.weight.len();
        if width == 0 || width % HEAD != 0 || width % LANES != 0 {
            return Err(Error::Weights(format!("a width of {width} is not known")));
        }
        let words = weights.table("embeddings.word_embeddings.weight")?;
        let mut positions = weights.rows("embeddings.position_embeddings.weight", width)?;
        let kinds = weights.rows("embeddings.token_type_embeddings.weight", width)?;
        for row in positions.chunks_exact_mut(width) {
            row.iter_mut().zip(&kinds).for_each(|(x, kind)| *x += kind);
        }
        let matrices = weights.matrices();
        let layers = matrices
            .chunks_exact(LAYER_MATRICES)
            .enumerate()
            .map(|(number, matrices)| {
                let name = |part: &str| format!("encoder.layer.{number}.{part}");
                let linear = |matrices: &[&onnx::Tensor<'_>], parts: &[&str]| {
                    let biases = parts.iter().map(|part| name(part)).collect::<Vec<_>>();
                    weights.linear(&kernels, arithmetic, matrices, &biases)
                };
                let attention = [
                    "attention.self.query.bias",
                    "attention.self.key.bias",
                    "attention.self.value.bias",
                ];
                Ok(Layer {
                    qkv: linear(&matrices[..3], &attention)?,
                    out: linear(&matrices[3..4], &["attention.output.dense.bias"])?,
                    out_norm: weights.norm(&name("attention.output.LayerNorm"))?,
                    up: linear(&matrices[4..5], &["intermediate.dense.bias"])?,
                    down: linear(&matrices[5..6], &["output.dense.bias"])?,
                    down_norm: weights.norm(&name("output.LayerNorm"))?,
                })
            })
            .collect::<Result<Vec<_>, Error>>()?;
        if layers.is_empty() {
            return Err(Error::Weights("there are no layers".into()));
        }
        Ok(Self {
            width,
            words,
            positions,
            norm,
            layers,
            pooling,
        })
    }

    /// Numbers in a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The vectors of some texts, each of length one, on the threads of the pool that this runs in.
    /// Between any two small groups of texts it asks for leave to go on.
    pub fn embed(
        &self,
        texts: &[Vec<u32>],
        leave: &(dyn Fn() + Sync),
    ) -> Result<Vec<Vec<f32>>, Error> {
        let threads = rayon::current_num_threads();
        if threads < 2 || texts.len() < 2 {
            return self.in_groups(texts, leave);
        }
        // Texts need nothing of each other: each thread takes its share of them.
        let share = texts.len().div_ceil(threads);
        let shares = texts.par_chunks(share);
        let shares: Result<Vec<_>, Error> =
            shares.map(|texts| self.in_groups(texts, leave)).collect();
        Ok(shares?.into_iter().flatten().collect())
    }

    fn in_groups(
        &self,
        texts: &[Vec<u32>],
        leave: &(dyn Fn() + Sync),
    ) -> Result<Vec<Vec<f32>>, Error> {
        let mut vectors = Vec::with_capacity(texts.len());
        let mut rest = texts;
        while !rest.is_empty() {
            let mut tokens = 0;
            let fits = |text: &&Vec<u32>| {
                tokens += text.len();
                tokens <= GROUP_TOKENS
            };
            let (group, after) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            leave();
            vectors.extend(self.run(group)?);
            rest = after;
        }
        Ok(vectors)
    }

    fn run(&self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, Error> {
        let (kernels, mut room) = (Kernels::new(), Room::default());
        let width = self.width;
        let mut lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
        let mut hidden = self.look_up(texts)?;
        let (mut qkv, mut attended) = (Vec::new(), Vec::new());
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for (number, layer) in self.layers.iter().enumerate() {
            layer.qkv.run(&kernels, &hidden, &mut qkv, &mut room)?;
            attended.resize(hidden.len(), 0.0);
            let mut at = 0;
            for length in &lengths {
                let tokens = at..at + length;
                at = tokens.end;
                attend::<HEAD>(
                    &qkv[3 * width * tokens.start..3 * width * tokens.end],
                    width,
                    &mut attended[width * tokens.start..width * tokens.end],
                    &mut room.attention,
                );
            }
            // Of the last layer only what is pooled is wanted.
            if number + 1 == self.layers.len() && self.pooling == Pooling::First {
                hidden = firsts(&hidden, &lengths, width);
                attended = firsts(&attended, &lengths, width);
                lengths.fill(1);
            }
            layer.out.run(&kernels, &attended, &mut down, &mut room)?;
            let norm = &layer.out_norm;
            add_and_norm(&mut hidden, &down, &norm.weight, &norm.bias);
            layer.up.run(&kernels, &hidden, &mut up, &mut room)?;
            gelu(&mut up);
            layer.down.run(&kernels, &up, &mut down, &mut room)?;
            let norm = &layer.down_norm;
            add_and_norm(&mut hidden, &down, &norm.weight, &norm.bias);
        }
        let mut rest = hidden.as_slice();
        let pooled = lengths.iter().map(|length| {
            let (text, after) = rest.split_at(length * width);
            rest = after;
            self.pool(text)
        });
        Ok(pooled.collect())
    }

    fn look_up(&self, texts: &[Vec<u32>]) -> Result<Vec<f32>, Error> {
        let width = self.width;
        let known = self.words.codes.len() / width;
        let mut hidden = Vec::new();
        let mut places = Vec::new();
        for text in texts {
            if text.is_empty() || text.len() * width > self.positions.len() {
                return Err(Error::Run(format!("a text has {} tokens", text.len())));
            }
            places.extend_from_slice(&self.positions[..text.len() * width]);
            for token in text {
                let token = *token as usize;
                if token >= known {
                    return Err(Error::Run(format!("there is no token {token}")));
                }
                let start = hidden.len();
                hidden.resize(start + width, 0.0);
                self.words.add(token, &mut hidden[start..]);
            }
        }
        add_and_norm(&mut hidden, &places, &self.norm.weight, &self.norm.bias);
        Ok(hidden)
    }

    fn pool(&self, states: &[f32]) -> Vec<f32> {
        let mut vector = vec![0f32; self.width];
        let counted = match self.pooling {
            Pooling::Mean => states,
            Pooling::First => &states[..self.width],
        };
        for state in counted.chunks_exact(self.width) {
            for (sum, x) in vector.iter_mut().zip(state) {
                *sum += x;
            }
        }
        let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        if length > 0.0 {
            vector.iter_mut().for_each(|x| *x /= length);
        }
        vector
    }
}

/// The first row of each text.
fn firsts(rows: &[f32], lengths: &[usize], width: usize) -> Vec<f32> {
    let mut firsts = Vec::with_capacity(lengths.len() * width);
    let mut at = 0;
    for length in lengths {
        firsts.extend_from_slice(&rows[at * width..(at + 1) * width]);
        at += length;
    }
    firsts
}

impl Table {
    fn add(&self, row: usize, to: &mut [f32]) {
        let scale = match self.scales.as_slice() {
            [one] => *one,
            each => each.get(row).copied().unwrap_or_default(),
        };
        let codes = &self.codes[row * to.len()..(row + 1) * to.len()];
        for (to, code) in to.iter_mut().zip(codes) {
            *to += (f32::from(*code) - self.zero) * scale;
        }
    }
}

impl Linear {
    fn run(
        &self,
        kernels: &Kernels,
        rows: &[f32],
        out: &mut Vec<f32>,
        room: &mut Room,
    ) -> Result<(), Error> {
        let failed = |e: rten_gemm::GemmError| Error::Run(e.to_string());
        let columns = self.columns.scales.len();
        match &self.weights {
            Packed::Int8(weights) => {
                let (depth, count) = (weights.rows(), rows.len() / weights.rows());
                room.quantised.fill(rows, depth, kernels.levels);
                room.sums.resize(count * columns, 0);
                out.resize(count * columns, 0.0);
                let quantised = &room.quantised;
                // The kernels take a zero a row as well, but of the first few rows only.
                let options = GemmOptions::default();
                let codes = NdTensorView::from_data([count, depth], quantised.codes.as_slice());
                let weights = GemmInputB::Packed(weights);
                let sums = &mut room.sums;
                let done = kernels
                    .int8
                    .gemm(sums, GemmInputA::Unpacked(codes), weights, options);
                done.map_err(failed)?;
                quantised.restore(sums, &self.columns, out);
            }
            Packed::F32(weights) => {
                let (depth, count) = (weights.rows(), rows.len() / weights.rows());
                out.resize(count * columns, 0.0);
                let options = GemmOptions {
                    bias: Some(rten_gemm::BiasVector::Row(&self.columns.bias)),
                    ..GemmOptions::default()
                };
                let rows = GemmInputA::Unpacked(NdTensorView::from_data([count, depth], rows));
                let done = kernels
                    .f32
                    .gemm(out, rows, GemmInputB::Packed(weights), options);
                done.map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// The tensors of a file by the names that matter here.
struct Weights<'a>(Vec<onnx::Tensor<'a>>);

impl<'a> Weights<'a> {
    fn find(&self, name: &str) -> Option<&onnx::Tensor<'a>> {
        let named = |t: &&onnx::Tensor<'a>| t.name.strip_prefix("inner.").unwrap_or(t.name) == name;
        self.0.iter().find(named)
    }

    fn get(&self, name: &str) -> Result<&onnx::Tensor<'a>, Error> {
        self.find(name)
            .ok_or_else(|| Error::Weights(format!("there is no {name}")))
    }

    fn norm(&self, name: &str) -> Result<Norm, Error> {
        Ok(Norm {
            weight: self.get(&format!("{name}.weight"))?.floats()?,
            bias: self.get(&format!("{name}.bias"))?.floats()?,
        })
    }

    /// A table that is added to others, as floats.
    fn rows(&self, name: &str, width: usize) -> Result<Vec<f32>, Error> {
        if let Some(floats) = self.find(name) {
            return floats.floats();
        }
        let table = self.table(name)?;
        let mut rows = vec![0.0; table.codes.len()];
        for (at, row) in rows.chunks_exact_mut(width).enumerate() {
            table.add(at, row);
        }
        Ok(rows)
    }

    /// Rows that are looked up: with a scale a row, or with one scale and zero for all.
    fn table(&self, name: &str) -> Result<Table, Error> {
        let scales = || self.get(&format!("{name}_scale"))?.floats();
        if let Some(codes) = self.find(&format!("{name}_q")) {
            return Ok(Table {
                codes: codes.codes()?,
                scales: scales()?,
                zero: 0.0,
            });
        }
        let zero = self.get(&format!("{name}_zero_point"))?.codes()?;
        Ok(Table {
            codes: self.get(&format!("{name}_quantized"))?.codes()?,
            scales: scales()?,
            zero: zero.first().copied().map_or(0.0, f32::from),
        })
    }

    /// The matrices that activations go through, in order.
    fn matrices(&self) -> Vec<&onnx::Tensor<'a>> {
        let is_matrix = |t: &&onnx::Tensor<'a>| {
            t.is_int8() && t.dims.len() == 2 && !t.name.contains("embeddings")
        };
        self.0.iter().filter(is_matrix).collect()
    }

    /// One matrix, or several side by side.
    fn linear(
        &self,
        kernels: &Kernels,
        arithmetic: Arithmetic,
        matrices: &[&onnx::Tensor<'a>],
        biases: &[String],
    ) -> Result<Linear, Error> {
        let (mut scales, mut bias) = (Vec::new(), Vec::new());
        let depth = matrices[0].dims[0];
        let columns: usize = matrices.iter().map(|m| m.dims[1]).sum();
        let mut codes = vec![0i8; depth * columns];
        for (matrix, name) in matrices.iter().zip(biases) {
            let stem = matrix.name.trim_end_matches("_quantized");
            let stem = stem.strip_suffix("_q").unwrap_or(stem);
            let zeros = match self.find(&format!("{stem}_zero_point")) {
                Some(zeros) => zeros.codes()?,
                None => Vec::new(),
            };
            let (own, width) = (matrix.codes()?, matrix.dims[1]);
            let own_scales = self.get(&format!("{stem}_scale"))?.floats()?;
            let own_bias = self.get(name)?.floats()?;
            let fits = matrix.dims[0] == depth
                && own.len() == depth * width
                && own_scales.len() == width
                && own_bias.len() == width
                && zeros.iter().all(|zero| *zero == 0);
            if !fits {
                return Err(Error::Weights(format!("{} has another form", matrix.name)));
            }
            let at = scales.len();
            for (to, from) in codes.chunks_exact_mut(columns).zip(own.chunks_exact(width)) {
                to[at..at + width].copy_from_slice(from);
            }
            scales.extend(own_scales);
            bias.extend(own_bias);
        }
        let weights = match arithmetic {
            Arithmetic::Int8 => {
                let codes = NdTensorView::from_data([depth, columns], codes.as_slice());
                Packed::Int8(kernels.int8.prepack_b(codes))
            }
            Arithmetic::F32 => {
                let floats = codes.chunks_exact(columns);
                let floats: Vec<f32> = floats
                    .flat_map(|row| row.iter().zip(&scales).map(|(c, s)| f32::from(*c) * s))
                    .collect();
                let floats = NdTensorView::from_data([depth, columns], floats.as_slice());
                Packed::F32(kernels.f32.prepack_b(floats))
            }
        };
        let mut sums = vec![0i32; columns];
        for row in codes.chunks_exact(columns) {
            for (sum, code) in sums.iter_mut().zip(row) {
                *sum += i32::from(*code);
            }
        }
        let columns = Columns { scales, sums, bias };
        Ok(Linear { weights, columns })
    }
}
