//! Where a project keeps its kernels, and what launches them.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cli::AddArgs;
use crate::commands::project::metadata;
use crate::failure::Failure;

/// The two packages that a kernel belongs to.
pub struct Places {
    /// How the host names the crate of kernels.
    pub library: String,
    /// The name that `include_kernels!` takes.
    pub library_package: String,
    /// The root of that crate.
    pub source: PathBuf,
    /// The folder of the package that builds and launches the kernels.
    pub host: PathBuf,
    /// Its manifest.
    pub manifest: PathBuf,
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value[name].as_array().into_iter().flatten()
}

fn depends<'a>(package: &'a Value, name: &str, kind: Option<&str>) -> Option<&'a Value> {
    list(package, "dependencies").find(|d| d["name"] == name && d["kind"].as_str() == kind)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Places {
    /// Those of the project that is meant.
    pub fn find(args: &AddArgs) -> Result<Places, Failure> {
        let dir = args.project.clone().unwrap_or_else(|| PathBuf::from("."));
        let metadata = metadata(&dir, false)?;
        Places::of(&metadata, args.package.as_deref())
    }

    fn of(metadata: &Value, package: Option<&str>) -> Result<Places, Failure> {
        // Kernels are a package that depends on the device crate; their host is one that builds kernels and depends on it.
        let kernels: Vec<&Value> =
            list(metadata, "packages").filter(|p| depends(p, "warpsmith-device", None).is_some()).collect();
        let host = |p: &Value| depends(p, "warpsmith-builder", Some("build")).is_some();
        let mut pairs = Vec::new();
        for host in list(metadata, "packages").filter(|p| host(p)) {
            let used = kernels.iter().filter_map(|k| Some((host, *k, depends(host, text(&k["name"]), None)?)));
            pairs.extend(used);
        }
        pairs.retain(|(host, ..)| package.is_none_or(|name| host["name"] == name));
        let names: Vec<&str> = pairs.iter().map(|(host, ..)| text(&host["name"])).collect();
        let (host, kernels, dependency) = match pairs.as_slice() {
            [one] => *one,
            [] => {
                return Err(Failure::usage(
                    "the project has no package that builds kernels (a build-dependency on warpsmith-builder) and depends on \
                     a crate of kernels, as `warpsmith new` makes it",
                ));
            }
            _ => {
                let names = names.join(", ");
                return Err(Failure::usage(format!("several packages build kernels: --package takes one of {names}")));
            }
        };
        if depends(host, "warpsmith-bench", Some("dev")).is_none() {
            return Err(Failure::usage(format!(
                "the benchmark needs warpsmith-bench, on which {} does not depend: `cargo add --dev warpsmith-bench`",
                text(&host["name"])
            )));
        }
        let is_lib = |t: &&Value| list(t, "kind").any(|kind| kind == "lib");
        let library = list(kernels, "targets").find(is_lib).ok_or_else(|| {
            Failure::usage(format!("the package {} has no library to write a kernel into", text(&kernels["name"])))
        })?;
        let (rename, own) = (dependency["rename"].as_str(), text(&library["name"]));
        let manifest = PathBuf::from(text(&host["manifest_path"]));
        Ok(Places {
            library: rename.unwrap_or(own).replace('-', "_"),
            library_package: text(&kernels["name"]).replace('-', "_"),
            source: PathBuf::from(text(&library["src_path"])),
            host: manifest.parent().unwrap_or(Path::new(".")).to_path_buf(),
            manifest,
        })
    }
}
