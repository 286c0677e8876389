//! How results are compared with their references.

use super::bench::Failure;

/// What running a case gives.
pub type Outcome = Result<(), Failure>;

/// `|got - want| <= bound` for every element; NaN fails.
pub fn close(got: &[f32], want: &[f64], bound: impl Fn(usize) -> f64) -> Outcome {
    if got.len() != want.len() {
        return Err(Failure::Wrong(format!("{} elements for {}", got.len(), want.len())));
    }
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let difference = (f64::from(*g) - w).abs();
        let allowed = bound(i);
        if difference.is_nan() || difference > allowed {
            return Err(Failure::Wrong(format!(
                "element {i}: {g} where the f64 reference gives {w}, off by {difference:e}, allowed {allowed:e}"
            )));
        }
    }
    Ok(())
}

/// Every element is equal.
pub fn same<T: PartialEq + std::fmt::Debug>(got: &[T], want: &[T]) -> Outcome {
    match got.iter().zip(want).position(|(g, w)| g != w) {
        Some(i) => Err(Failure::Wrong(format!("element {i}: {:?} where the reference gives {:?}", got[i], want[i]))),
        None if got.len() != want.len() => Err(Failure::Wrong(format!("{} elements for {}", got.len(), want.len()))),
        None => Ok(()),
    }
}

/// An input that could not be made.
pub fn refused(error: impl std::fmt::Display) -> Failure {
    Failure::Launch(error.to_string())
}
