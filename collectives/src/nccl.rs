//! NCCL, loaded at run time: the few functions, and a rank on them.

use crate::{Collective, Elements, Error, Kind, On, Operation, Reduce, World};
use libloading::Library as Shared;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use warpsmith_device::DeviceSlice;
use warpsmith_runtime::{Device, Event, Stream};

/// What ranks of a communicator have in common (`ncclUniqueId`).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UniqueId(pub [u8; 128]);

impl Default for UniqueId {
    fn default() -> UniqueId {
        UniqueId([0; 128])
    }
}

impl std::fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UniqueId(..)")
    }
}

type Comm = *mut c_void;
type Raw = *mut c_void;

/// Declares the functions that are looked up when the library is loaded.
macro_rules! functions {
    ($($field:ident = $name:ident($($argument:ty),*);)*) => {
        /// `libnccl.so.2`.
        pub struct Library {
            $($field: unsafe extern "C" fn($($argument),*) -> c_int,)*
            text: unsafe extern "C" fn(c_int) -> *const c_char,
            // Its functions live as long as it does.
            _shared: Shared,
        }

        impl Library {
            fn bind(shared: Shared, path: PathBuf) -> Result<Library, Error> {
                let missing = |error: libloading::Error| Error::NoNccl { path: path.clone(), reason: error.to_string() };
                // SAFETY: the types are those of NCCL 2's nccl.h.
                unsafe {
                    Ok(Library {
                        $($field: *shared.get(concat!(stringify!($name), "\0")).map_err(missing)?,)*
                        text: *shared.get("ncclGetErrorString\0").map_err(missing)?,
                        _shared: shared,
                    })
                }
            }
        }
    };
}

functions! {
    version = ncclGetVersion(*mut c_int);
    unique_id = ncclGetUniqueId(*mut UniqueId);
    init = ncclCommInitRank(*mut Comm, c_int, UniqueId, c_int);
    destroy = ncclCommDestroy(Comm);
    abort = ncclCommAbort(Comm);
    asynchronous = ncclCommGetAsyncError(Comm, *mut c_int);
    all_reduce = ncclAllReduce(Raw, Raw, usize, c_int, c_int, Comm, Raw);
    reduce_scatter = ncclReduceScatter(Raw, Raw, usize, c_int, c_int, Comm, Raw);
    all_gather = ncclAllGather(Raw, Raw, usize, c_int, Comm, Raw);
    broadcast = ncclBroadcast(Raw, Raw, usize, c_int, c_int, Comm, Raw);
    send = ncclSend(Raw, usize, c_int, c_int, Comm, Raw);
    receive = ncclRecv(Raw, usize, c_int, c_int, Comm, Raw);
}

impl Library {
    /// Loads what `WARPSMITH_NCCL` names, or `libnccl.so.2`.
    ///
    /// # Errors
    /// [`Error::NoNccl`] if it is not there, or lacks a function.
    pub fn load() -> Result<Arc<Library>, Error> {
        Library::at(std::env::var_os("WARPSMITH_NCCL").map_or_else(|| "libnccl.so.2".into(), PathBuf::from))
    }

    /// Loads a library by its path, or by a name that the loader finds.
    ///
    /// # Errors
    /// As for [`Library::load`].
    pub fn at(path: impl Into<PathBuf>) -> Result<Arc<Library>, Error> {
        let path = path.into();
        // SAFETY: what NCCL does when it is loaded is its own; nothing of this process depends on it.
        let shared = unsafe { Shared::new(&path) };
        let shared = shared.map_err(|error| Error::NoNccl { path: path.clone(), reason: error.to_string() })?;
        Library::bind(shared, path).map(Arc::new)
    }

    /// Its version, such as 22807 for 2.28.7.
    ///
    /// # Errors
    /// What NCCL answers.
    pub fn version(&self) -> Result<u32, Error> {
        let mut version = 0;
        // SAFETY: a live integer.
        self.check("ncclGetVersion", unsafe { (self.version)(&mut version) })?;
        Ok(u32::try_from(version).unwrap_or(0))
    }

