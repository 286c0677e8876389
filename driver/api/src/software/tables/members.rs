//! What a link was given of objects and libraries.

use std::collections::BTreeSet;

use warpsmith_simt::ptx;

/// One fat binary of an object.
pub(crate) struct Member {
    /// What messages call it, such as `libcudadevrt.a(cuda_device_runtime.o)`.
    pub name: String,
    pub code: MemberCode,
}

pub(crate) enum MemberCode {
    /// What the device runs.
    Ptx(String),
    /// The functions that others may call.
    Machine(BTreeSet<String>),
}

impl Member {
    /// The names that it has for other modules.
    pub fn defines(&self) -> BTreeSet<String> {
        let text = match &self.code {
            MemberCode::Ptx(text) => text,
            MemberCode::Machine(functions) => return functions.clone(),
        };
        let outline = ptx::outline(text);
        let declared = outline.items.iter().filter_map(|item| Some((item, text.get(item.range.clone())?)));
        let seen = declared.filter(|(item, statement)| {
            let defined = item.space.is_some() || statement.ends_with('}');
            defined && [".visible", ".weak", ".common"].iter().any(|word| statement.starts_with(word))
        });
        seen.flat_map(|(item, _)| item.names.iter().map(|name| (*name).to_owned())).collect()
    }
}
