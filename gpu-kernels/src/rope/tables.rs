//! Angles: the tables that the kernels read, and the definition in f64.

/// Cosines and sines of every position and pair.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTables {
    /// `[context, n_rot / 2]`
    pub cos: Vec<f32>,
    /// `[context, n_rot / 2]`
    pub sin: Vec<f32>,
}

/// YaRN: pairs that turn often within the original context keep their angles, those that turn less than once are scaled,
/// those between are mixed, and all are stretched a little. Source: Peng et al., arXiv 2309.00071; names, limits and the
/// stretch as in ggml's `rope_yarn` and `ggml_rope_yarn_corr_dims`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// Positions that the model was first trained with.
    pub original_context: f64,
    /// How much of the unscaled angle the fast pairs take (1: all); 0: linear scaling without stretch.
    pub ext_factor: f64,
    /// Cosines and sines are multiplied by this, and by `1 + 0.1 ln(linear)`.
    pub attn_factor: f64,
    /// Pairs that turn more often than this are not scaled.
    pub beta_fast: f64,
    /// Pairs that turn less often than this are scaled fully.
    pub beta_slow: f64,
}

/// How far pair `i` turns from one position to the next, and what its cosine and sine are multiplied by, in f64.
fn frequency(
    i: usize,
    n_rot: usize,
    base: f64,
    factors: Option<&[f32]>,
    linear: f64,
    yarn: Option<&Yarn>,
) -> (f64, f64) {
    let factor = factors.and_then(|f| f.get(i)).map_or(1.0, |f| f64::from(*f));
    let unscaled = base.powf(-2.0 * i as f64 / n_rot as f64) / factor;
    let Some(y) = yarn else { return (unscaled / linear, 1.0) };
    if y.ext_factor == 0.0 {
        return (unscaled / linear, y.attn_factor);
    }
    // The pair that turns `beta` times within the original context.
    let dims = n_rot as f64;
    let pair = |beta: f64| dims * (y.original_context / (beta * std::f64::consts::TAU)).ln() / (2.0 * base.ln());
    let (low, high) = (pair(y.beta_fast).floor().max(0.0), pair(y.beta_slow).ceil().min(dims - 1.0));
    let share = (1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0)) * y.ext_factor;
    (unscaled * ((1.0 - share) / linear + share), y.attn_factor * (1.0 + 0.1 * linear.ln()))
}

/// The tables that the kernels read: angles in f64, rounded once.
///
/// `factors` are the model's `rope_freqs` (`n_rot / 2` of them), `linear` its linear scaling factor
/// (1: none). Factors past the end of a list that is too short count as 1.
#[must_use]
pub fn rope_tables(context: usize, n_rot: usize, base: f64, factors: Option<&[f32]>, linear: f64) -> RopeTables {
    yarn_tables(context, n_rot, base, factors, linear, None)
}

/// As [`rope_tables`], with `linear` applied as YaRN does.
#[must_use]
pub fn yarn_tables(
    context: usize,
    n_rot: usize,
    base: f64,
    factors: Option<&[f32]>,
    linear: f64,
    yarn: Option<&Yarn>,
) -> RopeTables {
    let pairs: Vec<(f64, f64)> = (0..n_rot / 2).map(|i| frequency(i, n_rot, base, factors, linear, yarn)).collect();
    let len = context * pairs.len();
    let mut tables = RopeTables { cos: Vec::with_capacity(len), sin: Vec::with_capacity(len) };
    for position in 0..context {
        for (frequency, stretch) in &pairs {
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            tables.cos.push((cos * stretch) as f32);
            tables.sin.push((sin * stretch) as f32);
        }
    }
    tables
}

/// What the reference needs to know besides the data.
#[derive(Clone, Copy, Debug)]
pub struct Rotation<'a> {
    /// Elements of a head.
    pub head_dim: usize,
    /// Elements of a head that turn.
    pub n_rot: usize,
    /// Which elements form a pair.
    pub neox: bool,
    /// Base of the frequencies.
    pub base: f64,
    /// Divisors of the angles.
    pub factors: Option<&'a [f32]>,
    /// Linear scaling of positions.
    pub linear: f64,
    /// How it is applied, if not to all pairs alike.
    pub yarn: Option<Yarn>,
}

