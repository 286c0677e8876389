//! How a model tells positions apart.

/// Which elements of a head RoPE rotates together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// `x[i]` with `x[i + n/2]`.
    Neox,
    /// `x[2i]` with `x[2i + 1]`.
    Norm,
}

/// How positions turn into angles: pair `i` of `dims / 2` turns by
/// `position / scale * base^(-2 i / dims)`, divided by `rope_freqs[i]` where the file has that tensor;
/// [`Yarn`] does so for the slow pairs only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// The pairing.
    pub style: RopeStyle,
    /// Elements of a head that are rotated; the rest is left alone.
    pub dims: usize,
    /// Frequency base.
    pub base: f32,
    /// Positions are divided by this (1 without scaling).
    pub scale: f32,
    /// Which pairs are scaled, and by how much all are stretched; `None`: all of them, by nothing.
    pub yarn: Option<Yarn>,
}

/// YaRN: pairs that turn often within the original context keep their angles, those that turn less than once are
/// scaled, and those between are mixed. Source: Peng et al., arXiv 2309.00071, with ggml's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// Positions that the model was first trained with.
    pub original_context: u32,
    /// How much of the unscaled angle the fast pairs take (1: all).
    pub ext_factor: f32,
    /// Cosines and sines are multiplied by this, and by `1 + 0.1 ln(scale)`.
    pub attn_factor: f32,
    /// Pairs that turn more often than this are not scaled.
    pub beta_fast: f32,
    /// Pairs that turn less often than this are scaled fully.
    pub beta_slow: f32,
}
