//! A project that is built: its kernels, and its tests ready to run.

use super::build::{self, Targets};
use super::harness::{self, Ran, Variables};
use super::{Built, Library, Project};
use crate::failure::{Failure, Kind};

/// A project without errors.
pub struct Ready {
    pub built: Built,
    /// Its kernels, a library for each build script that makes some.
    pub libraries: Vec<Library>,
}

impl Project {
    /// Builds the tests and the kernels; errors end the command as rustc says them.
    pub fn build(&self, talk: bool) -> Result<Ready, Failure> {
        self.built(Targets::Tests, talk)
    }

    /// The same of the benchmarks.
    pub fn build_benches(&self, talk: bool) -> Result<Ready, Failure> {
        self.built(Targets::Benches, talk)
    }

    fn built(&self, targets: Targets, talk: bool) -> Result<Ready, Failure> {
        let built = build::build(self, targets, talk)?;
        if !built.errors.is_empty() {
            let words = format!("the project does not build:\n{}", built.errors.join("\n\n"));
            return Err(Failure::new(Kind::Operation, words));
        }
        let libraries = built.own.iter().map(|path| Library::read(path)).collect::<Result<Vec<_>, _>>()?;
        if libraries.iter().all(|l| l.manifest.kernels.is_empty()) {
            return Err(Failure::usage(format!(
                "the project in {} builds no kernels: a build script with `warpsmith_builder::KernelCrate` does, as `warpsmith \
                 new` makes it",
                self.dir.display()
            )));
        }
        Ok(Ready { built, libraries })
    }
}

impl Ready {
    /// Whether it is a kernel of the project.
    pub fn has(&self, kernel: &str) -> bool {
        self.library(kernel).is_some()
    }

    /// The library that has it.
    pub fn library(&self, kernel: &str) -> Option<&Library> {
        self.libraries.iter().find(|l| l.manifest.kernels.iter().any(|k| k.name == kernel))
    }

    /// An error that names the project's kernels if one of these is none of them.
    pub fn know(&self, kernels: &[String]) -> Result<(), Failure> {
        let Some(unknown) = kernels.iter().find(|k| !self.has(k)) else { return Ok(()) };
        let known = self.libraries.iter().flat_map(|l| &l.manifest.kernels);
        let names: Vec<&str> = known.map(|k| k.name.as_str()).collect();
        Err(Failure::usage(format!(
            "no kernel `{unknown}` in the project: it has {}; --shipped takes the kernels that ship with warpsmith",
            names.join(", ")
        )))
    }

    /// The text of a kernel for a device of that architecture.
    pub fn text(&self, kernel: &str, sm: u32) -> Result<Option<String>, Failure> {
        self.library(kernel).map(|l| l.code_for(sm).map(|(_, text)| text.to_owned())).transpose()
    }

    /// Runs the tests that have one of these names in theirs, or all if none has.
    pub fn tests(&self, kernels: &[String], variables: Variables<'_>) -> Result<Ran, Failure> {
        let mut never = || false;
        let mut run = |filters: &[String]| {
            let ran = harness::run(&self.built, filters, variables, &mut never)?;
            Ok::<_, Failure>(ran.unwrap_or_default())
        };
        let mut ran = run(kernels)?;
        if ran.tests.is_empty() && !kernels.is_empty() {
            ran = run(&[])?;
        }
        if ran.tests.is_empty() {
            return Err(Failure::usage("the project has no tests: nothing was run"));
        }
        Ok(ran)
    }
}
