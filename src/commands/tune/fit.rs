//! From times to rows of the table.

use warpsmith_host::gpu_kernels::format::Format;
use warpsmith_host::gpu_kernels::gemv::{Activations, Tuned};

/// More exact activations win unless cheaper ones are faster by more than this share.
const MARGIN: f64 = 0.05;

/// Times of one shape, in microseconds.
#[derive(Clone, Debug)]
pub struct Timed {
    /// Name of the shape, such as `8b-down`.
    pub shape: String,
    /// Rows and columns.
    pub size: (u64, u64),
    /// By activations.
    pub times: Vec<(Activations, f64)>,
}

impl Timed {
    fn weights(&self) -> u64 {
        self.size.0 * self.size.1
    }

    fn of(&self, activations: Activations) -> Option<f64> {
        self.times.iter().find(|t| t.0 == activations).map(|t| t.1)
    }

    /// The fastest of those that are allowed.
    pub fn best(&self, allowed: Activations) -> Activations {
        let mut best = (Activations::F32, self.of(Activations::F32).unwrap_or(f64::INFINITY));
        for &(a, time) in self.times.iter().filter(|t| t.0 <= allowed) {
            if a > best.0 && time < best.1 * (1.0 - MARGIN) {
                best = (a, time);
            }
        }
        best.0
    }
}

/// The row that loses least over all shapes, by the sum of times over the best one's.
pub fn row(sm: u32, format: Format, allowed: Activations, shapes: &[Timed]) -> Tuned {
    let never = Tuned { sm, format, allowed, fastest: allowed, from: u64::MAX };
    // What smaller matrices get is the row of the more exact activations.
    let below = match allowed {
        Activations::Int8 if Activations::Int16.take(format) => Some(row(sm, format, Activations::Int16, shapes)),
        _ => None,
    };
    let chosen = |t: &Tuned, s: &Timed| match &below {
        _ if s.weights() >= t.from => t.fastest,
        Some(b) if s.weights() >= b.from => b.fastest,
        _ => Activations::F32,
    };
    // Regret of a shape: what the margin forgives is none.
    let regret = |t: &Tuned| -> f64 {
        let of = |s: &Timed| {
            let best = s.best(allowed);
            if chosen(t, s) == best {
                1.0
            } else {
                s.of(chosen(t, s)).zip(s.of(best)).map_or(1.0, |(a, b)| (a / b).max(1.0))
            }
        };
        shapes.iter().map(of).sum()
    };
    let mut sizes: Vec<u64> = shapes.iter().map(Timed::weights).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut best = never;
    // What was not timed has no regret either.
    let timed = |a: &Activations| shapes.iter().all(|shape| shape.of(*a).is_some());
    let candidates = Activations::ALL.into_iter().filter(|a| *a > Activations::F32 && *a <= allowed && a.take(format));
    for fastest in candidates.filter(timed) {
        for &from in &sizes {
            let t = Tuned { fastest, from, ..never };
            let (new, old) = (regret(&t), regret(&best));
            // The same loss: the more exact, and the larger size.
            let exact = (fastest, std::cmp::Reverse(from)) < (best.fastest, std::cmp::Reverse(best.from));
            if new < old - 1e-9 || (new <= old + 1e-9 && exact && best.from != u64::MAX) {
                best = t;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use Activations::{F32, Int8, Int16};

    fn shapes(of: impl Fn(f64) -> Vec<(Activations, f64)>) -> Vec<Timed> {
        let sizes = [1024u64, 2048, 4096, 8192];
        sizes.map(|n| Timed { shape: String::new(), size: (n, 1024), times: of(n as f64) }).to_vec()
    }

    #[test]
    fn from_the_size_on_where_it_is_faster() {
        // f32 takes a unit a row; codes take 3000 to be made, and then half a unit.
        let timed = shapes(|n| vec![(F32, n), (Int16, 3000.0 + n / 2.0)]);
        let t = row(90, Format::Q1_0, Int16, &timed);
        assert_eq!((t.fastest, t.from), (Int16, 8192 << 10));
        let never = row(90, Format::Q1_0, Int16, &shapes(|n| vec![(F32, n), (Int16, n)]));
        assert_eq!(never.from, u64::MAX);
    }

    #[test]
    fn the_more_exact_ones_win_ties() {
        let timed = shapes(|n| vec![(F32, 2.0 * n), (Int16, n), (Int8, n * 0.99)]);
        assert_eq!(row(90, Format::Q1_0, Int16, &timed).from, 1 << 20);
        assert_eq!(row(90, Format::Q1_0, Int8, &timed).from, u64::MAX, "codes of 16 bits are as fast");
        let timed = shapes(|n| vec![(F32, 2.0 * n), (Int16, n), (Int8, n * 0.9)]);
        assert_eq!(row(90, Format::Q1_0, Int8, &timed).fastest, Int8);
    }

    #[test]
    fn what_was_not_timed_is_not_chosen() {
        // No size from which int8 loses nothing; f16, which Q1_0 takes too, has no times.
        let timed =
            shapes(|n| vec![(F32, 2.0 * n), (Int16, n), (Int8, if n == 2048.0 || n == 8192.0 { n } else { n / 2.0 })]);
        assert_eq!(row(90, Format::Q1_0, Int8, &timed).fastest, Int8);
    }

    #[test]
    fn below_int8_int16_may_serve() {
        let timed = shapes(|n| vec![(F32, 2.0 * n), (Int16, n), (Int8, if n > 4000.0 { n / 2.0 } else { n })]);
        let t = row(90, Format::Q1_0, Int8, &timed);
        assert_eq!((t.fastest, t.from), (Int8, 4096 << 10));
    }
}
