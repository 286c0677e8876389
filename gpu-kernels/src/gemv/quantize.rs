//! The way from a format and its activations to entry points that quantize activations, and to those that read them.

use super::half::*;
use super::int8::*;
use super::planes::*;
use super::quant_format::NONE;
use super::tensor::*;
use super::tensor_planes::*;
use super::{Activations, QuantFormat};
use crate::format::{Format, Layout};
use warpsmith_device::prelude::*;

/// Whose entry points read a format: two f16 are two columns of one.
fn read_as(quant_format: QuantFormat) -> QuantFormat {
    if quant_format == QuantFormat::F16x2 { QuantFormat::F16 } else { quant_format }
}

macro_rules! entries {
    (() $($F:ident { $($quant_format:ident: $blocks:literal, $gemv:ident $Gemv:ident $shared:ident;)* } $formats:tt)*) => {
        /// The entry points of products with quantized activations.
        #[derive(Clone, Copy, Debug)]
        pub(super) enum Entry { $($($Gemv,)*)* }

        impl Entry {
            /// Only where a whole number of the activations' blocks has one scale of the weights.
            fn of(format: Format, quant_format: QuantFormat) -> Option<Entry> {
                if !(format.block_elems() as u32).is_multiple_of(quant_format.block()) {
                    return None;
                }
                match (format.layout(), read_as(quant_format)) {
                    $($((Layout::$F, QuantFormat::$quant_format) => Some(Entry::$Gemv),)*)*
                    _ => None,
                }
            }

            fn meta(self) -> &'static KernelMeta {
                match self { $($(Entry::$Gemv => $Gemv::META,)*)* }
            }
        }
    };
}
crate::formats! { quantized entries () }

macro_rules! many {
    (() $($F:ident { $($quant_format:ident: $gemm:ident $Gemm:ident $shared:ident;)* } $formats:tt)*) => {
        /// The entry points of products with many columns of quantized activations.
        #[derive(Clone, Copy, Debug)]
        pub(super) enum Many { $($($Gemm,)*)* }

        impl Many {
            fn of(format: Format, quant_format: QuantFormat) -> Option<Many> {
                match (format.layout(), read_as(quant_format)) {
                    $($((Layout::$F, QuantFormat::$quant_format) => Some(Many::$Gemm),)*)*
                    _ => None,
                }
            }

            fn meta(self) -> &'static KernelMeta {
                match self { $($(Many::$Gemm => $Gemm::META,)*)* }
            }
        }
    };
}
crate::formats! { tensor many () }

/// A format whose products read quantized activations, and of which format: a pair that has an entry point.
#[derive(Clone, Copy, Debug)]
pub struct QuantizedProduct {
    format: Format,
    quant_format: QuantFormat,
    entry: Entry,
}

impl QuantizedProduct {
    /// `None`: the activations are f32, or products of the format have no entry point for them.
    #[must_use]
    pub fn of(format: Format, activations: Activations) -> Option<QuantizedProduct> {
        let of =
            |quant_format| Some(QuantizedProduct { format, quant_format, entry: Entry::of(format, quant_format)? });
        QuantFormat::ALL.into_iter().filter(|c| c.activations() == activations).find_map(of)
    }

    /// The format of the weights.
    #[must_use]
    pub fn format(self) -> Format {
        self.format
    }

    /// Whether a product with so many rows of weights and columns takes the entry point of many.
    #[must_use]
    pub fn takes_many(self, rows: u32, columns: u32) -> bool {
        let from = match (self.quant_format, self.format.layout()) {
            (of, _) if of.is_half() => {
                let columns = if of == QuantFormat::F16x2 { columns.saturating_mul(2) } else { columns };
                return self.many().is_some() && super::half::many(rows, columns).is_some();
            }
            (of, _) if of.is_planes() => super::tensor_planes::FROM,
            (_, Layout::IQ4_NL | Layout::IQ4_XS | Layout::MXFP4) => super::tensor::FROM_TABLES,
            (..) => super::tensor::FROM,
        };
        self.many().is_some() && columns >= from
    }

