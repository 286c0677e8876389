//! The words behind an operation, at [`Op::x`].
//!
//! Each kind of list is one struct here: lowering makes it, execution and the checks read it, and nobody counts words. Rows of
//! registers follow the struct's words: destinations, then sources.

use super::{Cx, Op};

/// What lists are made of.
pub trait Words: Sized + Copy {
    /// How many words it has: where the rows of its list start.
    const COUNT: usize;

    fn put(self, to: &mut Vec<u32>);
    fn get(next: &mut impl FnMut() -> u32) -> Self;

    /// The list, without rows.
    fn list(self) -> Vec<u32> {
        let mut words = Vec::with_capacity(Self::COUNT);
        self.put(&mut words);
        words
    }

    /// What stands behind an operation.
    ///
    /// # Safety
    /// The contract of handlers; the operation was made with a list of this kind.
    #[inline(always)]
    unsafe fn of(cx: &Cx, op: &Op) -> Self {
        let mut at = 0;
        Self::get(&mut || {
            at += 1;
            // SAFETY: by the contract, there are as many words.
            unsafe { cx.list(op, at - 1) }
        })
    }

    /// Row `n` behind the words.
    ///
    /// # Safety
    /// As for [`of`](Words::of); there are as many rows.
    #[inline(always)]
    unsafe fn row(cx: &Cx, op: &Op, n: usize) -> u32 {
        // SAFETY: by the contract.
        unsafe { cx.list(op, Self::COUNT + n) }
    }
}

impl Words for u32 {
    const COUNT: usize = 1;
    fn put(self, to: &mut Vec<u32>) {
        to.push(self);
    }
    #[inline(always)]
    fn get(next: &mut impl FnMut() -> u32) -> u32 {
        next()
    }
}

impl Words for bool {
    const COUNT: usize = 1;
    fn put(self, to: &mut Vec<u32>) {
        to.push(self.into());
    }
    #[inline(always)]
    fn get(next: &mut impl FnMut() -> u32) -> bool {
        next() != 0
    }
}

/// An offset of an address, which fits into 32 bits with its sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset(i32);

impl Offset {
    /// `None` if it does not fit.
    pub fn new(offset: u64) -> Option<Offset> {
        i32::try_from(offset as i64).ok().map(Offset)
    }

    /// Nothing is added.
    pub const ZERO: Offset = Offset(0);

    /// To be added to an address, wrapping.
    #[inline(always)]
    pub fn bits(self) -> u64 {
        i64::from(self.0) as u64
    }
}

impl Words for Offset {
    const COUNT: usize = 1;
    fn put(self, to: &mut Vec<u32>) {
        to.push(self.0 as u32);
    }
    #[inline(always)]
    fn get(next: &mut impl FnMut() -> u32) -> Offset {
        Offset(next() as i32)
    }
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $ty:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$about])* pub $field: $ty,)*
        }

        impl Words for $name {
            const COUNT: usize = 0 $(+ <$ty as Words>::COUNT)*;
            fn put(self, to: &mut Vec<u32>) {
                $(self.$field.put(to);)*
            }
            #[inline(always)]
            fn get(next: &mut impl FnMut() -> u32) -> $name {
                // Fields are read in the order in which they stand.
                $(let $field = <$ty as Words>::get(next);)*
                $name { $($field),* }
            }
        }
    )*};
}

words! {
    /// Of loads and stores; rows: what is loaded or stored, an element each.
    Plain {
        /// The cache site.
        site: u32,
    }
    /// An address in row `op.a` plus `op.imm`, in one of several spaces.
    Via {
        site: u32,
        /// How the row is to be read: see [`via`](super::atom::via).
        via: u32,
    }
    /// Of an atomic operation on one element; rows, of 128 bits alone: the old value's halves, the operand's, and the value's that a
    /// `cas` writes.
    Atomic {
        at: Via,
        /// The old value goes to the destination.
        result: bool,
        /// Of the whole vector for its first element.
        align: u32,
        cas: bool,
    }
    /// Of `cp.async`: the destination is in row `op.a`, the source in row `op.b`.
    CopyAsync {
        site: u32,
        from_offset: Offset,
        /// The row of the destination has 64 bits.
        wide: bool,
    }
    /// Of `cp.async.bulk` and `cp.reduce.async.bulk`: to row `op.a` plus `op.imm`, from row `op.b`, as many bytes as row `op.c`
    /// says. Rows: the mbarrier's address, and the mask, which are there even if nothing reads them.
    Bulk {
        to: Via,
        from: Via,
        from_offset: Offset,
        /// `NO_BARRIER` if none is told.
        barrier_via: u32,
        barrier_offset: Offset,
        /// A `Reduce`, or `NO_REDUCTION`.
        reduction: u32,
        /// Bytes of an element of the reduction.
        element: u32,
        /// Bytes of a mask alone are copied (`.cp_mask`).
        masked: bool,
    }
    /// Of `st.async` and `red.async`; rows: the mbarrier's address, and one an element.
    StoreAsync {
        at: Via,
        barrier_via: u32,
        barrier_offset: Offset,
        /// As of [`Bulk`].
        reduction: u32,
        /// Bytes of an element.
        size: u32,
        count: u32,
    }
    /// Of an operation on an mbarrier object.
    Barrier {
        at: Via,
        /// See [`act`](super::mbarrier::act).
        what: u32,
    }
    /// Of `wmma.load` and `wmma.store`, as [`Tile`](super::fragment::Tile) says; a row a register of the fragment.
    TileAccess {
        at: Via,
        kind: u32,
        accumulator: bool,
        outer: u32,
        inner: u32,
        along: bool,
        registers: u32,
    }
    /// Of `ldmatrix` and `stmatrix`; a row a matrix.
    Matrices {
        at: Via,
        count: u32,
        transposed: bool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_got_in_as_many_words() {
        let words = Bulk {
            to: Via { site: 1, via: 2 },
            from: Via { site: 3, via: 4 },
            from_offset: Offset(-5),
            barrier_via: 6,
            barrier_offset: Offset(7),
            reduction: 8,
            element: 9,
            masked: true,
        };
        let list = words.list();
        assert_eq!((list.len(), Bulk::COUNT), (10, 10));
        let mut rest = list.iter().copied();
        assert_eq!(Bulk::get(&mut || rest.next().unwrap_or(0)), words);
        assert_eq!(Offset::new(1 << 31), None);
        assert_eq!(Offset::new((-16i64) as u64).map(Offset::bits), Some((-16i64) as u64));
    }
}
