//! Embedding: the rows of the tokens that are fed, as f32; and whole matrices, as f32 or f16.
//!
//! | | |
//! |---|---|
//! | `table` | records of [`format`](mod@format), `[vocab]` |
//! | `y` | f32 `[columns, cols]`, exactly the decoded weights; column `n` from `n * stride` on, at multiples of 16 bytes |
//! | `columns` | [`Column`]; the tokens are read when the kernel runs |
//! | `chosen`, `choices` | u32 `[choices]`: the tokens that columns with [`CHOSEN`](crate::state::CHOSEN) name by their place; a place that is not there is an unknown token |
//! | `half` | with the flag [`HALF`]: f16, laid out as `y`, which is then not written: the weights, rounded to nearest even |
//! | `next_weight`, `scaled`, `next_sums` | with the flag [`NEXT`]: what the norm before the first product needs, as in [`gemv`](crate::gemv); [`parts`] sums a column |
//! | `quantized`, `quant_format` | `scaled` as [quantized activations](crate::gemv::quant_format), with [`NEXT`], unless `quant_format` is 0 |
//!
//! With the flag [`ROWS`] column `n` is row `n`, and `columns` is not read: [`Dequantize`] decodes a matrix so.
//!
//! A thread takes 32 elements; without [`ROWS`] only the first [`READERS`] of a block do, so that all of its warps round what few
//! have read. A token at or past `vocab` gives NaN throughout: the host refuses it
//! before, and no row of the table stands in for it in any case. [`Embed`] picks the entry point.

#[macro_use]
mod arguments;
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases;

pub use crate::gemv::NEXT;
use crate::{format, format::record::UNIT, state::Column};
use warpsmith_device::prelude::*;

/// Flag: all `vocab` rows, in order.
pub const ROWS: u32 = 8;
/// Flag: into `half`.
pub const HALF: u32 = 16;
/// Most rows of a launch with [`ROWS`]: the most blocks in y.
pub const MAX_ROWS: u32 = 65535;

/// Threads of a block.
pub const THREADS: u32 = 128;

/// Threads of a block that take elements of a column.
pub const READERS: u32 = 16;

/// Blocks along a row of a column, and so the parts of its sum of squares that [`NEXT`] gives.
#[must_use]
pub fn parts(cols: u32) -> u32 {
    cols.div_ceil(UNIT as u32).div_ceil(READERS)
}

