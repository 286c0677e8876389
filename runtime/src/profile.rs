//! Times of kernels, from events.

use crate::{Error, Event};
use std::collections::BTreeMap;
use std::time::Duration;

/// Times of the launches of a stretch of work, per kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The kernels, the one that took longest first.
    pub kernels: Vec<KernelTime>,
}

/// The launches of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTime {
    /// The kernel, or `graph` for graph launches.
    pub name: &'static str,
    /// How often it was launched.
    pub launches: u64,
    /// How long that took on the device. On the software driver this is the time of a CPU.
    pub time: Duration,
}

impl Profile {
    /// The time of all kernels.
    pub fn total(&self) -> Duration {
        self.kernels.iter().map(|k| k.time).sum()
    }
}

/// Events around each launch.
#[derive(Default)]
pub struct Profiler {
    samples: Vec<(&'static str, Event, Event)>,
}

impl Profiler {
    pub fn add(&mut self, name: &'static str, start: Event, end: Event) {
        self.samples.push((name, start, end));
    }

    pub fn finish(self) -> Result<Profile, Error> {
        let mut sums: BTreeMap<&'static str, (u64, Duration)> = BTreeMap::new();
        for (name, start, end) in &self.samples {
            let sum = sums.entry(name).or_default();
            sum.0 += 1;
            sum.1 += start.elapsed(end)?;
        }
        let mut kernels: Vec<_> =
            sums.into_iter().map(|(name, (launches, time))| KernelTime { name, launches, time }).collect();
        kernels.sort_by_key(|k| std::cmp::Reverse(k.time));
        Ok(Profile { kernels })
    }
}
