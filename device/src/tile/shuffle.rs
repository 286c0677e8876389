//! Shuffles and matches of any plain type, word by word.
//!
//! The last operand of `shfl.sync` has the bits of the lane's number that stay (the tile's) at 8, and the lane at which a
//! shuffle stops at 0. Source: PTX ISA, `shfl.sync`.

use super::Tile;
use crate::{Element, words};

macro_rules! shuffles {
    ($($(#[$doc:meta])* $name:ident = $f:ident($arg:ident), $clamp:literal;)*) => {
        impl<const N: u32> Tile<N> { $(
            $(#[$doc])*
            ///
            /// # Safety
            /// The module's rule.
            #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
            pub unsafe fn $name<T: Element>(self, v: T, $arg: u32) -> T {
                let mut words = words::split(v);
                let mut i = 0;
                while i < const { words::count::<T>() } {
                    // SAFETY: the caller's promise: all lanes of the mask are here.
                    words[i] = unsafe { crate::warp::raw::$f(self.mask, words[i], $arg, const { (32 - N) << 8 | $clamp }) };
                    i += 1;
                }
                words::join(words)
            }
        )* }
    };
}
shuffles! {
    /// The value of the thread with this rank, modulo `N`.
    shuffle = shfl_idx(rank), 0x1f;
    /// The value of the thread whose rank is `delta` below; the lowest `delta` ranks keep their own.
    shuffle_up = shfl_up(delta), 0;
    /// The value of the thread whose rank is `delta` above; the highest `delta` ranks keep their own.
    shuffle_down = shfl_down(delta), 0x1f;
    /// The value of the thread with rank `rank() ^ ranks`; `ranks` is below `N`.
    shuffle_xor = shfl_bfly(ranks), 0x1f;
}

impl<const N: u32> Tile<N> {
    /// The lanes that pass the same bits as this one: bit `r` for rank `r`. One `match.sync` a word.
    ///
    /// # Safety
    /// The module's rule.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn match_any<T: Element>(self, v: T) -> u32 {
        let words = words::split(v);
        let (mut same, mut i) = (self.mask, 0);
        while i < const { words::count::<T>() } {
            // SAFETY: the caller's promise.
            same &= unsafe { crate::warp::match_any(self.mask, words[i]) };
            i += 1;
        }
        self.own(same)
    }

    /// Whether all lanes pass the same bits. A shuffle a word and a vote.
    ///
    /// # Safety
    /// The module's rule.
    #[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
    pub unsafe fn match_all<T: Element>(self, v: T) -> bool {
        let own = words::split(v);
        // SAFETY: the caller's promise.
        let first = words::split(unsafe { self.shuffle(v, 0) });
        let (mut same, mut i) = (true, 0);
        while i < const { words::count::<T>() } {
            same &= own[i] == first[i];
            i += 1;
        }
        // SAFETY: the caller's promise.
        unsafe { self.all(same) }
    }
}