    /// A new id, for one communicator.
    ///
    /// # Errors
    /// What NCCL answers.
    pub fn unique_id(&self) -> Result<UniqueId, Error> {
        let mut id = UniqueId::default();
        // SAFETY: a live id.
        self.check("ncclGetUniqueId", unsafe { (self.unique_id)(&mut id) })?;
        Ok(id)
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: NCCL has a text for every code, which it never frees.
        let text = unsafe {
            let text = (self.text)(code);
            if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        };
        Err(Error::Nccl { call, code, text })
    }
}

/// A communicator, destroyed when its rank and the graphs that have recorded it are gone.
struct Communicator {
    library: Arc<Library>,
    raw: Comm,
    device: Device,
    /// It was aborted, and is no more.
    dead: AtomicBool,
}

impl Communicator {
    /// Ends what is under way, whoever is missing.
    fn end(&self) -> Result<(), Error> {
        if self.dead.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // SAFETY: made by `ncclCommInitRank`, and not used any more.
        self.library.check("ncclCommAbort", unsafe { (self.library.abort)(self.raw) })
    }
}

// SAFETY: NCCL's calls take a communicator from any thread, one at a time: a rank is used by one thread, and graphs do not call it.
unsafe impl Send for Communicator {}
// SAFETY: as above.
unsafe impl Sync for Communicator {}

impl Drop for Communicator {
    fn drop(&mut self) {
        if self.dead.load(Ordering::Acquire) {
            return;
        }
        // What still runs uses it. Where that cannot be waited for, it is lost with the device.
        let _ = self.device.synchronize();
        // SAFETY: made by `ncclCommInitRank`, and not used any more.
        let _ = unsafe { (self.library.destroy)(self.raw) };
    }
}

/// A rank of NCCL.
pub struct Nccl {
    communicator: Arc<Communicator>,
    rank: u32,
    ranks: u32,
    timeout: Duration,
}

impl Nccl {
    /// A rank among processes, on a device of this one. All ranks make the call; rank 0 tells the others the id.
    ///
    /// # Errors
    /// A rendezvous that failed, with the ranks that did not come within `timeout`, and what NCCL answers.
    pub fn join(library: &Arc<Library>, world: &World, device: &Device, timeout: Duration) -> Result<Nccl, Error> {
        let id = world.share(|| library.unique_id(), timeout)?;
        Nccl::new(library, device, id, (world.rank, world.ranks), timeout)
    }

    /// A rank of those that have the same id: rank and number of ranks. Returns when all of them have made the call.
    ///
    /// # Errors
    /// A rank that there is not, and what NCCL answers.
    pub fn new(
        library: &Arc<Library>,
        device: &Device,
        id: UniqueId,
        (rank, ranks): (u32, u32),
        timeout: Duration,
    ) -> Result<Nccl, Error> {
        if rank >= ranks {
            return Err(Error::NoRank { what: "to be", rank, ranks });
        }
        let most = i32::MAX as u32;
        let count = c_int::try_from(ranks).map_err(|_| Error::Ranks { ranks: ranks as usize, most })?;
        // The context that NCCL works in.
        device.memory_info()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a live variable; both fit, as `rank` is below `ranks`.
        library.check("ncclCommInitRank", unsafe { (library.init)(&mut raw, count, id, rank as c_int) })?;
        let communicator = Arc::new(Communicator {
            library: library.clone(),
            raw,
            device: device.clone(),
            dead: AtomicBool::new(false),
        });
        Ok(Nccl { communicator, rank, ranks, timeout })
    }

