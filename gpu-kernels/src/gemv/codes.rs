//! The way from a format and its activations to entry points that code activations, and to those that read the codes.

use super::int8::{self, *};
use super::planes::{self, *};
use super::{Activations, coded, coding};
use crate::format::{Format, Layout};
use warpsmith_device::prelude::*;

/// How activations are coded; kernels get the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Codes {
    /// Bit planes of eight bits.
    PlanesI8 = 1,
    /// Bit planes of 16 bits.
    PlanesI16 = 2,
    /// Bit planes of eight bits, in the order of weights of two bits.
    PlanesQ2I8 = 3,
    /// Bit planes of 16 bits, in the order of weights of two bits.
    PlanesQ2I16 = 4,
    /// Eight bits in blocks of 32.
    I8 = coding::I8,
}

macro_rules! entries {
    (() $($F:ident { $($codes:ident: $blocks:literal, $gemv:ident $Gemv:ident $shared:ident;)* } $formats:tt)*) => {
        /// The entry points of products with codes.
        #[derive(Clone, Copy, Debug)]
        pub(super) enum Entry { $($($Gemv,)*)* }

        impl Entry {
            /// Only where a whole number of the codes' blocks has one scale of the weights.
            fn of(format: Format, codes: Codes) -> Option<Entry> {
                if !(format.block_elems() as u32).is_multiple_of(codes.block()) {
                    return None;
                }
                match (format.layout(), codes) {
                    $($((Layout::$F, Codes::$codes) => Some(Entry::$Gemv),)*)*
                    _ => None,
                }
            }

            fn meta(self) -> &'static KernelMeta {
                match self { $($(Entry::$Gemv => $Gemv::META,)*)* }
            }
        }
    };
}
crate::formats! { coded entries () }

/// A format whose products read codes, and which: a pair that has an entry point.
#[derive(Clone, Copy, Debug)]
pub struct Coded {
    format: Format,
    codes: Codes,
    entry: Entry,
}

impl Coded {
    /// `None`: the activations are f32, or products of the format have no entry point for them.
    #[must_use]
    pub fn of(format: Format, activations: Activations) -> Option<Coded> {
        let of = |codes| Some(Coded { format, codes, entry: Entry::of(format, codes)? });
        Codes::ALL.into_iter().filter(|c| c.activations() == activations).find_map(of)
    }

    /// The format of the weights.
    #[must_use]
    pub fn format(self) -> Format {
        self.format
    }

    /// What [`Quantize`] has to write.
    #[must_use]
    pub fn codes(self) -> Codes {
        self.codes
    }

    /// The product that reads the codes.
    #[must_use]
    pub fn kernel(self) -> &'static KernelMeta {
        self.entry.meta()
    }

    pub(super) fn entry(self) -> Entry {
        self.entry
    }
}

impl Codes {
    /// Every kind of codes.
    pub const ALL: [Codes; 5] = [Codes::PlanesI8, Codes::PlanesI16, Codes::PlanesQ2I8, Codes::PlanesQ2I16, Codes::I8];

    /// The codes that kernels know by this number.
    #[must_use]
    pub fn numbered(number: u32) -> Option<Codes> {
        Codes::ALL.into_iter().find(|c| *c as u32 == number)
    }

    /// What they stand for.
    #[must_use]
    pub fn activations(self) -> Activations {
        if self.bytes() == 2 { Activations::Int16 } else { Activations::Int8 }
    }

    /// The entry point that writes them.
    #[must_use]
    pub fn kernel(self) -> &'static str {
        match self {
            Codes::PlanesI8 => PlanesI8::META.name,
            Codes::PlanesI16 => PlanesI16::META.name,
            Codes::PlanesQ2I8 => PlanesQ2I8::META.name,
            Codes::PlanesQ2I16 => PlanesQ2I16::META.name,
            Codes::I8 => QuantizeI8::META.name,
        }
    }

    /// Bytes of a code.
    #[must_use]
    pub fn bytes(self) -> u32 {
        if self == Codes::I8 { 1 } else { coding::planes_of(self as u32).0 }
    }

    /// Columns that share a scale.
    #[must_use]
    pub fn block(self) -> u32 {
        if self == Codes::I8 { int8::BLOCK } else { planes::BLOCK }
    }

    /// Vectors of 16 bytes that a column of `cols` activations takes.
    #[must_use]
    pub fn len(self, cols: u32) -> u64 {
        if self == Codes::I8 { int8::len(cols) } else { planes::len(cols, self.bytes()) }
    }

    /// Rows of weights of a block of threads of the products that read them.
    fn block_rows(self) -> u32 {
        if self == Codes::I8 { int8::BLOCK_ROWS } else { planes::ROWS }
    }

    /// Parts of a column's sum of squares that products with them write.
    pub(super) fn parts(self, rows: u32, swiglu: bool) -> u32 {
        coded::parts(rows, self.block_rows(), swiglu)
    }
}

