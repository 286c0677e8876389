//! Cases: each kernel in the shapes that it has to get right, with the f64 reference that says what right is.
//!
//! Tests and `warpsmith check` go through the same list. A case is a kernel, or a chain of them, and a shape; what it runs
//! on is a [`Bench`]. Inputs come from a generator that the shape seeds, so a case gives the same bits every time.

mod attention;
mod codes;
mod data;
mod gemv;
mod layer;
mod run;
mod sampling;

use crate::format::Format;
use crate::kv::KvType;
use std::fmt;
use warpsmith_device::{DeviceSlice, Element, Launcher};

pub use attention::{StepArgs, Work, attend};
pub use data::{Rng, Tensor};
pub use gemv::{Inputs, Outputs, Product, multiply};

/// What a case runs on: device memory, and launches that have ended when the call returns.
pub trait Bench: Launcher<Error = String> {
    /// Device memory.
    type Buffer<T: Element>: std::ops::DerefMut<Target = DeviceSlice<T>>;
    /// A copy of `data` in device memory.
    fn upload<T: Element>(&mut self, data: &[T]) -> Result<Self::Buffer<T>, String>;
    /// Memory for an output: an element that is not written must show as NaN, or as undefined.
    fn output<T: Element>(&mut self, len: usize) -> Result<Self::Buffer<T>, String>;
    /// The contents of a buffer, all of which must be defined.
    fn read<T: Element>(&mut self, buffer: &Self::Buffer<T>) -> Result<Vec<T>, String>;
}

/// Why a case fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A launch, or an operation on memory, failed.
    Launch(String),
    /// A result is further from its reference than it may be.
    Wrong(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failure::Launch(text) | Failure::Wrong(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Failure {}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Launch(text)
    }
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The row of a token.
    Embed(Format),
    /// RMS norm, its first variant or the default.
    RmsNorm {
        /// The first variant.
        v1: bool,
    },
    /// Residual addition and RMS norm.
    AddRmsNorm,
    /// Matrix times vectors.
    Gemv {
        /// Of the weights.
        format: Format,
        /// The entry point.
        product: Product,
    },
    /// Rotary embedding.
    Rope,
    /// Norm of each head and rotary embedding.
    QkNormRope,
    /// Keys and values into a cache of f16, or of f32.
    KvStore {
        /// A cache of f32.
        f32: bool,
    },
    /// Attention in three launches.
    AttentionThree,
    /// Attention in one, over a cache of f16 or of f32.
    Attention {
        /// A cache of f32.
        f32: bool,
    },
    /// Norm, rotation and store of any number of columns.
    QkvStore(KvType),
    /// A decode step's attention, of any number of columns.
    AttentionStep(KvType),
    /// Attention of many tokens of one sequence.
    AttentionPrefill(KvType),
    /// A layer of a decoding step in one launch, beside the five that it replaces.
    Layer(Format),
    /// Residual addition.
    ResidualAdd,
    /// SwiGLU.
    Swiglu,
    /// The index of the largest.
    Argmax,
    /// The index of the largest that a mask allows.
    ArgmaxMasked,
    /// The repetition penalty.
    RepetitionPenalty,
    /// A token by temperature, top-k, top-p and a seed.
    Sample,
}

impl Subject {
    /// Everything, in the order of a decode step.
    pub fn all() -> Vec<Subject> {
        let mut all: Vec<Subject> = Format::ALL.iter().map(|f| Subject::Embed(*f)).collect();
        all.extend([true, false].map(|v1| Subject::RmsNorm { v1 }));
        all.push(Subject::AddRmsNorm);
        for &format in &Format::ALL {
            all.extend(Product::of(format).into_iter().map(|product| Subject::Gemv { format, product }));
        }
        all.extend([Subject::Rope, Subject::QkNormRope]);
        all.extend([false, true].map(|f32| Subject::KvStore { f32 }));
        all.push(Subject::AttentionThree);
        all.extend([false, true].map(|f32| Subject::Attention { f32 }));
        all.extend(KvType::ALL.map(Subject::QkvStore));
        all.extend(KvType::ALL.map(Subject::AttentionStep));
        all.extend(KvType::ALL.map(Subject::AttentionPrefill));
        all.extend(layer::formats().into_iter().map(Subject::Layer));
        all.extend([Subject::ResidualAdd, Subject::Swiglu, Subject::Argmax]);
        all.extend([Subject::ArgmaxMasked, Subject::RepetitionPenalty, Subject::Sample]);
        all
    }

