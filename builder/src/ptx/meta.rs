//! The `// @kernel {json}` lines.

use std::collections::BTreeMap;

use serde::Deserialize;

use warpsmith_image::KernelEntry;

/// One line, read.
#[derive(Clone, Debug)]
pub(crate) struct KernelLine {
    pub(crate) kernel: KernelEntry,
    /// `"allow_local": true`.
    pub(crate) allow_local: bool,
    /// `"collectives": {"barrier": 1}`: how many there must be.
    pub(crate) expected: BTreeMap<String, u32>,
}

#[derive(Deserialize)]
struct Options {
    #[serde(default)]
    allow_local: bool,
    #[serde(default)]
    collectives: BTreeMap<String, u32>,
}

/// The comments that begin with `@kernel`: the number of the line, from 1, and the rest of it.
pub(crate) fn lines(text: &str) -> Vec<(usize, &str)> {
    fn json(line: &str) -> Option<&str> {
        line.trim_start().strip_prefix("//")?.trim().strip_prefix("@kernel").map(str::trim)
    }
    text.lines().enumerate().filter_map(|(i, line)| Some((i + 1, json(line)?))).collect()
}

/// Reads every line; what cannot be read is a problem.
pub(crate) fn read(lines: &[(usize, &str)], problems: &mut Vec<String>) -> Vec<KernelLine> {
    let mut read = Vec::new();
    for (number, json) in lines {
        let parsed = serde_json::from_str::<KernelEntry>(json)
            .and_then(|kernel| serde_json::from_str::<Options>(json).map(|options| (kernel, options)));
        match parsed {
            Ok((mut kernel, options)) => {
                for key in ["allow_local", "expect"] {
                    kernel.extra.remove(key);
                }
                // These are found out, not claimed.
                (kernel.static_shared, kernel.dynamic_shared_used, kernel.local_bytes) = (0, false, 0);
                (kernel.grid_barrier, kernel.waits) = (false, false);
                kernel.collectives.clear();
                kernel.archs.clear();
                read.push(KernelLine { kernel, allow_local: options.allow_local, expected: options.collectives });
            }
            Err(error) => problems.push(format!(
                "the metadata in line {number} of the PTX cannot be read: {error}. The line is `// @kernel {}`",
                shorten(json)
            )),
        }
    }
    read
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(160) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
