//! Quantized activations that a launch writes of what it computes, beside those of a launch that only quantizes.

use crate::cases::{Bench, Failure, Outcome, same};
use crate::gemv::quant_format::{self, int8};
use crate::gemv::{OutputQuantization, QuantFormat, Quantize};
use warpsmith_device::U32x4;

/// Where a launch writes quantized activations to.
pub struct QuantizedOutput<B: Bench> {
    format: QuantFormat,
    columns: usize,
    /// Elements of a column.
    n: usize,
    quantized: B::Buffer<U32x4>,
    group_counters: B::Buffer<u32>,
}

impl<B: Bench> QuantizedOutput<B> {
    /// Those of a [`QuantFormat`] by its number, of `columns` columns of `n` elements; `None` for none.
    ///
    /// # Errors
    /// A number that no format has; what the bench reports.
    pub fn new(bench: &mut B, number: usize, columns: usize, n: usize) -> Result<Option<QuantizedOutput<B>>, Failure> {
        if number == quant_format::NONE as usize {
            return Ok(None);
        }
        let format = u32::try_from(number).ok().and_then(QuantFormat::numbered);
        let unknown = || Failure::Launch(format!("no format of quantized activations has the number {number}"));
        let format = format.ok_or_else(unknown)?;
        // Not undefined: of a column's last two units there may be one alone.
        let quantized = bench.upload(&vec![U32x4([u32::MAX; 4]); columns * format.len(n as u32) as usize])?;
        let group_counters = bench.upload(&vec![0u32; columns * quant_format::groups(n as u32) as usize])?;
        Ok(Some(QuantizedOutput { format, columns, n, quantized, group_counters }))
    }

    /// As a launch takes them.
    pub fn written(&mut self) -> OutputQuantization<'_> {
        OutputQuantization {
            format: self.format,
            quantized: &mut self.quantized,
            group_counters: &mut self.group_counters,
        }
    }

    /// They are those that the values give, which lie `stride` elements apart; counters are back at zero.
    pub fn check(&self, bench: &mut B, values: &[f32], stride: usize) -> Outcome {
        if bench.read(&self.group_counters)?.iter().any(|c| *c != 0) {
            return Err(Failure::Wrong("a counter of quantized elements is not back at zero".into()));
        }
        let apart = self.n.next_multiple_of(4);
        let mut columns = vec![f32::NAN; self.columns * apart];
        let of_columns = columns.chunks_mut(apart).zip(values.chunks(stride));
        of_columns.for_each(|(to, values)| to[..self.n].copy_from_slice(&values[..self.n]));
        let x = bench.upload(&columns)?;
        let mut want = bench.upload(&vec![U32x4([u32::MAX - 1; 4]); self.quantized.len()])?;
        let n = self.n as u32;
        Quantize::new(self.format, &x, &mut want, n).columns(self.columns as u32, apart as u32).launch(bench)?;
        let words = |v: Vec<U32x4>| v.into_iter().flat_map(|v| v.0).collect::<Vec<u32>>();
        let used = |all: Vec<u32>| match self.format {
            QuantFormat::I8 | QuantFormat::I16 => {
                let bytes = self.format.bytes() as usize;
                let of_unit = |c: &[u32], u: usize| {
                    let (codes, scale) = (4 * int8::codes(bytes, u), int8::scale(bytes, u));
                    let codes = (0..2 * bytes).flat_map(|i| &c[codes + 8 * i..][..4]);
                    codes.chain(&c[scale..scale + 2 * bytes]).copied().collect::<Vec<u32>>()
                };
                let of_column = |c: &[u32]| (0..self.n / 32).flat_map(|u| of_unit(c, u)).collect::<Vec<u32>>();
                all.chunks(4 * self.format.len(n) as usize).flat_map(of_column).collect()
            }
            _ => all,
        };
        let (got, want) = (used(words(bench.read(&self.quantized)?)), used(words(bench.read(&want)?)));
        same(&got, &want).map_err(|e| Failure::Wrong(format!("quantized, as words: {e}")))
    }
}

/// The number of a format for shape `i` of a list: all of them in turn that fill their blocks with `n` elements, and none.
pub fn in_turn(i: usize, n: usize) -> usize {
    let mut fit = QuantFormat::ALL.iter().filter(|c| n.is_multiple_of(c.block() as usize)).map(|c| *c as usize);
    let count = fit.clone().count() + 1;
    fit.nth(i % count).unwrap_or(quant_format::NONE as usize)
}
