//! What the tests of kernels share, whatever runs the kernels.

pub use gpu_kernels::cases::Rng;

/// A golden vector.
pub fn vector<const N: usize, T>(name: &str, read: fn([u8; N]) -> T) -> Vec<T> {
    let path = std::path::Path::new(crate::VECTORS).join(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    bytes.chunks_exact(N).map(|b| read(b.try_into().unwrap())).collect()
}

/// `|got - want| <= relative * scale + absolute` for every element; NaN fails.
#[track_caller]
pub fn assert_close(what: &str, got: &[f32], want: &[f64], bound: impl Fn(usize) -> f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let difference = (f64::from(*g) - w).abs();
        assert!(difference <= bound(i), "{what} [{i}]: {g} for {w}, off by {difference:e}, allowed {:e}", bound(i));
    }
}
