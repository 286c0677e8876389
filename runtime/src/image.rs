//! Kernel images: what the builder puts into a program.

mod read;

use crate::Error;
use std::borrow::Cow;
use std::sync::Arc;
use warpsmith_arch::Target;
use warpsmith_image::Manifest;
use warpsmith_image::pack::{self, Pack, PackError};

/// Kernels that every device knows without [`Device::load`](crate::Device::load). A crate that ships kernels together with the
/// code which launches them adds its image here when it is linked, so that its users need not know that there is one:
///
/// ```
/// use warpsmith_runtime::{KernelImage, SHIPPED};
/// # const PARTS: (&str, &str, &[u8]) = ("my-library", "{}", &[]);
/// # const fn image() -> KernelImage {
/// #     // SAFETY: nothing of it is launched.
/// #     unsafe { KernelImage::from_pack(PARTS) }
/// # }
/// static IMAGE: KernelImage = image(); // `include_kernels!` in a crate whose build script compiles kernels.
/// #[linkme::distributed_slice(SHIPPED)]
/// static OURS: &KernelImage = &IMAGE;
/// # assert!(SHIPPED.iter().any(|image| image.library() == "my-library"));
/// ```
///
/// Nothing of it is read or compiled before one of its kernels is launched; a library of the same name that was loaded by hand
/// goes before it.
#[linkme::distributed_slice]
pub static SHIPPED: [&'static KernelImage];

/// The compiled kernels of one library: PTX per architecture, machine code where the build was asked for it, and the manifest.
///
/// ```ignore
/// use warpsmith_runtime::{KernelImage, include_kernels};
/// // build.rs: warpsmith_builder::KernelCrate::new("kernels").archs(["sm_75"]).build()
/// static KERNELS: KernelImage = include_kernels!("my_kernels");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelImage {
    library: &'static str,
    manifest: &'static str,
    code: Code,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    /// By compute capability; each is one module.
    Texts(&'static [(u32, &'static str)]),
    /// A module for each kernel; see [`warpsmith_image::pack`].
    Pack(&'static [u8]),
}

