//! What a block of threads has of units of weights and activations in shared memory, and how it gets there: what is loaded for two
//! units lies in registers while two others are multiplied, and is taken apart behind that.

use super::{COLUMNS, ROWS};
use crate::format::decode::Packed;

/// Units that are staged at once, while as many others are multiplied.
pub const STAGED: usize = 2;
/// Columns that a block has at most.
pub const MOST_COLUMNS: usize = 2 * COLUMNS as usize;
/// From a column of outputs to the next, so that neighbouring columns begin in other banks.
pub const STRIDE: usize = ROWS as usize + 4;

/// Numbers that a row has for a unit.
pub const fn numbers<F: Packed>() -> usize {
    if F::SCALES == 2 || F::SHIFTED { 2 } else { 1 }
}

/// Where what is staged of a unit lies, in vectors.
pub struct Slot<F: Packed, const BYTES: usize>(core::marker::PhantomData<F>);
impl<F: Packed, const BYTES: usize> Slot<F, BYTES> {
    /// Whether the activations of two tiles of columns are loaded as matrices. Else a lane loads its own, as they lie in memory.
    pub const MATRICES: bool = BYTES == 1 && F::SCALES == 1;
    /// Bytes of weights: the first vector of every row, then the other.
    pub const CODES: usize = 0;
    /// Bytes of activations: the first vector of every column, then those behind it.
    pub const X: usize = Self::CODES + 2 * ROWS as usize;
    /// From a vector of a column to the next: what the lanes of a group load lies in other banks than what others do.
    pub const X_STRIDE: usize = MOST_COLUMNS + if Self::MATRICES { 0 } else { 4 / BYTES };
    /// Of all columns the scale and what its products are too large by.
    pub const SCALES: usize = Self::X + 2 * BYTES * Self::X_STRIDE;
    /// What addends of weights are multiplied with, where there are such.
    pub const SUMS: usize = Self::SCALES + 2 * MOST_COLUMNS / 4;
    /// Scales of all rows, and then what else there is.
    pub const NUMBERS: usize = Self::SUMS + if F::SHIFTED { MOST_COLUMNS / 4 } else { 0 };
    /// Four more, so that the slots of neighbouring lanes begin in other banks.
    pub const VECTORS: usize = Self::NUMBERS + numbers::<F>() * ROWS as usize / 4 + 4;
}

