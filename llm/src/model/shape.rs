//! Shapes of real models, for everything that is measured or projected without their files.

use super::{Architecture, Config, LayerKinds, Rope};

/// The numbers of a published model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelShape {
    /// As options and reports have it, such as `8b`.
    pub name: &'static str,
    /// Whose it is, such as `Qwen3 8B`.
    pub title: &'static str,
    architecture: Architecture,
    /// Number of layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward part.
    pub feed_forward: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Tokens.
    pub vocab: usize,
    /// The output projection is the embedding table.
    pub tied: bool,
    context: usize,
    rope_base: f32,
}

/// A matrix that a step multiplies with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProductShape {
    /// Its part of a step: `qkv`, `o`, `gate-up`, `down` or `head`.
    pub part: &'static str,
    /// Outputs. Of gate and up, which become one output by SwiGLU, those of one of them.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// Whether it is gates and as many ups.
    pub swiglu: bool,
}

impl ProductShape {
    /// Rows of the matrix.
    #[must_use]
    pub fn weight_rows(&self) -> usize {
        if self.swiglu { 2 * self.rows } else { self.rows }
    }

    /// Weights of the matrix.
    #[must_use]
    pub fn weights(&self) -> u64 {
        self.weight_rows() as u64 * self.cols as u64
    }
}

/// A model with a context of 40960 positions, a vocabulary of 151936 tokens and 8 key heads of 128 elements.
const fn qwen3(
    (name, title): (&'static str, &'static str),
    [layers, hidden, feed_forward, heads]: [usize; 4],
    tied: bool,
) -> ModelShape {
    ModelShape {
        name,
        title,
        architecture: Architecture::Qwen3,
        layers,
        hidden,
        feed_forward,
        heads,
        kv_heads: 8,
        head_dim: 128,
        vocab: 151_936,
        tied,
        context: 40_960,
        rope_base: 1e6,
    }
}

impl ModelShape {
    /// The dense models of Qwen3 up to 8 billion weights, after which products are measured and held to budgets.
    pub const QWEN3: [ModelShape; 4] = [
        qwen3(("0.6b", "Qwen3 0.6B"), [28, 1024, 3072, 16], true),
        qwen3(("1.7b", "Qwen3 1.7B"), [28, 2048, 6144, 16], true),
        qwen3(("4b", "Qwen3 4B"), [36, 2560, 9728, 32], true),
        qwen3(("8b", "Qwen3 8B"), [36, 4096, 12_288, 32], false),
    ];
    /// Llama 3 of 8 billion weights.
    pub const LLAMA3_8B: ModelShape = ModelShape {
        name: "llama3-8b",
        title: "Llama 3 8B",
        architecture: Architecture::Llama,
        layers: 32,
        hidden: 4096,
        feed_forward: 14_336,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        vocab: 128_256,
        tied: false,
        context: 8192,
        rope_base: 5e5,
    };

    /// All of them.
    pub fn all() -> impl Iterator<Item = &'static ModelShape> {
        const { &ModelShape::QWEN3 }.iter().chain([const { &ModelShape::LLAMA3_8B }])
    }

    /// The one of that [name](ModelShape::name), whatever the case of its letters; `qwen3-` may stand before it.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static ModelShape> {
        let name = name.to_lowercase();
        let name = name.strip_prefix("qwen3-").unwrap_or(&name);
        ModelShape::all().find(|shape| shape.name == name)
    }

    /// Its numbers as a file's keys would give them.
    #[must_use]
    pub fn config(&self) -> Config {
        let style = self.architecture.rope_style();
        Config {
            architecture: self.architecture,
            name: Some(self.title.to_owned()),
            layers: self.layers,
            hidden: self.hidden,
            feed_forward: self.feed_forward,
            experts: None,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            vocab: self.vocab,
            context: self.context,
            eps: 1e-6,
            rope: Rope { style, dims: self.head_dim, base: self.rope_base, scale: 1.0, yarn: None },
            window: 0,
            kinds: LayerKinds::default(),
            delta: None,
            score_scale: 1.0 / (self.head_dim as f64).sqrt(),
            score_cap: 0.0,
            logit_cap: 0.0,
            logit_scale: 1.0,
            embedding_scale: 1.0,
            parallel: false,
        }
    }

    /// The products of a step, in its order: those of a layer, and the head.
    #[must_use]
    pub fn products(&self) -> [ProductShape; 5] {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let of = |part, rows, cols| ProductShape { part, rows, cols, swiglu: part == "gate-up" };
        [
            of("qkv", q + 2 * kv, self.hidden),
            of("o", self.hidden, q),
            of("gate-up", self.feed_forward, self.hidden),
            of("down", self.hidden, self.feed_forward),
            of("head", self.vocab, self.hidden),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights of the matrices of layers and of the embedding, in billions.
    fn weights(shape: &ModelShape) -> (f64, f64) {
        let [layer @ .., head] = shape.products();
        let layers = shape.layers as u64 * layer.iter().map(ProductShape::weights).sum::<u64>();
        let tables = head.weights() * if shape.tied { 1 } else { 2 };
        (layers as f64 / 1e9, (layers + tables) as f64 / 1e9)
    }

    #[test]
    fn models_have_as_many_weights_as_their_cards_say() {
        // "Number of Parameters (Non-Embedding)" and "Number of Parameters" of the model cards.
        let cards =
            [("0.6b", 0.44, 0.6), ("1.7b", 1.4, 1.7), ("4b", 3.6, 4.0), ("8b", 6.95, 8.2), ("llama3-8b", 6.98, 8.03)];
        for (name, layers, all) in cards {
            let (of_layers, of_all) = weights(ModelShape::find(name).unwrap());
            assert!((of_layers / layers - 1.0).abs() < 0.02, "{name}: {of_layers}");
            assert!((of_all / all - 1.0).abs() < 0.02, "{name}: {of_all}");
        }
        assert_eq!(cards.len(), ModelShape::all().count());
    }

    #[test]
    fn names_are_found_in_any_case() {
        let title = |name| ModelShape::find(name).map(|s| s.title);
        assert_eq!(
            (title("8B"), title("Qwen3-0.6B"), title("Llama3-8b")),
            (Some("Qwen3 8B"), Some("Qwen3 0.6B"), Some("Llama 3 8B"))
        );
        assert_eq!((title("70b"), title("qwen3-70b")), (None, None));
    }
}
