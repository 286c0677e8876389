//! Every kernel in every shape of `gpu_kernels::cases`, which `warpsmith check` goes through as well.

use crate::machine::{Buffer, Gpu};
use gpu_kernels::cases::{Bench, Subject};
use warpsmith_device::Element;

impl Bench for Gpu {
    type Buffer<T: Element> = Buffer<T>;
    fn upload<T: Element>(&mut self, data: &[T]) -> Result<Buffer<T>, String> {
        Ok(Gpu::upload(self, data))
    }
    fn output<T: Element>(&mut self, len: usize) -> Result<Buffer<T>, String> {
        Ok(self.poisoned(len))
    }
    fn read<T: Element>(&mut self, buffer: &Buffer<T>) -> Result<Vec<T>, String> {
        Ok(Gpu::read(self, buffer))
    }
}

#[track_caller]
fn all_of(wanted: impl Fn(Subject) -> bool) {
    let mut cases = 0;
    for subject in Subject::all().into_iter().filter(|s| wanted(*s)) {
        let mut gpu = Gpu::new();
        for case in subject.cases() {
            case.run(&mut gpu).unwrap_or_else(|e| panic!("{subject:?} {case}: {e}"));
            cases += 1;
        }
    }
    assert!(cases > 0);
}

#[test]
fn embeddings() {
    all_of(|s| matches!(s, Subject::Embed(_)));
}

#[test]
fn norms() {
    all_of(|s| matches!(s, Subject::RmsNorm { .. } | Subject::AddRmsNorm));
}

#[test]
fn products() {
    all_of(|s| matches!(s, Subject::Gemv { .. }));
}

#[test]
fn rotations() {
    all_of(|s| matches!(s, Subject::Rope | Subject::QkNormRope));
}

#[test]
fn caches() {
    all_of(|s| matches!(s, Subject::KvStore { .. }));
}

#[test]
fn stores_of_columns() {
    all_of(|s| matches!(s, Subject::QkvStore(_)));
}

#[test]
fn attention_steps() {
    all_of(|s| matches!(s, Subject::AttentionStep(_)));
}

#[test]
fn attention() {
    all_of(|s| matches!(s, Subject::AttentionThree | Subject::Attention { .. }));
}

#[test]
fn prompts() {
    all_of(|s| matches!(s, Subject::AttentionPrefill(_)));
}

#[test]
fn layers() {
    all_of(|s| matches!(s, Subject::Layer(_)));
}

#[test]
fn sampling() {
    let wanted = [Subject::Argmax, Subject::ArgmaxMasked, Subject::RepetitionPenalty, Subject::Sample];
    all_of(|s| wanted.contains(&s));
}

#[test]
fn the_rest() {
    all_of(|s| matches!(s, Subject::ResidualAdd | Subject::Swiglu));
}