/// The definition: a row of the decoded table.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(table: &[f32], token: usize, cols: usize) -> Vec<f32> {
    table.chunks_exact(cols).nth(token).map_or_else(|| vec![f32::NAN; cols], <[f32]>::to_vec)
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod frame {
    use super::{HALF, NEXT, READERS, ROWS, THREADS};
    use crate::format::{
        decode::{Decode, QUADS},
        record::{InMemory, UNIT},
    };
    use crate::gemv::{
        quant_format::{I8, NONE, group, planes, planes_of},
        quantizer::{quantize_planes, unit},
    };
    use crate::load::{Source, again, lane, warp_index};
    use crate::state::CHOSEN;
    use warpsmith_device::{convert::pack_f16x2, prelude::*, shared::Shared, static_for};

    /// Writes the elements of a quad that are in the row: all, unless a row may have any length.
    #[inline(always)]
    unsafe fn put<F: Decode>(to: Out<f32>, at: usize, within: usize, v: [f32; 4]) {
        // SAFETY: the caller's promise: the first `within` elements from `at` on are the row's.
        unsafe {
            if F::SCALED {
                to.store4(at, F32x4(v));
                return;
            }
            for i in 0..4 {
                if i < within {
                    to.set(at + i, v[i]);
                }
            }
        }
    }

    /// What [`put`] does, as f16.
    #[inline(always)]
    unsafe fn put_half<F: Decode>(to: Out<f16>, at: usize, within: usize, v: [f32; 4]) {
        // SAFETY: as in `put`.
        unsafe {
            if F::SCALED {
                let words = U32x2([pack_f16x2(v[0], v[1]), pack_f16x2(v[2], v[3])]);
                to.from(at).cast::<U32x2>().set(0, words);
                return;
            }
            for i in 0..4 {
                if i < within {
                    to.set(at + i, convert::f32_to_f16(v[i]));
                }
            }
        }
    }

    /// The token that a column feeds.
    #[inline(always)]
    unsafe fn fed(a: &super::arguments::Arguments, token: u32) -> u32 {
        let place = token ^ CHOSEN;
        if token & CHOSEN == 0 {
            token
        } else if place < a.choices {
            // SAFETY: it is one of the choices.
            unsafe { a.chosen.at(place as usize) }
        } else {
            u32::MAX
        }
    }

    /// Quantizes the elements of a column that the block has written to `scaled`: those of [`READERS`] threads, from `first` on.
    ///
    /// All threads of the block make this call.
    #[device]
    unsafe fn quantize(a: &super::arguments::Arguments, column: usize, first: usize) {
        let values: Source = a.scaled.from(column * a.stride as usize).into();
        let (cols, size) = (a.cols as usize, group(a.quant_format) as usize);
        // Each warp has a quarter of them.
        const EACH: usize = READERS as usize * UNIT / (THREADS as usize / 32);
        let mut at = first + warp_index() * EACH;
        let end = again((at + EACH).min(cols) as u32) as usize;
        while at < end {
            if a.quant_format >= I8 {
                let v = if at + lane() < cols { values.at(at + lane()) } else { 0.0 };
                unit(a.quant_format, a.quantized, column, a.cols, at / size, v);
            } else {
                let (bytes, bits) = planes_of(a.quant_format);
                let to = a.quantized.from(column * planes::len(a.cols, bytes) as usize);
                let (bytes, bits) = (bytes as usize, bits as usize);
                quantize_planes((bytes, bits), |c| unsafe { values.at(c) }, to, at / size, (0, bytes));
            }
            at += size;
        }
    }

    #[device]
    pub unsafe fn run<F: Decode>(a: &super::arguments::Arguments, scratch: Shared<f32>) {
        grid::launch_dependents();
        let cols = a.cols as usize;
        let record = F::record(cols, a.block_units);
        let readers = if a.flags & ROWS != 0 { THREADS } else { READERS } as usize;
        let (mine, first) = (thread::idx_x() as usize, block::idx_x() as usize * readers);
        let u = first + mine;
        let column = block::idx_y() as usize;
        let token = if a.flags & ROWS != 0 { column as u32 } else { fed(a, a.columns.at(column).token) };
        let row = column * a.stride as usize;
        let mut squares = 0.0;
        if mine < readers && u < record.units {
            let known = token < a.vocab;
            // An unknown token reads the first row and drops it.
            let memory = InMemory(a.table.from(if known { token as usize * record.vectors } else { 0 }));
            let (codes, scales) = (F::codes(memory, &record, u), F::scales(memory, &record, u));
            // Constants are added last, so that they become part of the addresses.
            let (first, left) = (u * UNIT, cols - u * UNIT);
            let to = row + first;
            static_for!(q in 0..QUADS => {
                let part = q * F::SCALES / QUADS;
                let mut w = F::quad(&codes, q);
                for i in 0..4 {
                    if F::SHIFTED {
                        w[i] = math::fma(w[i], scales.scale[part], scales.shift[part]);
                    } else if F::SCALED {
                        w[i] *= scales.scale[part];
                    }
                    w[i] = if known { w[i] } else { f32::NAN };
                }
                if F::SCALED || 4 * q < left {
                    if a.flags & HALF != 0 {
                        put_half::<F>(a.half.from(to), 4 * q, left - 4 * q, w);
                    } else {
                        put::<F>(a.y.from(to), 4 * q, left - 4 * q, w);
                    }
                    if a.flags & NEXT != 0 {
                        for i in 0..4 {
                            if F::SCALED || 4 * q + i < left {
                                squares = math::fma(w[i], w[i], squares);
                                w[i] *= a.next_weight.from(first).at(4 * q + i);
                            }
                        }
                        put::<F>(a.scaled.from(to).into(), 4 * q, left - 4 * q, w);
                    }
                }
            });
        }
        if a.flags & NEXT != 0 {
            let sum = block_reduce::sum_f32(squares, scratch);
            if thread::idx_x() == 0 {
                a.next_sums.set(column * grid::dim_x() as usize + block::idx_x() as usize, sum);
            }
            // All have written, as all have summed.
            if a.quant_format != NONE {
                sync::block();
                quantize(a, column, first * UNIT);
            }
        }
    }
}

macro_rules! entry {
    (($F:ident $name:ident $Name:ident $shared:ident) $($argument:ident: ($($ty:tt)*),)*) => {
        /// Rows of a table.
        #[kernel(block = THREADS, min_blocks = 4, addresses = "ignored")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($($argument: $($ty)*,)*) {
            let scratch = shared_array!($shared: [f32; 32]);
            frame::run::<format::$F>(&arguments::Arguments { $($argument),* }, scratch);
        }

        #[cfg(not(target_arch = "nvptx64"))]
        convert! { $Name: embed::arguments, Given Seen, $($argument)* }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                if self.flags & ROWS != 0 {
                    let blocks = self.cols.div_ceil(UNIT as u32).div_ceil(THREADS);
                    return Geometry::grid(blocks, u64::from(self.vocab), 1u32);
                }
                Geometry::grid(parts(self.cols), self.columns.len() as u64, 1u32)
            }
            fn check(&self) -> Result<(), ContractError> {
                launch::check::<format::$F>(Self::META, &self.seen())
            }
        }
    };
}

