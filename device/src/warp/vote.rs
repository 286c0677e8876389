//! Votes: what the lanes of a mask say about a condition, or which of them agree on a value.
//!
//! Cost: one `vote.sync` each; `match_any` is one instruction of about 20 cycles per distinct value.

#[cfg(target_arch = "nvptx64")]
unsafe extern "C" {
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn vote_ballot(mask: u32, p: bool) -> u32;
    #[link_name = "llvm.nvvm.vote.any.sync"]
    fn vote_any(mask: u32, p: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.all.sync"]
    fn vote_all(mask: u32, p: bool) -> bool;
    #[link_name = "llvm.nvvm.match.any.sync.i32"]
    fn match_any_sync(mask: u32, v: u32) -> u32;
    #[cfg(not(feature = "nvvm"))]
    #[link_name = "llvm.nvvm.activemask"]
    fn activemask() -> u32;
}

/// The lanes of `mask` whose `p` is true, a bit each.
///
/// # Safety
/// The module's rule: every lane of `mask` makes this call.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn ballot(mask: u32, p: bool) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { vote_ballot(mask, p) }
}

/// Whether `p` is true in any lane of `mask`.
///
/// # Safety
/// The module's rule: every lane of `mask` makes this call.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn any(mask: u32, p: bool) -> bool {
    // SAFETY: the caller's promise.
    unsafe { vote_any(mask, p) }
}

/// Whether `p` is true in all lanes of `mask`.
///
/// # Safety
/// The module's rule: every lane of `mask` makes this call.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn all(mask: u32, p: bool) -> bool {
    // SAFETY: the caller's promise.
    unsafe { vote_all(mask, p) }
}

/// The lanes of `mask` that pass the same `v` as this one.
///
/// # Safety
/// The module's rule: every lane of `mask` makes this call.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn match_any(mask: u32, v: u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { match_any_sync(mask, v) }
}

/// The lanes that run this instruction together. Under independent thread scheduling that may be
/// fewer than one expects: use it to find company, never as the mask of a collective that needs
/// certain lanes.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub fn active_mask() -> u32 {
    #[cfg(not(feature = "nvvm"))]
    // SAFETY: touches no memory.
    unsafe {
        activemask()
    }
    #[cfg(feature = "nvvm")]
    {
        let mask: u32;
        // SAFETY: touches no memory. Not `pure`: the answer depends on where it stands.
        unsafe {
            core::arch::asm!("activemask.b32 {0};", lateout(reg32) mask, options(nomem, nostack));
        }
        mask
    }
}
