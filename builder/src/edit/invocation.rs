//! How cargo started the compiler for the kernels crate, as it says itself.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::process::clean_command;

/// A command of the compiler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Invocation {
    program: PathBuf,
    arguments: Vec<String>,
    /// What cargo sets for it.
    variables: Vec<(String, String)>,
}

/// What stands before such a command in what cargo says, verbose as it is asked to be.
const RUNNING: &str = "Running `";

impl Invocation {
    /// The one for the static library `crate_name`, if cargo ran one and says it as a shell would read it.
    pub(super) fn find(said: &str, crate_name: &str) -> Option<Invocation> {
        let lines = said.lines().filter_map(|line| line.trim_start().strip_prefix(RUNNING)?.strip_suffix('`'));
        lines.filter_map(Invocation::read).find(|found| found.is_for(crate_name))
    }

    fn read(line: &str) -> Option<Invocation> {
        let mut words = shlex::split(line)?.into_iter().peekable();
        let mut variables = Vec::new();
        let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        while let Some((name, value)) = words.peek()?.split_once('=').filter(|(name, _)| is_name(name)) {
            variables.push((name.to_owned(), value.to_owned()));
            words.next();
        }
        Some(Invocation { program: words.next()?.into(), arguments: words.collect(), variables })
    }

    fn is_for(&self, crate_name: &str) -> bool {
        let has = |first: &str, second: &str| self.arguments.windows(2).any(|two| two == [first, second]);
        has("--crate-name", crate_name) && has("--crate-type", "staticlib")
    }

    /// The same compilation with texts in `out` as all that it leaves, and what it keeps for the next one in `incremental`. Messages are as
    /// cargo reads them, but for colours.
    pub(super) fn redirected(&self, out: &Path, incremental: &Path) -> std::process::Command {
        let mut command = clean_command(&self.program);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let mut arguments = self.arguments.iter();
        while let Some(argument) = arguments.next() {
            let is = |name: &str| argument.strip_prefix(name).is_some_and(|rest| rest.starts_with('='));
            match argument.as_str() {
                "--out-dir" => drop(arguments.next()),
                _ if is("--emit") || is("--json") || is("-Cincremental") => {}
                _ => drop(command.arg(argument)),
            }
        }
        let mut option = std::ffi::OsString::from("-Cincremental=");
        option.push(incremental);
        command.arg("--emit=asm").arg("--out-dir").arg(out).arg(option);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "       Fresh libm v0.2.16\n     Running `CARGO=/c rustc --crate-name build_script_build --crate-type bin`\n     \
        Running `CARGO_PKG_NAME=my-kernels CARGO_PKG_AUTHORS='' LD_LIBRARY_PATH='/a b/deps:/c' /the/rustc --crate-name my_kernels \
        --edition=2024 src/lib.rs --error-format=json --json=diagnostic-rendered-ansi --crate-type staticlib --emit=dep-info,link \
        --check-cfg 'cfg(feature, values(\"a\"))' --out-dir '/t t/deps' --emit=asm,link '-Cpasses=lto<O3>' -Cincremental=/t/inc`\n    Finished\n";

    #[test]
    fn what_cargo_ran_is_found_and_runs_elsewhere() {
        let found = Invocation::find(SAID, "my_kernels").unwrap();
        let command = found.redirected(Path::new("/out"), Path::new("/kept"));
        assert_eq!(command.get_program(), "/the/rustc");
        let arguments: Vec<_> = command.get_args().map(|a| a.to_str().unwrap()).collect();
        assert_eq!(
            arguments,
            [
                "--crate-name",
                "my_kernels",
                "--edition=2024",
                "src/lib.rs",
                "--error-format=json",
                "--crate-type",
                "staticlib",
                "--check-cfg",
                "cfg(feature, values(\"a\"))",
                "-Cpasses=lto<O3>",
                "--emit=asm",
                "--out-dir",
                "/out",
                "-Cincremental=/kept",
            ]
        );
        let set = |name: &str| command.get_envs().find(|(n, _)| *n == name).and_then(|(_, v)| v?.to_str());
        assert_eq!(set("CARGO_PKG_NAME"), Some("my-kernels"));
        assert_eq!(set("CARGO_PKG_AUTHORS"), Some(""));
        assert_eq!(set("LD_LIBRARY_PATH"), Some("/a b/deps:/c"));
        assert_eq!(Invocation::find(SAID, "other"), None);
        assert_eq!(Invocation::find(&SAID.replace("'/a b", "/a b"), "my_kernels"), None, "no shell reads it");
    }
}
