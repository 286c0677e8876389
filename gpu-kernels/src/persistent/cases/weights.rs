//! The weights of a case.

use super::taken;
use crate::cases::{Bench, Failure, Rng, Tensor, refused};
use crate::format::Format;
use crate::layer::Layer;
use crate::persistent::{Instance, Matrix, Sizes};
use crate::rope::rope_tables;
use warpsmith_device::U32x4;

/// A matrix, or some of its rows.
pub struct MatrixBuffers<B: Bench> {
    pub format: Format,
    pub rows: u32,
    pub records: B::Buffer<U32x4>,
    pub bias: Option<B::Buffer<f32>>,
}

impl<B: Bench> MatrixBuffers<B> {
    pub fn matrix(&self) -> Matrix<'_> {
        Matrix { format: self.format, rows: self.rows, records: &self.records, bias: self.bias.as_deref() }
    }
}

/// What both ways are given.
pub struct Weights<B: Bench> {
    pub qkv: Vec<MatrixBuffers<B>>,
    /// Output, gate and up, down.
    pub others: [MatrixBuffers<B>; 3],
    pub norms: [B::Buffer<f32>; 2],
    pub heads: [B::Buffer<f32>; 2],
    pub cos: B::Buffer<f32>,
    pub sin: B::Buffer<f32>,
}

/// The formats of a layer's matrices, and how many of the heads' rows each part of queries, keys and values has.
pub struct Kinds {
    pub qkv: Vec<(Format, u32)>,
    pub others: [Format; 3],
}

impl Kinds {
    /// Those of the layer with a number.
    pub fn new((instance, format): (Instance, Format), mixed: usize, layer: &Layer, number: usize) -> Kinds {
        let taken = taken(instance);
        let first = taken.iter().position(|f| *f == format).unwrap_or(0);
        let of = |matrix: usize| taken[(first + mixed * (matrix + number)) % taken.len()];
        let (q, kv) = (layer.q_heads * layer.head_dim, layer.kv_heads * layer.head_dim);
        let rows = match mixed {
            0 => vec![q + 2 * kv],
            1 => vec![q + kv, kv],
            _ => vec![q, kv, kv],
        };
        let qkv = rows.into_iter().enumerate().map(|(i, rows)| (of(i), rows)).collect();
        Kinds { qkv, others: [3, 4, 5].map(of) }
    }
}

impl<B: Bench> Weights<B> {
    pub fn new(
        bench: &mut B,
        rng: &mut Rng,
        kinds: &Kinds,
        (layer, sizes): (&Layer, &Sizes),
        bias: bool,
    ) -> Result<Weights<B>, Failure> {
        let matrix = |bench: &mut B, rng: &mut Rng, format: Format, rows: u32, cols: u32| {
            let t = Tensor::random(rng, format, rows as usize, cols as usize);
            let records = format.repack(&t.bytes, rows as usize, cols as usize).map_err(refused)?;
            Ok::<_, Failure>(MatrixBuffers::<B> { format, rows, records: bench.upload(&records)?, bias: None })
        };
        let (hidden, inner) = (sizes.hidden, sizes.feed_forward);
        let (q, dim) = (layer.q_heads * layer.head_dim, layer.head_dim as usize);
        let tables = rope_tables(layer.context as usize, layer.n_rot as usize, 1e4, None, 1.0);
        let mut qkv = Vec::new();
        for (format, rows) in &kinds.qkv {
            let mut part = matrix(bench, rng, *format, *rows, hidden)?;
            if bias {
                part.bias = Some(bench.upload(&rng.floats(*rows as usize))?);
            }
            qkv.push(part);
        }
        let [output, gate_up, down] = kinds.others;
        Ok(Weights {
            qkv,
            others: [
                matrix(bench, rng, output, hidden, q)?,
                matrix(bench, rng, gate_up, 2 * inner, hidden)?,
                matrix(bench, rng, down, hidden, inner)?,
            ],
            norms: [bench.upload(&rng.floats(hidden as usize))?, bench.upload(&rng.floats(hidden as usize))?],
            heads: [bench.upload(&rng.floats(dim))?, bench.upload(&rng.floats(dim))?],
            cos: bench.upload(&tables.cos)?,
            sin: bench.upload(&tables.sin)?,
        })
    }
}
