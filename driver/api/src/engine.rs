//! Which engine answers: NVIDIA's driver or the software one.
//!
//! The choice is made once per process, by the first successful [`crate::cuInit`]:
//! [`select`] decides, else `WARPSMITH_DRIVER`, else `auto`, which takes the real driver if
//! one loads, is not this library itself, initialises and has a device. A failed choice leaves
//! nothing behind; [`init_error`] says why, and the next `cuInit` tries anew.

use std::error::Error as _;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use libloading::Library;

use crate::codes::{Code, Res, result_name, result_text};
use crate::lock::lock;
use crate::{refused, software};

/// Names the exported symbol by which this library recognises itself.
pub(crate) const MARKER: &CStr = c"warpsmith_software_driver";

/// What the function of that name answers while the software engine runs, or none does.
pub(crate) const SOFTWARE: c_int = 1;
/// What it answers while NVIDIA's driver runs.
pub(crate) const FORWARDED: c_int = 2;

/// Which engine a program asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Choice {
    /// NVIDIA's driver if it works and has a device, else the software engine.
    #[default]
    Auto,
    /// NVIDIA's driver, or an error.
    Cuda,
    /// The software engine.
    Software,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Choice::Auto => "auto",
            Choice::Cuda => "cuda",
            Choice::Software => "software",
        })
    }
}

impl FromStr for Choice {
    type Err = SelectError;
    fn from_str(text: &str) -> Result<Self, SelectError> {
        match text.trim() {
            "auto" => Ok(Choice::Auto),
            "cuda" => Ok(Choice::Cuda),
            "software" => Ok(Choice::Software),
            other => Err(SelectError::Unknown { given: other.to_owned() }),
        }
    }
}

/// Why a choice of engine was refused.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// An engine already runs in this process, and it is another one.
    #[error("the {running} engine already runs in this process: choose `{wanted}` before the first cuInit")]
    AlreadyRunning {
        /// The engine that runs.
        running: String,
        /// The one asked for.
        wanted: Choice,
    },
    /// Not the name of an engine.
    #[error("unknown driver `{given}`: expected auto, cuda or software")]
    Unknown {
        /// The name given.
        given: String,
    },
}

/// The text of `Display`: what a `main` that returns the error, or an `unwrap`, prints.
impl fmt::Debug for SelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The engine that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// NVIDIA's driver.
    Cuda {
        /// The library, as it was opened.
        library: String,
        /// Its CUDA version, such as 12040.
        version: i32,
    },
    /// The software engine.
    Software {
        /// The architecture it stands for, such as 90.
        sm: u32,
        /// How many devices it has.
        devices: u32,
    },
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Engine::Cuda { library, version } => {
                write!(f, "cuda ({library}, CUDA {}.{})", version / 1000, version % 1000 / 10)
            }
            Engine::Software { sm, devices } => write!(f, "software (sm_{sm}, {devices} device(s))"),
        }
    }
}

/// What [`probe_real`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealProbe {
    /// The library, as it was opened.
    pub library: String,
    /// Its CUDA version, such as 12040.
    pub version: i32,
    /// Name and compute capability of every device.
    pub devices: Vec<(String, (i32, i32))>,
}

/// NVIDIA's library, loaded; never unloaded, because it cannot be.
pub(crate) struct Real {
    library: Library,
    name: String,
    version: i32,
    /// It is another copy of this library, which other code has loaded. Looked for on Unix alone.
    #[cfg(unix)]
    joined: bool,
    /// That copy is the software driver: its architecture and its devices.
    stands_for: Option<(u32, u32)>,
}

pub(crate) enum Active {
    Cuda(Arc<Real>),
    /// Which one, its own half knows.
    Software,
}

static ACTIVE: OnceLock<Active> = OnceLock::new();
static CHOICE: Mutex<Option<Choice>> = Mutex::new(None);
static LOADED: Mutex<Option<Arc<Real>>> = Mutex::new(None);
static WHY: Mutex<Why> = Mutex::new(Why { init_error: None, not_cuda: None });

