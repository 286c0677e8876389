//! A piece of memory that processes share, on Linux.
//!
//! The file (`memfd_create`) begins with a [`Header`]; the bytes that are shared follow. It cannot be made smaller, so that no
//! process can take mapped pages away from another.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use warpsmith_simt::Interprocess;

use super::{Handle, Kind, Refusal};
use crate::codes::Code;

/// Where what is shared begins.
const DATA: u64 = 4096;
const NAME: &std::ffi::CStr = c"warpsmith-ipc";
const MAGIC: u64 = u64::from_le_bytes(*b"wsmithI1");

/// What all processes know of it.
#[repr(C)]
struct Header {
    magic: AtomicU64,
    id: [AtomicU64; 2],
    kind: AtomicU64,
    bytes: AtomicU64,
    /// Who made it has freed it.
    freed: AtomicU32,
    /// How often others have opened it, and closed it.
    opened: AtomicU32,
    closed: AtomicU32,
    marks: Marks,
}

/// Where an event stands. Records have numbers, from 1.
#[repr(C)]
pub(crate) struct Marks {
    pub recorded: AtomicU64,
    /// All up to this one have been passed.
    pub passed: AtomicU64,
    /// The last one that will never be passed.
    pub given_up: AtomicU64,
    /// The process that recorded last.
    pub recorder: AtomicU64,
}

/// Storage that processes share; dropping it unmaps it, and leaves it to those that have it.
pub(crate) struct Segment {
    file: File,
    map: NonNull<u8>,
    len: usize,
    handle: Handle,
    bytes: u64,
    /// Another process has made it.
    guest: bool,
}

// SAFETY: the mapping belongs to the value, and of it only atomics are reached by reference.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// A failed call of the operating system, as the answer of the driver's.
fn failed(what: &str, code: Code) -> Refusal {
    Refusal { code, why: format!("memory of several processes: {what}: {}", io::Error::last_os_error()) }
}

/// A handle of what is not there.
fn stale() -> Refusal {
    let why = "the process that the handle is from has freed what it is of, or has ended".to_owned();
    Refusal { code: Code::INVALID_HANDLE, why }
}

fn fcntl_lock(file: &File, command: i32, kind: i32) -> io::Result<libc::flock> {
    // SAFETY: a plain struct, for which zeros are values.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence, lock.l_len) = (kind as _, libc::SEEK_SET as _, 1);
    // SAFETY: the descriptor is open, and the place live.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(lock),
    }
}

