//! What to write instead, for the mistakes that device code sees first: names of CUDA C++ and of `std`.
//!
//! rustc's messages know neither the device library nor CUDA. Each hint stands below the message that it belongs to.

/// Names of CUDA C++ that are tried first, and what stands for them. `docs/porting.md` has them all.
const CUDA_NAMES: &[(&str, &str)] = &[
    ("__syncthreads", "sync::block"),
    ("__syncwarp", "sync::warp"),
    ("threadIdx", "thread::idx_x"),
    ("blockIdx", "block::idx_x"),
    ("blockDim", "block::dim_x"),
    ("gridDim", "grid::dim_x"),
    ("__shfl_sync", "warp::shuffle_idx"),
    ("__shfl_up_sync", "warp::shuffle_up"),
    ("__shfl_down_sync", "warp::shuffle_down"),
    ("__shfl_xor_sync", "warp::shuffle_xor"),
    ("__ballot_sync", "warp::ballot"),
    ("__activemask", "warp::active_mask"),
    ("atomicAdd", "atomic::fetch_add"),
    ("atomicMax", "atomic::fetch_max"),
    ("atomicCAS", "atomic::compare_exchange"),
    ("__threadfence", "atomic::fence"),
    ("__ldg", "In::at"),
    ("fmaf", "math::fma"),
    ("sqrtf", "math::sqrt"),
    ("fmaxf", "math::max"),
    ("expf", "math::exp"),
    ("logf", "math::ln"),
    ("powf", "math::pow"),
    ("rsqrtf", "math::rsqrt"),
    ("printf", "gpu_println!"),
    ("assert", "gpu_assert!"),
];

/// Methods of `f32` and `f64` that `std` has and `core` has not, by the function of `math` that computes them.
const FLOAT_METHODS: &[(&str, &str)] = &[
    ("sqrt", "sqrt"),
    ("mul_add", "fma"),
    ("exp", "exp"),
    ("exp2", "exp2_approx"),
    ("ln", "ln"),
    ("log2", "log2"),
    ("powf", "pow"),
    ("powi", "pow"),
    ("tanh", "tanh"),
    ("sin", "sin_cos"),
    ("cos", "sin_cos"),
    ("sin_cos", "sin_cos"),
    ("cbrt", "cbrt"),
    ("hypot", "hypot"),
];

/// What stands for a message of the compiler, if it is one of the first mistakes.
pub(crate) fn hint(message: &str) -> Option<String> {
    // What stands between backticks.
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let name = *names.first()?;
    if message.starts_with("cannot index into a value of type") {
        let buffer = name.rsplit("::").next().unwrap_or(name).split('<').next()?;
        let read = match buffer {
            "In" | "Awaited" => "read element `i` with `x.at(i)`",
            "InOut" => "read element `i` with `x.get(i)` and write it with `x.set(i, value)`",
            "Out" => "write element `i` with `x.set(i, value)`",
            "Shared" => "read element `i` with `x.get(i)` and write it with `x.set(i, value)`",
            _ => return None,
        };
        return Some(format!("a buffer has no length on the GPU and is not indexed: {read}"));
    }
    if message.starts_with("no method named") || message.starts_with("can't call method") {
        let (_, function) = FLOAT_METHODS.iter().find(|(method, _)| *method == name)?;
        let float = names.get(1).is_some_and(|ty| matches!(*ty, "f32" | "f64" | "{float}"));
        return float
            .then(|| format!("device code has no `std`, where `{name}` is a method: write `math::{function}(…)`"));
    }
    if message.starts_with("cannot find macro") {
        return macro_hint(name);
    }
    if name == "std" && (message.starts_with("cannot find module") || message.starts_with("failed to resolve")) {
        return Some(
            "device code has no `std`: `core` has what needs no system, `math` has the functions of floats".into(),
        );
    }
    if ["cannot find type", "failed to resolve", "cannot find"].iter().any(|start| message.starts_with(start))
        && names.iter().any(|n| matches!(*n, "Vec" | "String" | "Box" | "HashMap"))
    {
        return Some(HEAP.into());
    }
    if message.starts_with("cannot find function") || message.starts_with("cannot find value") {
        let (_, ours) = CUDA_NAMES.iter().find(|(cuda, _)| *cuda == name)?;
        return Some(format!("`{name}` of CUDA C++ is `{ours}` here; docs/porting.md has the others"));
    }
    None
}

const HEAP: &str = "there is no heap on the GPU: an array of constant length, `[0.0; 4]`, is in registers, \
                    `shared_array!` is in shared memory, and buffers come as arguments";

fn macro_hint(name: &str) -> Option<String> {
    Some(match name {
        "println" | "print" | "eprintln" | "eprint" | "dbg" => {
            format!("the GPU has no standard output for `{name}!`: write `gpu_println!(\"x = {{}}\", x)`")
        }
        "vec" | "format" => HEAP.to_owned(),
        _ => return None,
    })
}

/// A message as the compiler rendered it, with the hint that belongs to it.
pub(crate) fn with_hint(message: &str, mut rendered: String) -> String {
    if let Some(hint) = hint(message) {
        rendered.truncate(rendered.trim_end().len());
        rendered.push_str(&format!("\n   = hint: {hint}\n\n"));
    }
    rendered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cuda_are_those_of_the_chapter_on_porting() {
        let chapter = include_str!("../../docs/porting.md");
        for (cuda, ours) in CUDA_NAMES {
            // The table has the base of a family in one cell: `__shfl_sync`, `_up`, ….
            let base = cuda.replace("_up_sync", "_sync").replace("_down_sync", "_sync").replace("_xor_sync", "_sync");
            let row = chapter.lines().find(|line| line.contains(&base) && line.contains(ours));
            assert!(row.is_some(), "no row has both `{base}` and `{ours}`");
        }
    }

    #[test]
    fn other_messages_have_no_hint() {
        for message in [
            "cannot index into a value of type `u32`",
            "no method named `att` found for struct `In<T>` in the current scope",
            "no method named `sqrt` found for struct `Frame` in the current scope",
            "cannot find macro `matmul` in this scope",
            "cannot find function `helper` in this scope",
            "mismatched types",
        ] {
            assert_eq!(hint(message), None, "{message}");
        }
    }
}
