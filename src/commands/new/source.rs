//! Where a new project takes warpsmith's crates from: a checkout, or the registry.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::NewArgs;
use crate::failure::Failure;

/// The mark in the templates, and the crate's folder in a checkout.
pub const CRATES: [(&str, &str); 4] =
    [("@HOST@", "host"), ("@BUILDER@", "builder"), ("@DEVICE@", "device"), ("@BENCH@", "bench")];

/// A source of crates.
#[derive(Debug)]
pub enum Source {
    /// A checkout of the repository.
    Checkout {
        /// Its root.
        root: PathBuf,
        /// Nobody named it: it is where this program was built.
        found: bool,
    },
    /// The registry, with this version requirement.
    Registry(String),
}

impl Source {
    /// What the options say; without any, the checkout that this program was built in, or the version that it has.
    pub fn choose(args: &NewArgs) -> Result<Source, Failure> {
        if let Some(path) = &args.path {
            let root = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            return match missing(&root) {
                None => Ok(Source::Checkout { root, found: false }),
                Some(lacks) => Err(Failure::usage(format!(
                    "--path {}: no checkout of warpsmith, since it has no {}",
                    path.display(),
                    lacks.display()
                ))),
            };
        }
        if let Some(version) = &args.version {
            let digits = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
            let core = version.split(['-', '+']).next().unwrap_or_default();
            if !(1..=3).contains(&core.split('.').count()) || !core.split('.').all(digits) || version.contains('"') {
                return Err(Failure::usage(format!("--version {version}: expected a version such as 0.1.0")));
            }
            return Ok(Source::Registry(version.clone()));
        }
        let built_in = Path::new(env!("CARGO_MANIFEST_DIR"));
        Ok(if missing(built_in).is_none() {
            Source::Checkout { root: built_in.to_path_buf(), found: true }
        } else {
            Source::Registry(env!("CARGO_PKG_VERSION").to_owned())
        })
    }

    /// The value of a dependency on the crate of that folder. A project has kernels of its own: those that come with the host
    /// layer would be most of its first build.
    pub fn dependency(&self, folder: &str) -> String {
        // A string of JSON is one of TOML: both escape quotes, backslashes and control characters the same way.
        let (key, value) = match self {
            Source::Checkout { root, .. } => ("path", json!(root.join(folder).to_string_lossy())),
            Source::Registry(version) => ("version", json!(version)),
        };
        match folder {
            "host" => format!("{{ {key} = {value}, default-features = false }}"),
            _ if key == "version" => value.to_string(),
            _ => format!("{{ {key} = {value} }}"),
        }
    }

    /// The configuration of cargo that a project on a checkout needs; one on published crates needs none.
    pub fn config(&self) -> Result<Option<String>, Failure> {
        let Source::Checkout { root, .. } = self else { return Ok(None) };
        let link = root.join("driver/link").to_string_lossy().into_owned();
        if link.contains(':') {
            return Err(Failure::usage(format!(
                "{}: projects cannot depend on a checkout whose path has a colon, because CUDA_LIBRARY_PATH, which points into \
                 it, is a list separated by colons",
                root.display()
            )));
        }
        Ok(Some(super::templates::CONFIG.replace("@LINK@", &json!(link).to_string())))
    }

    /// The checkout's lock file: with it a project begins with the versions of other crates that the checkout is tested with.
    pub fn lock(&self) -> Option<String> {
        match self {
            Source::Checkout { root, .. } => std::fs::read_to_string(root.join("Cargo.lock")).ok(),
            Source::Registry(_) => None,
        }
    }

    pub fn to_json(&self) -> Value {
        match self {
            Source::Checkout { root, .. } => json!({ "path": root }),
            Source::Registry(version) => json!({ "version": version }),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Checkout { root, found } => {
                write!(f, "It depends on warpsmith's crates in {}", root.display())?;
                if *found {
                    write!(
                        f,
                        ", where this program was built; --path names another place, --version a published version"
                    )?;
                }
                f.write_str(".")
            }
            Source::Registry(version) => {
                write!(
                    f,
                    "It depends on warpsmith's crates of version {version} from the registry; if that does not have them, \
                     --path takes them from a checkout."
                )
            }
        }
    }
}

/// What a folder lacks to be a checkout.
fn missing(root: &Path) -> Option<PathBuf> {
    CRATES.iter().map(|(_, folder)| Path::new(folder).join("Cargo.toml")).find(|f| !root.join(f).is_file())
}