/// The definition in f64: every head of `x` turned, after the norm with `(weight, eps)` if there is one.
#[must_use]
pub fn reference(x: &[f32], position: usize, norm: Option<(&[f32], f32)>, r: &Rotation<'_>) -> Vec<f64> {
    let mut y = Vec::with_capacity(x.len());
    for head in x.chunks_exact(r.head_dim) {
        let mut v: Vec<f64> = head.iter().map(|v| f64::from(*v)).collect();
        if let Some((weight, eps)) = norm {
            let mean = v.iter().map(|v| v * v).sum::<f64>() / v.len() as f64;
            let scale = 1.0 / (mean + f64::from(eps)).sqrt();
            v.iter_mut().zip(weight).for_each(|(v, w)| *v *= scale * f64::from(*w));
        }
        for i in 0..r.n_rot / 2 {
            let (frequency, stretch) = frequency(i, r.n_rot, r.base, r.factors, r.linear, r.yarn.as_ref());
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            let (sin, cos) = (sin * stretch, cos * stretch);
            let (ia, ib) = if r.neox { (i, i + r.n_rot / 2) } else { (2 * i, 2 * i + 1) };
            let (a, b) = (v[ia], v[ib]);
            (v[ia], v[ib]) = (a * cos - b * sin, b * cos + a * sin);
        }
        y.extend(v);
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn vector<const N: usize, T>(name: &str, read: fn([u8; N]) -> T) -> Vec<T> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name);
        std::fs::read(path).unwrap().chunks_exact(N).map(|b| read(b.try_into().unwrap())).collect()
    }

    #[test]
    fn reference_equals_the_golden_vectors() {
        let x = vector("rope.x.f32", f32::from_le_bytes);
        for (neox, name) in [(true, "rope.neox.f64"), (false, "rope.norm.f64")] {
            let want = vector(name, f64::from_le_bytes);
            let r = Rotation { head_dim: 64, n_rot: 64, neox, base: 10000.0, factors: None, linear: 1.0, yarn: None };
            for (i, position) in [0, 1, 7, 100, 4095].into_iter().enumerate() {
                let range = i * 128..(i + 1) * 128;
                for (got, want) in reference(&x[range.clone()], position, None, &r).iter().zip(&want[range]) {
                    assert!((got - want).abs() < 1e-11, "{name} position {position}: {got} for {want}");
                }
            }
        }
    }

    #[test]
    fn tables_hold_the_angles() {
        let t = rope_tables(10, 8, 10000.0, Some(&[1.0, 2.0, 1.0, 4.0]), 2.0);
        assert_eq!(t.cos.len(), 40);
        assert_eq!((t.cos[0], t.sin[0]), (1.0, 0.0));
        // Position 6 / 2, pair 1 with factor 2: 3 * 10000^(-1/4) / 2 = 0.15.
        assert!((f64::from(t.sin[6 * 4 + 1]) - 0.15f64.sin()).abs() < 1e-8);
        assert!((f64::from(t.cos[6 * 4 + 3]) - (3.0 * 1e-3 / 4.0f64).cos()).abs() < 1e-7);
    }

    #[test]
    fn yarn_scales_the_slow_pairs() {
        // From the formulas of ggml's `rope_yarn` in Python, f64; positions, pairs and scalings on each side of the limits.
        let usual = |i, position, want| (i, position, 128, 1e6, 4.0, 1.0, (32768.0, 1.0, 1.0, 32.0, 1.0), want);
        let cases = [
            usual(0, 1000, (0.640341370518, 0.941509384968)),
            usual(20, 1000, (0.818350198206, 0.791694351298)),
            usual(25, 40000, (-0.375320984087, 1.074993558904)),
            usual(40, 40000, (-0.234554953634, 1.114208672784)),
            usual(63, 40000, (1.138541766953, 0.014129319986)),
            (7, 77, 64, 10000.0, 8.0, 1.5, (2048.0, 0.5, 0.8, 16.0, 2.0), (-0.733507726855, -0.629133551466)),
            (12, 77, 64, 10000.0, 8.0, 1.0, (2048.0, 0.0, 0.8, 16.0, 2.0), (0.763228944231, 0.239753161999)),
        ];
        for (i, position, n_rot, base, linear, factor, (original, ext, attn, fast, slow), want) in cases {
            let y = Yarn {
                original_context: original,
                ext_factor: ext,
                attn_factor: attn,
                beta_fast: fast,
                beta_slow: slow,
            };
            let (frequency, stretch) = frequency(i, n_rot, base, Some(&vec![factor; n_rot / 2]), linear, Some(&y));
            let (sin, cos) = (f64::from(position) * frequency).sin_cos();
            let (cos, sin): (f64, f64) = (cos * stretch, sin * stretch);
            let (c, s): (f64, f64) = want;
            // Angles of up to 4e4 lose five digits.
            assert!((cos - c).abs() < 1e-10 && (sin - s).abs() < 1e-10, "pair {i}: {cos} {sin} for {c} {s}");
        }
    }

    #[test]
    fn part_of_a_head_passes_through_after_the_norm() {
        let r = Rotation { head_dim: 6, n_rot: 2, neox: true, base: 10000.0, factors: None, linear: 1.0, yarn: None };
        let y = reference(&[3.0, 4.0, 0.0, 0.0, 5.0, -2.0], 0, Some((&[2.0; 6], 0.0)), &r);
        let scale = 2.0 / (54.0f64 / 6.0).sqrt();
        for (y, x) in y.iter().zip([3.0, 4.0, 0.0, 0.0, 5.0, -2.0]) {
            assert!((y - x * scale).abs() < 1e-12);
        }
    }
}