struct Why {
    init_error: Option<String>,
    not_cuda: Option<String>,
}

pub(crate) fn active() -> Option<&'static Active> {
    ACTIVE.get()
}

/// The engine that runs; `None` before the first successful `cuInit`.
pub fn engine() -> Option<Engine> {
    ACTIVE.get().map(describe)
}

fn describe(active: &Active) -> Engine {
    match active {
        Active::Cuda(real) => match real.stands_for {
            Some((sm, devices)) => Engine::Software { sm, devices },
            None => Engine::Cuda { library: real.name.clone(), version: real.version },
        },
        Active::Software => {
            let (sm, devices) = software::shape().unwrap_or_default();
            Engine::Software { sm, devices }
        }
    }
}

/// Decides which engine the first `cuInit` takes; overrides `WARPSMITH_DRIVER`.
///
/// # Errors
/// If another engine already runs in this process.
pub fn select(choice: Choice) -> Result<(), SelectError> {
    let mut wanted = lock(&CHOICE);
    let fits = match (choice, ACTIVE.get()) {
        (Choice::Auto, _) | (_, None) => true,
        (Choice::Cuda, Some(active)) => matches!(describe(active), Engine::Cuda { .. }),
        (Choice::Software, Some(active)) => matches!(describe(active), Engine::Software { .. }),
    };
    if let (false, Some(active)) = (fits, ACTIVE.get()) {
        return Err(SelectError::AlreadyRunning { running: describe(active).to_string(), wanted: choice });
    }
    *wanted = Some(choice);
    Ok(())
}