impl Segment {
    /// A new one with room for `bytes` bytes, all zero.
    pub fn new(kind: Kind, bytes: u64) -> Result<Segment, Refusal> {
        let room =
            || bytes.checked_add(DATA).and_then(|n| usize::try_from(n).ok().filter(|n| *n <= isize::MAX as usize));
        let len = room().ok_or_else(|| failed("more than there can be", Code::OUT_OF_MEMORY))?;
        // SAFETY: a string that ends in 0.
        let fd = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(failed("memfd_create", Code::OUT_OF_MEMORY));
        }
        // SAFETY: the call above has opened it, for nobody else.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        if file.set_len(len as u64).is_err() {
            return Err(failed("making room", Code::OUT_OF_MEMORY));
        }
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: the descriptor is open.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } < 0 {
            return Err(failed("sealing", Code::OPERATING_SYSTEM));
        }
        let mut id = [0; 16];
        // SAFETY: so many bytes can be written there.
        if unsafe { libc::getrandom(id.as_mut_ptr().cast(), id.len(), 0) } != id.len() as isize {
            return Err(failed("getrandom", Code::OPERATING_SYSTEM));
        }
        let handle = Handle { kind, process: std::process::id(), file: fd as u32, id: u128::from_le_bytes(id) };
        let segment = Segment::map(file, len, handle, bytes, false)?;
        let header = segment.header();
        header.id[0].store(handle.id as u64, Ordering::Relaxed);
        header.id[1].store((handle.id >> 64) as u64, Ordering::Relaxed);
        header.kind.store(kind as u64, Ordering::Relaxed);
        header.bytes.store(bytes, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(segment)
    }

    /// One that another process has made.
    pub fn open(handle: &Handle) -> Result<Segment, Refusal> {
        if handle.process == std::process::id() {
            let why = "a handle is for other processes, not for the one that it is from".to_owned();
            return Err(Refusal { code: Code::INVALID_CONTEXT, why });
        }
        let path = format!("/proc/{}/fd/{}", handle.process, handle.file);
        // Of what else the number may stand for by now, some would wait to be opened.
        let target = std::fs::read_link(&path).map_err(|_| stale())?;
        if !target.to_string_lossy().starts_with("/memfd:warpsmith-ipc") {
            return Err(stale());
        }
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let opened = File::options().read(true).write(true).custom_flags(flags).open(&path);
        let file = opened.map_err(|_| failed(&path, Code::MAP_FAILED))?;
        // SAFETY: the descriptor is open.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        let len = file.metadata().map_err(|_| failed(&path, Code::MAP_FAILED))?.len();
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 || len < DATA {
            return Err(stale());
        }
        let len = usize::try_from(len).map_err(|_| failed(&path, Code::MAP_FAILED))?;
        let mut segment = Segment::map(file, len, *handle, 0, true)?;
        let header = segment.header();
        let load = |word: &AtomicU64| word.load(Ordering::Acquire);
        let id = u128::from(load(&header.id[0])) | u128::from(load(&header.id[1])) << 64;
        let right = load(&header.magic) == MAGIC && id == handle.id && load(&header.kind) == handle.kind as u64;
        let bytes = load(&header.bytes);
        if !right || bytes > len as u64 - DATA || segment.freed() {
            return Err(stale());
        }
        segment.bytes = bytes;
        Ok(segment)
    }

    fn map(file: File, len: usize, handle: Handle, bytes: u64, guest: bool) -> Result<Segment, Refusal> {
        if fcntl_lock(&file, libc::F_OFD_SETLK, libc::F_RDLCK).is_err() {
            return Err(failed("locking", Code::OPERATING_SYSTEM));
        }
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: a new mapping of an open file, which is so long and stays so.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, fd, 0) };
        let map = NonNull::new(map.cast::<u8>()).filter(|_| map != libc::MAP_FAILED);
        let map = map.ok_or_else(|| failed("mmap", Code::MAP_FAILED))?;
        let segment = Segment { file, map, len, handle, bytes, guest };
        if guest {
            segment.header().opened.fetch_add(1, Ordering::AcqRel);
        }
        Ok(segment)
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is a page long at least and lives as long as the value; atomics, for which all bytes are values.
        unsafe { self.map.cast::<Header>().as_ref() }
    }

    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// How many bytes are shared.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn marks(&self) -> &Marks {
        &self.header().marks
    }

    /// Who made it frees it: nobody is to use it any more.
    pub fn free(&self) {
        self.header().freed.store(1, Ordering::Release);
    }

    pub fn freed(&self) -> bool {
        self.header().freed.load(Ordering::Acquire) != 0
    }

    /// Whether another process has it mapped.
    pub fn others(&self) -> bool {
        // Where that cannot be asked, somebody may.
        fcntl_lock(&self.file, libc::F_OFD_GETLK, libc::F_WRLCK).map_or(true, |l| i32::from(l.l_type) != libc::F_UNLCK)
    }
}

// SAFETY: the mapping has room for `bytes` bytes behind its header, a page from its start, and lives as long as the value.
unsafe impl Interprocess for Segment {
    fn host(&self) -> NonNull<u8> {
        // SAFETY: the mapping is at least as long.
        unsafe { self.map.add(DATA as usize) }
    }

    fn is_freed(&self) -> bool {
        self.guest && self.freed()
    }

    fn has_others(&self) -> bool {
        let (opened, closed) =
            (self.header().opened.load(Ordering::Acquire), self.header().closed.load(Ordering::Acquire));
        // Who has made it may give its handle to one more, unless one has ended without closing it.
        self.others() || !self.guest && opened == closed
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.guest {
            self.header().closed.fetch_add(1, Ordering::AcqRel);
        }
        // SAFETY: `mmap` gave it, of this length, and nobody else has it.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.len) };
    }
}

/// This process, as `is_alive` knows it.
pub(super) fn me() -> u64 {
    let own = std::process::id();
    u64::from(own) | birth(own).unwrap_or(0) << 32
}

/// Whether a process still runs.
pub(super) fn is_alive(process: u64) -> bool {
    birth(process as u32) == Some(process >> 32)
}

/// When a process began, in ticks, of which a part tells it from others of the same number; `None` if it has ended.
fn birth(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything; the state is the third field and the time the 22nd.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let ticks: u64 = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(ticks & 0xffff_ffff)
}
