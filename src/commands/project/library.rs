//! Kernels as a build left them: what is known of them, and their text.

use std::path::Path;
use std::sync::Arc;

use warpsmith_host::{KernelImage, Manifest};

use crate::failure::{Failure, Kind};

/// The kernels of one crate.
#[derive(Clone, Debug)]
pub struct Library {
    pub manifest: Manifest,
    /// The manifest as the builder wrote it.
    pub text: String,
    /// PTX by compute capability, rising.
    pub code: Vec<(u32, String)>,
}

impl Library {
    /// Of a manifest that a build script wrote, and the texts beside it.
    pub fn read(path: &Path) -> Result<Library, Failure> {
        let failed =
            |path: &Path, e: &dyn std::fmt::Display| Failure::new(Kind::Operation, format!("{}: {e}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| failed(path, &e))?;
        let manifest = serde_json::from_str(&text).map_err(|e| failed(path, &e))?;
        let images = warpsmith_builder::Manifest::read(path).map_err(|e| failed(path, &e))?.images;
        let mut code = Vec::new();
        for image in images {
            let file = path.with_file_name(&image.file);
            code.push((image.sm, std::fs::read_to_string(&file).map_err(|e| failed(&file, &e))?));
        }
        code.sort_unstable_by_key(|(sm, _)| *sm);
        Ok(Library { manifest, text, code })
    }

    /// Of the kernels that ship.
    pub fn shipped(image: &KernelImage) -> Result<Library, Failure> {
        let code = image.code()?.into_iter().map(|(sm, text)| (sm, text.into_owned())).collect();
        Ok(Library { manifest: Arc::unwrap_or_clone(image.manifest()?), text: image.manifest_text().to_owned(), code })
    }

    /// The text for the newest architecture that a device of capability `sm` can run.
    pub fn code_for(&self, sm: u32) -> Result<(u32, &str), Failure> {
        let best = self.code.iter().filter(|(of, _)| *of <= sm).max_by_key(|(of, _)| *of);
        let known: Vec<String> = self.code.iter().map(|(of, _)| format!("sm_{of}")).collect();
        best.map(|(of, text)| (*of, text.as_str())).ok_or_else(|| {
            Failure::new(
                Kind::Operation,
                format!("`{}` has no code for sm_{sm}: it is built for {}", self.manifest.library, known.join(", ")),
            )
        })
    }
}
