//! Every kernel that ships: which have no budget, and why; and which may use local memory.

use std::collections::BTreeSet;

use warpsmith_builder::ptxas::Resources;

use super::known::{Held, Miss};

/// Kernels without a budget of slots and bytes, by names (see [`matches`]), and why they have none.
pub const UNBUDGETED: [(&str, &str); 17] = [
    ("embed_*", SMALL),
    ("rms_norm|add_rms_norm|rope|qk_norm_rope|residual_add|swiglu", SMALL),
    ("kv_store|kv_store_f32|qkv_store_f16|qkv_store_f32|qkv_store_q8", SMALL),
    (
        "planes_i8|planes_i16|planes_q2_i8|planes_q2_i16|quantize_i8",
        "codes of one vector, which products write themselves",
    ),
    ("argmax|argmax_masked|repetition_penalty|sample", "once a token, over the logits alone"),
    ("rms_norm_v1|gemv_f32_v1|gemv_q8_0_v1|gemv_f16_v3", "variants beside others, which no decoder launches"),
    (
        "attn_scores|attn_softmax|attn_weighted_sum|attn_decode|attn_decode_f32",
        "variants beside others, which no decoder launches",
    ),
    ("attn_prefill_f32", "takes caches of f32 without rounding, and so without tensor cores"),
    ("gemv_f32|gemv_bf16", "formats without a family; 16 bits as F16, 32 are twice that"),
    ("gemv_q4_1", "a format without a family; as Q4_0, with an offset"),
    ("gemv_q5_0|gemv_q5_1", "formats without a family; nearest is Q5_K"),
    ("gemv_q2_k|gemv_q3_k", "formats without a family; nearest is Q4_K"),
    ("gemv_iq4_nl|gemv_iq4_xs|gemv_mxfp4", "formats without a family; four bits by a table"),
    ("gemm_f32|gemm_f16|gemm_bf16", MANY),
    ("gemm_q*", MANY),
    ("gemm_iq4_nl|gemm_iq4_xs|gemm_mxfp4", MANY),
    ("layer_f16", "a layer in one launch, which is off until a GPU has timed it"),
];

const SMALL: &str = "some KiB in all: a launch costs more than its work";
const MANY: &str = "products of several columns, for which no bound is set yet";

/// Kernels that may use local memory: bytes of a thread, and why.
pub const LOCAL: [(&str, u32, &str); 1] =
    [("layer_f16", 976, "a layer in one launch holds the registers of its largest part; off until a GPU has timed it")];

/// Whether one of the names, which `|` separates, is the kernel's, or begins it where it ends in `*`.
fn matches(names: &str, kernel: &str) -> bool {
    let name = |name: &str| name.strip_suffix('*').map_or(name == kernel, |start| kernel.starts_with(start));
    names.split('|').any(name)
}

/// Kernels without a budget by why they have none, of all but those that `budgeted` names; and those that nobody has named.
pub fn unbudgeted<'a>(
    kernels: &[&'a str],
    budgeted: &BTreeSet<String>,
) -> (Vec<(&'static str, Vec<&'a str>)>, Vec<&'a str>) {
    let rest: Vec<&str> = kernels.iter().copied().filter(|k| !budgeted.contains(*k)).collect();
    let of = |names: &str| rest.iter().copied().filter(|k| matches(names, k)).collect::<Vec<_>>();
    let named = UNBUDGETED.iter().map(|(names, why)| (*why, of(names))).filter(|n| !n.1.is_empty()).collect();
    let known = |k: &&str| UNBUDGETED.iter().any(|(names, _)| matches(names, k));
    (named, rest.iter().copied().filter(|k| !known(k)).collect())
}

/// Local memory of kernels as budgets: none for each, with those of [`LOCAL`] as the list of what is known.
pub fn local(resources: &[Resources]) -> Vec<Held> {
    let held = |r: &Resources| {
        let bytes = super::local_bytes(r);
        let text = format!("{bytes} bytes of local memory a thread, {} of spills", r.spill_stores + r.spill_loads);
        let miss = (bytes > 0).then(|| Miss::larger("local memory", f64::from(bytes), text));
        Held { budget: r.kernel.clone(), kernel: r.kernel.clone(), misses: miss.into_iter().collect() }
    };
    resources.iter().map(held).collect()
}

/// The list of those that may.
pub fn allowed() -> super::known::Known {
    LOCAL.iter().map(|(kernel, bytes, _)| (format!("{kernel}: local memory"), f64::from(*bytes))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::known::judge;
    use super::*;

    fn resources(kernel: &str, stack: u32) -> Resources {
        Resources { kernel: kernel.into(), stack, ..Resources::default() }
    }

    #[test]
    fn every_kernel_has_a_budget_or_is_named_once_as_having_none() {
        let manifest = warpsmith_host::kernels().unwrap();
        let kernels: Vec<&str> = manifest.kernels.iter().map(|k| k.name.as_str()).collect();
        let budgeted = super::super::budgeted();
        let (named, unknown) = unbudgeted(&kernels, &budgeted);
        assert_eq!(unknown, [""; 0], "neither a budget nor a reason to have none");
        assert_eq!(named.iter().map(|n| n.1.len()).sum::<usize>() + budgeted.len(), kernels.len(), "{named:?}");
        for (names, _) in UNBUDGETED {
            for name in names.split('|') {
                assert!(kernels.iter().any(|k| matches(name, k)), "{name} is no kernel");
                assert!(!budgeted.iter().any(|k| matches(name, k)), "{name} has a budget");
            }
        }
        assert_eq!(unbudgeted(&["swiglu", "new"], &budgeted).1, ["new"]);
    }

    #[test]
    fn local_memory_fails_everywhere_but_where_it_is_allowed() {
        let of = |kernel: &str, bytes| judge(&local(&[resources(kernel, bytes)]), &allowed(), false);
        assert_eq!(of("swiglu", 0).failures, [""; 0]);
        assert_eq!(of("swiglu", 8).failures, ["swiglu (swiglu): 8 bytes of local memory a thread, 0 of spills"]);
        assert_eq!((of("layer_f16", 976).failures.len(), of("layer_f16", 976).known.len()), (0, 1));
        assert_eq!((of("layer_f16", 1000).failures.len(), of("layer_f16", 0).failures.len()), (1, 1));
        // Spills without a frame are none the better.
        let spilled = Resources { kernel: "swiglu".into(), spill_loads: 4, ..Resources::default() };
        assert_eq!(judge(&local(&[spilled]), &allowed(), false).failures.len(), 1);
    }
}