macro_rules! entries {
    (() $($F:ident { $name:ident $Name:ident $shared:ident } $formats:tt)*) => {
        $(arguments! { entry ($F $name $Name $shared) })*
    };
}

crate::formats! { embed entries () }

#[cfg(not(target_arch = "nvptx64"))]
pub use launch::{Decoded, Dequantize, Embed};

#[cfg(not(target_arch = "nvptx64"))]
mod launch {
    use super::arguments::{Given, Seen};
    use super::*;
    use crate::format::{Format, Layout, decode::Decode};
    use crate::gemv::{QuantFormat, check_weights};
    use crate::state;

    /// The contract that all entry points share.
    pub fn check<F: Decode>(m: &'static KernelMeta, s: &Seen<'_>) -> Result<(), ContractError> {
        contract::require(m, s.vocab > 0, "vocab", "at least 1", 0)?;
        check_weights::<F>(m, ("table", s.table), s.vocab.into(), s.cols, s.block_units)?;
        let allowed = [0, NEXT, ROWS, ROWS | HALF].contains(&s.flags);
        contract::require(m, allowed, "flags", "nothing, NEXT, ROWS, or ROWS and HALF", s.flags)?;
        let columns = if s.flags & ROWS != 0 {
            contract::require(m, s.vocab <= MAX_ROWS, "vocab", format_args!("at most {MAX_ROWS} (ROWS)"), s.vocab)?;
            s.vocab as usize
        } else {
            state::check_columns(m, s.columns)?;
            s.columns.len()
        };
        if columns > 1 {
            contract::multiple_of(m, "stride", s.stride, 4u32)?;
        }
        contract::at_least(m, "chosen", s.chosen.len(), (s.choices, "choices"))?;
        let rows = |name, (len, address): (usize, u64), align: usize| {
            state::check_strided(m, name, len, (columns, s.stride), (s.cols.into(), "cols"))?;
            contract::multiple_of(m, name, (address, "its address"), align as u32)
        };
        let floats =
            |name, slice: &DeviceSlice<f32>| rows(name, (slice.len(), slice.address().raw()), align_of::<F32x4>());
        if s.flags & HALF != 0 {
            rows("half", (s.half.len(), s.half.address().raw()), align_of::<U32x2>())?;
        } else {
            floats("y", s.y)?;
        }
        if s.flags & NEXT != 0 {
            contract::at_least(m, "next_weight", s.next_weight.len(), (s.cols, "cols"))?;
            floats("scaled", s.scaled)?;
            let sums = s.columns.len() as u64 * u64::from(parts(s.cols));
            contract::at_least(m, "next_sums", s.next_sums.len(), (sums, "columns * parts"))?;
        }
        if s.quant_format != 0 {
            let known = QuantFormat::numbered(s.quant_format).filter(|_| s.flags & NEXT != 0);
            let format = known.ok_or_else(|| {
                let expected = "0 or, with NEXT, a format of quantized activations";
                contract::error(m, "quant_format", expected, s.quant_format)
            })?;
            contract::multiple_of(m, "cols", s.cols, format.block())?;
            let vectors = columns as u64 * format.len(s.cols);
            contract::at_least(m, "quantized", s.quantized.len(), (vectors, "all columns"))?;
        }
        Ok(())
    }

