//! What is done to activations row by row, on as wide a vector unit as the machine has.
//!
//! The loops are plain; `wide` compiles each of them once for every instruction
//! set. Lanes are summed in a fixed order, so that a row's numbers do not depend
//! on the rows beside it.

use rten_simd::{Isa, SimdOp, SimdUnaryOp};
use rten_vecmath::{Gelu, Softmax};

/// Numbers that are worked on side by side; rows are whole multiples of it.
pub(crate) const LANES: usize = 16;

/// Runs a loop with the instructions of this machine.
#[inline(always)]
fn wide<R>(run: impl FnOnce() -> R) -> R {
    struct Wide<F>(F);
    impl<R, F: FnOnce() -> R> SimdOp for Wide<F> {
        type Output = R;
        #[inline(always)]
        fn eval<I: Isa>(self, _: I) -> R {
            (self.0)()
        }
    }
    Wide(run).dispatch()
}

/// Rows as whole numbers from 0 to `levels`, with each row's step and zero.
#[derive(Default)]
pub(crate) struct Quantised {
    pub codes: Vec<u8>,
    pub steps: Vec<f32>,
    pub zeros: Vec<i32>,
}

/// What pushes a small float's whole part to the end of its bits.
const ROUND: f32 = 12_582_912.0;

impl Quantised {
    pub fn fill(&mut self, rows: &[f32], width: usize, levels: u8) {
        self.codes.resize(rows.len(), 0);
        self.steps.clear();
        self.zeros.clear();
        let levels = f32::from(levels);
        wide(
            #[inline(always)]
            || {
                let rows = rows.chunks_exact(width);
                for (row, codes) in rows.zip(self.codes.chunks_exact_mut(width)) {
                    let (mut least, mut most) = ([0f32; LANES], [0f32; LANES]);
                    for lanes in row.as_chunks::<LANES>().0 {
                        for l in 0..LANES {
                            least[l] = if lanes[l] < least[l] {
                                lanes[l]
                            } else {
                                least[l]
                            };
                            most[l] = if lanes[l] > most[l] {
                                lanes[l]
                            } else {
                                most[l]
                            };
                        }
                    }
                    let least = least.into_iter().fold(0f32, f32::min);
                    let most = most.into_iter().fold(0f32, f32::max);
                    let step = ((most - least) / levels).max(f32::MIN_POSITIVE);
                    let zero = (-least / step).round().clamp(0.0, levels);
                    let per = 1.0 / step;
                    let (codes, _) = codes.as_chunks_mut::<LANES>();
                    for (lanes, codes) in row.as_chunks::<LANES>().0.iter().zip(codes) {
                        for l in 0..LANES {
                            let code = lanes[l] * per + zero;
                            let code = if code < 0.0 { 0.0 } else { code };
                            let code = if code > levels { levels } else { code };
                            codes[l] = (code + ROUND).to_bits() as u8;
                        }
                    }
                    self.steps.push(step);
                    self.zeros.push(zero as i32);
                }
            },
        );
    }
}

/// What the columns of a matrix make of whole numbers.
pub(crate) struct Columns {
    /// What a whole number is worth.
    pub scales: Vec<f32>,
    /// The sum of the column's own numbers: how often a row's zero was counted.
    pub sums: Vec<i32>,
    pub bias: Vec<f32>,
}

impl Quantised {
    /// Sums of products as what they are worth, with the bias.
    pub fn restore(&self, sums: &[i32], columns: &Columns, out: &mut [f32]) {
        let width = columns.scales.len();
        let each = columns.scales.iter().zip(&columns.sums).zip(&columns.bias);
        wide(
            #[inline(always)]
            || {
                let rows = sums.chunks_exact(width).zip(out.chunks_exact_mut(width));
                for ((sums, out), (step, zero)) in rows.zip(self.steps.iter().zip(&self.zeros)) {
                    let numbers = out.iter_mut().zip(sums).zip(each.clone());
                    for ((out, sum), ((scale, zeros), bias)) in numbers {
                        *out = (*sum - *zero * *zeros) as f32 * (*step * *scale) + *bias;
                    }
                }
            },
        );
    }
}

pub(crate) fn gelu(values: &mut [f32]) {
    Gelu {}.map_mut(values);
}

/// Adds `more` to each row, then gives the row the mean nought and the variance one, then
/// `weight` and `bias`.
pub(crate) fn add_and_norm(rows: &mut [f32], more: &[f32], weight: &[f32], bias: &[f32]) {
    let width = weight.len();
    wide(
        #[inline(always)]
        || {
            for (row, more) in rows.chunks_exact_mut(width).zip(more.chunks_exact(width)) {
                let mut sums = [0f32; LANES];
                let added = row.as_chunks_mut::<LANES>().0.iter_mut();
                for (lanes, more) in added.zip(more.as_chunks::<LANES>().0) {
                    for l in 0..LANES {
                        lanes[l] += more[l];
                        sums[l] += lanes[l];
                    }
                }
                let mean = sums.iter().sum::<f32>() / width as f32;
                let mut squares = [0f32; LANES];
                for lanes in row.as_chunks::<LANES>().0 {
                    for l in 0..LANES {
                        let off = lanes[l] - mean;
                        squares[l] += off * off;
                    }
                }
                let variance = squares.iter().sum::<f32>() / width as f32;
                let per = 1.0 / (variance + 1e-12).sqrt();
                for ((x, weight), bias) in row.iter_mut().zip(weight).zip(bias) {
                    *x = (*x - mean) * per * *weight + *bias;
                }
            }
        },
    );
}