impl KernelImage {
    /// From the library's name, its manifest as JSON, and PTX by compute capability (`75` is sm_75), as
    /// `warpsmith kernels --export` writes them. The text is one module, which [`Device::load`](crate::Device::load) loads.
    ///
    /// # Safety
    /// All three are of one run of the builder: code and manifest of the kernels of this program's `#[kernel]` functions. What a
    /// launch may touch follows from those functions and their contracts; other code under their names would touch anything.
    ///
    /// ```compile_fail,E0133
    /// use warpsmith_runtime::KernelImage;
    /// KernelImage::from_parts(("gpu-kernels", "{}", &[]));
    /// ```
    pub const unsafe fn from_parts(
        (library, manifest, code): (&'static str, &'static str, &'static [(u32, &'static str)]),
    ) -> KernelImage {
        KernelImage { library, manifest, code: Code::Texts(code) }
    }

    /// From what the builder's generated file holds: the library's name, its manifest as JSON, and its pack.
    /// [`include_kernels!`](crate::include_kernels) is the safe way.
    ///
    /// # Safety
    /// That of [`from_parts`](KernelImage::from_parts).
    pub const unsafe fn from_pack(
        (library, manifest, pack): (&'static str, &'static str, &'static [u8]),
    ) -> KernelImage {
        KernelImage { library, manifest, code: Code::Pack(pack) }
    }

    /// The library's name.
    pub const fn library(&self) -> &'static str {
        self.library
    }

    /// The manifest as the builder wrote it.
    pub const fn manifest_text(&self) -> &'static str {
        self.manifest
    }

    /// Bytes of code in the program: what its modules and their lines take as they are embedded.
    pub fn embedded_bytes(&self) -> usize {
        match self.code {
            Code::Texts(texts) => texts.iter().map(|(_, text)| text.len()).sum(),
            Code::Pack(pack) => pack.len(),
        }
    }

    /// What the builder says about the kernels, read once in a process.
    pub fn manifest(&self) -> Result<Arc<Manifest>, Error> {
        let manifest = read::manifest(self.manifest)
            .map_err(|error| self.refuse(format!("its manifest does not parse: {error}")))?;
        if manifest.library != self.library {
            return Err(self.refuse(format!("its manifest is of library `{}`", manifest.library)));
        }
        Ok(manifest)
    }

    /// The PTX of the whole library by compute capability, rising, with the lines of its source.
    pub fn code(&self) -> Result<Vec<(u32, Cow<'static, str>)>, Error> {
        match self.code {
            Code::Texts(texts) => Ok(texts.iter().map(|(sm, text)| (*sm, Cow::Borrowed(*text))).collect()),
            Code::Pack(pack) => {
                let pack = self.read(pack)?;
                let text = |image: &pack::Image| {
                    Ok((image.sm, Cow::Owned(pack.text(image, None, true).map_err(|e| self.damaged(&e))?)))
                };
                pack.images().iter().map(text).collect()
            }
        }
    }

    /// The PTX of the whole library for the newest architecture that a device of capability `sm` can run, and which one that
    /// is, with the lines of its source.
    pub fn code_for(&self, sm: u32) -> Result<(u32, Cow<'static, str>), Error> {
        let modules = self.modules_for(sm)?;
        Ok((modules.sm, modules.full_text()?))
    }

    /// The same of the module that has the kernel alone.
    pub fn code_of(&self, kernel: &str, sm: u32) -> Result<(u32, Cow<'static, str>), Error> {
        let modules = self.modules_for(sm)?;
        let module = modules
            .of(kernel)
            .ok_or_else(|| self.refuse(format!("its code for sm_{} has no kernel `{kernel}`", modules.sm)))?;
        Ok((modules.sm, modules.text(module, true)?))
    }

    /// The architectures that it has PTX for, rising: `80` for sm_80.
    pub fn architectures(&self) -> Result<Vec<u32>, Error> {
        match self.code {
            Code::Texts(texts) => Ok(texts.iter().map(|(sm, _)| *sm).collect()),
            Code::Pack(pack) => {
                let pack = self.read(pack)?;
                Ok(pack.images().iter().map(|image| image.sm).collect())
            }
        }
    }

    /// The targets that it has machine code for, such as `sm_90a`, in the order in which its build was asked for them.
    pub fn cubins(&self) -> Result<Vec<String>, Error> {
        match self.code {
            Code::Texts(_) => Ok(Vec::new()),
            Code::Pack(pack) => {
                let pack = self.read(pack)?;
                Ok(pack.cubins().iter().map(|cubins| cubins.target.clone()).collect())
            }
        }
    }

    /// The modules of the machine code that a device of capability `sm` is best given, and of the text that it was made of; without
    /// such code as [`modules_for`](KernelImage::modules_for).
    pub fn modules_with_cubins_for(&self, sm: u32) -> Result<Modules, Error> {
        if let Code::Pack(pack) = self.code {
            let pack = self.read(pack)?;
            let target = |cubins: &pack::Cubins| Target::named(&cubins.target);
            let best = Target::best_for(sm, pack.cubins().iter().filter_map(target));
            let found = best.and_then(|best| pack.cubins().iter().position(|cubins| target(cubins) == Some(best)));
            let of = found.and_then(|nth| pack.cubins().get(nth)).map(|cubins| cubins.sm);
            if let (Some(of), Some(nth)) = (of, found) {
                let image = pack.images().iter().position(|image| image.sm == of);
                let image = image.ok_or_else(|| self.refuse(format!("it lacks the code for sm_{of} of its cubins")))?;
                let code = Found::Packed { pack, image, cubins: Some(nth) };
                return Ok(Modules { image: *self, sm: of, code });
            }
        }
        self.modules_for(sm)
    }

    /// The modules for the newest architecture that a device of capability `sm` can run, as PTX.
    pub fn modules_for(&self, sm: u32) -> Result<Modules, Error> {
        let none = |available: Vec<u32>| Error::NoCodeForDevice { library: self.library.into(), sm, available };
        match self.code {
            Code::Texts(texts) => {
                let best = texts.iter().filter(|(of, _)| *of <= sm).max_by_key(|(of, _)| *of);
                let available = || texts.iter().map(|(of, _)| *of).collect();
                best.map(|(sm, text)| Modules { image: *self, sm: *sm, code: Found::Text(text) })
                    .ok_or_else(|| none(available()))
            }
            Code::Pack(pack) => {
                let pack = self.read(pack)?;
                let best =
                    (0..).zip(pack.images()).filter(|(_, image)| image.sm <= sm).max_by_key(|(_, image)| image.sm);
                match best.map(|(nth, image)| (nth, image.sm)) {
                    Some((image, sm)) => {
                        Ok(Modules { image: *self, sm, code: Found::Packed { pack, image, cubins: None } })
                    }
                    None => Err(none(pack.images().iter().map(|image| image.sm).collect())),
                }
            }
        }
    }

    fn read(&self, pack: &'static [u8]) -> Result<Arc<Pack>, Error> {
        read::pack(pack).map_err(|error| self.damaged(&error))
    }

    fn damaged(&self, error: &PackError) -> Error {
        self.refuse(error.to_string())
    }

    pub(super) fn refuse(&self, problem: String) -> Error {
        Error::Image { library: self.library.into(), problem }
    }
}

