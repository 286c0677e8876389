//! Compiled code on disk: what a GPU's driver has made of a kernel's PTX, so that the next process need not wait for it again.
//!
//! A driver compiles PTX when it is loaded, which takes a GPU's 0.1 to 0.2 s a kernel. The linker of the driver API gives the
//! result away (`cuLinkCreate`, `cuLinkAddData`, `cuLinkComplete`); it is kept in the user's cache folder, and loaded from there
//! as long as text, architecture and driver are the same.
//!
//! **Whose word counts.** An entry says which key it has and carries a checksum. One that is cut off, altered or of another key is
//! never loaded: the code is compiled anew and the entry replaced. So is one that the driver refuses, which
//! is told as a `tracing` warning.
//!
//! **Processes.** An entry is written beside its place and renamed into it, so that a reader sees a whole one or none; of two
//! processes that write the same, the later one wins, with the same content.
//!
//! **Room.** At most [`BOUND`] bytes; when more is written, what was not used for the longest time goes first.
//!
//! **Failures** of the cache never fail a load. The first is told as a `tracing` warning; the code is compiled as without a cache.
//!
//! The software driver compiles nothing, and its linker answers PTX. Its entries would be copies of what the program holds anyway,
//! so it is asked for them only where [`VARIABLE`] names a folder, as tests do.

use std::ffi::{OsStr, OsString, c_void};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::Error;
use crate::sys::{self, cu};
use warpsmith_driver_api::{CUlinkState, Engine};

/// The environment variable that names the folder; `0` and `off` switch the cache off.
pub const VARIABLE: &str = "WARPSMITH_CODE_CACHE";

/// Bytes that the entries may have together.
pub const BOUND: u64 = 512 << 20;

/// What an entry begins with. It changes with the layout of entries.
const MAGIC: [u8; 8] = *b"WSCODE01";

/// Bytes before the code: [`MAGIC`], key, length, checksum.
const HEADER: usize = 8 + 16 + 8 + 4;

/// How entries are called behind their key.
const EXTENSION: &str = "code";

/// After so long, a file that was to become an entry is what a process has left that died.
const STALE: Duration = Duration::from_secs(3600);

/// Where the environment wants the cache to be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Location {
    /// Switched off, or no folder of the user is known.
    Off(&'static str),
    /// The user's cache folder.
    Default(PathBuf),
    /// The folder that the variable names.
    Named(PathBuf),
}

impl Location {
    fn of(get: impl Fn(&str) -> Option<OsString>) -> Location {
        let named = |name: &str| get(name).filter(|value| !value.is_empty());
        match named(VARIABLE) {
            Some(value) if value == OsStr::new("0") || value.eq_ignore_ascii_case("off") => {
                return Location::Off("switched off by WARPSMITH_CODE_CACHE");
            }
            Some(folder) => return Location::Named(folder.into()),
            None => {}
        }
        let folder = |name: &str| named(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let user = if cfg!(windows) {
            folder("LOCALAPPDATA")
        } else {
            folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))
        };
        match user {
            Some(user) => Location::Default(user.join("warpsmith").join("code")),
            None => Location::Off("neither XDG_CACHE_HOME nor HOME says where it may be"),
        }
    }
}

/// The cache as it stands, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The folder; `None`: off.
    pub folder: Option<PathBuf>,
    /// Why it is off, or where the choice is from.
    pub why: &'static str,
    /// How many entries there are.
    pub entries: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Why the folder cannot be read, if it cannot.
    pub error: Option<String>,
}

/// The cache that a program on a GPU would use.
pub fn status() -> Status {
    let (folder, why) = match Location::of(|name| std::env::var_os(name)) {
        Location::Off(why) => (None, why),
        Location::Default(folder) => (Some(folder), "the user's cache folder"),
        Location::Named(folder) => (Some(folder), VARIABLE),
    };
    let list = folder.as_ref().map(|folder| entries(folder));
    let (all, error) = match list {
        Some(Ok(all)) => (all, None),
        Some(Err(error)) if error.kind() == ErrorKind::NotFound => (Vec::new(), None),
        Some(Err(error)) => (Vec::new(), Some(error.to_string())),
        None => (Vec::new(), None),
    };
    Status { folder, why, entries: all.len(), bytes: all.iter().map(|entry| entry.bytes).sum(), error }
}

