//! Why a driver that is there cannot be used: what is installed, what is needed, and what to do.

use crate::codes::{result_name, result_text};

/// CUDA 11.4, the oldest whose functions this workspace calls (`cuGraphInstantiateWithFlags`).
const OLDEST: i32 = 11_040;
/// NVIDIA's driver that brought it.
const OLDEST_DRIVER: &str = "470";

/// A version as CUDA counts them, 12040 for 12.4, in words.
struct Cuda(i32);

impl std::fmt::Display for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => f.write_str("an unknown version of CUDA"),
            version => write!(f, "CUDA {}.{}", version / 1000, version % 1000 / 10),
        }
    }
}

/// What is wrong with a driver library of this version, if it is too old. 0 is a version that it did not say.
pub(crate) fn too_old(library: &str, version: i32) -> Option<String> {
    (version != 0 && version < OLDEST).then(|| {
        format!(
            "{library} is of {}, and {} or newer is needed: update NVIDIA's driver to {OLDEST_DRIVER} or newer",
            Cuda(version),
            Cuda(OLDEST)
        )
    })
}

/// Why `cuInit` of a library answered `code`.
pub(crate) fn at_init(library: &str, version: i32, code: i32) -> String {
    let (name, text) = (result_name(code), result_text(code));
    let answer = format!("cuInit of {library} ({}) answers {name} ({code}): {text}", Cuda(version));
    let module =
        || match std::fs::read_to_string("/proc/driver/nvidia/version").ok().as_deref().and_then(module_version) {
            Some(version) => format!("The kernel module is {version}"),
            None => "The kernel module's version is in /proc/driver/nvidia/version".to_owned(),
        };
    match code {
        34 => format!("{answer}. It is the stub to link against; put the driver's own library in front of it"),
        803 => format!(
            "{answer}. {}, the library is of another version, as after an update: restart the machine, and in a \
             container use the library of the host instead of one that the image brings",
            module()
        ),
        804 => format!(
            "{answer}. It is a library for forward compatibility (cuda-compat), which this GPU does not support; use \
             the one that NVIDIA's driver installed"
        ),
        _ => answer,
    }
}

/// The number in the file in which the kernel module tells about itself.
fn module_version(text: &str) -> Option<&str> {
    let line = text.lines().find(|l| l.starts_with("NVRM version:"))?;
    line.split_whitespace().find(|w| w.contains('.') && w.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_tells_its_version() {
        let text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\n\
                    GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n";
        assert_eq!(module_version(text), Some("535.129.03"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (x)\n";
        assert_eq!(module_version(open), Some("580.95.05"));
        assert_eq!(module_version("GCC version: 12.2.0"), None);
    }

    #[test]
    fn only_versions_that_are_known_are_too_old() {
        assert_eq!((too_old("l", 0), too_old("l", 11_040), too_old("l", 13_010)), (None, None, None));
        assert!(too_old("l", 10_020).unwrap_or_default().contains("CUDA 10.2, and CUDA 11.4 or newer"));
    }
}