/// Vectors of shared memory that a block takes.
pub const fn shared<F: Packed, const BYTES: usize>() -> usize {
    let (staged, outputs) = (2 * STAGED * Slot::<F, BYTES>::VECTORS, COLUMNS as usize * STRIDE / 4);
    if staged > outputs { staged } else { outputs }
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub use frame::*;

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod frame {
    use super::super::super::{
        experts::BlockColumns,
        int8::frame::{Scale, counted},
        quant_format::int8::{self, len, less},
        quantized::QuantizedArgs,
    };
    use super::super::outputs::row;
    use super::*;
    use crate::format::{
        decode::Scales,
        record::{InMemory, Memory, Record},
    };
    use crate::load::{again, lane, thread_index, warp_index};
    use core::cell::Cell;
    use warpsmith_device::{prelude::*, shared::Shared};

    const ROWS: usize = super::ROWS as usize;
    /// Classes of units whose sums are formed one after the other: the lanes of a warp that multiplies one column.
    pub const CLASSES: u32 = 32;

    /// Units of a class, of all of a row.
    #[inline(always)]
    pub fn of_class(class: u32, units: u32) -> u32 {
        (units + CLASSES - 1 - class) / CLASSES
    }

    /// The unit behind `u` in the order in which they are added up: the next of its class, or the first of the next class. Behind the
    /// last one it is one that there is not.
    #[inline(always)]
    pub fn next(u: u32, units: u32) -> u32 {
        let same = u + CLASSES;
        if same < units { same } else { u % CLASSES + 1 }
    }

    /// What a decoder of scales loads, in the order in which it does.
    #[derive(Clone, Default)]
    pub struct Words {
        words: [Cell<u32>; 6],
        next: Cell<usize>,
    }

    impl Words {
        #[inline(always)]
        fn keep(&self, word: u32) {
            self.words[self.next.get()].set(word);
            self.next.set(self.next.get() + 1);
        }

        /// From the first one on.
        #[inline(always)]
        pub fn again(&self) {
            self.next.set(0);
        }

        #[inline(always)]
        fn kept(&self) -> u32 {
            let word = self.words[self.next.get()].get();
            self.next.set(self.next.get() + 1);
            word
        }
    }

    /// A record whose words are kept as they are loaded.
    #[derive(Clone, Copy)]
    pub struct Keeping<'a, M = InMemory>(pub M, pub &'a Words);

    /// The same words once more.
    #[derive(Clone, Copy)]
    pub struct Kept<'a>(pub &'a Words);

    impl<M: Memory> Memory for Keeping<'_, M> {
        #[inline(always)]
        unsafe fn vector(self, i: usize) -> [u32; 4] {
            // SAFETY: the caller's promise, here and below.
            let words = unsafe { self.0.vector(i) };
            words.into_iter().for_each(|word| self.1.keep(word));
            words
        }
        #[inline(always)]
        unsafe fn pair(self, i: usize) -> [u32; 2] {
            let words = unsafe { self.0.pair(i) };
            words.into_iter().for_each(|word| self.1.keep(word));
            words
        }
        #[inline(always)]
        unsafe fn word(self, i: usize) -> u32 {
            let word = unsafe { self.0.word(i) };
            self.1.keep(word);
            word
        }
        #[inline(always)]
        unsafe fn half(self, i: usize) -> u16 {
            let half = unsafe { self.0.half(i) };
            self.1.keep(half.into());
            half
        }
        #[inline(always)]
        unsafe fn byte(self, i: usize) -> u8 {
            let byte = unsafe { self.0.byte(i) };
            self.1.keep(byte.into());
            byte
        }
    }

    impl Memory for Kept<'_> {
        #[inline(always)]
        unsafe fn vector(self, _: usize) -> [u32; 4] {
            [0; 4].map(|_: u32| self.0.kept())
        }
        #[inline(always)]
        unsafe fn pair(self, _: usize) -> [u32; 2] {
            [0; 2].map(|_: u32| self.0.kept())
        }
        #[inline(always)]
        unsafe fn word(self, _: usize) -> u32 {
            self.0.kept()
        }
        #[inline(always)]
        unsafe fn half(self, _: usize) -> u16 {
            self.0.kept() as u16
        }
        #[inline(always)]
        unsafe fn byte(self, _: usize) -> u8 {
            self.0.kept() as u8
        }
    }

    /// A record of which all is found by one number from its beginning on, and so by one instruction: else the compiler adds up in 64
    /// bits, for each of several rows, what the number is made of.
    #[derive(Clone, Copy)]
    pub struct Indexed(pub InMemory);

    impl Memory for Indexed {
        #[inline(always)]
        unsafe fn vector(self, i: usize) -> [u32; 4] {
            // SAFETY: the caller's promise, here and below.
            unsafe { self.0.vector(again(i as u32) as usize) }
        }
        #[inline(always)]
        unsafe fn pair(self, i: usize) -> [u32; 2] {
            unsafe { self.0.pair(again(i as u32) as usize) }
        }
        #[inline(always)]
        unsafe fn word(self, i: usize) -> u32 {
            unsafe { self.0.word(again(i as u32) as usize) }
        }
        #[inline(always)]
        unsafe fn half(self, i: usize) -> u16 {
            unsafe { self.0.half(again(i as u32) as usize) }
        }
        #[inline(always)]
        unsafe fn byte(self, i: usize) -> u8 {
            unsafe { self.0.byte(again(i as u32) as usize) }
        }
    }

    /// What a thread stages: of two units in turn a row of weights, and a column where the block has that many.
    #[derive(Clone, Copy)]
    pub struct Stager {
        pub record: Record,
        row: InMemory,
        /// The activations, and from there to the thread's column.
        x: In<U32x4>,
        to_column: u32,
        columns: usize,
    }

    /// What is loaded of a unit, as it is.
    pub struct Loaded<F: Packed, const BYTES: usize> {
        u: usize,
        codes: F::Codes<InMemory>,
        numbers: Words,
        x: [U32x4; 4],
        scale: Scale<BYTES>,
    }

    impl Stager {
        /// Of a block that has these columns.
        #[inline(always)]
        pub unsafe fn of<F: Packed, const BYTES: usize>(
            a: &QuantizedArgs,
            record: Record,
            columns: BlockColumns,
        ) -> Stager {
            let of_warp = (lane() / 2) as u32;
            let row = row(a, super::ROWS, 2 * warp_index() as u32 + of_warp / 8, of_warp % 8);
            // SAFETY: the row is among the weights, and the column among those of `x`.
            unsafe {
                let weights = a.weights.from(a.chosen(BlockColumns::tile_of(block::idx_y()), record.vectors as u32));
                let row = InMemory(weights.from((u64::from(row) * record.vectors as u64) as usize));
                let column = a.input(columns.column(warp_index() as u32 * 16 + of_warp));
                let to_column = column * len(a.cols, BYTES as u32) as u32;
                Stager { record, row, x: a.x, to_column, columns: columns.count as usize }
            }
        }

        /// Asks for unit `u`; behind the last one, for the last one again.
        #[inline(always)]
        pub unsafe fn load<F: Packed, const BYTES: usize>(&self, u: u32) -> Loaded<F, BYTES> {
            let (units, numbers) = (self.record.units, Words::default());
            let u = u.min(units as u32 - 1) as usize;
            // SAFETY: the caller's promise: the unit is there.
            unsafe {
                let codes = F::codes(self.row, &self.record, u);
                F::scales(Keeping(self.row, &numbers), &self.record, u);
                let x = self.x.from(again(self.to_column) as usize);
                let of_unit = x.from(int8::codes(BYTES, u));
                let of_column = core::array::from_fn(|i| if i < 2 * BYTES { of_unit.at(2 * i) } else { U32x4([0; 4]) });
                // Of two bytes it is as far from the codes in both units of a pair.
                let scale = if BYTES == 2 { Scale::at(of_unit, 8) } else { Scale::load(x, u) };
                Loaded { u, codes, numbers, x: of_column, scale }
            }
        }

        /// Stages what was loaded.
        #[inline(always)]
        pub unsafe fn store<F: Packed, const BYTES: usize>(&self, slot: Shared<U32x4>, loaded: Loaded<F, BYTES>) {
            // Of eight bits there are registers to keep this.
            let thread = if BYTES == 1 { thread::idx_x() } else { thread_index() } as usize;
            let (at, r) = (thread / 2, thread % 32 / 2);
            // SAFETY: the caller's promise: nobody reads the slot.
            unsafe {
                let [a, b, c, d, e, f, g, h] = core::array::from_fn(|q| F::multiplied::<InMemory>(&loaded.codes, q));
                // As the activations are loaded.
                let [first, second] = if Slot::<F, BYTES>::MATRICES {
                    [[a, e, b, f], [c, g, d, h]]
                } else {
                    [[a, b, c, d], [e, f, g, h]]
                };
                slot.set(Slot::<F, BYTES>::CODES + at, U32x4(first));
                slot.set(Slot::<F, BYTES>::CODES + at + ROWS, U32x4(second));
                loaded.numbers.again();
                let Scales { scale, shift } = F::scales(Kept(&loaded.numbers), &self.record, loaded.u);
                // Rows that a lane multiplies are neighbours.
                let of_rows = slot.from(Slot::<F, BYTES>::NUMBERS).cast::<f32>();
                let place = at - r + r % 8 * 2 + r / 8;
                of_rows.set(place, scale[0]);
                if numbers::<F>() == 2 {
                    of_rows.set(ROWS + place, if F::SCALES == 2 { scale[1] } else { shift[0] });
                }
                if at - r < self.columns {
                    for section in 0..2 * BYTES {
                        // Of two bytes those of one side by side, as a lane loads them.
                        let U32x4([a, b, c, d]) = loaded.x[section];
                        let words = if BYTES == 1 { [a, b, c, d] } else { [a, c, b, d] };
                        slot.set(Slot::<F, BYTES>::X + section * Slot::<F, BYTES>::X_STRIDE + at, U32x4(words));
                    }
                    let d = counted::<F>(loaded.scale.d);
                    let scales = slot.from(Slot::<F, BYTES>::SCALES).cast::<f32>();
                    let less = less::<BYTES>(d);
                    scales.set2(2 * at, F32x2([d, less]));
                    if F::SHIFTED {
                        slot.from(Slot::<F, BYTES>::SUMS).cast::<f32>().set(at, loaded.scale.sum::<F>(d, less));
                    }
                }
            }
        }
    }
}