    /// The product that reads [many](Self::takes_many) columns of them, where there is one; else it is [`kernel`](Self::kernel) too.
    #[must_use]
    pub fn kernel_of_many(self) -> Option<&'static KernelMeta> {
        Some(self.many()?.meta())
    }

    pub(super) fn many(self) -> Option<Many> {
        Many::of(self.format, self.quant_format)
    }

    /// What [`Quantize`] has to write.
    #[must_use]
    pub fn quant_format(self) -> QuantFormat {
        self.quant_format
    }

    /// The product that reads them.
    #[must_use]
    pub fn kernel(self) -> &'static KernelMeta {
        self.entry.meta()
    }

    pub(super) fn entry(self) -> Entry {
        self.entry
    }
}

impl Activations {
    /// Whether a format has entry points for them.
    #[must_use]
    pub fn take(self, format: Format) -> bool {
        self == Activations::F32 || QuantizedProduct::of(format, self).is_some()
    }
}

impl QuantFormat {
    /// The entry point that writes them.
    #[must_use]
    pub fn kernel(self) -> &'static str {
        match self {
            QuantFormat::PlanesI8 => PlanesI8::META.name,
            QuantFormat::PlanesI16 => PlanesI16::META.name,
            QuantFormat::PlanesQ2I8 => PlanesQ2I8::META.name,
            QuantFormat::PlanesQ2I16 => PlanesQ2I16::META.name,
            QuantFormat::I8 => QuantizeI8::META.name,
            QuantFormat::I16 => QuantizeI16::META.name,
            QuantFormat::F16 => QuantizeF16::META.name,
            QuantFormat::F16x2 => QuantizeF16x2::META.name,
        }
    }
}

/// Quantizes columns of activations.
///
/// ```text
/// Quantize::new(format, x, to, cols).columns(columns, x_stride).launch(on)
/// ```
#[must_use = "nothing is quantized before it is launched"]
pub struct Quantize<'a> {
    format: QuantFormat,
    x: &'a DeviceSlice<f32>,
    to: &'a mut DeviceSlice<U32x4>,
    cols: u32,
    columns: u32,
    x_stride: u32,
    programmatic: bool,
}

impl<'a> Quantize<'a> {
    /// Of one column of `cols` elements, [`QuantFormat::len`] vectors.
    pub fn new(
        format: QuantFormat,
        x: &'a DeviceSlice<f32>,
        to: &'a mut DeviceSlice<U32x4>,
        cols: u32,
    ) -> Quantize<'a> {
        Quantize { format, x, to, cols, columns: 1, x_stride: cols, programmatic: false }
    }

    /// `columns` columns, `x_stride` elements apart in `x`, a multiple of 4. The quantized ones lie one behind the other.
    pub fn columns(mut self, columns: u32, x_stride: u32) -> Self {
        (self.columns, self.x_stride) = (columns, x_stride);
        self
    }

    /// Launches it as a [`Programmatic`] launch, if `programmatic` is true.
    ///
    /// # Safety
    /// With `true`, as for [`Programmatic::new`]: what it reads without waiting was written before the launch before it began.
    pub unsafe fn programmatic(mut self, programmatic: bool) -> Self {
        self.programmatic = programmatic;
        self
    }

    /// Launches the entry point for it.
    ///
    /// # Errors
    /// What the launcher reports, a broken contract first of all.
    pub fn launch<L: Launcher>(self, launcher: &mut L) -> Result<(), L::Error> {
        let Quantize { format, x, to, cols, columns, x_stride, programmatic } = self;
        macro_rules! with {
            ($entry:ident) => {{
                // Vectors of other names, of one size: what does not fit is too short, which the contract says.
                let quantized = to.cast_mut().unwrap_or(DeviceSlice::empty_mut());
                // SAFETY: the kernels follow no addresses; what `programmatic` asks for was promised where it was set.
                unsafe { launcher.launch_programmatic($entry { x, quantized, cols, columns, x_stride }, programmatic) }
            }};
        }
        match format {
            QuantFormat::PlanesI8 => with!(PlanesI8),
            QuantFormat::PlanesI16 => with!(PlanesI16),
            QuantFormat::PlanesQ2I8 => with!(PlanesQ2I8),
            QuantFormat::PlanesQ2I16 => with!(PlanesQ2I16),
            QuantFormat::I8 => with!(QuantizeI8),
            QuantFormat::I16 => with!(QuantizeI16),
            QuantFormat::F16 => with!(QuantizeF16),
            QuantFormat::F16x2 => with!(QuantizeF16x2),
        }
    }
}

