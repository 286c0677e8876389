//! Loads and stores of several elements at an index that counts single ones.

use warpsmith_device::prelude::*;

/// Index of this thread in its warp, for blocks of one dimension.
#[inline(always)]
pub fn lane() -> usize {
    (thread_index() % 32) as usize
}

/// Index of this thread's warp in its block, for blocks of one dimension.
#[inline(always)]
pub fn warp_index() -> usize {
    (thread_index() / 32) as usize
}

/// Index of this thread in its block, which the compiler takes for something that a barrier may change: what follows from it is not
/// kept in registers over one.
#[inline(always)]
pub fn thread_index() -> u32 {
    let x: u32;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov.u32 {0}, %tid.x;", lateout(reg32) x, options(pure, readonly, nostack, preserves_flags));
    }
    x
}

/// Values that are read: an [`In`], or an [`InOut`] that other blocks of the launch wrote before a barrier of the grid, or before
/// an atomic that says so. Loads
/// take the read-only path where the compiler sees that the pointer is that of an `In`, and so never for the latter.
#[derive(Clone, Copy)]
pub struct Source(*const f32);

impl From<In<f32>> for Source {
    #[inline(always)]
    fn from(x: In<f32>) -> Source {
        Source(x.ptr())
    }
}

impl From<InOut<f32>> for Source {
    #[inline(always)]
    fn from(x: InOut<f32>) -> Source {
        Source(x.ptr())
    }
}

impl From<Out<f32>> for Source {
    /// A buffer that the kernel's argument says is read too: an [`InOut`] by another name.
    #[inline(always)]
    fn from(x: Out<f32>) -> Source {
        Source(x.ptr())
    }
}

impl Source {
    /// Element `i`.
    ///
    /// # Safety
    /// `i` is below the buffer's length, and nobody writes the element meanwhile.
    #[inline(always)]
    pub unsafe fn at(self, i: usize) -> f32 {
        // SAFETY: the caller's promise; the launch aligned the buffer to its elements.
        unsafe { *self.0.add(i) }
    }

    /// Elements `i` and `i + 1` in one access.
    ///
    /// # Safety
    /// As [`at`](Self::at), for both; `i` is even, and the buffer is aligned to 8 bytes.
    #[inline(always)]
    pub unsafe fn load2(self, i: usize) -> F32x2 {
        // SAFETY: the caller's promise.
        unsafe { *self.0.add(i).cast::<F32x2>() }
    }

    /// Elements `i` to `i + 3` in one access.
    ///
    /// # Safety
    /// As [`at`](Self::at), for all four; `i` is a multiple of 4, and the buffer is aligned to 16 bytes.
    #[inline(always)]
    pub unsafe fn load4(self, i: usize) -> F32x4 {
        // SAFETY: the caller's promise.
        unsafe { *self.0.add(i).cast::<F32x4>() }
    }
}

/// Which block of a grid is meant, where a kernel's work is written for one: asked for where it is used, as registers that hold
/// it over a loop are lost to the loop.
pub trait Role: Copy {
    /// Its index in x.
    fn block(self) -> u32;
    /// Blocks in x.
    fn blocks(self) -> u32;
    /// Its index in y.
    fn column(self) -> u32;
    /// This thread's index in it, for blocks of one dimension.
    #[inline(always)]
    fn thread(self) -> u32 {
        thread::idx_x()
    }
    /// Threads of the block, for blocks of one dimension.
    fn threads(self) -> u32;
    /// Where the thread is, asked for anew.
    #[inline(always)]
    fn again(self) -> Place {
        Place::now(self)
    }
    /// Which part of a block of the launch its threads are, if they are one.
    #[inline(always)]
    fn part(self) -> usize {
        0
    }
    /// Its threads, where they are a part of a block of the launch.
    const PART: Option<u32> = None;
}

/// Where a thread is.
#[derive(Clone, Copy)]
pub struct Place {
    pub thread: u32,
    pub block: u32,
    pub column: u32,
}

impl Place {
    #[inline(always)]
    pub fn now(role: impl Role) -> Place {
        Place { thread: role.thread(), block: role.block(), column: role.column() }
    }
}

