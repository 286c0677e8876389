//! Layers of synthetic models that are gated delta nets.

use super::{Matrix, Rng, Synthetic, tensor_type};
use gpu_kernels::format::Format;
use warpsmith_host::gguf::{Gguf, GgufWriter};
use warpsmith_host::model::ModelFile;

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

    /// A file that has queries, keys, values and gates of a key head side by side (`ssm_in`), in blocks of Q8_0.
    #[allow(dead_code)]
    pub fn projected_by_key_heads(&self) -> ModelFile {
        let ([key_heads, value_heads, dim], hidden) = (self.delta, self.hidden);
        let (apart, mut w) = (self.file(), self.writer());
        let row = hidden / 32 * 34;
        for layer in (0..self.layers).filter(|layer| apart.config().is_recurrent(*layer)) {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            let all = |part: &str| apart.gguf().tensor(&name(part)).unwrap().data.to_vec().unwrap();
            let (qkv, z) = (all("attn_qkv"), all("attn_gate"));
            let (keys, each) = (key_heads * dim, value_heads / key_heads * dim);
            let mut together = Vec::new();
            for head in 0..key_heads {
                for (of, first, rows) in [
                    (&qkv, head * dim, dim),
                    (&qkv, keys + head * dim, dim),
                    (&qkv, 2 * keys + head * each, each),
                    (&z, head * each, each),
                ] {
                    together.extend_from_slice(&of[first * row..(first + rows) * row]);
                }
            }
            w.remove_tensor(&name("attn_qkv")).remove_tensor(&name("attn_gate"));
            let rows = (2 * keys + 2 * value_heads * dim) as u64;
            w.tensor(name("ssm_in"), &[hidden as u64, rows], tensor_type(Format::Q8_0), together).unwrap();
        }
        ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap()
    }
}