thread_local! {
    static QUIET: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Runs what calls `cuInit` without a line on stderr if that fails: the caller tells [`init_error`] itself.
pub fn init_quietly<T>(init: impl FnOnce() -> T) -> T {
    let before = QUIET.replace(true);
    let result = init();
    QUIET.set(before);
    result
}

/// Why the last `cuInit` failed, in words that name the remedy.
pub fn init_error() -> Option<String> {
    lock(&WHY).init_error.clone()
}

/// Why `auto` did not take NVIDIA's driver.
pub fn why_not_cuda() -> Option<String> {
    lock(&WHY).not_cuda.clone()
}

/// `cuInit`.
pub(crate) fn init(flags: c_uint) -> Res {
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    if crate::teardown::is_forked() {
        return Err(Code::NOT_INITIALIZED);
    }
    // Held throughout, so that two threads make one choice.
    let wanted = lock(&CHOICE);
    if let Some(active) = ACTIVE.get() {
        return match active {
            Active::Cuda(real) => real.init(flags),
            Active::Software => Ok(()),
        };
    }
    let outcome = choose(*wanted);
    let mut why = lock(&WHY);
    match outcome {
        Ok(active) => {
            why.init_error = None;
            let software = matches!(active, Active::Software);
            let _ = ACTIVE.set(active);
            crate::teardown::watch();
            if software {
                crate::teardown::watch_forks();
            }
            Ok(())
        }
        Err((code, reason)) => {
            if !QUIET.get() {
                eprintln!("warpsmith driver: {reason}");
            }
            why.init_error = Some(reason);
            Err(code)
        }
    }
}

/// What `WARPSMITH_DRIVER` asks for.
fn asked_for() -> Result<Choice, String> {
    match std::env::var("WARPSMITH_DRIVER") {
        Err(std::env::VarError::NotPresent) => Ok(Choice::Auto),
        Ok(text) if text.trim().is_empty() => Ok(Choice::Auto),
        Ok(text) => text.parse().map_err(|e: SelectError| format!("WARPSMITH_DRIVER: {e}")),
        Err(e) => Err(format!("WARPSMITH_DRIVER: {e}")),
    }
}

/// Reads the variables that choose and size an engine, without choosing one.
///
/// # Errors
/// The variable whose value makes no sense, or the driver that was asked for and is not there, in words.
pub fn probe_settings() -> Result<Choice, String> {
    let choice = asked_for()?;
    if choice == Choice::Cuda {
        real_with_devices().map_err(|why| format!("WARPSMITH_DRIVER=cuda: {why}"))?;
    } else {
        software::check_environment()?;
    }
    Ok(choice)
}

fn choose(wanted: Option<Choice>) -> Result<Active, (Code, String)> {
    let choice = match wanted {
        Some(choice) => choice,
        None => asked_for().map_err(|reason| (Code::INVALID_VALUE, reason))?,
    };
    if choice != Choice::Cuda
        && let Some(copy) = loaded_copy()
    {
        return Ok(Active::Cuda(Arc::new(copy)));
    }
    if choice != Choice::Software {
        match real_with_devices() {
            Ok((real, _)) => return Ok(Active::Cuda(real)),
            Err(why) if choice == Choice::Cuda => {
                let reason = format!(
                    "the CUDA driver was asked for but cannot be used: {why}. Install NVIDIA's driver, or name its \
                     library in WARPSMITH_CUDA_LIBRARY, or use WARPSMITH_DRIVER=software"
                );
                return Err((Code::NO_DEVICE, reason));
            }
            Err(why) => lock(&WHY).not_cuda = Some(why),
        }
    }
    software::start().map(|()| Active::Software).map_err(|reason| (Code::INVALID_VALUE, reason))
}

/// Looks for NVIDIA's driver and asks it for its devices, without choosing it.
///
/// # Errors
/// Why there is none, in words.
pub fn probe_real() -> Result<RealProbe, String> {
    let (real, devices) = real_with_devices()?;
    Ok(RealProbe { library: real.name.clone(), version: real.version, devices })
}

type DeviceList = Vec<(String, (i32, i32))>;

fn real_with_devices() -> Result<(Arc<Real>, DeviceList), String> {
    let real = load_real()?;
    if let Some(why) = refused::too_old(&real.name, real.version) {
        return Err(why);
    }
    real.init(0).map_err(|Code(code)| refused::at_init(&real.name, real.version, code))?;
    let devices = real
        .devices()
        .map_err(|Code(c)| format!("{} cannot list its devices: {} ({})", real.name, result_name(c), result_text(c)))?;
    if devices.is_empty() {
        return Err(format!("{} has no device", real.name));
    }
    Ok((real, devices))
}

fn candidates() -> Vec<String> {
    if let Some(path) = std::env::var_os("WARPSMITH_CUDA_LIBRARY").filter(|p| !p.is_empty()) {
        return vec![path.to_string_lossy().into_owned()];
    }
    let names: &[&str] = if cfg!(windows) {
        &["nvcuda.dll"]
    } else {
        &[
            "libcuda.so.1",
            "libcuda.so",
            "/usr/lib/wsl/lib/libcuda.so.1",
            // By path, because the names above find this very library where it stands in for CUDA's.
            "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
            "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
            "/usr/lib64/libcuda.so.1",
            "/usr/lib/libcuda.so.1",
        ]
    };
    names.iter().map(|n| (*n).to_owned()).collect()
}

fn load_real() -> Result<Arc<Real>, String> {
    let mut loaded = lock(&LOADED);
    if let Some(real) = loaded.as_ref() {
        return Ok(Arc::clone(real));
    }
    let mut reasons = Vec::new();
    for name in candidates() {
        match Real::open(&name) {
            Ok(real) => {
                let real = Arc::new(real);
                *loaded = Some(Arc::clone(&real));
                return Ok(real);
            }
            Err(reason) => reasons.push(reason),
        }
    }
    // Absent files at well-known paths say no more than the first absence does.
    reasons.dedup();
    reasons.truncate(3);
    Err(format!("no CUDA driver library loads ({})", reasons.join("; ")))
}

/// The name by which CUDA's programs load the driver.
#[cfg(unix)]
const LOADED_AS: &str = "libcuda.so.1";

/// The driver library that other code of this process has loaded, if it has.
#[cfg(unix)]
fn loaded_library() -> Option<Library> {
    use libloading::os::unix::{Library, RTLD_NOW};
    /// Only what is loaded already. The same on every libc that CUDA runs on.
    const RTLD_NOLOAD: c_int = 4;
    // SAFETY: nothing is loaded, so nothing of it runs.
    unsafe { Library::open(Some(LOADED_AS), RTLD_NOW | RTLD_NOLOAD) }.ok().map(Into::into)
}

/// Whether it is the software driver, but not the copy of it that this code belongs to.
#[cfg(unix)]
fn is_other_copy(library: &Library) -> bool {
    let ours: extern "C" fn() -> c_int = crate::warpsmith_software_driver;
    // SAFETY: the symbol is only compared, never called or read.
    let theirs = unsafe { library.get::<*const c_void>(MARKER.to_bytes_with_nul()) };
    let Ok(marker) = theirs else { return false };
    // SAFETY: the address is compared while the library is borrowed.
    unsafe { marker.try_as_raw_ptr() }.is_some_and(|at| at.addr() != ours as usize)
}

/// The software driver as a library that other code of this process has loaded: two of them would not know each other's
/// handles, so this one joins it.
#[cfg(unix)]
fn loaded_copy() -> Option<Real> {
    let library = loaded_library().filter(is_other_copy)?;
    let mut real = Real { joined: true, ..Real::of(library, LOADED_AS).ok()? };
    real.init(0).ok()?;
    let runs = real.symbol(MARKER)?;
    // SAFETY: the function of this name has this signature in every copy.
    let runs: extern "C" fn() -> c_int = unsafe { std::mem::transmute(runs) };
    if runs() != SOFTWARE {
        return Some(real);
    }
    let devices = real.devices().ok()?;
    let (_, (major, minor)) = devices.first()?;
    real.stands_for = Some(((major * 10 + minor).unsigned_abs(), devices.len() as u32));
    Some(real)
}

#[cfg(not(unix))]
fn loaded_copy() -> Option<Real> {
    None
}

/// The driver library that other code of this process has loaded, if it is another than the engine that runs. Handles that the
/// one made mean nothing to the other.
pub fn other_driver() -> Option<String> {
    #[cfg(unix)]
    {
        let library = loaded_library()?;
        let other = match ACTIVE.get()? {
            Active::Cuda(real) if real.joined => false,
            Active::Cuda(_) => is_other_copy(&library),
            // This very library may have been loaded as the driver.
            Active::Software => {
                is_other_copy(&library)
                    // SAFETY: the symbol is only tested for presence.
                    || unsafe { library.get::<*const c_void>(MARKER.to_bytes_with_nul()) }.is_err()
            }
        };
        other.then(|| LOADED_AS.to_owned())
    }
    #[cfg(not(unix))]
    None
}

impl Real {
    fn open(name: &str) -> Result<Real, String> {
        // SAFETY: loading runs the library's initialisers; these names are the CUDA driver's, or the user's choice.
        let library = unsafe { Library::new(name) }
            // The loader's own words are the cause.
            .map_err(|e| e.source().map_or_else(|| e.to_string(), ToString::to_string))?;
        // SAFETY: the symbol is only tested for presence, never used at a type.
        let ours = unsafe { library.get::<*const c_void>(MARKER.to_bytes_with_nul()) }.is_ok();
        if ours {
            return Err(format!("{name}: is the software driver itself"));
        }
        Real::of(library, name)
    }

    fn of(library: Library, name: &str) -> Result<Real, String> {
        let mut real = Real {
            library,
            name: name.to_owned(),
            version: 0,
            #[cfg(unix)]
            joined: false,
            stands_for: None,
        };
        if real.symbol(c"cuInit").is_none() {
            return Err(format!("{name}: has no cuInit"));
        }
        let mut version: c_int = 0;
        if let Some(f) = real.symbol(c"cuDriverGetVersion") {
            // SAFETY: the driver's symbol of this name has this signature.
            let f: unsafe extern "C" fn(*mut c_int) -> i32 = unsafe { std::mem::transmute(f) };
            // SAFETY: the pointer is to a live integer.
            if unsafe { f(&mut version) } == 0 {
                real.version = version;
            }
        }
        Ok(real)
    }

    pub(crate) fn version(&self) -> i32 {
        self.version
    }

    /// An address by name, or `None` where this driver lacks the function.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the symbol is taken as an address; callers give it the type of the function it names.
        let found = unsafe { self.library.get::<*mut c_void>(name.to_bytes_with_nul()) }.ok()?;
        // The symbol's address itself, not what is stored there.
        // SAFETY: the library is never unloaded.
        let address = unsafe { found.try_as_raw_ptr() }?;
        (!address.is_null()).then_some(address)
    }

    fn init(&self, flags: c_uint) -> Res {
        let f = self.symbol(c"cuInit").ok_or(Code::NOT_FOUND)?;
        // SAFETY: the driver's symbol of this name has this signature.
        let f: unsafe extern "C" fn(c_uint) -> i32 = unsafe { std::mem::transmute(f) };
        // SAFETY: cuInit takes no pointers.
        match unsafe { f(flags) } {
            0 => Ok(()),
            code => Err(Code(code)),
        }
    }

    fn devices(&self) -> Res<DeviceList> {
        let find = |name: &CStr| self.symbol(name).ok_or(Code::NOT_FOUND);
        let ok = |code: i32| if code == 0 { Ok(()) } else { Err(Code(code)) };
        // SAFETY: the driver's symbols of these names have these signatures.
        let count: unsafe extern "C" fn(*mut c_int) -> i32 = unsafe { std::mem::transmute(find(c"cuDeviceGetCount")?) };
        // SAFETY: as above.
        let get: unsafe extern "C" fn(*mut c_int, c_int) -> i32 = unsafe { std::mem::transmute(find(c"cuDeviceGet")?) };
        // SAFETY: as above.
        let name: unsafe extern "C" fn(*mut u8, c_int, c_int) -> i32 =
            unsafe { std::mem::transmute(find(c"cuDeviceGetName")?) };
        // SAFETY: as above.
        let attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> i32 =
            unsafe { std::mem::transmute(find(c"cuDeviceGetAttribute")?) };
        let mut n = 0;
        // SAFETY: the pointer is to a live integer.
        ok(unsafe { count(&mut n) })?;
        let mut devices = Vec::new();
        for ordinal in 0..n {
            let (mut device, mut major, mut minor) = (0, 0, 0);
            let mut text = [0u8; 256];
            // SAFETY: every pointer is to a live value of the size that the call is told.
            unsafe {
                ok(get(&mut device, ordinal))?;
                ok(name(text.as_mut_ptr(), 255, device))?;
                ok(attribute(&mut major, 75, device))?;
                ok(attribute(&mut minor, 76, device))?;
            }
            let text = CStr::from_bytes_until_nul(&text).unwrap_or(c"").to_string_lossy().into_owned();
            devices.push((text, (major, minor)));
        }
        Ok(devices)
    }
}

/// The cached address of one function of the real driver, looked up on first use.
pub(crate) struct Slot {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

static ABSENT: u8 = 0;

impl Slot {
    /// `name` ends with a NUL.
    pub(crate) const fn new(name: &'static str) -> Slot {
        let name = match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        };
        Slot { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    pub(crate) fn resolve(&self, real: &Real) -> Option<*mut c_void> {
        let absent: *mut c_void = (&raw const ABSENT).cast_mut().cast();
        let mut address = self.address.load(Ordering::Acquire);
        if address.is_null() {
            address = real.symbol(self.name).unwrap_or(absent);
            self.address.store(address, Ordering::Release);
        }
        (address != absent).then_some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choice_round_trips() {
        for choice in [Choice::Auto, Choice::Cuda, Choice::Software] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        let error = "gpu".parse::<Choice>().unwrap_err();
        assert_eq!(error.to_string(), "unknown driver `gpu`: expected auto, cuda or software");
    }

    #[test]
    fn a_library_that_is_not_cuda_is_refused() {
        let Err(reason) = Real::open("libm.so.6") else { panic!("libm is not a CUDA driver") };
        assert!(reason.contains("libm.so.6"), "{reason}");
    }
}
