//! Mixtures of experts of synthetic models.

use super::{Matrix, Rng, Synthetic, hybrids, tensor_type};
use warpsmith_host::gguf::GgufWriter;

/// What an architecture's mixtures have beside a router and experts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mixture {
    /// An expert of all tokens, twice as wide as another.
    pub shared: bool,
    /// It has a product of its own.
    pub gated: bool,
    /// The first layer of several has none.
    pub leading: bool,
    /// What choosing adds.
    pub bias: bool,
    /// A file says that weights are sigmoids.
    pub sigmoid: bool,
    /// Four groups, of two of which experts are chosen, where that many are used at most.
    pub groups: bool,
}

/// The architectures that have a mixture of experts in any file.
pub const ALL: [&str; 14] = [
    "qwen3moe",
    "gpt-oss",
    "qwen2moe",
    "qwen35moe",
    "qwen3next",
    "deepseek",
    "glm4moe",
    "dots1",
    "ernie4_5-moe",
    "bailingmoe",
    "bailingmoe2",
    "granitemoe",
    "hunyuan-moe",
    "llama4",
];

/// That of an architecture.
pub fn mixture(architecture: &str) -> Mixture {
    let plain = Mixture { shared: true, leading: true, ..Mixture::default() };
    match architecture {
        "qwen2moe" => Mixture { shared: true, gated: true, ..Mixture::default() },
        other if hybrids::has(other) => mixture("qwen2moe"),
        "deepseek" => plain,
        "glm4moe" | "ernie4_5-moe" => Mixture { bias: true, ..plain },
        "dots1" => Mixture { bias: true, sigmoid: true, ..plain },
        "bailingmoe" | "granitemoe" | "hunyuan-moe" | "llama4" => Mixture { leading: false, ..plain },
        "bailingmoe2" => Mixture { bias: true, sigmoid: true, groups: true, ..plain },
        _ => Mixture::default(),
    }
}

impl Synthetic {
    fn mixture(&self) -> Mixture {
        mixture(self.architecture)
    }

    /// Whether a layer has experts.
    pub fn has_experts(&self, layer: usize) -> bool {
        self.experts.is_some() && (layer > 0 || self.layers == 1 || !self.mixture().leading)
    }

    /// Width of layers without experts.
    pub fn dense_width(&self) -> usize {
        if self.experts.is_some() && self.mixture().leading { 2 * self.feed_forward } else { self.feed_forward }
    }

    /// The file with one tensor for the gates and ups of all experts of a layer, which are of one format.
    pub fn gates_and_ups_together(&self) -> GgufWriter {
        let (apart, mut w, format) = (self.file(), self.writer(), self.formats[0]);
        let count = self.experts.map_or(1, |(count, _)| count);
        for layer in (0..self.layers).filter(|layer| self.has_experts(*layer)) {
            let names = ["gate", "up"].map(|part| format!("blk.{layer}.ffn_{part}_exps.weight"));
            let all = names.each_ref().map(|name| apart.gguf().tensor(name).unwrap().data.to_vec().unwrap());
            let each = all[0].len() / count;
            let of_expert = |e: usize| all.iter().flat_map(move |of| of[e * each..(e + 1) * each].to_vec());
            let both = (0..count).flat_map(of_expert).collect();
            names.iter().for_each(|name| _ = w.remove_tensor(name));
            let dims = [self.hidden as u64, 2 * self.feed_forward as u64, count as u64];
            w.tensor(format!("blk.{layer}.ffn_gate_up_exps.weight"), &dims, tensor_type(format), both).unwrap();
        }
        w
    }

    pub(super) fn expert_keys(&self, w: &mut GgufWriter) {
        let (Some((count, used)), of) = (self.experts, self.mixture()) else { return };
        let key = |name| format!("{}.{name}", self.architecture);
        w.key(key("expert_count"), count as u32)
            .key(key("expert_used_count"), used as u32)
            .key(key("expert_feed_forward_length"), self.feed_forward as u32);
        if of.shared
            && (of.gated || ["ernie4_5-moe", "granitemoe", "hunyuan-moe", "llama4"].contains(&self.architecture))
        {
            w.key(key("expert_shared_feed_forward_length"), 2 * self.feed_forward as u32);
        } else if of.shared {
            w.key(key("expert_shared_count"), 2u32);
        }
        if of.leading && self.layers > 1 {
            w.key(key("leading_dense_block_count"), 1u32);
        }
        if of.sigmoid {
            w.key(key("expert_gating_func"), 2u32).key(key("expert_weights_norm"), true);
        }
        if of.groups && count.is_multiple_of(4) && count > 4 && used <= count / 2 {
            w.key(key("expert_group_count"), 4u32).key(key("expert_group_used_count"), 2u32);
        }
    }

    pub(super) fn expert_layer(&self, w: &mut GgufWriter, rng: &mut Rng, l: usize, matrix: &mut Matrix<'_>) {
        let (count, h, f) = (self.experts.map_or(0, |(count, _)| count), self.hidden, self.feed_forward);
        let (name, per) = (|part: &str| format!("blk.{l}.{part}.weight"), |n: usize| 1.0 / (n as f64).sqrt());
        let of = self.mixture();
        let floats =
            |rng: &mut Rng, n: usize, size: f64| (0..n).map(|_| (size * rng.normal()) as f32).collect::<Vec<_>>();
        let router = floats(rng, count * h, 2.0 * per(h));
        w.tensor_f32(name("ffn_gate_inp"), &[h as u64, count as u64], &router).unwrap();
        if of.bias {
            w.tensor_f32(format!("blk.{l}.exp_probs_b.bias"), &[count as u64], &floats(rng, count, 0.2)).unwrap();
        }
        matrix(w, rng, name("ffn_gate_exps"), count * f, h, 1.5 * per(h));
        matrix(w, rng, name("ffn_up_exps"), count * f, h, per(h));
        matrix(w, rng, name("ffn_down_exps"), count * h, f, 1.5 * per(f));
        if !of.shared {
            return;
        }
        if of.gated {
            w.tensor_f32(name("ffn_gate_inp_shexp"), &[h as u64], &floats(rng, h, 2.0 * per(h))).unwrap();
        }
        matrix(w, rng, name("ffn_gate_shexp"), 2 * f, h, 1.5 * per(h));
        matrix(w, rng, name("ffn_up_shexp"), 2 * f, h, per(h));
        matrix(w, rng, name("ffn_down_shexp"), h, 2 * f, 1.5 * per(2 * f));
    }
}
