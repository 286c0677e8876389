//! What several test files share: golden data and synthetic models.
#![allow(dead_code)]

pub mod families;
pub mod folder;
pub mod hybrids;
pub mod layer_normed;
pub mod mixtures;

use gpu_kernels::cases::make_sized;
use gpu_kernels::format::Format;
use std::path::PathBuf;
use warpsmith_host::gguf::{Gguf, GgufWriter, TensorType};
use warpsmith_host::model::ModelFile;

/// The prompt of the golden models: "Hi, GPU!".
pub const PROMPT: [u32; 8] = [72, 105, 44, 32, 71, 80, 85, 33];
/// `greedy_next_8` of the golden data's manifest, the same for both models.
pub const GREEDY: [u32; 8] = [196, 201, 145, 231, 30, 187, 191, 250];
/// `logits_std` of the manifest.
pub const STD_F16: f64 = 2.9752472178778167;
/// `logits_std` of the manifest.
pub const STD_Q4_0: f64 = 2.998918247857855;

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub fn f16_path() -> PathBuf {
    root().join("tests/data/tiny-qwen3-f16.gguf")
}

pub fn q4_0_path() -> PathBuf {
    root().join("tests/data/tiny-qwen3-q4_0.gguf")
}

/// A golden array of f64.
pub fn golden(name: &str) -> Vec<f64> {
    read_f64(&root().join("tests/data").join(name))
}

pub fn read_f64(path: &std::path::Path) -> Vec<f64> {
    let bytes = std::fs::read(path).unwrap();
    bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect()
}

/// A small deterministic generator (splitmix64).
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Roughly normal. Whole models are made of it: where it is compiled here, nothing is optimised.
    pub fn normal(&mut self) -> f64 {
        let mut rng = gpu_kernels::cases::Rng(self.0);
        let n = rng.normal();
        self.0 = rng.0;
        n
    }
}

/// A synthetic model.
#[derive(Clone, Debug)]
pub struct Synthetic {
    pub architecture: &'static str,
    pub layers: usize,
    pub hidden: usize,
    pub feed_forward: usize,
    /// Experts of a layer, and those of a token; none: the feed-forward part is dense.
    pub experts: Option<(usize, usize)>,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub vocab: usize,
    pub context: usize,
    pub tied: bool,
    pub rope_freqs: bool,
    pub linear_scale: Option<f32>,
    /// How much larger than the others a channel of every normed activation is.
    pub outlier: f32,
    /// Positions that a token attends to; 0: the key is not there.
    pub window: usize,
    /// Of Qwen3.5 and Qwen3-Next: key heads, value heads and their elements in layers that are delta nets: all but every so manieth.
    pub delta: [usize; 3],
    pub interval: usize,
    /// Taken in turn by the matrices in the order they are written.
    pub formats: Vec<Format>,
    pub seed: u64,
}

impl Default for Synthetic {
    fn default() -> Self {
        Synthetic {
            architecture: "qwen3",
            layers: 2,
            hidden: 128,
            feed_forward: 256,
            experts: None,
            heads: 4,
            kv_heads: 2,
            head_dim: 64,
            vocab: 96,
            context: 64,
            tied: false,
            rope_freqs: false,
            linear_scale: None,
            outlier: 1.0,
            window: 0,
            delta: [2, 4, 32],
            interval: 2,
            formats: vec![Format::Q4_0],
            seed: 1,
        }
    }
}

pub fn tensor_type(f: Format) -> TensorType {
    *TensorType::ALL.iter().find(|t| t.name() == f.name()).unwrap()
}

/// Random blocks whose weights have about the standard deviation `std`: codes are random bits, so that
/// the bytes owe nothing to an encoder.
pub fn random_matrix(rng: &mut Rng, f: Format, rows: usize, cols: usize, std: f64) -> Vec<u8> {
    assert_eq!(cols % f.block_elems(), 0, "{f} rows of {cols}");
    let mut out = Vec::with_capacity(rows * cols / f.block_elems() * f.block_bytes());
    for _ in 0..rows * cols / f.block_elems() {
        match f {
            Format::F32 => out.extend(((rng.normal() * std) as f32).to_le_bytes()),
            Format::F16 => out.extend(half::f16::from_f64(rng.normal() * std).to_le_bytes()),
            Format::BF16 => out.extend(half::bf16::from_f64(rng.normal() * std).to_le_bytes()),
            _ => {
                let mut block: Vec<u8> = (0..f.block_bytes()).map(|_| rng.next() as u8).collect();
                let sign = if rng.below(8) == 0 && f != Format::TQ2_0_G128 { -1.0 } else { 1.0 };
                make_sized(f, &mut block, sign * std * (0.75 + rng.unit() / 2.0));
                out.extend(block);
            }
        }
    }
    out
}