    /// The kernels that it launches, by name.
    pub fn kernels(self) -> Vec<String> {
        let one = |name: &str| vec![name.to_owned()];
        match self {
            Subject::Embed(f) => vec![format!("embed_{}", gemv::decoder(f))],
            Subject::RmsNorm { v1 } => one(if v1 { "rms_norm_v1" } else { "rms_norm" }),
            Subject::AddRmsNorm => one("add_rms_norm"),
            Subject::Gemv { format, product } => product
                .codes(format)
                .map(|c| c.kernel().to_owned())
                .into_iter()
                .chain([product.kernel(format)])
                .collect(),
            Subject::Rope => one("rope"),
            Subject::QkNormRope => one("qk_norm_rope"),
            Subject::KvStore { f32 } => one(if f32 { "kv_store_f32" } else { "kv_store" }),
            Subject::AttentionThree => ["attn_scores", "attn_softmax", "attn_weighted_sum"].map(String::from).to_vec(),
            Subject::Attention { f32 } => one(if f32 { "attn_decode_f32" } else { "attn_decode" }),
            Subject::QkvStore(kv) => vec![format!("qkv_store_{}", kv.entry())],
            Subject::AttentionStep(kv) => vec![format!("attn_step_{}", kv.entry())],
            Subject::AttentionPrefill(kv) => vec![format!("attn_prefill_{}", kv.entry())],
            Subject::Layer(format) => {
                ["layer_f16".to_owned(), format!("gemv_{}", gemv::decoder(format)), "attn_step_f16".to_owned()].to_vec()
            }
            Subject::ResidualAdd => one("residual_add"),
            Subject::Swiglu => one("swiglu"),
            Subject::Argmax => one("argmax"),
            Subject::ArgmaxMasked => one("argmax_masked"),
            Subject::RepetitionPenalty => one("repetition_penalty"),
            Subject::Sample => one("sample"),
        }
    }