/// Where what a kernel computes goes as quantized activations.
#[derive(Debug)]
pub struct OutputQuantization<'a> {
    /// Which ones they become.
    pub format: QuantFormat,
    /// [`QuantFormat::len`] vectors for each column.
    pub quantized: &'a mut DeviceSlice<U32x4>,
    /// [`groups`](super::quant_format::groups) numbers for each column: zero before the first launch, and again after every launch.
    pub group_counters: &'a mut DeviceSlice<u32>,
}

impl<'a> OutputQuantization<'a> {
    /// The arguments `quant_format`, `quantized` and `group_counters` of a kernel.
    pub fn arguments(
        of: Option<OutputQuantization<'a>>,
    ) -> (u32, &'a mut DeviceSlice<U32x4>, &'a mut DeviceSlice<u32>) {
        match of {
            Some(OutputQuantization { format, quantized, group_counters }) => {
                (format as u32, quantized, group_counters)
            }
            None => (NONE, DeviceSlice::empty_mut(), DeviceSlice::empty_mut()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::quant_format::planes_of;
    use super::*;

    #[test]
    fn numbers_say_what_planes_they_are() {
        let of = |c: QuantFormat| planes_of(c as u32);
        assert_eq!([QuantFormat::PlanesI8, QuantFormat::PlanesI16].map(of), [(1, 1), (2, 1)]);
        assert_eq!([QuantFormat::PlanesQ2I8, QuantFormat::PlanesQ2I16].map(of), [(1, 2), (2, 2)]);
        assert_eq!(QuantFormat::ALL.map(|c| QuantFormat::numbered(c as u32)), QuantFormat::ALL.map(Some));
        assert!([NONE, 9, u32::MAX].iter().all(|n| QuantFormat::numbered(*n).is_none()));
    }

    #[test]
    fn products_of_few_columns_take_tensor_cores_where_these_cost_less() {
        let from = |format, activations| {
            let of = QuantizedProduct::of(format, activations)?;
            (1..64).find(|columns| of.takes_many(4096, *columns))
        };
        let plain = [Format::Q4_0, Format::Q6_K, Format::Q8_0];
        assert_eq!(plain.map(|f| from(f, Activations::Int16)), [Some(5); 3]);
        assert_eq!(plain.map(|f| from(f, Activations::Int8)), [Some(5); 3]);
        let tables = [Format::IQ4_NL, Format::IQ4_XS, Format::MXFP4];
        assert_eq!(tables.map(|f| from(f, Activations::Int16)), [Some(2); 3]);
    }

    /// Entry points are listed by format; which formats they take follows from the records.
    #[test]
    fn formats_have_what_their_records_allow() {
        for format in Format::ALL {
            let planes = match format.layout() {
                Layout::Q1_0 => true,
                Layout::Q2_0 => format.block_units() >= 2,
                _ => false,
            };
            let of = |a| QuantizedProduct::of(format, a).map(QuantizedProduct::quant_format);
            assert_eq!(of(Activations::F32), None);
            for activations in [Activations::Int16, Activations::Int8] {
                assert_eq!(of(activations).is_some_and(QuantFormat::is_planes), planes, "{format}");
            }
            for quant_format in [of(Activations::Int8), of(Activations::Int16)].into_iter().flatten() {
                assert!(
                    (format.block_elems() as u32).is_multiple_of(quant_format.block()),
                    "{format} in blocks of {}",
                    quant_format.block()
                );
            }
        }
    }
}
