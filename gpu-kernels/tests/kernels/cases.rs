//! Every kernel in every shape that its operation has (`gpu_kernels::list`), which `warpsmith check` goes through as well.

use crate::machine::{Buffer, Gpu};
use gpu_kernels::cases::{Bench, Product::*, Subject};
use warpsmith_device::Element;

impl Bench for Gpu {
    type Buffer<T: Element> = Buffer<T>;
    fn upload<T: Element>(&mut self, data: &[T]) -> Result<Buffer<T>, String> {
        Ok(Gpu::upload(self, data))
    }
    fn output<T: Element>(&mut self, len: usize) -> Result<Buffer<T>, String> {
        Ok(self.output_buffer(len))
    }
    fn read<T: Element>(&mut self, buffer: &Buffer<T>) -> Result<Vec<T>, String> {
        self.read_output(buffer)
    }
}

#[track_caller]
fn all_of(wanted: impl Fn(Subject) -> bool) {
    let (mut cases, wanted) = (0, Subject::all().into_iter().filter(|s| wanted(*s)).collect());
    for subject in Gpu::some(wanted) {
        let mut gpu = Gpu::new();
        for case in gpu.share(subject.cases()) {
            case.run(&mut gpu).unwrap_or_else(|e| panic!("{subject:?} {case}: {e}"));
            cases += 1;
        }
    }
    assert!(cases > 0);
}

macro_rules! tests {
    ($($name:ident: $subjects:pat,)*) => {
        $(
            #[test]
            fn $name() {
                all_of(|s| matches!(s, $subjects));
            }
        )*

        /// Operations that no other test here names, new ones among them.
        #[test]
        fn the_rest() {
            all_of(|s| !matches!(s, $($subjects)|*));
        }
    };
}

tests! {
    embeddings: Subject::Embed(_),
    norms: Subject::RmsNorm | Subject::AddRmsNorm | Subject::LayerNorm,
    products: Subject::Gemv { product: Naive | FourRows | Gemv | GemvSwiglu | Gemm | GemmSwiglu, .. },
    products_of_8_bits: Subject::Gemv { product: Int8 | Int8Swiglu | GemmInt8 | GemmInt8Swiglu, .. },
    products_of_16_bits: Subject::Gemv { product: Int16 | Int16Swiglu | GemmInt16 | GemmInt16Swiglu, .. },
    products_of_halves: Subject::Gemv { product: Half | HalfSwiglu | GemmHalf | GemmHalfSwiglu, .. },
    products_of_experts: Subject::Experts { .. },
    products_of_two_halves: Subject::Gemv { product: Split | GemmSplit, .. },
    rotations: Subject::Rope | Subject::QkNormRope,
    gathers: Subject::Gather,
    caches: Subject::KvStore { .. },
    stores_of_columns: Subject::QkvStore(_),
    attention_steps: Subject::AttentionStep(_),
    attention: Subject::AttentionThree | Subject::Attention { .. },
    prompts: Subject::AttentionPrefill(_),
    exact_prompts: Subject::AttentionPrompt(_),
    experts: Subject::Route | Subject::GroupExperts | Subject::CombineExperts,
    delta_nets: Subject::DeltaConv | Subject::DeltaRule | Subject::DeltaChunks | Subject::GateHeads,
    collectives: Subject::Collective | Subject::Exchange,
    layers: Subject::Layers { .. },
    tensors_of_16_bits: Subject::Norm16 { .. } | Subject::Sum16 { .. } | Subject::Glu16 { .. } | Subject::Cast(_)
        | Subject::Rope16(_) | Subject::KvAppend16 { .. } | Subject::Attention16(_) | Subject::Embedding16(_)
        | Subject::Argmax16(_),
    sampling: Subject::Argmax | Subject::ArgmaxMasked | Subject::RepetitionPenalty | Subject::Sample,
}

/// Whoever asks for a shape that makes no sense is told so: sizes that are all 0 or 1, and each of them 0 beside others that are 1.
#[test]
fn no_size_is_too_small_to_be_answered() {
    let mut asked = 0;
    for subject in Subject::all() {
        let (names, mut gpu) = (subject.sizes(), Gpu::new());
        let shapes = (0..names.len()).map(|zero| (zero, 1)).chain([(0, 0), (names.len(), 1)]);
        for (zero, others) in shapes {
            let size =
                |(i, (name, _)): (usize, &(&str, usize))| format!("{name}={}", if i == zero { 0 } else { others });
            let shape = names.iter().enumerate().map(size).collect::<Vec<_>>().join(",");
            // It is refused, it passes, or an error says why not.
            match subject.parse(&shape) {
                Ok(case) => drop(case.run(&mut gpu)),
                Err(why) => assert!(why.ends_with(" is at least 1"), "{subject:?} {shape}: {why}"),
            }
            asked += 1;
        }
    }
    assert!(asked > 100, "{asked}");
}