    /// The sizes that make up its shape, and those of a layer of a small model.
    pub fn sizes(self) -> &'static [(&'static str, usize)] {
        match self {
            Subject::Embed(_) => &[("vocab", 64), ("cols", 1024), ("token", 7), ("next", 0)],
            Subject::RmsNorm { .. } | Subject::AddRmsNorm => &[("rows", 1), ("cols", 1024)],
            Subject::Gemv { product: Product::Gemm | Product::GemmSwiglu, .. } => {
                &[("rows", 1024), ("cols", 1024), ("columns", 8), ("flags", 0)]
            }
            Subject::Gemv { product, .. } if product.is_coded() => {
                &[("rows", 1024), ("cols", 1024), ("columns", 1), ("flags", 0), ("codes", 0)]
            }
            Subject::Gemv { .. } => &[("rows", 1024), ("cols", 1024), ("columns", 1), ("flags", 0)],
            Subject::Rope => &[("heads", 16), ("head_dim", 128), ("n_rot", 128), ("neox", 1), ("position", 100)],
            Subject::QkNormRope => {
                &[("q_heads", 16), ("k_heads", 8), ("head_dim", 128), ("n_rot", 128), ("neox", 1), ("position", 100)]
            }
            Subject::KvStore { .. } => &[("kv_heads", 8), ("head_dim", 128), ("capacity", 256), ("position", 100)],
            Subject::AttentionThree | Subject::Attention { .. } => {
                &[("q_heads", 16), ("kv_heads", 8), ("head_dim", 128), ("capacity", 256), ("position", 255)]
            }
            Subject::QkvStore(_) | Subject::AttentionStep(_) => attention::STEP,
            Subject::AttentionPrefill(_) => attention::PREFILL,
            Subject::Layer(_) => layer::SIZES,
            Subject::ResidualAdd | Subject::Swiglu => &[("n", 4096)],
            Subject::Argmax | Subject::ArgmaxMasked | Subject::RepetitionPenalty => &[("columns", 1), ("n", 32000)],
            Subject::Sample => &[("columns", 1), ("n", 4096)],
        }
    }

    /// The case of a shape.
    pub fn case(self, values: &[usize]) -> Case {
        let mut shape: Vec<usize> = self.sizes().iter().map(|s| s.1).collect();
        for (to, from) in shape.iter_mut().zip(values) {
            *to = *from;
        }
        Case { subject: self, shape }
    }

    /// The case of a shape as a user writes it, such as `rows=3,cols=256`; sizes that are not named are those of
    /// [`sizes`](Subject::sizes).
    ///
    /// # Errors
    /// The part that names no size, or gives no number.
    pub fn parse(self, text: &str) -> Result<Case, String> {
        let mut case = self.case(&[]);
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not NAME=NUMBER"))?;
            let names: Vec<&str> = self.sizes().iter().map(|s| s.0).collect();
            let at = names.iter().position(|n| *n == name.trim());
            let at = at.ok_or_else(|| format!("no size `{name}`: the sizes are {}", names.join(", ")))?;
            case.shape[at] = value.trim().parse().map_err(|_| format!("`{part}`: `{value}` is not a number"))?;
        }
        Ok(case)
    }

    /// The shapes that it has to get right: at the edges of its tiles, odd, long, and at random.
    pub fn cases(self) -> Vec<Case> {
        let one = |sizes: &[usize]| -> Vec<Vec<usize>> { sizes.iter().map(|n| vec![*n]).collect() };
        let shapes: Vec<Vec<usize>> = match self {
            Subject::Embed(format) => gemv::embedding_shapes(format),
            Subject::RmsNorm { .. } | Subject::AddRmsNorm => {
                [1, 2, 3, 4, 5, 31, 32, 33, 64, 255, 256, 257, 1000, 1023, 1024, 1025, 2560, 5120, 16384]
                    .map(|cols| vec![1 + cols % 3, cols])
                    .to_vec()
            }
            Subject::Gemv { format, product } => gemv::product_shapes(format, product),
            Subject::Rope | Subject::QkNormRope => {
                let mut all = Vec::new();
                let heads = [
                    (4, 2, 64, 64),
                    (1, 1, 2, 2),
                    (5, 1, 128, 64),
                    (3, 3, 80, 80),
                    (2, 1, 96, 20),
                    (9, 3, 256, 256),
                    (1, 0, 6, 0),
                ];
                for (i, (q, k, dim, rot)) in heads.into_iter().enumerate() {
                    for neox in [0, 1] {
                        let position = (7 * i + 5 * neox) % 33;
                        all.push(match self {
                            Subject::Rope => vec![q + k, dim, rot, neox, position],
                            _ => vec![q, k, dim, rot, neox, position],
                        });
                    }
                }
                all
            }
            Subject::KvStore { .. } => {
                let mut all = Vec::new();
                for (heads, dim, capacity) in [(2, 64, 16), (1, 2, 3), (3, 80, 5), (8, 128, 4), (2, 256, 3)] {
                    // The last position, the one past it, and one that would wrap.
                    let positions = [0, 1, capacity - 1, capacity, capacity + 1, u32::MAX as usize];
                    all.extend(positions.map(|p| vec![heads, dim, capacity, p]));
                }
                all
            }
            Subject::AttentionThree | Subject::Attention { .. } => {
                let short = (0..18).chain([31, 32, 33, 63, 64, 65, 69]).map(|p| vec![4, 2, 64, 70, p]);
                let mut all: Vec<Vec<usize>> = short.collect();
                for dim in [2, 4, 6, 32, 62, 66, 80, 96, 126, 128, 130, 192, 254, 256] {
                    for (q, kv) in [(1, 1), (6, 2), (3, 3)] {
                        all.extend([0, 17, 40].map(|p| vec![q, kv, dim, 41, p]));
                    }
                }
                all.extend([8, 9, u32::MAX as usize].map(|p| vec![2, 2, 32, 9, p]));
                all.push(vec![2, 1, 64, 2048, 2047]);
                all
            }
            Subject::QkvStore(kv) | Subject::AttentionStep(kv) => attention::step_shapes(kv),
            Subject::AttentionPrefill(_) => attention::prefill_shapes(),
            Subject::Layer(format) => layer::shapes(format),
            Subject::ResidualAdd | Subject::Swiglu => one(&[1, 255, 256, 257, 1000, 4096]),
            Subject::Argmax | Subject::ArgmaxMasked | Subject::RepetitionPenalty => {
                let all = [1, 2, 31, 32, 33, 1000, 1023, 1024, 1025, 2049, 32000];
                all.map(|n| vec![1 + n % 3, n]).to_vec()
            }
            Subject::Sample => [(24, 1), (24, 2), (48, 7), (24, 33), (24, 1000), (12, 1025), (12, 3001)]
                .map(|(columns, n)| vec![columns, n])
                .to_vec(),
        };
        shapes.into_iter().map(|shape| Case { subject: self, shape }).collect()
    }
}