    /// The rows of the tokens of `columns`, from a table of any format.
    pub struct Embed<'a> {
        /// The table's format.
        pub format: Format,
        /// The records of its rows.
        pub table: &'a DeviceSlice<U32x4>,
        /// The tokens.
        pub columns: &'a DeviceSlice<Column>,
        /// Tokens that columns name by their place.
        pub chosen: &'a DeviceSlice<u32>,
        /// The rows, `stride` apart.
        pub y: &'a mut DeviceSlice<f32>,
        /// What the norm before the next product needs: its weight, `scaled` (laid out as `y`) and [`parts`] sums a column.
        pub next: Option<(&'a DeviceSlice<f32>, &'a mut DeviceSlice<f32>, &'a mut DeviceSlice<f32>)>,
        /// With that, `scaled` as quantized activations: which, and where to, one column behind the other.
        pub quantized: Option<(QuantFormat, &'a mut DeviceSlice<U32x4>)>,
        /// Rows of the table.
        pub vocab: u32,
        /// Columns of the table.
        pub cols: u32,
        /// Elements from a row of `y` to the next: a multiple of 4, at least `cols`.
        pub stride: u32,
    }

    impl Embed<'_> {
        /// Launches the format's entry point.
        ///
        /// # Errors
        /// What the launcher reports, a broken contract first of all.
        pub fn launch<L: Launcher>(self, launcher: &mut L) -> Result<(), L::Error> {
            let Embed { format, table, columns, chosen, y, next, quantized, vocab, cols, stride } = self;
            let (quant_format, quantized) =
                quantized.map_or((0, DeviceSlice::empty_mut()), |(format, to)| (format as u32, to));
            let choices = chosen.len() as u32;
            let flags = if next.is_some() { NEXT } else { 0 };
            let (next_weight, scaled, next_sums) =
                next.unwrap_or((DeviceSlice::empty(), DeviceSlice::empty_mut(), DeviceSlice::empty_mut()));
            let half = DeviceSlice::empty_mut();
            let block_units = format.block_units();
            Given {
                table,
                columns,
                chosen,
                next_weight,
                y,
                half,
                scaled,
                next_sums,
                quantized,
                vocab,
                cols,
                stride,
                block_units,
                choices,
                quant_format,
                flags,
            }
            .launch(format, launcher)
        }
    }

    /// Where a decoded matrix goes: rows `stride` apart.
    #[derive(Debug)]
    pub enum Decoded<'a> {
        /// The weights exactly as ggml decodes them.
        F32(&'a mut DeviceSlice<f32>),
        /// The weights, rounded to nearest even.
        F16(&'a mut DeviceSlice<f16>),
    }

    /// A whole matrix of any format, decoded: for kernels and libraries that take dense weights.
    pub struct Dequantize<'a> {
        /// The matrix' format.
        pub format: Format,
        /// The records of its rows.
        pub weights: &'a DeviceSlice<U32x4>,
        /// `[rows, cols]`.
        pub y: Decoded<'a>,
        /// How many rows it has.
        pub rows: u32,
        /// How many columns it has.
        pub cols: u32,
        /// Elements from a row of `y` to the next: a multiple of 4, at least `cols`.
        pub stride: u32,
    }