/// Room for one text's attention.
#[derive(Default)]
pub(crate) struct Scratch {
    keys: Vec<f32>,
    values: Vec<f32>,
    weights: Vec<f32>,
}

/// Tokens whose attention is worked out side by side, so that what they look at is read once.
const TOGETHER: usize = 4;

/// Each token of one text looks at all others, head by head. `qkv` holds queries, keys and values
/// side by side; `HEAD` is the width of a head.
pub(crate) fn attend<const HEAD: usize>(
    qkv: &[f32],
    width: usize,
    out: &mut [f32],
    scratch: &mut Scratch,
) {
    let tokens = out.len() / width;
    // Keys lie column by column, padded to whole lanes.
    let padded = tokens.next_multiple_of(LANES);
    let Scratch {
        keys,
        values,
        weights,
    } = scratch;
    for (room, numbers) in [
        (&mut *keys, HEAD * padded),
        (&mut *values, HEAD * tokens),
        (&mut *weights, tokens * padded),
    ] {
        room.clear();
        room.resize(numbers, 0.0);
    }
    for head in 0..width / HEAD {
        let at = head * HEAD;
        wide(
            #[inline(always)]
            || {
                for (t, token) in qkv.chunks_exact(3 * width).enumerate() {
                    for (d, key) in token[width + at..][..HEAD].iter().enumerate() {
                        keys[d * padded + t] = *key;
                    }
                    let value = &token[2 * width + at..][..HEAD];
                    values[t * HEAD..][..HEAD].copy_from_slice(value);
                }
                let mut t = 0;
                while t + TOGETHER <= tokens {
                    look::<HEAD, TOGETHER>(
                        &qkv[t * 3 * width + at..],
                        width,
                        keys,
                        &mut weights[t * padded..],
                        padded,
                    );
                    t += TOGETHER;
                }
                while t < tokens {
                    look::<HEAD, 1>(
                        &qkv[t * 3 * width + at..],
                        width,
                        keys,
                        &mut weights[t * padded..],
                        padded,
                    );
                    t += 1;
                }
            },
        );
        for weights in weights.chunks_exact_mut(padded) {
            Softmax::new_mut(&mut weights[..tokens]).dispatch();
        }
        wide(
            #[inline(always)]
            || {
                let mut t = 0;
                while t + TOGETHER <= tokens {
                    gather::<HEAD, TOGETHER>(
                        &weights[t * padded..],
                        padded,
                        values,
                        &mut out[t * width + at..],
                        width,
                    );
                    t += TOGETHER;
                }
                while t < tokens {
                    gather::<HEAD, 1>(
                        &weights[t * padded..],
                        padded,
                        values,
                        &mut out[t * width + at..],
                        width,
                    );
                    t += 1;
                }
            },
        );
    }
}

/// How much some tokens make of each token.
#[inline(always)]
fn look<const HEAD: usize, const ROWS: usize>(
    queries: &[f32],
    width: usize,
    keys: &[f32],
    weights: &mut [f32],
    padded: usize,
) {
    let scale = 1.0 / (HEAD as f32).sqrt();
    let mut query = [[0f32; HEAD]; ROWS];
    for (r, query) in query.iter_mut().enumerate() {
        query.copy_from_slice(&queries[r * 3 * width..][..HEAD]);
    }
    for block in (0..padded).step_by(LANES) {
        let mut sums = [[0f32; LANES]; ROWS];
        for d in 0..HEAD {
            let Some(keys) = keys[d * padded + block..].first_chunk::<LANES>() else {
                continue;
            };
            for r in 0..ROWS {
                for l in 0..LANES {
                    sums[r][l] += query[r][d] * keys[l];
                }
            }
        }
        for r in 0..ROWS {
            let weights = &mut weights[r * padded + block..][..LANES];
            for l in 0..LANES {
                weights[l] = sums[r][l] * scale;
            }
        }
    }
}

/// What some tokens take from each token.
#[inline(always)]
fn gather<const HEAD: usize, const ROWS: usize>(
    weights: &[f32],
    padded: usize,
    values: &[f32],
    out: &mut [f32],
    width: usize,
) {
    for block in (0..HEAD).step_by(LANES) {
        let mut sums = [[0f32; LANES]; ROWS];
        for (t, value) in values.as_chunks::<HEAD>().0.iter().enumerate() {
            let Some(value) = value[block..].first_chunk::<LANES>() else {
                continue;
            };
            for r in 0..ROWS {
                let weight = weights[r * padded + t];
                for l in 0..LANES {
                    sums[r][l] += weight * value[l];
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            out[r * width + block..][..LANES].copy_from_slice(sums);
        }
    }
}