fn qkv_biases(w: &mut GgufWriter, rng: &mut Rng, layer: usize, lengths: [usize; 3]) {
    for (part, n) in ["attn_q", "attn_k", "attn_v"].into_iter().zip(lengths) {
        bias(w, rng, format!("blk.{layer}.{part}"), &[n]);
    }
}

fn bias(w: &mut GgufWriter, rng: &mut Rng, name: String, size: &[usize]) {
    let values: Vec<f32> = (0..size.iter().product()).map(|_| (0.3 * rng.normal()) as f32).collect();
    let dims: Vec<u64> = size.iter().map(|n| *n as u64).collect();
    w.tensor_f32(name + ".bias", &dims, &values).unwrap();
}

/// Writes a matrix: a tensor's name, rows, columns, and how large its weights are.
type Matrix<'a> = dyn FnMut(&mut GgufWriter, &mut Rng, String, usize, usize, f64) + 'a;

impl Synthetic {
    /// A file with its keys.
    fn keys(&self) -> GgufWriter {
        let a = self.architecture;
        let mut w = GgufWriter::new();
        w.key("general.architecture", a)
            .key("general.name", format!("synthetic {}", self.seed))
            .key(format!("{a}.block_count"), self.layers as u32)
            .key(format!("{a}.embedding_length"), self.hidden as u32)
            .key(format!("{a}.feed_forward_length"), self.dense_width() as u32)
            .key(format!("{a}.context_length"), self.context as u32)
            .key(format!("{a}.attention.head_count"), self.heads as u32)
            .key(format!("{a}.attention.head_count_kv"), self.kv_heads as u32)
            .key(format!("{a}.attention.key_length"), self.head_dim as u32)
            .key(format!("{a}.attention.value_length"), self.head_dim as u32)
            .key(format!("{a}.attention.layer_norm_rms_epsilon"), 1e-5f32)
            .key(format!("{a}.rope.freq_base"), 10000f32);
        if let Some(s) = self.linear_scale {
            w.key(format!("{a}.rope.scaling.type"), "linear").key(format!("{a}.rope.scaling.factor"), s);
        }
        if self.window > 0 {
            w.key(format!("{a}.attention.sliding_window"), self.window as u32);
        }
        self.expert_keys(&mut w);
        self.delta_keys(&mut w);
        self.family_keys(&mut w);
        if let Some(kind) = layer_normed::kind(a) {
            layer_normed::keys(&mut w, a, kind);
        }
        w
    }

    /// Four key heads, and widths that four ranks can share; of the head the last has fewer rows than the others.
    pub fn divisible() -> Synthetic {
        let formats = vec![Format::Q8_0];
        Synthetic { heads: 8, kv_heads: 4, hidden: 256, feed_forward: 512, vocab: 98, formats, ..Default::default() }
    }

