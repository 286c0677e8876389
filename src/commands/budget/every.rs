//! Every kernel that ships: which have no budget, and why; and which may use local memory.

use warpsmith_builder::ptxas::Resources;
use warpsmith_host::gpu_kernels::cases::{Listed, Measured};
use warpsmith_host::gpu_kernels::list::listed;

use super::known::{Held, Miss};

/// Kernels without a budget of slots and bytes, by why they have none.
pub fn unbudgeted() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for kernel in listed() {
        let Measured::Not(why) = kernel.budget else { continue };
        match all.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, kernels)) => kernels.push(kernel.meta.name),
            None => all.push((why, vec![kernel.meta.name])),
        }
    }
    all
}

/// Kernels that may use local memory: bytes of a thread, and why.
pub fn with_local_memory() -> Vec<(&'static str, u32, &'static str)> {
    let allowed = |k: Listed| k.local_memory.map(|(bytes, why)| (k.meta.name, bytes, why));
    listed().into_iter().filter_map(allowed).collect()
}

/// Local memory of kernels as budgets: none for each, with [those that may](with_local_memory) as the list of what is known.
pub fn local(resources: &[Resources]) -> Vec<Held> {
    let held = |r: &Resources| {
        let bytes = super::local_bytes(r);
        let text = format!("{bytes} bytes of local memory a thread, {} of spills", r.spill_stores + r.spill_loads);
        let miss = (bytes > 0).then(|| Miss::larger("local memory", f64::from(bytes), text));
        Held { budget: r.kernel.clone(), kernel: r.kernel.clone(), misses: miss.into_iter().collect() }
    };
    resources.iter().map(held).collect()
}

/// Where a kernel's local memory is listed in a checkout.
pub const ALLOWED: &str = "a `SPILLED` list of gpu-kernels/src/*/cases";

/// The list of those that may.
pub fn allowed() -> super::known::Known {
    let named = |(kernel, bytes, _)| (format!("{kernel}: local memory"), f64::from(bytes));
    with_local_memory().into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::known::judge;
    use super::*;

    fn resources(kernel: &str, stack: u32) -> Resources {
        Resources { kernel: kernel.into(), stack, ..Resources::default() }
    }

    /// The list says of a kernel whether it has a budget, and the command what is measured for it.
    #[test]
    fn what_is_measured_is_what_the_list_says() {
        let manifest = warpsmith_host::kernels().unwrap();
        let listed: BTreeMap<&str, Measured> = listed().iter().map(|k| (k.meta.name, k.budget)).collect();
        let kernels: BTreeSet<&str> = manifest.kernels.iter().map(|k| k.name.as_str()).collect();
        assert_eq!(listed.keys().copied().collect::<BTreeSet<_>>(), kernels);
        let budgets = super::super::budgets();
        for (kernel, budget) in listed {
            let family = budgets.iter().find(|(name, _)| name == kernel).map(|(_, family)| *family);
            match budget {
                Measured::By(name) => assert_eq!(family, Some(name), "{kernel}"),
                Measured::Not(why) => assert_eq!(family, None, "{kernel} has a budget, and the list says: {why}"),
            }
        }
    }

    #[test]
    fn local_memory_fails_everywhere_but_where_it_is_allowed() {
        let of = |kernel: &str, bytes| judge(&local(&[resources(kernel, bytes)]), (&allowed(), ALLOWED), false);
        assert_eq!(of("swiglu", 0).failures, [""; 0]);
        // What may and no longer does is told with the place of its list.
        let (may, ..) = with_local_memory()[0];
        assert_eq!(of(may, 0).failures, [format!("{may}: local memory is met, and listed as missed in {ALLOWED}")]);
        assert_eq!(of("swiglu", 8).failures, ["swiglu (swiglu): 8 bytes of local memory a thread, 0 of spills"]);
        // Those that may spill registers, at most 16, and no array.
        let no_array = |(kernel, bytes, _): &(&str, u32, _)| *bytes <= 64 && !kernel.starts_with("attn_step");
        assert!(with_local_memory().iter().all(no_array));
        // Spills without a frame are none the better.
        let spilled = Resources { kernel: "swiglu".into(), spill_loads: 4, ..Resources::default() };
        assert_eq!(judge(&local(&[spilled]), (&allowed(), ALLOWED), false).failures.len(), 1);
    }
}