/// The modules of an image for one architecture.
#[derive(Debug)]
pub struct Modules {
    /// The compute capability that they are for: `90` is sm_90.
    pub sm: u32,
    image: KernelImage,
    code: Found,
}

#[derive(Debug)]
enum Found {
    /// One module, of all kernels.
    Text(&'static str),
    Packed {
        pack: Arc<Pack>,
        image: usize,
        /// Which machine code goes before the text.
        cubins: Option<usize>,
    },
}

impl Modules {
    /// How many there are.
    pub fn count(&self) -> usize {
        match &self.code {
            Found::Text(_) => 1,
            Found::Packed { pack, image, .. } => pack.images().get(*image).map_or(0, |image| image.modules.len()),
        }
    }

    /// Whether the modules were cut, so that each is loaded when one of its kernels is wanted.
    pub fn are_cut(&self) -> bool {
        matches!(self.code, Found::Packed { .. })
    }

    /// Whether there is machine code of them for the device.
    pub fn have_cubins(&self) -> bool {
        matches!(self.code, Found::Packed { cubins: Some(_), .. })
    }

    /// The module of a kernel.
    pub fn of(&self, kernel: &str) -> Option<usize> {
        match &self.code {
            Found::Text(_) => Some(0),
            Found::Packed { pack, image, .. } => {
                let modules = &pack.images().get(*image)?.modules;
                modules.iter().position(|names| names.iter().any(|name| name == kernel))
            }
        }
    }

    /// A module's text, with the lines of its source or without. One that was not cut is as it was given.
    pub fn text(&self, module: usize, with_lines: bool) -> Result<Cow<'static, str>, Error> {
        self.unpacked(Some(module), with_lines)
    }

    /// A module's machine code and the target that it is for, if there is any for the device.
    pub fn cubin(&self, module: usize) -> Result<Option<(&str, Vec<u8>)>, Error> {
        let Found::Packed { pack, cubins: Some(nth), .. } = &self.code else { return Ok(None) };
        let Some(cubins) = pack.cubins().get(*nth) else { return Ok(None) };
        let code = pack.cubin(cubins, module).map_err(|error| self.image.damaged(&error))?;
        Ok(Some((&cubins.target, code)))
    }

    fn full_text(&self) -> Result<Cow<'static, str>, Error> {
        self.unpacked(None, true)
    }

    fn unpacked(&self, module: Option<usize>, with_lines: bool) -> Result<Cow<'static, str>, Error> {
        match &self.code {
            Found::Text(text) => Ok(Cow::Borrowed(text)),
            Found::Packed { pack, image, .. } => match pack.images().get(*image) {
                Some(image) => {
                    let text = pack.text(image, module, with_lines);
                    text.map(Cow::Owned).map_err(|error| self.image.damaged(&error))
                }
                None => Ok(Cow::Borrowed("")),
            },
        }
    }
}

/// The image that the builder made of a kernels crate in this package's build script. The name is
/// the kernels package's, with `_` for `-`.
#[macro_export]
macro_rules! include_kernels {
    ($library:literal) => {{
        let parts: (&str, &str, &[u8]) = include!(env!(
            concat!("WARPSMITH_KERNELS_", $library),
            concat!(
                "no kernels are called `",
                $library,
                "`: it is the name of the kernels crate, with `_` for `-`, that the build script of this package compiles with \
                 `warpsmith_builder::KernelCrate`"
            )
        ));
        // SAFETY: what the builder wrote into the folder that is its own.
        unsafe { $crate::KernelImage::from_pack(parts) }
    }};
}