    /// # Safety
    /// The stream is alive, and `x` is memory that its work may use.
    unsafe fn call(&self, stream: Raw, operation: Operation, x: &Elements<'_>) -> Result<(), Error> {
        let Communicator { library, raw: comm, .. } = &*self.communicator;
        let (len, comm) = (x.len(), *comm);
        let (kind, size) = match x.kind() {
            Kind::F16 => (6, 2),
            Kind::F32 => (7, 4),
            Kind::Bf16 => (9, 2),
        };
        let of = |reduce| if reduce == Reduce::Max { 2 } else { 0 };
        let slice = len / self.ranks as usize;
        let all: Raw = std::ptr::without_provenance_mut(x.address() as usize);
        // In place: the own slice within the whole.
        let own: Raw = all.wrapping_byte_add(self.rank as usize * slice * size);
        // SAFETY: the caller's promise; counts are within the buffer, as `check` has seen.
        unsafe {
            match operation {
                Operation::AllReduce(reduce) => {
                    let code = (library.all_reduce)(all, all, len, kind, of(reduce), comm, stream);
                    library.check("ncclAllReduce", code)
                }
                Operation::ReduceScatter(reduce) => {
                    let code = (library.reduce_scatter)(all, own, slice, kind, of(reduce), comm, stream);
                    library.check("ncclReduceScatter", code)
                }
                Operation::AllGather => {
                    library.check("ncclAllGather", (library.all_gather)(own, all, slice, kind, comm, stream))
                }
                Operation::Broadcast { root } => {
                    let code = (library.broadcast)(all, all, len, kind, root as c_int, comm, stream);
                    library.check("ncclBroadcast", code)
                }
                Operation::Send { to } => {
                    library.check("ncclSend", (library.send)(all, len, kind, to as c_int, comm, stream))
                }
                Operation::Receive { from } => {
                    library.check("ncclRecv", (library.receive)(all, len, kind, from as c_int, comm, stream))
                }
            }
        }
    }
}

impl Collective for Nccl {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn issue(&self, on: On<'_, '_>, operation: Operation, mut x: Elements<'_>) -> Result<(), Error> {
        operation.check(self.rank, self.ranks, x.len(), 1)?;
        if self.communicator.dead.load(Ordering::Acquire) {
            return Err(Error::Broken { missing: Vec::new() });
        }
        if x.is_empty() {
            return Ok(());
        }
        match on {
            On::Stream(stream) => {
                let len = x.len();
                // SAFETY: a part of the slice that `x` borrows exclusively, for as long as this call.
                let memory = unsafe { DeviceSlice::<u16>::from_raw_mut(x.address(), x.kind().halves() * len) };
                // SAFETY: it issues on this stream alone, and works in this memory alone.
                unsafe { stream.foreign(memory, |raw| self.call(raw, operation, &x)) }?
            }
            On::Capture(capture) => {
                let len = x.len();
                capture.writes(x.halves(0, len))?;
                // SAFETY: it records on this stream alone; the graph keeps the buffer and the communicator.
                unsafe { capture.foreign(self.communicator.clone(), |stream| self.call(stream, operation, &x)) }?
            }
        }
    }

    /// NCCL does not say who is missing: the list is empty.
    fn wait(&self, _: &Stream, done: Event) -> Result<(), Error> {
        let start = Instant::now();
        let Communicator { library, raw, dead, .. } = &*self.communicator;
        while !done.is_done()? {
            if dead.load(Ordering::Acquire) {
                return Err(Error::Broken { missing: Vec::new() });
            }
            let mut state = 0;
            // SAFETY: the communicator is alive, and `state` a live integer.
            library.check("ncclCommGetAsyncError", unsafe { (library.asynchronous)(*raw, &mut state) })?;
            // 7: still at work.
            if state != 7 {
                library.check("a collective", state)?;
            }
            let waited = start.elapsed();
            if waited > self.timeout {
                self.communicator.end()?;
                // Ends with it.
                done.synchronize()?;
                return Err(Error::Missing { rank: self.rank, missing: Vec::new(), waited });
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// The others are not told: they wait for as long as they would for any rank.
    fn leave(&self) {
        // What NCCL says of it has nobody to be told: the group is lost either way.
        let _ = self.communicator.end();
    }
}
