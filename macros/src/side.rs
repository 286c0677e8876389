//! Which half of what the attributes write will be compiled.
//!
//! Each half stands under a `cfg` of its own, so that writing both is always right. But bodies and launch structs of some hundred
//! kernels, written to be left out, are much of what a build waits for; and these macros run in the compiler, whose command line says
//! for which target it works.

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// For `nvptx64`.
    Device,
    /// For something else.
    Host,
    /// For whom it may be: an editor reads it, or the target is a file.
    Both,
}

impl Side {
    /// Of the process that this runs in.
    pub fn of_process() -> Side {
        Side::of(std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()))
    }

    fn of(arguments: impl Iterator<Item = String>) -> Side {
        let (mut compiler, mut target) = (false, None);
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            match argument.split_once('=') {
                None if argument == "--target" => target = arguments.next(),
                Some(("--target", value)) => target = Some(value.to_owned()),
                // Cargo names every crate. What does not is no compiler, or takes its arguments from a file.
                None if argument == "--crate-name" => compiler = true,
                Some(("--crate-name", _)) => compiler = true,
                _ => {}
            }
        }
        match target {
            _ if !compiler => Side::Both,
            None => Side::Host,
            Some(target) if target.ends_with(".json") => Side::Both,
            Some(target) if target.starts_with("nvptx64") => Side::Device,
            Some(_) => Side::Host,
        }
    }

    pub fn device(self) -> bool {
        self != Side::Host
    }

    pub fn host(self) -> bool {
        self != Side::Device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_of_a_compiler_says_it() {
        let of = |text: &str| Side::of(text.split_whitespace().map(str::to_owned));
        assert_eq!(of("--crate-name k src/lib.rs --target nvptx64-nvidia-cuda -Copt-level=3"), Side::Device);
        assert_eq!(of("--crate-name=k src/lib.rs --target=nvptx64-nvidia-cuda"), Side::Device);
        assert_eq!(of("--crate-name k src/lib.rs"), Side::Host);
        assert_eq!(of("--crate-name k src/lib.rs --target x86_64-unknown-linux-gnu"), Side::Host);
        for unknown in ["", "@arguments", "--crate-name k --target my/nvptx64.json", "proc-macro-srv --target x"] {
            assert_eq!(of(unknown), Side::Both, "{unknown}");
        }
    }
}