    pub fn writer(&self) -> GgufWriter {
        let (a, mut rng, mut w) = (self.architecture, Rng(self.seed), self.keys());
        let mut formats = self.formats.iter().copied().cycle();
        let mut matrix = |w: &mut GgufWriter, rng: &mut Rng, name: String, rows: usize, cols: usize, gain: f64| {
            let f = formats.next().unwrap();
            let data = random_matrix(rng, f, rows, cols, gain);
            w.tensor(&name, &self.dims(&name, rows, cols), tensor_type(f), data).unwrap();
        };
        let outlier = (self.hidden, self.outlier);
        let norm = |w: &mut GgufWriter, rng: &mut Rng, name: String, n: usize| {
            let mut v: Vec<f32> = (0..n).map(|_| (1.0 + 0.1 * rng.normal()) as f32).collect();
            if n == outlier.0 {
                v[n / 3] *= outlier.1;
            }
            w.tensor_f32(name, &[n as u64], &v).unwrap();
        };
        let (gpt_oss, delta, of) = (a == "gpt-oss", hybrids::has(a), families::family(a));
        let (h, q, kv) = (self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let per = |n: usize| 1.0 / (n as f64).sqrt();
        let embedding = if of.gemma { 1.5 * per(h) } else { 1.0 };
        matrix(&mut w, &mut rng, "token_embd.weight".into(), self.vocab, h, embedding);
        let layer_normed = self.layer_normed(&mut w, &mut rng, &mut matrix);
        for l in 0..if layer_normed { 0 } else { self.layers } {
            let name = |part: &str| format!("blk.{l}.{part}.weight");
            norm(&mut w, &mut rng, name("attn_norm"), h);
            let recurrent = delta && (l + 1) % self.interval != 0;
            let queries = if delta { 2 * q } else { q };
            if recurrent {
                self.delta_layer(&mut w, &mut rng, l, &mut matrix);
            } else if of.fused_qkv {
                matrix(&mut w, &mut rng, name("attn_qkv"), q + 2 * kv, h, per(h));
            } else {
                matrix(&mut w, &mut rng, name("attn_q"), queries, h, per(h));
                matrix(&mut w, &mut rng, name("attn_k"), kv, h, per(h));
                matrix(&mut w, &mut rng, name("attn_v"), kv, h, per(h));
            }
            if of.biases {
                qkv_biases(&mut w, &mut rng, l, [q, kv, kv]);
            }
            let normed = ["qwen3", "qwen3moe", "gemma3", "glm4moe", "dots1", "bailingmoe2"].contains(&a);
            if (normed || a.starts_with("hunyuan") || delta) && !recurrent {
                norm(&mut w, &mut rng, name("attn_q_norm"), self.head_dim);
                norm(&mut w, &mut rng, name("attn_k_norm"), self.head_dim);
            }
            if !recurrent {
                matrix(&mut w, &mut rng, name("attn_output"), h, q, per(q));
            }
            if of.post {
                norm(&mut w, &mut rng, name("post_attention_norm"), h);
                norm(&mut w, &mut rng, name("post_ffw_norm"), h);
            }
            norm(&mut w, &mut rng, name(if of.behind || delta { "post_attention_norm" } else { "ffn_norm" }), h);
            if gpt_oss {
                self.sinks_and_biases(&mut w, &mut rng, l);
            }
            if self.has_experts(l) {
                self.expert_layer(&mut w, &mut rng, l, &mut matrix);
                continue;
            }
            let f = self.dense_width();
            if of.fused_gates {
                matrix(&mut w, &mut rng, name("ffn_up"), 2 * f, h, 1.5 * per(h));
            } else {
                if !of.ungated {
                    matrix(&mut w, &mut rng, name("ffn_gate"), f, h, 1.5 * per(h));
                }
                matrix(&mut w, &mut rng, name("ffn_up"), f, h, per(h));
            }
            matrix(&mut w, &mut rng, name("ffn_down"), h, f, 1.5 * per(f));
        }
        if !layer_normed {
            norm(&mut w, &mut rng, "output_norm.weight".into(), h);
        }
        if self.rope_freqs {
            let v: Vec<f32> = (0..self.head_dim / 2).map(|i| 1.0 + i as f32 / 7.0).collect();
            w.tensor_f32("rope_freqs.weight", &[v.len() as u64], &v).unwrap();
        }
        if !self.tied {
            matrix(&mut w, &mut rng, "output.weight".into(), self.vocab, h, 3.0 * per(h));
        }
        w
    }

    /// What a layer of gpt-oss has beside the tensors of others.
    fn sinks_and_biases(&self, w: &mut GgufWriter, rng: &mut Rng, layer: usize) {
        let sinks: Vec<f32> = (0..self.heads).map(|_| rng.normal() as f32).collect();
        w.tensor_f32(format!("blk.{layer}.attn_sinks.weight"), &[self.heads as u64], &sinks).unwrap();
        let (count, h, f) = (self.experts.map_or(0, |(count, _)| count), self.hidden, self.feed_forward);
        bias(w, rng, format!("blk.{layer}.attn_output"), &[h]);
        bias(w, rng, format!("blk.{layer}.ffn_gate_inp"), &[count]);
        for (part, n) in [("gate", f), ("up", f), ("down", h)] {
            bias(w, rng, format!("blk.{layer}.ffn_{part}_exps"), &[n, count]);
        }
    }

    /// The shape of a tensor: those of experts have a matrix for each.
    fn dims(&self, name: &str, rows: usize, cols: usize) -> Vec<u64> {
        match self.experts {
            Some((count, _)) if name.contains("_exps") => vec![cols as u64, (rows / count) as u64, count as u64],
            _ => vec![cols as u64, rows as u64],
        }
    }

    pub fn file(&self) -> ModelFile {
        ModelFile::from_gguf(Gguf::from_bytes(self.writer().to_bytes()).unwrap()).unwrap()
    }
}

/// The greatest difference, and the root mean square of `want`.
pub fn worst(got: impl IntoIterator<Item = f64>, want: impl IntoIterator<Item = f64>) -> f64 {
    got.into_iter()
        .zip(want)
        .map(|(g, w)| if g.is_finite() { (g - w).abs() } else { f64::INFINITY })
        .fold(0.0, f64::max)
}

pub fn deviation(v: &[f64]) -> f64 {
    let mean = v.iter().sum::<f64>() / v.len() as f64;
    (v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / v.len() as f64).sqrt()
}