/// Rounds columns of activations to codes.
///
/// ```text
/// Quantize::new(codes, x, to, cols).columns(columns, x_stride).launch(on)
/// ```
#[must_use = "codes are nothing before they are launched"]
pub struct Quantize<'a> {
    codes: Codes,
    x: &'a DeviceSlice<f32>,
    to: &'a mut DeviceSlice<U32x4>,
    cols: u32,
    columns: u32,
    x_stride: u32,
    ahead: bool,
}

impl<'a> Quantize<'a> {
    /// The codes of one column of `cols` elements, [`Codes::len`] vectors.
    pub fn new(codes: Codes, x: &'a DeviceSlice<f32>, to: &'a mut DeviceSlice<U32x4>, cols: u32) -> Quantize<'a> {
        Quantize { codes, x, to, cols, columns: 1, x_stride: cols, ahead: false }
    }

    /// `columns` columns, `x_stride` elements apart in `x`, a multiple of 4. Those of the codes lie one behind the other.
    pub fn columns(mut self, columns: u32, x_stride: u32) -> Self {
        (self.columns, self.x_stride) = (columns, x_stride);
        self
    }

    /// Launches it as a [`Programmatic`] launch, if `ahead` is true.
    ///
    /// # Safety
    /// With `true`, as for [`Programmatic::new`]: what it reads without waiting was written before the launch before it began.
    pub unsafe fn ahead(mut self, ahead: bool) -> Self {
        self.ahead = ahead;
        self
    }

    /// Launches the entry point for it.
    ///
    /// # Errors
    /// What the launcher reports, a broken contract first of all.
    pub fn launch<L: Launcher>(self, launcher: &mut L) -> Result<(), L::Error> {
        let Quantize { codes, x, to, cols, columns, x_stride, ahead } = self;
        macro_rules! with {
            ($entry:ident) => {{
                // Vectors of other names, of one size: what does not fit is too short, which the contract says.
                let codes = to.cast_mut().unwrap_or(DeviceSlice::empty_mut());
                // SAFETY: the kernels follow no addresses; what `ahead` asks for was promised where it was set.
                unsafe { launcher.launch_ahead($entry { x, codes, cols, columns, x_stride }, ahead) }
            }};
        }
        match codes {
            Codes::PlanesI8 => with!(PlanesI8),
            Codes::PlanesI16 => with!(PlanesI16),
            Codes::PlanesQ2I8 => with!(PlanesQ2I8),
            Codes::PlanesQ2I16 => with!(PlanesQ2I16),
            Codes::I8 => with!(QuantizeI8),
        }
    }
}

/// Where the codes of what a kernel computes go.
#[derive(Debug)]
pub struct Written<'a> {
    /// How they are coded.
    pub codes: Codes,
    /// [`Codes::len`] vectors for each column.
    pub coded: &'a mut DeviceSlice<U32x4>,
    /// [`coding::groups`] numbers for each column: zero before the first launch, and again after every launch.
    pub counted: &'a mut DeviceSlice<u32>,
}

impl<'a> Written<'a> {
    /// The arguments `codes`, `coded` and `counted` of a kernel.
    pub fn arguments(of: Option<Written<'a>>) -> (u32, &'a mut DeviceSlice<U32x4>, &'a mut DeviceSlice<u32>) {
        match of {
            Some(Written { codes, coded, counted }) => (codes as u32, coded, counted),
            None => (coding::NONE, DeviceSlice::empty_mut(), DeviceSlice::empty_mut()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_say_what_planes_they_are() {
        let of = |c: Codes| coding::planes_of(c as u32);
        assert_eq!([Codes::PlanesI8, Codes::PlanesI16].map(of), [(1, 1), (2, 1)]);
        assert_eq!([Codes::PlanesQ2I8, Codes::PlanesQ2I16].map(of), [(1, 2), (2, 2)]);
        assert_eq!(Codes::ALL.map(|c| Codes::numbered(c as u32)), Codes::ALL.map(Some));
        assert!([coding::NONE, 6, u32::MAX].iter().all(|n| Codes::numbered(*n).is_none()));
    }

    /// Entry points are listed by format; which formats they take follows from the records.
    #[test]
    fn formats_have_what_their_records_allow() {
        for format in Format::ALL {
            let planes = format == Format::Q1_0 || format.block_units() >= 2;
            let of = |a| Coded::of(format, a).map(Coded::codes);
            assert_eq!(of(Activations::F32), None);
            assert_eq!(of(Activations::Int16).is_some(), planes, "{format}");
            assert_eq!(of(Activations::Int8).is_some_and(|c| c != Codes::I8), planes, "{format}");
            for codes in [of(Activations::Int8), of(Activations::Int16)].into_iter().flatten() {
                assert!(
                    (format.block_elems() as u32).is_multiple_of(codes.block()),
                    "{format} in blocks of {}",
                    codes.block()
                );
            }
        }
    }
}
