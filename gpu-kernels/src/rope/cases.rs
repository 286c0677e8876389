//! The cases of these kernels.

use super::{QkNormRope, Rope, Rotation, Yarn, reference, yarn_tables};
use crate::cases::{Bench, Listed, Measured, NamedSizes, Outcome, Plain, Rng, Shape, close, why};
use crate::state::Column;

/// Heads of queries and of keys, elements of a head, and those of them that turn; whether pairs are halves; and a position.
fn shapes() -> impl Iterator<Item = ([usize; 4], usize, usize)> {
    let heads =
        [[4, 2, 64, 64], [1, 1, 2, 2], [5, 1, 128, 64], [3, 3, 80, 80], [2, 1, 96, 20], [9, 3, 256, 256], [1, 0, 6, 0]];
    let both = |(i, heads)| [0, 1].map(|neox| (heads, neox, (7 * i + 5 * neox) % 33));
    heads.into_iter().enumerate().flat_map(both)
}

/// Rotary embedding.
pub struct Rotations;

impl Plain for Rotations {
    const SIZES: NamedSizes = &[("heads", 16), ("head_dim", 128), ("n_rot", 128), ("neox", 1), ("position", 100)];

    fn kernels() -> Vec<Listed> {
        vec![Listed::unmeasured::<Rope<'_>>(why::SMALL)]
    }

    fn shapes() -> Vec<Vec<usize>> {
        shapes().map(|([q, k, dim, rot], neox, position)| vec![q + k, dim, rot, neox, position]).collect()
    }

    fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        run(false, shape, bench, rng)
    }
}

/// Norm of each head and rotary embedding.
pub struct NormedRotations;

impl Plain for NormedRotations {
    const SIZES: NamedSizes =
        &[("q_heads", 16), ("k_heads", 8), ("head_dim", 128), ("n_rot", 128), ("neox", 1), ("position", 100)];

    fn kernels() -> Vec<Listed> {
        vec![Listed::new::<QkNormRope<'_>>(Measured::By("rope"), Measured::Not(why::SMALL))]
    }

    fn shapes() -> Vec<Vec<usize>> {
        shapes().map(|([q, k, dim, rot], neox, position)| vec![q, k, dim, rot, neox, position]).collect()
    }

    fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        run(true, shape, bench, rng)
    }
}

fn run<B: Bench>(normed: bool, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
    let [q_heads, k_heads] = if normed { shape.sizes(["q_heads", "k_heads"])? } else { [shape.size("heads")?, 0] };
    let [head_dim, n_rot, neox, position] = shape.sizes(["head_dim", "n_rot", "neox", "position"])?;
    let (neox, eps, base, linear) = (neox != 0, 1e-6, 1e6, 2.0);
    let context = (position + 1).max(33);
    let factors: Vec<f32> = (0..n_rot / 2).map(|_| 1.0 + rng.unit().abs() * 7.0).collect();
    let yarn = neox.then_some(Yarn {
        original_context: 512.0,
        ext_factor: 0.9,
        attn_factor: 1.1,
        beta_fast: 32.0,
        beta_slow: 1.0,
    });
    let r = Rotation { head_dim, n_rot, neox, base, factors: Some(&factors), linear, yarn };
    let tables = yarn_tables(context, n_rot, base, Some(&factors), linear, yarn.as_ref());
    let x: Vec<f32> = rng.floats((q_heads + k_heads) * head_dim).iter().map(|v| v * 3.0).collect();
    let (cos, sin) = (bench.upload(&tables.cos)?, bench.upload(&tables.sin)?);
    let columns = bench.upload(&[Column::at(0, position as u32)])?;
    let (mut qk, stride) = (bench.upload(&x)?, x.len() as u32);
    let (head_dim32, n_rot, neox, context) = (head_dim as u32, n_rot as u32, u32::from(neox), context as u32);
    let want = if normed {
        let (wq, wk) = (rng.floats(head_dim), rng.floats(head_dim));
        let (q_weight, k_weight) = (bench.upload(&wq)?, bench.upload(&wk)?);
        bench.launch(QkNormRope {
            qk: &mut qk,
            q_weight: &q_weight,
            k_weight: &k_weight,
            cos: &cos,
            sin: &sin,
            columns: &columns,
            stride,
            q_heads: q_heads as u32,
            k_heads: k_heads as u32,
            head_dim: head_dim32,
            n_rot,
            neox,
            context,
            eps,
        })?;
        let (q, k) = x.split_at(q_heads * head_dim);
        let mut want = reference(q, position, Some((&wq, eps)), &r);
        want.extend(reference(k, position, Some((&wk, eps)), &r));
        want
    } else {
        let heads = q_heads as u32;
        let columns = &columns;
        bench.launch(Rope {
            qk: &mut qk,
            cos: &cos,
            sin: &sin,
            columns,
            stride,
            heads,
            head_dim: head_dim32,
            n_rot,
            neox,
            context,
        })?;
        reference(&x, position, None, &r)
    };
    close(&bench.read(&qk)?, &want, |_| 2e-6)
}