/// A subject in a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    subject: Subject,
    shape: Vec<usize>,
}

impl Case {
    /// What is run.
    pub fn subject(&self) -> Subject {
        self.subject
    }

    /// Names and values of its sizes.
    pub fn shape(&self) -> impl Iterator<Item = (&'static str, usize)> + '_ {
        self.subject.sizes().iter().zip(&self.shape).map(|(s, n)| (s.0, *n))
    }

    fn size(&self, name: &str) -> usize {
        self.shape().find(|s| s.0 == name).map_or(0, |s| s.1)
    }

    /// Runs it and compares with the reference.
    ///
    /// # Errors
    /// A launch that failed, or the first element that is too far from its reference.
    pub fn run<B: Bench>(&self, bench: &mut B) -> Result<(), Failure> {
        run::run(self, bench)
    }
}

/// The shape, as [`Subject::parse`] reads it.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.shape().map(|(name, n)| format!("{name}={n}")).collect();
        f.write_str(&parts.join(","))
    }
}

/// Every case of every kernel.
pub fn all() -> Vec<Case> {
    Subject::all().into_iter().flat_map(Subject::cases).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_cases() {
        let covered: std::collections::BTreeSet<String> = all().iter().flat_map(|c| c.subject().kernels()).collect();
        let listed = crate::catalogue().iter().map(|m| m.name.to_owned()).collect();
        assert_eq!(covered, listed);
    }

    /// Shapes choose the codes in turn: that a kernel is asked for none would not show.
    #[test]
    fn every_kernel_that_can_is_asked_for_codes() {
        let (mut asked, mut kernels) = (std::collections::BTreeMap::<_, usize>::new(), 0);
        // A store has the shapes of the attention behind it, and writes no codes.
        let can = |s: &Subject| !matches!(s, Subject::QkvStore(_)) && s.sizes().iter().any(|n| n.0 == "codes");
        for subject in Subject::all().into_iter().filter(can) {
            let of: Vec<usize> = subject.cases().iter().map(|c| c.size("codes")).filter(|n| *n != 0).collect();
            assert!(!of.is_empty(), "{subject:?}");
            of.into_iter().for_each(|n| *asked.entry(n).or_default() += 1);
            kernels += 1;
        }
        // Codes have the numbers 1 to 5. Attention's three caches alone go through all of them.
        assert!(kernels > 20 && asked.len() == 5 && asked.values().all(|n| *n >= 10), "{kernels}: {asked:?}");
    }

    #[test]
    fn shapes_are_read_as_they_are_written() {
        for case in all() {
            assert_eq!(case.subject().parse(&case.to_string()).as_ref(), Ok(&case));
        }
        let norm = Subject::RmsNorm { v1: false };
        assert_eq!(norm.parse("cols=5").unwrap().to_string(), "rows=1,cols=5");
        assert!(norm.parse("width=5").unwrap_err().contains("rows, cols"));
        assert!(norm.parse("cols").unwrap_err().contains("NAME=NUMBER"));
        assert!(norm.parse("cols=-1").unwrap_err().contains("not a number"));
    }
}