/// Waits for the threads of the role: all of the block, or the part of it that took the role.
#[device]
pub unsafe fn sync_role<R: Role>(_: R) {
    match R::PART {
        None => sync::block(),
        Some(threads) => sync::part(1 + thread_index() / threads, threads),
    }
}

/// The block that was launched.
#[derive(Clone, Copy)]
pub struct Launched;

impl Role for Launched {
    #[inline(always)]
    fn block(self) -> u32 {
        block::idx_x()
    }
    #[inline(always)]
    fn blocks(self) -> u32 {
        grid::dim_x()
    }
    #[inline(always)]
    fn column(self) -> u32 {
        block::idx_y()
    }
    #[inline(always)]
    fn threads(self) -> u32 {
        block::dim_x()
    }
    /// Read anew: what is kept over a loop costs registers in it.
    #[inline(always)]
    fn again(self) -> Place {
        Place { thread: thread_x(), block: block_x(), column: block_y() }
    }
}

macro_rules! again {
    ($($(#[$doc:meta])* $visible:vis $name:ident: $register:literal;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        $visible fn $name() -> u32 {
            let value: u32;
            // SAFETY: reads a register. Not `pure`, or an earlier value might be taken for it.
            unsafe {
                core::arch::asm!(concat!("mov.u32 {0}, %", $register, ";"), lateout(reg32) value,
                    options(nomem, nostack, preserves_flags));
            }
            value
        }
    )* };
}

again! {
    thread_x: "tid.x";
    block_x: "ctaid.x";
    block_y: "ctaid.y";
    /// Bytes of dynamic shared memory, read anew: what is kept over a loop costs registers in it.
    pub dynamic_bytes: "dynamic_smem_size";
}

/// The number again, of which the compiler does not know that it is the same: what follows from it is computed anew.
#[inline(always)]
pub fn again(n: u32) -> u32 {
    let same: u32;
    // SAFETY: a move between registers.
    unsafe {
        core::arch::asm!("mov.u32 {0}, {1};", lateout(reg32) same, in(reg32) n, options(nomem, nostack, preserves_flags));
    }
    same
}

/// The buffer at an address that a kernel read from memory. Like those of `near`, which is an [`In`] of the kernel, its loads are
/// of global memory and may take the read-only path: of a pointer made of a number the compiler would know neither.
///
/// # Safety
/// A buffer of such elements begins there, and nobody writes it while the kernel runs.
#[inline(always)]
pub unsafe fn at_address<T: Element, U: Element>(near: In<T>, address: DeviceAddress) -> In<U> {
    let (base, offset): (*const T, usize) = (near.ptr(), unsafe { distance(near.ptr().addr() as u64, address.raw()) });
    // SAFETY: the caller's promise: nothing but that read-only memory is loaded by it.
    unsafe { Awaited::from_raw(base.wrapping_byte_add(offset).cast::<U>()).buffer() }
}

/// `to - from`, of which the compiler does not know that added to `from` it is `to`.
#[inline(always)]
unsafe fn distance(from: u64, to: u64) -> usize {
    let distance: u64;
    // SAFETY: a subtraction.
    unsafe {
        core::arch::asm!("sub.s64 {0}, {1}, {2};", lateout(reg64) distance, in(reg64) to, in(reg64) from,
            options(pure, nomem, nostack, preserves_flags));
    }
    distance as usize
}

/// Zeros, of which the compiler knows neither that nor that all lanes have the same: instructions take one constant or none, and
/// what these are added to stays in registers. They are the lowest bits of a vector's address.
#[inline(always)]
pub fn no_constants(x: In<U32x4>) -> [u32; 4] {
    [1, 2, 4, 8].map(|bit| x.ptr().addr() as u32 & bit)
}

/// The word at an address that a kernel read from memory.
///
/// # Safety
/// It lies in global memory, aligned; no other thread writes it meanwhile but by atomics.
#[inline(always)]
pub unsafe fn global_u32(address: u64) -> u32 {
    let v: u32;
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!("ld.global.b32 {0}, [{1}];", lateout(reg32) v, in(reg64) address,
            options(readonly, nostack, preserves_flags));
    }
    v
}
