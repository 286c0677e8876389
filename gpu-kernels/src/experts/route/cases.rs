//! The cases of this kernel.

use super::{BIASED, Choice, NORMALISE, Route, SHARED, SIGMOID, WHOLE, reference};
use crate::cases::{Bench, Listed, NamedSizes, Outcome, Plain, Rng, Shape, close, same};

/// The experts of each column.
pub struct Routes;

/// Flags of a case of that number: each function with and without a shared expert of either kind.
fn flags_of(i: usize) -> u32 {
    [0, SIGMOID, NORMALISE, SIGMOID | NORMALISE][i % 4] | [SHARED, 0, WHOLE][i / 2 % 3]
}

impl Plain for Routes {
    const SIZES: NamedSizes =
        &[("columns", 1), ("n", 128), ("used", 8), ("flags", 2), ("alike", 0), ("groups", 1), ("groups_used", 1)];

    fn kernels() -> Vec<Listed> {
        vec![Listed::by_bytes::<Route<'_>>()]
    }

    fn shapes() -> Vec<Vec<usize>> {
        let sizes = [
            [1, 1, 1],
            [3, 2, 1],
            [2, 8, 2],
            [1, 31, 31],
            [2, 32, 32],
            [3, 33, 5],
            [1, 128, 8],
            [5, 384, 6],
            [1, 1000, 32],
        ];
        let mut all = Vec::new();
        for (i, size) in sizes.into_iter().enumerate() {
            // Logits apart, and of few values, so that many tie.
            all.extend((0..4).map(|flags| {
                let shared = if (i + flags) % 3 == 0 { SHARED as usize } else { 0 };
                [&size[..], &[flags | shared, usize::from((i + flags).is_multiple_of(2)), 1, 1]].concat()
            }));
        }
        // With biases, of all and of groups.
        let sizes = [
            [1, 1, 1, 1, 1],
            [2, 9, 4, 1, 1],
            [3, 64, 6, 1, 1],
            [2, 4, 2, 2, 1],
            [1, 24, 24, 4, 4],
            [4, 40, 5, 8, 3],
            [2, 64, 32, 32, 16],
            [1, 256, 8, 8, 4],
        ];
        for (i, [columns, n, used, groups, taken]) in sizes.into_iter().enumerate() {
            all.extend((0..4).map(|j| {
                let biased = if groups == 1 || j % 2 == 0 { BIASED } else { 0 };
                // Ties are found among groups of equal experts; beside biases there are none that rounding does not make.
                let alike = usize::from(biased == 0 && j == 3);
                vec![columns, n, used, (flags_of(i + j) | biased) as usize, alike, groups, taken]
            }));
        }
        all
    }

    fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        let [columns, n, used, flags, alike] = shape.sizes(["columns", "n", "used", "flags", "alike"])?;
        let [groups, taken] = shape.sizes(["groups", "groups_used"])?;
        let (stride, flags, scale) = (n + 3, flags as u32, 1.5);
        let (biased, product) = (flags & BIASED != 0, usize::from(flags & SHARED != 0));
        // Softmaxes and sigmoids whose differences f32 can tell, where these are what is compared.
        let spread = if biased || groups > 1 { 3.0 } else { 9.0 };
        let mut logits = vec![f32::NAN; columns * stride];
        for column in logits.chunks_exact_mut(stride) {
            for v in &mut column[..n + product] {
                *v = if alike != 0 { (rng.unit() * 2.0).round() * 0.5 } else { rng.unit() * spread };
            }
        }
        let bias = if biased { rng.floats(n) } else { Vec::new() };
        let (x, b) = (bench.upload(&logits)?, bench.upload(&bias)?);
        let shared = flags & (SHARED | WHOLE) != 0;
        let (mut chosen, mut weights) =
            (bench.output::<u32>(columns * used)?, bench.output::<f32>(columns * (used + usize::from(shared)))?);
        bench.launch(Route {
            logits: &x,
            bias: &b,
            chosen: &mut chosen,
            weights: &mut weights,
            n: n as u32,
            used: used as u32,
            stride: stride as u32,
            flags,
            groups: groups as u32,
            groups_used: taken as u32,
            scale,
        })?;
        let choice = Choice { bias: &bias, groups: (groups, taken) };
        let want = logits.chunks_exact(stride).flat_map(|v| reference(&v[..n], choice, used, flags, scale));
        let (experts, mut numbers): (Vec<u32>, Vec<f64>) = want.unzip();
        let of_shared = |v: &[f32]| if product == 0 { 1.0 } else { 1.0 / (1.0 + (-f64::from(v[n])).exp()) };
        numbers.extend(logits.chunks_exact(stride).filter(|_| shared).map(of_shared));
        same(&bench.read(&chosen)?, &experts)?;
        close(&bench.read(&weights)?, &numbers, |i| 2e-6 * numbers[i].abs() + 1e-37)
    }
}
