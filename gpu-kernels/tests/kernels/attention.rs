use crate::machine::{Gpu, Rng, assert_close};
use gpu_kernels::attention::{self, AttnDecode, AttnDecodeF32, AttnScores, AttnSoftmax, AttnWeightedSum, Heads};
use gpu_kernels::state::Column;
use half::f16;
use warpsmith_device::Launcher;

struct Case {
    heads: Heads,
    q: Vec<f32>,
    k: Vec<f16>,
    v: Vec<f16>,
}

fn widen(v: &[f16]) -> Vec<f32> {
    v.iter().map(|v| v.to_f32()).collect()
}

impl Case {
    fn random(rng: &mut Rng, heads: Heads, size: f32) -> Case {
        let cache = (heads.kv_heads * heads.capacity * heads.head_dim) as usize;
        let q = rng.floats((heads.q_heads * heads.head_dim) as usize).iter().map(|v| v * size).collect();
        let mut halves = |n: usize| (0..n).map(|_| f16::from_f32(rng.unit() * 2.0)).collect();
        Case { heads, q, k: halves(cache), v: halves(cache) }
    }

    /// Runs all variants at a position and compares; returns the outputs of the one-launch kernels.
    fn check(&self, gpu: &mut Gpu, position: u32) -> (Vec<f32>, Vec<f32>) {
        let Heads { q_heads, kv_heads, head_dim, capacity } = self.heads;
        let length = (position as usize).saturating_add(1);
        let (k32, v32) = (widen(&self.k), widen(&self.v));
        let want = attention::reference(&self.q, &k32, &v32, length, self.heads);
        let scale = v32.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())));
        let (q, columns) = (gpu.upload(&self.q), gpu.upload(&[Column::at(0, position)]));
        let (k, v) = (gpu.upload(&self.k), gpu.upload(&self.v));
        let what = format!("{:?} position {position}", self.heads);

        let mut scores = gpu.poisoned::<f32>((q_heads * capacity) as usize);
        let mut y = gpu.poisoned::<f32>(self.q.len());
        gpu.launch(AttnScores {
            q: &q,
            k_cache: &k,
            scores: &mut scores,
            columns: &columns,
            q_heads,
            kv_heads,
            head_dim,
            capacity,
        })
        .unwrap();
        gpu.launch(AttnSoftmax { scores: &mut scores, columns: &columns, q_heads, capacity }).unwrap();
        gpu.launch(AttnWeightedSum {
            scores: &scores,
            v_cache: &v,
            y: &mut y,
            columns: &columns,
            q_heads,
            kv_heads,
            head_dim,
            capacity,
        })
        .unwrap();
        assert_close(&format!("three launches, {what}"), &gpu.read(&y), &want, |_| 2e-5 * scale);
        // Scores past the length are nobody's business.
        let untouched = gpu.read(&scores);
        for row in untouched.chunks_exact(capacity as usize) {
            assert!(row.iter().skip(length).all(|s| s.is_nan()), "{what}: scores past the length were written");
        }

        let mut y = gpu.poisoned::<f32>(self.q.len());
        gpu.launch(AttnDecode {
            q: &q,
            k_cache: &k,
            v_cache: &v,
            y: &mut y,
            columns: &columns,
            q_heads,
            kv_heads,
            head_dim,
            capacity,
        })
        .unwrap();
        let one = gpu.read(&y);
        assert_close(&format!("one launch, {what}"), &one, &want, |_| 2e-5 * scale);

        let (k, v) = (gpu.upload(&k32), gpu.upload(&v32));
        let mut y = gpu.poisoned::<f32>(self.q.len());
        gpu.launch(AttnDecodeF32 {
            q: &q,
            k_cache: &k,
            v_cache: &v,
            y: &mut y,
            columns: &columns,
            q_heads,
            kv_heads,
            head_dim,
            capacity,
        })
        .unwrap();
        let one32 = gpu.read(&y);
        assert_close(&format!("one launch, f32, {what}"), &one32, &want, |_| 2e-5 * scale);
        (one, one32)
    }
}

#[test]
fn every_position_of_a_short_cache() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(70));
    let case = Case::random(&mut rng, Heads { q_heads: 4, kv_heads: 2, head_dim: 64, capacity: 70 }, 1.0);
    // RZ-17: sequences of 1 to 17, then around groups of 32; the last position of the cache.
    for position in (0..18).chain([31, 32, 33, 63, 64, 65, 69]) {
        let (half, full) = case.check(&mut gpu, position);
        // The caches hold the same numbers, and the arithmetic is the same.
        assert_eq!(half, full);
    }
}

#[test]
fn scores_of_every_size() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(72));
    let heads = Heads { q_heads: 2, kv_heads: 1, head_dim: 64, capacity: 100 };
    // From a flat softmax to one position that takes all.
    for size in [0.0, 1e-3, 10.0, 100.0] {
        Case::random(&mut rng, heads, size).check(&mut gpu, 99);
    }
}

#[test]
fn ox_14_a_position_past_the_cache_reads_the_cache_only() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(73));
    let case = Case::random(&mut rng, Heads { q_heads: 2, kv_heads: 2, head_dim: 32, capacity: 9 }, 1.0);
    let (last, _) = case.check(&mut gpu, 8);
    for position in [9, 10, u32::MAX] {
        assert_eq!(case.check(&mut gpu, position).0, last);
    }
}

#[test]
fn long_context() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(74));
    let case = Case::random(&mut rng, Heads { q_heads: 2, kv_heads: 1, head_dim: 64, capacity: 2048 }, 3.0);
    case.check(&mut gpu, 2047);
    case.check(&mut gpu, 1000);
}
