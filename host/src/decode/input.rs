//! What products read: columns of f32, or codes that they are rounded to once for all products that read them.

use super::weights::Stack;
use crate::Error;
use gpu_kernels::gemv::{Activations, Coded, Codes, Gemv, Quantize, choose, fastest};
use warpsmith_device::{DeviceSlice, Launcher, U32x4};

/// Which activations products take, and how they are launched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// The cheapest that are allowed.
    pub allowed: Activations,
    /// Only where they are known to be faster.
    pub tuned: bool,
    /// The device's compute capability.
    pub sm: u32,
    /// Launches begin while those before them end.
    pub ahead: bool,
}

impl Choice {
    /// The codes that a stack's product reads, if it does not read f32.
    pub fn of(self, stack: &Stack) -> Option<Coded> {
        let activations = match self.tuned {
            true => fastest(stack.format, stack.rows(), stack.cols, self.allowed, self.sm),
            false => choose(stack.format, self.allowed),
        };
        Coded::of(stack.format, activations)
    }

    /// Stacks in an order in which no codes are written twice.
    pub fn sorted(self, stacks: &[Stack]) -> Vec<&Stack> {
        let mut all: Vec<&Stack> = stacks.iter().collect();
        all.sort_by_key(|s| self.of(s).map(Coded::codes));
        all
    }
}

/// Vectors that a column of `cols` activations takes as codes of any kind.
pub(super) fn most_vectors(cols: usize) -> usize {
    Codes::ALL.map(|c| c.len(cols as u32) as usize).into_iter().max().unwrap_or(0)
}

/// Columns that one or several products read.
pub(super) struct Input<'a> {
    pub x: &'a DeviceSlice<f32>,
    pub columns: u32,
    /// Elements from a column to the next.
    pub stride: usize,
    /// The parts of the sums of squares and eps, where a norm is due.
    pub norm: Option<(&'a DeviceSlice<f32>, u32, f32)>,
    pub choice: Choice,
    /// Where codes go.
    pub codes: &'a mut DeviceSlice<U32x4>,
    /// Those that are there.
    pub ready: Option<Codes>,
}

impl Input<'_> {
    /// `y = W x`, with `y_stride` elements from a column to the next, and `rows` outputs; launches what makes the codes if
    /// they are not there.
    pub fn product<'a, L: Launcher<Error = Error>>(
        &'a mut self,
        on: &mut L,
        stack: &'a Stack,
        rows: u32,
        (y, y_stride): (&'a mut DeviceSlice<f32>, usize),
    ) -> Result<Gemv<'a>, Error> {
        let (columns, stride) = (self.columns, self.stride as u32);
        let gemv = match self.choice.of(stack) {
            Some(coded) => {
                self.code(on, coded.codes(), stack.cols)?;
                Gemv::coded(coded, stack.records(), rows, stack.cols, self.codes, y)
            }
            None => {
                let gemv = Gemv::new(stack.format, stack.records(), rows, stack.cols, self.x, y);
                match self.norm {
                    Some((sums, parts, eps)) => gemv.norm(sums, parts, eps),
                    None => gemv,
                }
            }
        };
        Ok(gemv.columns(columns, stride, y_stride as u32).ahead(self.choice.ahead))
    }

    fn code<L: Launcher<Error = Error>>(&mut self, on: &mut L, codes: Codes, cols: u32) -> Result<(), Error> {
        if self.ready == Some(codes) {
            return Ok(());
        }
        let mut quantize = Quantize::new(codes, self.x, self.codes, cols).columns(self.columns, self.stride as u32);
        if let Some((sums, parts, eps)) = self.norm {
            quantize = quantize.norm(sums, parts, eps);
        }
        quantize.ahead(self.choice.ahead).launch(on)?;
        self.ready = Some(codes);
        Ok(())
    }
}
