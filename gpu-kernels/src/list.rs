//! The list of kernels: a line for each [`Operation`]. Catalogue, cases, benchmarks and budgets come from it.

use crate::cases::{Bench, Failure, Listed, NamedSizes, Operation, Rng, Shape, UnknownSize};
use crate::elementwise::Glu;
use crate::format::Format;
use crate::gemv::cases::Product;
use crate::kv::KvType;
use crate::sixteen::Sixteen;
use crate::{
    attention, collective, delta, elementwise, embed, experts, gather, gemv, kv, layer_norm, norm, persistent,
    residual, rope, sampling, sixteen,
};
use std::fmt;
use warpsmith_device::KernelMeta;

/// Makes [`Subject`] and the catalogue: after the subject, with a name for what tells its variants apart, the operation.
macro_rules! operations {
    ($(
        $(#[$doc:meta])*
        $Subject:ident $(($of:ident: $Of:ty))? $({ $($(#[$field_doc:meta])* $field:ident: $Field:ty),* })? = $Operation:ty;
    )*) => {
        /// What is run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Subject {
            $($(#[$doc])* $Subject $(($Of))? $({ $($(#[$field_doc])* $field: $Field),* })?,)*
        }

        impl Subject {
            /// Everything, in the order of a decode step.
            pub fn all() -> Vec<Subject> {
                let mut all = Vec::new();
                $(
                    let of = |variant| {
                        #[allow(unused_parens, reason = "a variant of one part stands in them alone")]
                        let ($($of)? $($($field),*)?) = variant;
                        Subject::$Subject $(($of))? $({ $($field),* })?
                    };
                    all.extend(<$Operation as Operation>::variants().into_iter().map(of));
                )*
                all
            }

            /// Its name in the list.
            fn name(self) -> &'static str {
                match self { $(Subject::$Subject { .. } => stringify!($Subject),)* }
            }

            /// The kernels that it launches, by name.
            pub fn kernels(self) -> Vec<String> {
                let names = match self {
                    $(Subject::$Subject $(($of))? $({ $($field),* })? => {
                        <$Operation as Operation>::launches(($($of)? $($($field),*)?))
                    })*
                };
                names.into_iter().map(str::to_owned).collect()
            }

            /// The sizes that make up its shape, and those of a layer of a small model.
            pub fn sizes(self) -> NamedSizes {
                match self {
                    $(Subject::$Subject $(($of))? $({ $($field),* })? => {
                        <$Operation as Operation>::sizes(($($of)? $($($field),*)?))
                    })*
                }
            }

            fn shapes(self) -> Vec<Vec<usize>> {
                match self {
                    $(Subject::$Subject $(($of))? $({ $($field),* })? => {
                        <$Operation as Operation>::shapes(($($of)? $($($field),*)?))
                    })*
                }
            }

            fn run<B: Bench>(self, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Result<(), Failure> {
                match self {
                    $(Subject::$Subject $(($of))? $({ $($field),* })? => {
                        <$Operation as Operation>::run(($($of)? $($($field),*)?), shape, bench, rng)
                    })*
                }
            }
        }

        /// Every kernel of this crate with what is known of it, operation by operation in the order of a decode step.
        #[must_use]
        pub fn listed() -> Vec<Listed> {
            [$(<$Operation as Operation>::kernels(),)*].concat()
        }

        /// For each operation its own kernels, and those that all of its cases launch.
        #[cfg(test)]
        fn covered() -> Vec<(Vec<Listed>, std::collections::BTreeSet<&'static str>)> {
            let launched = |(has_cases, names): (bool, Vec<&'static str>)| names.into_iter().filter(move |_| has_cases);
            vec![$({
                type This = $Operation;
                let variants = This::variants().into_iter();
                let runs = variants.map(|v| (!This::shapes(v).is_empty(), This::launches(v)));
                (This::kernels(), runs.flat_map(launched).collect())
            },)*]
        }
    };
}

operations! {
    /// The row of a token.
    Embed(format: Format) = embed::cases::Embeddings;
    /// RMS norm.
    RmsNorm = norm::cases::RmsNorms;
    /// Residual addition and RMS norm.
    AddRmsNorm = norm::cases::AddRmsNorms;
    /// Layer norm.
    LayerNorm = layer_norm::cases::LayerNorms;
    /// Columns in another order.
    Gather = gather::cases::Gathers;
    /// Matrix times vectors.
    Gemv {
        /// The format of the weights.
        format: Format,
        /// The entry point.
        product: Product
    } = gemv::cases::Products;
    /// A matrix of several for each column.
    Experts {
        /// The format of the weights.
        format: Format,
        /// The entry point.
        product: Product
    } = gemv::cases::ExpertProducts;
    /// The experts of each column.
    Route = experts::route::cases::Routes;
    /// The columns of each expert.
    GroupExperts = experts::group::cases::Groups;
    /// What experts give, added up.
    CombineExperts = experts::combine::cases::Combinations;
    /// Rotary embedding.
    Rope = rope::cases::Rotations;
    /// Norm of each head and rotary embedding.
    QkNormRope = rope::cases::NormedRotations;
    /// Keys and values into a cache of f16, or of f32.
    KvStore {
        /// A cache of f32.
        f32: bool
    } = kv::cases::Stores;
    /// Attention in three launches.
    AttentionThree = attention::cases::InThree;
    /// Attention in one, over a cache of f16 or of f32.
    Attention {
        /// A cache of f32.
        f32: bool
    } = attention::cases::InOne;
    /// Norm, rotation and store of any number of columns.
    QkvStore(kv: KvType) = attention::cases::ColumnStores;
    /// A decode step's attention, of any number of columns.
    AttentionStep(kv: KvType) = attention::cases::Steps;
    /// Attention of many tokens of one sequence.
    AttentionPrefill(kv: KvType) = attention::cases::Prompts;
    /// The same with the bits of single steps.
    AttentionPrompt(kv: KvType) = attention::cases::ExactPrompts;
    /// Attention with capped scores.
    AttentionCapped(kv: KvType) = attention::cases::Capped;
    /// The convolution before a gated delta net.
    DeltaConv = delta::cases::Convolutions;
    /// The gated delta rule and the norm behind it.
    DeltaRule = delta::cases::Rules;
    /// The gated delta rule in chunks, and the norm behind it.
    DeltaChunks = delta::cases::Chunks;
    /// Gates of attention's results.
    GateHeads = delta::cases::Gates;
    /// Layers of a decoding step in one launch, beside the five launches a layer that it replaces.
    Layers {
        /// The entry point.
        instance: persistent::Instance,
        /// The format of the weights.
        format: Format
    } = persistent::cases::Layers;
    /// Residual addition.
    ResidualAdd = elementwise::cases::ResidualAdds;
    /// SwiGLU.
    Swiglu = elementwise::cases::Swiglus;
    /// GEGLU.
    Geglu = elementwise::cases::Geglus;
    /// SwiGLU of clamped numbers.
    SwigluClamped = elementwise::cases::ClampedSwiglus;
    /// SwiGLU of experts that read weighted columns.
    SwigluWeighted = experts::weighted::cases::Weighted;
    /// What a layer adds, normed, onto the residual stream; or embeddings, scaled.
    ToResidual = residual::cases::ToResiduals;
    /// A cap of logits.
    Softcap = elementwise::cases::Softcaps;
    /// What all ranks have, reduced or gathered.
    Collective = collective::cases::Collectives;
    /// A message from one rank to another.
    Exchange = collective::cases::Exchanges;
    /// The index of the largest.
    Argmax = sampling::cases::Argmaxes;
    /// The index of the largest that a mask allows.
    ArgmaxMasked = sampling::cases::MaskedArgmaxes;
    /// The repetition penalty.
    RepetitionPenalty = sampling::cases::Penalties;
    /// A token by temperature, top-k, top-p and a seed.
    Sample = sampling::cases::Samples;
    /// The most likely tokens of each column.
    Top = sampling::cases::Tops;
    /// Norms of tensors of 16 bits.
    Norm16 {
        /// Which norm.
        norm: sixteen::cases::Norm,
        /// The type of the tensors.
        of: Sixteen
    } = sixteen::cases::Norms;
    /// Sums of tensors of 16 bits, or onto a residual stream of f32.
    Sum16 {
        /// A residual stream of f32.
        shadow: bool,
        /// The type of the tensors.
        of: Sixteen
    } = sixteen::cases::Sums;
    /// Gates of 16 bits.
    Glu16 {
        /// What comes of a gate and its up.
        glu: Glu,
        /// The type of the tensors.
        of: Sixteen
    } = sixteen::cases::Glus;
    /// Tensors in another type.
    Cast(cast: sixteen::cases::Cast) = sixteen::cases::Casts;
    /// Norm and rotary embedding of heads of 16 bits.
    Rope16(of: Sixteen) = sixteen::cases::Rotations16;
    /// Keys and values of 16 bits into a cache.
    KvAppend16 {
        /// The type of the cache.
        kv: KvType,
        /// The type of the tensors.
        of: Sixteen
    } = sixteen::cases::Appends;
    /// Attention of queries of 16 bits.
    Attention16(of: Sixteen) = sixteen::cases::Attentions;
    /// The rows of tokens of a table of 16 bits.
    Embedding16(of: Sixteen) = sixteen::cases::Embeddings16;
    /// The index of the largest of logits of 16 bits.
    Argmax16(of: Sixteen) = sixteen::cases::Argmaxes16;
}

/// Every kernel of this crate, in the order of the list.
#[must_use]
pub fn catalogue() -> Vec<&'static KernelMeta> {
    listed().iter().map(|k| k.meta).collect()
}

impl Subject {
    /// The case of a layer of a small model.
    pub fn case(self) -> Case {
        Case { subject: self, values: self.sizes().iter().map(|s| s.1).collect() }
    }

    /// The case of a shape as a user writes it, such as `rows=3,cols=256`; sizes that are not named are those of
    /// [`sizes`](Subject::sizes).
    ///
    /// # Errors
    /// The part that names no size, or gives no number; or 0, for a size that is at least 1 in all of [`cases`](Subject::cases).
    pub fn parse(self, text: &str) -> Result<Case, String> {
        let mut case = self.case();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not NAME=NUMBER"))?;
            let name = name.trim();
            let at = self.sizes().iter().position(|s| s.0 == name);
            let at = at.ok_or_else(|| UnknownSize::new(self.name(), name, self.sizes()).to_string())?;
            case.values[at] = value.trim().parse().map_err(|_| format!("`{part}`: `{value}` is not a number"))?;
            if case.values[at] == 0 && !self.may_be_0(at) {
                return Err(format!("`{part}`: `{name}` is at least 1"));
            }
        }
        Ok(case)
    }

    /// Whether there is a shape in which the size at a place is 0.
    fn may_be_0(self, at: usize) -> bool {
        self.sizes()[at].1 == 0 || self.shapes().iter().any(|values| values[at] == 0)
    }

    /// The shapes that it has to get right: at the edges of its tiles, odd, long, and at random.
    pub fn cases(self) -> Vec<Case> {
        self.shapes().into_iter().map(|values| Case { subject: self, values }).collect()
    }
}

/// A subject in a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    subject: Subject,
    values: Vec<usize>,
}

impl Case {
    /// What is run.
    pub fn subject(&self) -> Subject {
        self.subject
    }

    fn sizes(&self) -> Shape<'_> {
        Shape { operation: self.subject.name(), names: self.subject.sizes(), values: &self.values }
    }

    /// Names and values of its sizes.
    pub fn shape(&self) -> impl Iterator<Item = (&'static str, usize)> + '_ {
        self.sizes().iter()
    }

    /// Runs it and compares with the reference.
    ///
    /// # Errors
    /// A launch that failed, or the first element that is too far from its reference.
    pub fn run<B: Bench>(&self, bench: &mut B) -> Result<(), Failure> {
        // Shapes of their own numbers, whatever else runs.
        let mut rng = Rng(self.values.iter().fold(1, |h: u64, n| h.wrapping_mul(31).wrapping_add(*n as u64)));
        self.subject.run(&self.sizes(), bench, &mut rng)
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
    use crate::cases::Measured;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn every_kernel_is_listed_once_and_says_what_a_reader_needs() {
        let all = catalogue();
        let mut names: Vec<_> = all.iter().map(|m| m.name).collect();
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0]).collect();
        assert_eq!(twice, [""; 0], "listed by two operations, or twice by one");
        for m in all {
            assert!(!m.summary.is_empty(), "{} has no summary", m.name);
            assert!(m.min_blocks > 0, "{}: launch bounds come with a minimum of blocks", m.name);
            assert_eq!(m.library, "gpu-kernels", "{}", m.name);
        }
    }

    /// That no kernel is missing from the list, the manifest of the device build says (`tests/kernels/manifest.rs`).
    #[test]
    fn every_kernel_has_cases() {
        let known: BTreeSet<&str> = catalogue().iter().map(|m| m.name).collect();
        for (own, launched) in covered() {
            for kernel in &own {
                assert!(launched.contains(kernel.meta.name), "no case launches {}", kernel.meta.name);
            }
            assert!(launched.is_subset(&known), "no kernels: {:?}", launched.difference(&known));
        }
    }

    #[test]
    fn every_kernel_is_measured_or_says_why_not() {
        for kernel in listed() {
            for Measured::By(text) | Measured::Not(text) in [kernel.benchmark, kernel.budget] {
                assert!(!text.is_empty(), "{}", kernel.meta.name);
            }
        }
    }

    /// Shapes choose the formats in turn: that a kernel is asked for none would not show.
    #[test]
    fn every_kernel_that_can_is_asked_to_quantize() {
        let (mut asked, mut kernels) = (BTreeMap::<_, usize>::new(), 0);
        // A store has the shapes of the attention behind it, and quantizes nothing.
        let can = |s: &Subject| !matches!(s, Subject::QkvStore(_)) && s.sizes().iter().any(|n| n.0 == "quant_format");
        for subject in Subject::all().into_iter().filter(can) {
            let of: Vec<usize> =
                subject.cases().iter().map(|c| c.sizes().size("quant_format").unwrap()).filter(|n| *n != 0).collect();
            assert!(!of.is_empty(), "{subject:?}");
            of.into_iter().for_each(|n| *asked.entry(n).or_default() += 1);
            kernels += 1;
        }
        // Attention's three caches alone go through all of them.
        let formats = crate::gemv::QuantFormat::ALL.len();
        assert!(kernels > 20 && asked.len() == formats && asked.values().all(|n| *n >= 10), "{kernels}: {asked:?}");
    }

    #[test]
    fn shapes_are_read_as_they_are_written() {
        for case in all() {
            assert_eq!(case.subject().parse(&case.to_string()).as_ref(), Ok(&case));
        }
        let norm = Subject::RmsNorm;
        assert_eq!(norm.parse("cols=5").unwrap().to_string(), "rows=1,cols=5");
        assert!(norm.parse("width=5").unwrap_err().contains("rows, cols"));
        assert!(norm.parse("cols").unwrap_err().contains("NAME=NUMBER"));
        assert!(norm.parse("cols=-1").unwrap_err().contains("not a number"));
    }
}