    impl Dequantize<'_> {
        /// Launches the format's entry point, once for every [`MAX_ROWS`] rows.
        ///
        /// # Errors
        /// What the launcher reports, a broken contract first of all.
        pub fn launch<L: Launcher>(self, launcher: &mut L) -> Result<(), L::Error> {
            let Dequantize { format, mut weights, y, rows, cols, stride } = self;
            let (mut y, mut half, flags) = match y {
                Decoded::F32(y) => (y, DeviceSlice::empty_mut(), ROWS),
                Decoded::F16(half) => (DeviceSlice::empty_mut(), half, ROWS | HALF),
            };
            // What does not fit is left to the contract of the last launch, which names it.
            let record = format.tensor_vectors(1, cols as usize).unwrap_or(0);
            let mut left = rows;
            loop {
                let vocab = left.min(MAX_ROWS);
                let at = vocab as usize;
                let more = left > vocab;
                let (table, weights_after) = split(weights, at * record, more);
                let (now_y, y_after) = split_mut(y, at * stride as usize, more);
                let (now_half, half_after) = split_mut(half, at * stride as usize, more);
                Given {
                    table,
                    columns: DeviceSlice::empty(),
                    chosen: DeviceSlice::empty(),
                    next_weight: DeviceSlice::empty(),
                    y: now_y,
                    half: now_half,
                    scaled: DeviceSlice::empty_mut(),
                    next_sums: DeviceSlice::empty_mut(),
                    quantized: DeviceSlice::empty_mut(),
                    vocab,
                    cols,
                    stride,
                    block_units: format.block_units(),
                    choices: 0,
                    quant_format: 0,
                    flags,
                }
                .launch(format, launcher)?;
                if !more {
                    return Ok(());
                }
                (weights, y, half, left) = (weights_after, y_after, half_after, left - vocab);
            }
        }
    }

    /// What a launch takes and what is left for the ones after it; a slice that is too short is taken whole.
    fn split<T: Element>(s: &DeviceSlice<T>, at: usize, more: bool) -> (&DeviceSlice<T>, &DeviceSlice<T>) {
        if more { s.split_at(at).unwrap_or((s, DeviceSlice::empty())) } else { (s, DeviceSlice::empty()) }
    }

    fn split_mut<T: Element>(
        s: &mut DeviceSlice<T>,
        at: usize,
        more: bool,
    ) -> (&mut DeviceSlice<T>, &mut DeviceSlice<T>) {
        if more && at <= s.len() {
            s.split_at_mut(at).unwrap_or((DeviceSlice::empty_mut(), DeviceSlice::empty_mut()))
        } else {
            (s, DeviceSlice::empty_mut())
        }
    }

    impl Given<'_> {
        fn launch<L: Launcher>(self, format: Format, launcher: &mut L) -> Result<(), L::Error> {
            macro_rules! by_layout {
                (() $($F:ident { $name:ident $Name:ident $shared:ident } $formats:tt)*) => {
                    match format.layout() { $(Layout::$F => launcher.launch($Name::from(self)),)* }
                };
            }
            crate::formats!(embed by_layout ())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_is_a_row() {
        assert_eq!(reference(&[1.0, 2.0, 3.0, 4.0], 1, 2), [3.0, 4.0]);
        assert!(reference(&[1.0, 2.0, 3.0, 4.0], 2, 2).iter().all(|v| v.is_nan()));
    }

    #[test]
    fn contract_names_the_argument() {
        // SAFETY: nothing is launched, so nothing reads or writes the memory.
        let with_all = |choices, table, y, columns, cols, stride, quant_format, flags| unsafe {
            EmbedQ40 {
                table: DeviceSlice::from_raw(0x1000, table),
                columns: DeviceSlice::from_raw(0x4000, columns),
                chosen: DeviceSlice::from_raw(0xC000, 2),
                next_weight: DeviceSlice::from_raw(0x5000, 64),
                y: DeviceSlice::from_raw_mut(0x8000, y),
                half: DeviceSlice::from_raw_mut(0xB000, y),
                scaled: DeviceSlice::from_raw_mut(0x9000, y),
                next_sums: DeviceSlice::from_raw_mut(0xA000, 2),
                quantized: DeviceSlice::from_raw_mut(0xE000, 20),
                vocab: 3,
                cols,
                stride,
                block_units: 0,
                choices,
                quant_format,
                flags,
            }
            .check()
        };
        let with_choices = |choices, table, y, columns, cols, stride, flags| {
            with_all(choices, table, y, columns, cols, stride, 0, flags)
        };
        let launch = |table, y, columns, cols, stride, flags| with_choices(2, table, y, columns, cols, stride, flags);
        assert_eq!(with_choices(3, 9, 64, 1, 64, 64, 0).unwrap_err().argument, "chosen");
        // A record of two units is two vectors of codes and one of scales.
        assert!(launch(9, 64, 1, 64, 64, 0).is_ok());
        assert!(launch(9, 132, 2, 64, 68, NEXT).is_ok());
        assert_eq!(launch(8, 64, 1, 64, 64, 0).unwrap_err().argument, "table");
        assert_eq!(launch(9, 63, 1, 64, 64, 0).unwrap_err().argument, "y");
        assert_eq!(launch(9, 64, 0, 64, 64, 0).unwrap_err().argument, "columns");
        assert_eq!(launch(9, 64, 1, 48, 64, 0).unwrap_err().argument, "cols");
        assert_eq!(launch(9, 256, 2, 64, 66, 0).unwrap_err().argument, "stride");
        assert_eq!(launch(9, 256, 3, 64, 64, NEXT).unwrap_err().argument, "next_sums");
        assert_eq!(launch(9, 64, 1, 64, 64, 1).unwrap_err().argument, "flags");
        assert_eq!(launch(9, 64, 1, 64, 64, HALF).unwrap_err().argument, "flags");
        // Five vectors for each two units of bytes, or for each one of two bytes.
        let quantized = |columns, quant_format, flags| with_all(2, 9, 128, columns, 64, 64, quant_format, flags);
        assert!(quantized(2, 5, NEXT).is_ok() && quantized(2, 6, NEXT).is_ok());
        assert_eq!(quantized(2, 5, 0).unwrap_err().argument, "quant_format");
        assert_eq!(quantized(2, 9, NEXT).unwrap_err().argument, "quant_format");
        assert_eq!(quantized(2, 1, NEXT).unwrap_err().argument, "cols");
        // Three rows, whatever the columns.
        assert!(launch(9, 192, 0, 64, 64, ROWS).is_ok());
        assert_eq!(launch(9, 191, 9, 64, 64, ROWS).unwrap_err().argument, "y");
        assert_eq!(launch(9, 191, 9, 64, 64, ROWS | HALF).unwrap_err().argument, "half");
        assert_eq!(launch(9, 192, 0, 64, 66, ROWS).unwrap_err().argument, "stride");
    }
}