/// The cache of a device.
#[derive(Debug)]
pub(crate) struct CodeCache {
    folder: PathBuf,
    bound: u64,
    /// What the code depends on beside its text.
    target: String,
}

/// What tells entries apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key(u128);

impl Key {
    /// Of parts, none of which can be taken for a piece of another: FNV-1a of 128 bits, with the length before each part.
    fn of(parts: [&[u8]; 2]) -> Key {
        const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        let mut hash = OFFSET;
        for part in parts {
            for byte in (part.len() as u64).to_le_bytes().iter().chain(part) {
                hash = (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
            }
        }
        Key(hash)
    }

    fn file(self) -> String {
        format!("{:032x}.{EXTENSION}", self.0)
    }
}

/// A failure of the cache has been told.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Says why the cache is of no use, once.
fn tell(path: &Path, error: &dyn std::fmt::Display) {
    if !TOLD.swap(true, Ordering::Relaxed) {
        tracing::warn!(path = %path.display(), %error, "compiled code is not kept on disk; {VARIABLE}=0 switches that off");
    }
}

impl CodeCache {
    /// The cache for a device, if it is to have one.
    pub(crate) fn of(engine: &Engine, sm: u32) -> Option<CodeCache> {
        let software = matches!(engine, Engine::Software { .. });
        let folder = match Location::of(|name| std::env::var_os(name)) {
            Location::Named(folder) => folder,
            Location::Default(folder) if !software => folder,
            _ => return None,
        };
        let mut version = 0;
        // SAFETY: the integer is live.
        unsafe { cu!(cuDriverGetVersion(&mut version)) }.ok()?;
        // CUDA's version, which a driver answers, and the driver's own, whose compiler may differ within one of CUDA's.
        let release = std::fs::read_to_string("/sys/module/nvidia/version").unwrap_or_default();
        let engine = if software { "software" } else { "cuda" };
        let target = format!("{engine} {version} {} sm_{sm}", release.trim());
        Some(CodeCache { folder, bound: BOUND, target })
    }

    /// One of its own for a test.
    #[cfg(test)]
    pub(crate) fn of_test(folder: &Path) -> CodeCache {
        CodeCache { folder: folder.to_owned(), bound: BOUND, target: "test".to_owned() }
    }

    /// The code of a text: from the folder, else compiled and kept there. `None`: the driver does not compile it so, and will say
    /// why when it loads the text.
    pub(crate) fn code(&self, ptx: &str) -> Option<Vec<u8>> {
        let key = self.key(ptx);
        if let Some(code) = self.read(key) {
            return Some(code);
        }
        let code = compile(ptx).ok()?;
        self.write(key, &code);
        Some(code)
    }

    /// Forgets the code of a text, which the driver has refused.
    pub(crate) fn forget(&self, ptx: &str) {
        let _ = std::fs::remove_file(self.folder.join(self.key(ptx).file()));
    }

    fn key(&self, ptx: &str) -> Key {
        Key::of([self.target.as_bytes(), ptx.as_bytes()])
    }

