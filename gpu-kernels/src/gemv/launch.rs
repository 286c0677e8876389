//! The way from a format to its entry points.

use super::arguments::{CodedGiven, Given};
use super::codes::Entry;
use super::int8::*;
use super::planes::*;
use super::*;
use crate::format::{Format, Layout};
use warpsmith_device::prelude::*;

/// What weights are multiplied with.
enum Input<'a> {
    F32(&'a DeviceSlice<f32>),
    Coded(Coded, &'a DeviceSlice<U32x4>),
}

/// A product with a tensor of any format.
///
/// ```text
/// Gemv::new(format, weights, rows, cols, x, y).add(residual, 0).launch(on)
/// Gemv::coded(Coded::of(format, Activations::Int8)?, weights, rows, cols, codes, y).swiglu().launch(on)
/// ```
#[must_use = "a product is nothing before it is launched"]
pub struct Gemv<'a> {
    format: Format,
    weights: &'a DeviceSlice<U32x4>,
    rows: u32,
    cols: u32,
    x: Input<'a>,
    y: &'a mut DeviceSlice<f32>,
    swiglu: bool,
    ahead: bool,
    columns: u32,
    x_stride: u32,
    y_stride: u32,
    add: Option<(&'a DeviceSlice<f32>, u32)>,
    norm: Option<(&'a DeviceSlice<f32>, u32, f32)>,
    next: Option<(&'a DeviceSlice<f32>, &'a mut DeviceSlice<f32>, &'a mut DeviceSlice<f32>)>,
    code: Option<Written<'a>>,
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

    /// A product of activations that [`Quantize`] wrote as the codes of `coded`.
    pub fn coded(
        coded: Coded,
        weights: &'a DeviceSlice<U32x4>,
        rows: u32,
        cols: u32,
        codes: &'a DeviceSlice<U32x4>,
        y: &'a mut DeviceSlice<f32>,
    ) -> Gemv<'a> {
        Self::of(coded.format(), weights, (rows, cols), Input::Coded(coded, codes), y)
    }

    fn of(
        format: Format,
        weights: &'a DeviceSlice<U32x4>,
        (rows, cols): (u32, u32),
        x: Input<'a>,
        y: &'a mut DeviceSlice<f32>,
    ) -> Gemv<'a> {
        let (add, norm, next, code) = (None, None, None, None);
        let (x_stride, y_stride) = (cols, rows);
        Gemv {
            format,
            weights,
            rows,
            cols,
            x,
            y,
            swiglu: false,
            ahead: false,
            columns: 1,
            x_stride,
            y_stride,
            add,
            norm,
            next,
            code,
        }
    }

    /// `columns` columns, `x_stride` elements apart in `x` and `y_stride` in `y` (and in `scaled` of [`next`](Self::next)).
    /// `x_stride` is a multiple of 4; codes lie one column behind the other whatever it is.
    pub fn columns(mut self, columns: u32, x_stride: u32, y_stride: u32) -> Self {
        (self.columns, self.x_stride, self.y_stride) = (columns, x_stride, y_stride);
        self
    }

    /// `silu(gate * x) * (up * x)`: `weights` are the records of `rows` gate rows, then of `rows` up rows.
    pub fn swiglu(mut self) -> Self {
        self.swiglu = true;
        self
    }

    /// [`AHEAD`]: the launch is programmatic, and asks for weights before it waits.
    ///
    /// # Safety
    /// With `true`, as for [`Programmatic::new`]: what it multiplies with was written before the launch before it began.
    pub unsafe fn ahead(mut self, ahead: bool) -> Self {
        self.ahead = ahead;
        self
    }

    /// Adds `values[n * stride + row]`: a residual, or a bias with stride 0.
    pub fn add(mut self, values: &'a DeviceSlice<f32>, stride: u32) -> Self {
        self.add = Some((values, stride));
        self
    }

    /// `x` is `scaled` of a producer, or codes of that: divides by the root mean square of what it scaled, whose squares sum up to
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

    /// Also writes codes of `y`, or with [`next`](Self::next) of `scaled`: in the same launch if the product reads codes itself,
    /// else in one more.
    pub fn code(mut self, to: Option<Written<'a>>) -> Self {
        self.code = to;
        self
    }

    /// Parts of a column's sum of squares that [`next`](Self::next) writes.
    #[must_use]
    pub fn parts(&self) -> u32 {
        let codes = match self.x {
            Input::F32(_) => None,
            Input::Coded(coded, _) => Some(coded.codes()),
        };
        parts_with(codes, self.rows, self.cols, self.swiglu)
    }

    /// Launches the entry point for it.
    ///
    /// # Errors
    /// What the launcher reports, a broken contract first of all.
    pub fn launch<L: Launcher>(self, launcher: &mut L) -> Result<(), L::Error> {
        let Gemv { format, weights, rows, cols, x, y, swiglu, ahead, columns, x_stride, y_stride, .. } = self;
        let mut flags = if swiglu { SWIGLU } else { 0 } | if ahead { AHEAD } else { 0 };
        let (add, add_stride) = self.add.inspect(|_| flags |= ADD).unwrap_or((DeviceSlice::empty(), 0));
        let (sums, parts, eps) = self.norm.inspect(|_| flags |= NORM).unwrap_or((DeviceSlice::empty(), 0, 0.0));
        let (next_weight, scaled, next_sums) = self.next.inspect(|_| flags |= NEXT).unwrap_or((
            DeviceSlice::empty(),
            DeviceSlice::empty_mut(),
            DeviceSlice::empty_mut(),
        ));
        let block_units = format.block_units();
        macro_rules! launch {
            ($kernel:expr) => {
                // SAFETY: the kernels follow no addresses; what `ahead` asks for was promised where it was set.
                unsafe { launcher.launch_ahead($kernel, ahead) }
            };
        }
        let x = match x {
            Input::F32(x) => x,
            Input::Coded(of, input) => {
                let (codes, coded, counted) = Written::arguments(self.code);
                macro_rules! with {
                    ($entry:ident) => {
                        launch!($entry::from(CodedGiven {
                            weights,
                            // Vectors of other names, of one size: what does not fit is too short, which the contract says.
                            x: input.cast().unwrap_or(DeviceSlice::empty()),
                            add,
                            sums,
                            next_weight,
                            y,
                            scaled,
                            next_sums,
                            coded,
                            counted,
                            rows,
                            cols,
                            columns,
                            y_stride,
                            add_stride,
                            parts,
                            block_units,
                            flags,
                            codes,
                            eps,
                        }))
                    };
                }
                macro_rules! by_entry {
                    (() $($F:ident {
                        $($kind:ident: $blocks:literal, $gemv:ident $Gemv:ident $shared:ident;)*
                    } $formats:tt)*) => {
                        match of.entry() { $($(Entry::$Gemv => with!($Gemv),)*)* }
                    };
                }
                return crate::formats!(coded by_entry ());
            }
        };
        let given = Given {
            weights,
            x,
            add,
            sums,
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
            block_units,
            flags,
            eps,
        };
        macro_rules! by_layout {
            (() $($F:ident {
                $blocks:literal: $gemv:ident $Gemv:ident $s1:ident, $gemm:ident $Gemm:ident $s2:ident
            } $formats:tt)*) => {
                match format.layout() {
                    $(Layout::$F => if columns == 1 { launch!($Gemv::from(given)) } else { launch!($Gemm::from(given)) },)*
                }
            };
        }
        crate::formats!(product by_layout ())?;
        match self.code {
            Some(Written { codes, coded, .. }) => {
                let values = if flags & NEXT != 0 { scaled } else { y };
                let quantize = Quantize::new(codes, values, coded, rows).columns(columns, y_stride);
                // SAFETY: it reads nothing but what it awaits.
                unsafe { quantize.ahead(ahead) }.launch(launcher)
            }
            None => Ok(()),
        }
    }
}
