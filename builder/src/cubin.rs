//! Machine code beside PTX: which targets a build is asked for, and how it comes by their code.

use std::path::Path;

use warpsmith_arch::Target;
use warpsmith_image::pack;

use crate::BuildError;
use crate::arch::Arch;
use crate::plan::Isa;
use crate::ptxas::Ptxas;

/// The environment variable that lists targets; `0` and `off`: none.
pub(crate) const VARIABLE: &str = "WARPSMITH_CUBINS";

/// What a build is asked for.
#[derive(Debug)]
pub(crate) struct Cubins {
    ptxas: Ptxas,
    /// Each with the architecture of the text that its code is made of.
    targets: Vec<(Target, Arch)>,
}

impl Cubins {
    /// What [`VARIABLE`] lists, else what `asked` does; `None`: nothing.
    pub(crate) fn of(
        variable: Option<&str>,
        asked: &[String],
        archs: &[(Arch, Isa)],
        find: impl FnOnce() -> Option<Ptxas>,
    ) -> Result<Option<Cubins>, BuildError> {
        let (setting, targets) = match variable.filter(|list| !list.trim().is_empty()) {
            Some(list) => (VARIABLE, listed(list)?),
            None => ("KernelCrate::cubins", asked.iter().map(|name| target(name)).collect::<Result<_, _>>()?),
        };
        if targets.is_empty() {
            return Ok(None);
        }
        let refuse = |reason: String| BuildError::Setting { setting: setting.to_owned(), reason };
        let mut chosen: Vec<(Target, Arch)> = Vec::new();
        for target in targets {
            let text = archs.iter().map(|(arch, _)| *arch).filter(|arch| arch.sm() <= target.sm).max();
            let text = text.ok_or_else(|| {
                refuse(format!(
                    "machine code for {target} is made of PTX for sm_{} or older, and this build has none",
                    target.sm
                ))
            })?;
            if !chosen.contains(&(target, text)) {
                chosen.push((target, text));
            }
        }
        let ptxas = find().ok_or_else(|| {
            refuse(format!(
                "NVIDIA's assembler, which makes machine code, was not found{}. Run `pip install nvidia-cuda-nvcc` in an active \
                 virtual environment, or install a CUDA toolkit, or name the program in WARPSMITH_PTXAS; {VARIABLE}=off builds \
                 without machine code",
                match std::env::var_os("WARPSMITH_PTXAS").filter(|path| !path.is_empty()) {
                    Some(path) => format!(": WARPSMITH_PTXAS names {}, which does not run", path.display()),
                    None => String::new(),
                }
            ))
        })?;
        Ok(Some(Cubins { ptxas, targets: chosen }))
    }

    /// What makes it.
    pub(crate) fn assembler(&self) -> &Path {
        self.ptxas.path()
    }

    /// The machine code of the modules of all texts, each with its architecture. As many at once as there are cores.
    pub(crate) fn assemble(&self, texts: &[(u32, Vec<String>)]) -> Result<Vec<pack::Machine>, BuildError> {
        let modules =
            |arch: Arch| texts.iter().filter(move |(sm, _)| *sm == arch.sm()).flat_map(|(_, modules)| modules);
        let jobs: Vec<(Target, &str)> = self
            .targets
            .iter()
            .flat_map(|(target, arch)| modules(*arch).map(move |text| (*target, text.as_str())))
            .collect();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut cubins = std::thread::scope(|scope| {
            let work = |jobs: &[(Target, &str)]| -> Result<Vec<Vec<u8>>, BuildError> {
                jobs.iter().map(|(target, text)| self.ptxas.cubin(text, *target)).collect()
            };
            let shares = jobs.chunks(jobs.len().div_ceil(cores).max(1));
            let threads: Vec<_> = shares.map(|share| scope.spawn(move || work(share))).collect();
            threads.into_iter().map(crate::process::join).collect::<Result<Vec<_>, _>>()
        })?
        .into_iter()
        .flatten();
        let machine = self.targets.iter().map(|(target, arch)| pack::Machine {
            target: target.to_string(),
            sm: arch.sm(),
            cubins: cubins.by_ref().take(modules(*arch).count()).collect(),
        });
        Ok(machine.collect())
    }
}

/// The targets of a list in the environment.
pub(crate) fn listed(list: &str) -> Result<Vec<Target>, BuildError> {
    match list.trim() {
        "0" => Ok(Vec::new()),
        word if word.eq_ignore_ascii_case("off") => Ok(Vec::new()),
        list => list.split(',').map(|name| target(name.trim())).collect(),
    }
}

/// Reads `sm_90a` or `90a`.
fn target(text: &str) -> Result<Target, BuildError> {
    let name = text.trim().trim_start_matches("sm_");
    Target::named(&format!("sm_{name}")).filter(|target| target.sm >= Arch::OLDEST).ok_or_else(|| {
        let known: Vec<String> =
            Target::all().filter(|target| target.sm >= Arch::OLDEST).map(|target| target.to_string()).collect();
        BuildError::Arch { text: text.to_owned(), reason: format!("machine code is made for {}", known.join(", ")) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is planned, as `target of text`; the assembler is there or not.
    fn planned(variable: Option<&str>, asked: &[&str], ptxas: Option<Ptxas>) -> Result<Vec<String>, String> {
        let archs = ["sm_75", "sm_80"].map(|name| (name.parse::<Arch>().unwrap(), (7, 4)));
        let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
        let cubins = Cubins::of(variable, &asked, &archs, || ptxas).map_err(|error| error.to_string())?;
        let targets = cubins.map(|cubins| cubins.targets).unwrap_or_default();
        Ok(targets.iter().map(|(target, arch)| format!("{target} of {arch}")).collect())
    }

    #[test]
    fn code_is_made_of_the_newest_text_that_is_not_newer() {
        let ptxas = || Some(Ptxas::named("/bin/ptxas"));
        let of = |variable, asked: &[&str]| planned(variable, asked, ptxas()).unwrap();
        assert_eq!(of(None, &["sm_75", "86", "sm_90a", "86"]), ["sm_75 of sm_75", "sm_86 of sm_80", "sm_90a of sm_80"]);
        assert_eq!(of(Some("sm_80, 100f"), &["sm_75"]), ["sm_80 of sm_80", "sm_100f of sm_80"]);
        for nothing in ["off", "OFF", "0"] {
            assert_eq!(of(Some(nothing), &["sm_75"]), Vec::<String>::new());
        }
        assert_eq!(of(Some(" "), &["sm_75"]), ["sm_75 of sm_75"]);
        assert_eq!(planned(None, &[], None).unwrap(), Vec::<String>::new(), "nothing needs no assembler");
    }

    #[test]
    fn what_cannot_be_made_is_one_error() {
        for (asked, ptxas, parts) in [
            ("sm_80a", true, &["`sm_80a`", "sm_90a"][..]),
            ("sm_61", true, &["`sm_61`", "is made for sm_70, sm_72"]),
            ("nvcc", true, &["`nvcc`"]),
            ("sm_70", true, &["KernelCrate::cubins", "PTX for sm_70 or older", "has none"]),
            ("sm_80", false, &["KernelCrate::cubins", "was not found", "pip install", "WARPSMITH_CUBINS=off"]),
        ] {
            let error = planned(None, &[asked], ptxas.then(|| Ptxas::named("/bin/ptxas"))).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{asked}: {error}");
        }
        let error = planned(Some("sm_80"), &[], None).unwrap_err();
        assert!(error.starts_with("WARPSMITH_CUBINS: "), "{error}");
    }
}
