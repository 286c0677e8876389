//! Layers of synthetic models that are gated delta nets.

use super::{Matrix, Rng, Synthetic};
use warpsmith_host::gguf::GgufWriter;

/// Whether an architecture has such layers.
pub fn has(architecture: &str) -> bool {
    ["qwen35", "qwen35moe", "qwen3next"].contains(&architecture)
}

impl Synthetic {
    pub(super) fn delta_keys(&self, w: &mut GgufWriter) {
        let a = self.architecture;
        if has(a) {
            let [key_heads, value_heads, dim] = self.delta.map(|n| n as u32);
            w.key(format!("{a}.ssm.conv_kernel"), 4u32)
                .key(format!("{a}.ssm.group_count"), key_heads)
                .key(format!("{a}.ssm.time_step_rank"), value_heads)
                .key(format!("{a}.ssm.state_size"), dim)
                .key(format!("{a}.ssm.inner_size"), value_heads * dim)
                .key(format!("{a}.full_attention_interval"), self.interval as u32);
        }
    }

    pub(super) fn delta_layer(&self, w: &mut GgufWriter, rng: &mut Rng, l: usize, matrix: &mut Matrix<'_>) {
        let ([key_heads, value_heads, dim], h) = (self.delta, self.hidden);
        let values = value_heads * dim;
        let channels = 2 * key_heads * dim + values;
        let factors = match self.architecture {
            "qwen3next" => vec![("ssm_ba", 2 * value_heads)],
            _ => vec![("ssm_beta", value_heads), ("ssm_alpha", value_heads)],
        };
        for (part, rows) in [("attn_qkv", channels), ("attn_gate", values)].into_iter().chain(factors) {
            matrix(w, rng, format!("blk.{l}.{part}.weight"), rows, h, 1.0 / (h as f64).sqrt());
        }
        matrix(w, rng, format!("blk.{l}.ssm_out.weight"), h, values, 1.0 / (values as f64).sqrt());
        let mut all = |n: usize, f: &dyn Fn(f64) -> f64| (0..n).map(|_| f(rng.normal()) as f32).collect::<Vec<f32>>();
        let conv = all(4 * channels, &|x| 0.6 * x);
        w.tensor_f32(format!("blk.{l}.ssm_conv1d.weight"), &[4, channels as u64], &conv).unwrap();
        let dt = all(value_heads, &|x| x - 1.0);
        w.tensor_f32(format!("blk.{l}.ssm_dt.bias"), &[value_heads as u64], &dt).unwrap();
        let a = all(value_heads, &|x| -(0.5 * x).exp());
        w.tensor_f32(format!("blk.{l}.ssm_a"), &[value_heads as u64], &a).unwrap();
        let norm = all(dim, &|x| 1.0 + 0.1 * x);
        w.tensor_f32(format!("blk.{l}.ssm_norm.weight"), &[dim as u64], &norm).unwrap();
    }
}
