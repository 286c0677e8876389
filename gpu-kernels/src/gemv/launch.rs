//! The way from a format to its entry points.

use super::arguments::{Given, QuantizedGiven};
use super::half::*;
use super::int8::*;
use super::planes::*;
use super::quantize::{Entry, Many};
use super::tensor::*;
use super::tensor_planes::*;
use super::*;
use crate::activation::Activation;
use crate::elementwise::Glu;
use crate::format::{Format, Layout};
use warpsmith_device::prelude::*;

/// What weights are multiplied with.
enum Input<'a> {
    F32(&'a DeviceSlice<f32>),
    Quantized(QuantizedProduct, &'a DeviceSlice<U32x4>),
}

/// A product with a tensor of any format.
///
/// ```text
/// Gemv::new(format, weights, rows, cols, x, y).add(residual, 0).launch(on)
/// Gemv::quantized(QuantizedProduct::of(format, Activations::Int8)?, weights, rows, cols, x, y).swiglu().launch(on)
/// ```
#[must_use = "a product is nothing before it is launched"]
pub struct Gemv<'a> {
    format: Format,
    weights: &'a DeviceSlice<U32x4>,
    rows: u32,
    cols: u32,
    x: Input<'a>,
    y: &'a mut DeviceSlice<f32>,
    /// Gates and ups, and what comes of them.
    glu: Option<Glu>,
    /// What comes of outputs, where there are no gates.
    activation: Option<Activation>,
    programmatic: bool,
    experts: Option<(&'a DeviceSlice<u32>, u32, u32)>,
    group: Option<&'a DeviceSlice<u32>>,
    columns: u32,
    x_stride: u32,
    y_stride: u32,
    add: Option<(&'a DeviceSlice<f32>, u32)>,
    bias: Option<&'a DeviceSlice<f32>>,
    norm: Option<(&'a DeviceSlice<f32>, u32, f32)>,
    next: Option<(&'a DeviceSlice<f32>, &'a mut DeviceSlice<f32>, &'a mut DeviceSlice<f32>)>,
    quantized_output: Option<OutputQuantization<'a>>,
}

impl<'a> Gemv<'a> {
    /// `y = weights * x` for one column. `weights` are the records of `rows` rows of `cols` columns.
    pub fn new(
        format: Format,
        weights: &'a DeviceSlice<U32x4>,
        rows: u32,
        cols: u32,
        x: &'a DeviceSlice<f32>,
        y: &'a mut DeviceSlice<f32>,
    ) -> Gemv<'a> {
        Self::of(format, weights, (rows, cols), Input::F32(x), y)
    }

    /// A product of activations that [`Quantize`] wrote for it.
    pub fn quantized(
        product: QuantizedProduct,
        weights: &'a DeviceSlice<U32x4>,
        rows: u32,
        cols: u32,
        x: &'a DeviceSlice<U32x4>,
        y: &'a mut DeviceSlice<f32>,
    ) -> Gemv<'a> {
        Self::of(product.format(), weights, (rows, cols), Input::Quantized(product, x), y)
    }

    fn of(
        format: Format,
        weights: &'a DeviceSlice<U32x4>,
        (rows, cols): (u32, u32),
        x: Input<'a>,
        y: &'a mut DeviceSlice<f32>,
    ) -> Gemv<'a> {
        let (add, norm, next, quantized_output) = (None, None, None, None);
        let (x_stride, y_stride) = (cols, rows);
        Gemv {
            format,
            weights,
            rows,
            cols,
            x,
            y,
            glu: None,
            activation: None,
            programmatic: false,
            experts: None,
            group: None,
            columns: 1,
            x_stride,
            y_stride,
            add,
            bias: None,
            norm,
            next,
            quantized_output,
        }
    }

    /// `columns` columns, `x_stride` elements apart in `x` and `y_stride` in `y` (and in `scaled` of [`next`](Self::next)).
    /// `x_stride` is a multiple of 4; quantized ones lie one column behind the other whatever it is.
    pub fn columns(mut self, columns: u32, x_stride: u32, y_stride: u32) -> Self {
        (self.columns, self.x_stride, self.y_stride) = (columns, x_stride, y_stride);
        self
    }

    /// What comes of `gate * x` and `up * x`, by such a function: `weights` are the records of `rows` gate rows, then of `rows` up rows.
    pub fn glu(mut self, glu: Glu) -> Self {
        self.glu = Some(glu);
        self
    }

    /// [`glu`](Self::glu) with SiLU.
    pub fn swiglu(self) -> Self {
        self.glu(Glu::Silu)
    }

    /// [`glu`](Self::glu) with GELU.
    pub fn geglu(self) -> Self {
        self.glu(Glu::Gelu)
    }

    /// [`ACTIVATED`]: what comes of each output, by such a function; `None`: the output itself. Not beside [`glu`](Self::glu).
    pub fn activation(mut self, activation: Option<Activation>) -> Self {
        self.activation = activation;
        self
    }

    /// [`BIAS`]: adds `values[row]` to the product with row `row` of the weights of all matrices.
    pub fn bias(mut self, values: Option<&'a DeviceSlice<f32>>) -> Self {
        self.bias = values;
        self
    }

    /// [`EXPERTS`]: `weights` are the records of `matrices` matrices, one behind the other, and each column of `x` is multiplied with
    /// `each` of them: column `n` of `y` comes from column `n / each` of `x` and matrix `chosen[n]`. Up to [`MAX_CHOSEN`] columns of `y`.
    pub fn experts(mut self, chosen: &'a DeviceSlice<u32>, matrices: u32, each: u32) -> Self {
        self.experts = Some((chosen, matrices, each));
        self
    }

    /// [`PREFETCH`]: the launch is programmatic, and asks for weights before it waits.
    ///
    /// # Safety
    /// With `true`, as for [`Programmatic::new`]: what it multiplies with was written before the launch before it began.
    pub unsafe fn programmatic(mut self, programmatic: bool) -> Self {
        self.programmatic = programmatic;
        self
    }

    /// Adds `values[n * stride + row]`: a residual, or with stride 0 the same for all columns.
    pub fn add(mut self, values: &'a DeviceSlice<f32>, stride: u32) -> Self {
        self.add = Some((values, stride));
        self
    }

    /// `x` is `scaled` of a producer, or that quantized: divides by the root mean square of what it scaled, whose squares sum up to
    /// `parts` numbers a column in `sums`.
    pub fn norm(mut self, sums: &'a DeviceSlice<f32>, parts: u32, eps: f32) -> Self {
        self.norm = Some((sums, parts, eps));
        self
    }

    /// Also writes `scaled = y * weight` and [`Gemv::parts`] parts of the sum of squares of every column.
    pub fn next(
        mut self,
        weight: &'a DeviceSlice<f32>,
        scaled: &'a mut DeviceSlice<f32>,
        sums: &'a mut DeviceSlice<f32>,
    ) -> Self {
        self.next = Some((weight, scaled, sums));
        self
    }

    /// Also quantizes `y`, or with [`next`](Self::next) `scaled`: in the same launch if the product reads quantized activations itself,
    /// else in one more.
    pub fn quantize_output(mut self, to: Option<OutputQuantization<'a>>) -> Self {
        self.quantized_output = to;
        self
    }

    /// Parts of a column's sum of squares that [`next`](Self::next) writes.
    #[must_use]
    pub fn parts(&self) -> u32 {
        let format = match self.x {
            Input::F32(_) => None,
            Input::Quantized(product, _) => Some(product.quant_format()),
        };
        parts_with(format, self.rows, self.cols, self.glu.is_some())
    }

    /// The same matrices for the same columns as a [group](crate::experts::group) has them, beside [`experts`](Self::experts): a block of
    /// threads then multiplies several columns with one matrix.
    pub fn group(mut self, table: Option<&'a DeviceSlice<u32>>) -> Self {
        self.group = table;
        self
    }

    /// Columns of `y`.
    fn outputs(&self) -> u32 {
        self.columns.saturating_mul(self.experts.map_or(1, |(.., each)| each))
    }

    fn flags(&self) -> u32 {
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        let glu = match self.glu {
            None => 0,
            Some(Glu::Silu) => SWIGLU,
            Some(Glu::Gelu) => SWIGLU | GELU,
            Some(Glu::Clamped) => SWIGLU | CLAMPED,
        };
        let activation = match self.activation {
            None => 0,
            Some(Activation::SquaredRelu) => ACTIVATED,
            Some(Activation::Gelu) => ACTIVATED | GELU,
            Some(Activation::GeluErf) => ACTIVATED | ERF,
        };
        glu | activation
            | flag(self.bias.is_some(), BIAS)
            // Which weights, only the launches before know.
            | flag(self.programmatic && self.experts.is_none(), PREFETCH)
            | flag(self.experts.is_some(), EXPERTS)
            | flag(self.add.is_some(), ADD)
            | flag(self.norm.is_some(), NORM)
            | flag(matches!(self.x, Input::Quantized(of, _) if of.quant_format() == QuantFormat::F16x2), PAIRS)
            | flag(self.next.is_some(), NEXT)
    }

    /// Launches the entry point for it.
    ///
    /// # Errors
    /// What the launcher reports, a broken contract first of all.
    pub fn launch<L: Launcher>(self, launcher: &mut L) -> Result<(), L::Error> {
        match self.x {
            // Compiled for each error, not for each launcher.
            Input::F32(x) => self.launch_f32::<L::Error>(x, &mut (launcher as _)),
            Input::Quantized(of, x) => self.launch_quantized::<L::Error>(of, x, &mut (launcher as _)),
        }
    }

    /// With activations of f32; what is to be quantized of the outputs takes a launch more.
    fn launch_f32<E>(self, x: &'a DeviceSlice<f32>, launcher: &mut &mut dyn Launcher<Error = E>) -> Result<(), E> {
        let (flags, columns) = (self.flags(), self.outputs());
        let Gemv { format, weights, rows, cols, y, programmatic, x_stride, y_stride, .. } = self;
        let (add, add_stride) = self.add.unwrap_or((DeviceSlice::empty(), 0));
        let bias = self.bias.unwrap_or(DeviceSlice::empty());
        let (sums, parts, eps) = self.norm.unwrap_or((DeviceSlice::empty(), 0, 0.0));
        let (chosen, matrices, sharing) = self.experts.unwrap_or((DeviceSlice::empty(), 0, 0));
        let group = self.group.filter(|_| self.experts.is_some());
        let chosen = group.unwrap_or(chosen);
        let (next_weight, scaled, next_sums) = self.next.unwrap_or_else(nothing_next);
        let given = Given {
            weights,
            x,
            add,
            sums,
            chosen,
            bias,
            next_weight,
            y: &mut *y,
            scaled: &mut *scaled,
            next_sums,
            rows,
            cols,
            columns,
            x_stride,
            y_stride,
            add_stride,
            parts,
            block_units: format.block_units(),
            matrices,
            sharing,
            flags,
            eps,
        };
        // A block for each column.
        let one = group.is_none() && (columns == 1 || self.experts.is_some());
        macro_rules! by_layout {
            (() $($F:ident {
                $blocks:literal: $gemv:ident $Gemv:ident $s1:ident, $gemm:ident $Gemm:ident $s2:ident
            } $formats:tt)*) => {
                // SAFETY: the kernels follow no addresses; what `programmatic` asks for was promised where it was set.
                unsafe {
                    match (format.layout(), one) {
                        $(
                            (Layout::$F, true) => launcher.launch_programmatic($Gemv::from(given), programmatic),
                            (Layout::$F, _) => launcher.launch_programmatic($Gemm::from(given), programmatic),
                        )*
                    }
                }
            };
        }
        crate::formats!(product by_layout ())?;
        match self.quantized_output {
            Some(OutputQuantization { format, quantized, .. }) => {
                let values = if flags & NEXT != 0 { scaled } else { y };
                let quantize = Quantize::new(format, values, quantized, rows).columns(columns, y_stride);
                // SAFETY: it reads nothing but what it awaits.
                unsafe { quantize.programmatic(programmatic) }.launch(launcher)
            }
            None => Ok(()),
        }
    }

    /// With quantized activations; outputs are quantized by the same launch.
    fn launch_quantized<E>(
        self,
        of: QuantizedProduct,
        x: &'a DeviceSlice<U32x4>,
        launcher: &mut &mut dyn Launcher<Error = E>,
    ) -> Result<(), E> {
        let (flags, columns) = (self.flags(), self.outputs());
        let Gemv { format, weights, rows, cols, y, programmatic, y_stride, .. } = self;
        let (add, add_stride) = self.add.unwrap_or((DeviceSlice::empty(), 0));
        let bias = self.bias.unwrap_or(DeviceSlice::empty());
        let (sums, parts, eps) = self.norm.unwrap_or((DeviceSlice::empty(), 0, 0.0));
        let (chosen, matrices, sharing) = self.experts.unwrap_or((DeviceSlice::empty(), 0, 0));
        let (next_weight, scaled, next_sums) = self.next.unwrap_or_else(nothing_next);
        let (quant_format, quantized, group_counters) = OutputQuantization::arguments(self.quantized_output);
        // A block of several columns has one matrix: all columns', or one of a group.
        let many = match self.experts {
            None => of.many().filter(|_| of.takes_many(if flags & SWIGLU == 0 { rows } else { 2 * rows }, columns)),
            Some(_) => of.many().filter(|_| self.group.is_some()),
        };
        let chosen = self.group.filter(|_| many.is_some()).unwrap_or(chosen);
        macro_rules! launch {
            ($entry:ident) => {{
                let product = $entry::from(QuantizedGiven {
                    weights,
                    // Vectors of other names, of one size: what does not fit is too short, which the contract says.
                    x: x.cast().unwrap_or(DeviceSlice::empty()),
                    add,
                    sums,
                    chosen,
                    bias,
                    next_weight,
                    y,
                    scaled,
                    next_sums,
                    quantized,
                    group_counters,
                    rows,
                    cols,
                    columns,
                    y_stride,
                    add_stride,
                    parts,
                    block_units: format.block_units(),
                    matrices,
                    sharing,
                    flags,
                    quant_format,
                    eps,
                });
                // SAFETY: as for those of f32.
                unsafe { launcher.launch_programmatic(product, programmatic) }
            }};
        }
        macro_rules! by_entry {
            (() $($F:ident {
                $($kind:ident: $blocks:literal, $gemv:ident $Gemv:ident $shared:ident;)*
            } $formats:tt)*) => {
                match of.entry() { $($(Entry::$Gemv => launch!($Gemv),)*)* }
            };
        }
        macro_rules! by_many {
            (($many:ident) $($F:ident { $($kind:ident: $gemm:ident $Gemm:ident $shared:ident;)* } $formats:tt)*) => {
                match $many { $($(Many::$Gemm => launch!($Gemm),)*)* }
            };
        }
        match many {
            Some(many) => crate::formats!(tensor by_many (many)),
            None => crate::formats!(quantized by_entry ()),
        }
    }
}

/// What a product gets where no norm follows.
fn nothing_next<'a>() -> (&'a DeviceSlice<f32>, &'a mut DeviceSlice<f32>, &'a mut DeviceSlice<f32>) {
    (DeviceSlice::empty(), DeviceSlice::empty_mut(), DeviceSlice::empty_mut())
}
