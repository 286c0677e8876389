//! Several devices: which of them reach each other, and whether NCCL is there.

use super::Finding;
use warpsmith_host::Device;
use warpsmith_host::collectives::Library;

fn optional(name: &str, state: &'static str, detail: String, fix: &str) -> Finding {
    Finding { name: name.to_owned(), needed_for: "optional", state, detail, fix: fix.to_owned() }
}

/// Nothing of peers if no engine starts, which has a line of its own.
pub fn devices() -> Vec<Finding> {
    Device::count().ok().map(peers).into_iter().chain([nccl()]).collect()
}

fn peers(count: u32) -> Finding {
    let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
    // Both ways, as collectives need it.
    let apart: Vec<String> = pairs
        .filter(|(a, b)| ![(*a, *b), (*b, *a)].iter().all(|(from, to)| Device::reaches(*from, *to).unwrap_or(false)))
        .map(|(a, b)| format!("{a} and {b}"))
        .collect();
    match (count, apart.is_empty()) {
        (0 | 1, _) => optional("peers", "ok", format!("devices of the engine: {count}"), ""),
        (_, true) => {
            optional("peers", "ok", format!("devices of the engine: {count}, all of which reach each other"), "")
        }
        (_, false) => {
            let detail = format!("devices of the engine: {count}; {} do not reach each other", apart.join(", "));
            let fix = "collectives of such devices go through NCCL; `nvidia-smi topo -p2p r` says more";
            optional("peers", "warning", detail, fix)
        }
    }
}

fn nccl() -> Finding {
    match Library::load().and_then(|library| library.version()) {
        Ok(version) => {
            let detail = format!("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
            optional("NCCL", "ok", detail, "")
        }
        Err(error) => {
            let detail = error.to_string().lines().next().unwrap_or_default().to_owned();
            let fix = "install libnccl2, or name the library in WARPSMITH_NCCL; ranks of one process need none";
            optional("NCCL", "missing", detail, fix)
        }
    }
}