    /// The code of an entry that is whole.
    fn read(&self, key: Key) -> Option<Vec<u8>> {
        let path = self.folder.join(key.file());
        let mut bytes = Vec::new();
        let file = match File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes).map(|_| file)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                tell(&path, &error);
                return None;
            }
        };
        let Some(code) = unpacked(key, bytes) else {
            tracing::debug!(path = %path.display(), "an entry of compiled code is damaged: it is made anew");
            return None;
        };
        // Used now: it goes after those that were not. Where that cannot be written, it goes earlier.
        let _ = file.set_modified(SystemTime::now());
        Some(code)
    }

    /// Keeps code, and removes what is too much.
    fn write(&self, key: Key, code: &[u8]) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let partial = self.folder.join(format!("{:032x}.{}-{number}.partial", key.0, std::process::id()));
        let put = || -> std::io::Result<()> {
            std::fs::create_dir_all(&self.folder)?;
            let mut file = File::create(&partial)?;
            file.write_all(&header(key, code))?;
            file.write_all(code)?;
            drop(file);
            std::fs::rename(&partial, self.folder.join(key.file()))
        };
        if let Err(error) = put() {
            let _ = std::fs::remove_file(&partial);
            tell(&self.folder, &error);
            return;
        }
        if let Err(error) = self.shrink() {
            tell(&self.folder, &error);
        }
    }

    /// Removes what was not used for the longest time until the rest is within the bound, and what dead processes have left.
    fn shrink(&self) -> std::io::Result<()> {
        let mut all = entries(&self.folder)?;
        let mut bytes: u64 = all.iter().map(|entry| entry.bytes).sum();
        all.sort_by_key(|entry| entry.used);
        for entry in all {
            if bytes <= self.bound {
                break;
            }
            // Another process may have removed it.
            let _ = std::fs::remove_file(&entry.path);
            bytes -= entry.bytes;
        }
        for file in std::fs::read_dir(&self.folder)? {
            let path = file?.path();
            let partial = path.extension().is_some_and(|e| e == "partial");
            let age = path.metadata().and_then(|m| m.modified()).ok().and_then(|then| then.elapsed().ok());
            if partial && age.is_some_and(|age| age > STALE) {
                let _ = std::fs::remove_file(&path);
            }
        }
        Ok(())
    }
}

/// An entry of the folder.
struct Entry {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

fn entries(folder: &Path) -> std::io::Result<Vec<Entry>> {
    let mut all = Vec::new();
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        if path.extension().is_none_or(|e| e != EXTENSION) {
            continue;
        }
        // What has gone meanwhile is none.
        let Ok(meta) = path.metadata() else { continue };
        let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        all.push(Entry { path, bytes: meta.len(), used });
    }
    Ok(all)
}

fn header(key: Key, code: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..24].copy_from_slice(&key.0.to_le_bytes());
    header[24..32].copy_from_slice(&(code.len() as u64).to_le_bytes());
    header[32..].copy_from_slice(&crc32fast::hash(code).to_le_bytes());
    header
}

/// The code of an entry, if it is whole and has this key.
fn unpacked(key: Key, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    let code = bytes.get(HEADER..)?;
    if code.is_empty() || bytes[..HEADER] != header(key, code) {
        return None;
    }
    bytes.drain(..HEADER);
    Some(bytes)
}

/// Lets the driver compile a text, without loading it.
fn compile(ptx: &str) -> Result<Vec<u8>, Error> {
    /// Ends the linker, and with it the code that it has answered.
    struct Link(CUlinkState);
    impl Drop for Link {
        fn drop(&mut self) {
            // SAFETY: the linker was made by the driver and is ended once.
            let _ = unsafe { cu!(cuLinkDestroy(self.0)) };
        }
    }
    let mut state = CUlinkState::NULL;
    // SAFETY: no options; the handle is a live place.
    unsafe { cu!(cuLinkCreate_v2(0, std::ptr::null_mut(), std::ptr::null_mut(), &mut state)) }?;
    let link = Link(state);
    // The length that is given includes the NUL.
    let text: Vec<u8> = ptx.bytes().chain([0]).collect();
    // SAFETY: the text has the length that is given and outlives the call; no name and no options.
    unsafe {
        cu!(cuLinkAddData_v2(
            link.0,
            sys::JIT_INPUT_PTX,
            text.as_ptr().cast_mut().cast(),
            text.len(),
            c"kernels".as_ptr(),
            0,
            std::ptr::null_mut(),
            std::ptr::null_mut()
        ))
    }?;
    let (mut code, mut bytes): (*mut c_void, usize) = (std::ptr::null_mut(), 0);
    // SAFETY: both are live places.
    unsafe { cu!(cuLinkComplete(link.0, &mut code, &mut bytes)) }?;
    // SAFETY: the driver answers that many bytes, which live as long as the linker.
    Ok(unsafe { std::slice::from_raw_parts(code.cast::<u8>(), bytes) }.to_vec())
}

#[cfg(test)]
mod tests;
