//! What a launch gave, beside what it should have given: nothing is measured before that is the same.

use std::any::TypeId;
use std::fmt::Write as _;

use half::f16;
use serde_json::{Value, json};
use warpsmith_host::device::Element;

/// One output of a launch, compared with its reference.
#[derive(Clone, Debug)]
pub struct Output {
    name: String,
    kind: &'static str,
    bytes: Vec<u8>,
    wrong: Option<String>,
}

impl Output {
    /// Numbers, each of which may be off its reference by at most `bound` of its index. NaN is off by more than anything.
    #[must_use]
    pub fn near<T: Element + Into<f64>>(
        name: impl Into<String>,
        got: &[T],
        want: &[f64],
        bound: impl Fn(usize) -> f64,
    ) -> Output {
        let off = |i: usize, got: T, want: f64| {
            let (got, allowed): (f64, f64) = (got.into(), bound(i));
            let difference = (got - want).abs();
            (difference.is_nan() || difference > allowed).then(|| {
                format!("element {i} is {got:e} where the reference gives {want:e}: off by {difference:e}, allowed {allowed:e}")
            })
        };
        let wrong = match got.len() == want.len() {
            true => got.iter().zip(want).enumerate().find_map(|(i, (g, w))| off(i, *g, *w)),
            false => Some(lengths(got.len(), want.len())),
        };
        Output::new(name.into(), got, wrong)
    }

    /// Elements that have to be those of the reference.
    #[must_use]
    pub fn same<T: Element + PartialEq + std::fmt::Debug>(name: impl Into<String>, got: &[T], want: &[T]) -> Output {
        let differ = |(i, (g, w)): (usize, (&T, &T))| {
            (g != w).then(|| format!("element {i} is {g:?} where the reference gives {w:?}"))
        };
        let wrong = match got.len() == want.len() {
            true => got.iter().zip(want).enumerate().find_map(differ),
            false => Some(lengths(got.len(), want.len())),
        };
        Output::new(name.into(), got, wrong)
    }

    fn new<T: Element>(name: String, got: &[T], wrong: Option<String>) -> Output {
        let id = TypeId::of::<T>();
        let kind = match size_of::<T>() {
            4 if id == TypeId::of::<f32>() => "f32",
            2 if id == TypeId::of::<f16>() => "f16",
            1 | 2 | 4 | 8 => ["words of 8 bits", "words of 16 bits", "words of 32 bits", "words of 64 bits"]
                [size_of::<T>().trailing_zeros() as usize],
            _ => "words of 8 bits",
        };
        Output { name, kind, bytes: bytemuck::cast_slice(got).to_vec(), wrong }
    }

    /// What is wrong with it, if anything is.
    #[must_use]
    pub fn wrong(&self) -> Option<String> {
        self.wrong.as_ref().map(|wrong| format!("{}: {wrong}", self.name))
    }

    /// Name, type of the elements, and their bytes as hexadecimal digits, for `warpsmith compare`.
    pub(crate) fn to_json(&self) -> Value {
        let mut digits = String::with_capacity(2 * self.bytes.len());
        for byte in &self.bytes {
            let _ = write!(digits, "{byte:02x}");
        }
        json!({ "name": self.name, "kind": self.kind, "bytes": digits })
    }
}

fn lengths(got: usize, want: usize) -> String {
    format!("{got} elements where the reference gives {want}")
}

/// The first thing that is wrong. Nothing to look at is wrong too.
pub(crate) fn verdict(outputs: &[Output]) -> Result<(), String> {
    if outputs.is_empty() {
        return Err("it names no output, so that nothing was compared".to_owned());
    }
    outputs.iter().find_map(Output::wrong).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_off_is_named_with_its_place() {
        assert_eq!(Output::near("y", &[1.0f32, 2.5], &[1.0, 2.0], |_| 0.5).wrong(), None);
        let wrong = Output::near("y", &[1.0f32, f32::NAN], &[1.0, 2.0], |_| 1e9).wrong().unwrap();
        assert!(wrong.starts_with("y: element 1 is NaN"), "{wrong}");
        let wrong = Output::near("y", &[1.0f32], &[1.0, 2.0], |_| 1.0).wrong().unwrap();
        assert_eq!(wrong, "y: 1 elements where the reference gives 2");
        let wrong = Output::same("tokens", &[7u32, 8], &[7, 9]).wrong().unwrap();
        assert_eq!(wrong, "tokens: element 1 is 8 where the reference gives 9");
        assert!(verdict(&[]).unwrap_err().contains("nothing was compared"));
    }

    #[test]
    fn bytes_are_kept_with_their_type() {
        let value = Output::same("y", &[1.0f32], &[1.0]).to_json();
        assert_eq!((&value["kind"], &value["bytes"]), (&"f32".into(), &"0000803f".into()));
        let value = Output::same("n", &[258u16], &[258]).to_json();
        assert_eq!((&value["kind"], &value["bytes"]), (&"words of 16 bits".into(), &"0201".into()));
    }
}
