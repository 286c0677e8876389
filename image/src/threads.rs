//! Work on many texts, by as many threads as there are cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `f` of each item, in their order. Items are taken one after the other by whichever thread is free; a panic of `f` goes on in the caller.
pub fn map_in_threads<'a, T: Sync, R: Send>(items: &'a [T], f: impl Fn(&'a T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    if threads < 2 {
        return items.iter().map(f).collect();
    }
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(items.len())));
    let work = || {
        let mut own = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(i) else { break };
            own.push((i, f(item)));
        }
        done.lock().unwrap_or_else(|broken| broken.into_inner()).extend(own);
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        work();
        for other in others {
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    let mut done = done.into_inner().unwrap_or_else(|broken| broken.into_inner());
    done.sort_unstable_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for n in [0, 1, 2, 100] {
            let items: Vec<usize> = (0..n).collect();
            let got = map_in_threads(&items, |i| {
                if i % 7 == 0 {
                    std::thread::yield_now();
                }
                3 * i
            });
            assert_eq!(got, items.iter().map(|i| 3 * i).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_panic_is_the_callers() {
        let panicked = std::panic::catch_unwind(|| {
            map_in_threads(&[1, 2, 3, 4], |i| if *i == 3 { panic!("third") } else { *i });
        });
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"third"));
    }
}
