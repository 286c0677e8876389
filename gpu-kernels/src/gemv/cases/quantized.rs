//! Codes that a launch writes of what it computes, beside those of a launch that only rounds.

use crate::cases::{Bench, Failure, Outcome, same};
use crate::gemv::{OutputQuantization, QuantFormat, Quantize, quant_format};
use warpsmith_device::U32x4;

/// Where a launch writes codes to.
pub struct Asked<B: Bench> {
    codes: QuantFormat,
    columns: usize,
    /// Elements of a column.
    n: usize,
    coded: B::Buffer<U32x4>,
    counted: B::Buffer<u32>,
}

impl<B: Bench> Asked<B> {
    /// Those of a [`QuantFormat`] by its number, of `columns` columns of `n` elements; `None` for no codes.
    ///
    /// # Errors
    /// A number that no codes have; what the bench reports.
    pub fn new(bench: &mut B, number: usize, columns: usize, n: usize) -> Result<Option<Asked<B>>, Failure> {
        if number == quant_format::NONE as usize {
            return Ok(None);
        }
        let codes = u32::try_from(number).ok().and_then(QuantFormat::numbered);
        let codes = codes.ok_or_else(|| Failure::Launch(format!("no codes have the number {number}")))?;
        // Not undefined: a column's last vector of eight-bit codes may be half used.
        let coded = bench.upload(&vec![U32x4([u32::MAX; 4]); columns * codes.len(n as u32) as usize])?;
        let counted = bench.upload(&vec![0u32; columns * quant_format::groups(n as u32) as usize])?;
        Ok(Some(Asked { codes, columns, n, coded, counted }))
    }

    /// As a launch takes them.
    pub fn written(&mut self) -> OutputQuantization<'_> {
        OutputQuantization { codes: self.codes, coded: &mut self.coded, counted: &mut self.counted }
    }

    /// The codes are those that the values give, which lie `stride` elements apart; counters are back at zero.
    pub fn check(&self, bench: &mut B, values: &[f32], stride: usize) -> Outcome {
        if bench.read(&self.counted)?.iter().any(|c| *c != 0) {
            return Err(Failure::Wrong("a counter of coded elements is not back at zero".into()));
        }
        let columns = values.chunks(stride).take(self.columns).flat_map(|v| v.iter().take(self.n).copied());
        let x = bench.upload(&columns.collect::<Vec<f32>>())?;
        let mut want = bench.upload(&vec![U32x4([u32::MAX - 1; 4]); self.coded.len()])?;
        let n = self.n as u32;
        Quantize::new(self.codes, &x, &mut want, n).columns(self.columns as u32, n).launch(bench)?;
        let words = |v: Vec<U32x4>| v.into_iter().flat_map(|v| v.0).collect::<Vec<u32>>();
        let used = |all: Vec<u32>| match self.codes {
            QuantFormat::I8 => {
                all.chunks(4 * QuantFormat::I8.len(n) as usize).flat_map(|c| c[..10 * (self.n / 32)].to_vec()).collect()
            }
            _ => all,
        };
        let (got, want) = (used(words(bench.read(&self.coded)?)), used(words(bench.read(&want)?)));
        same(&got, &want).map_err(|e| Failure::Wrong(format!("codes, as words: {e}")))
    }
}

/// The number of codes for shape `i` of a list: all of them in turn that fill their blocks with `n` elements, and none.
pub fn in_turn(i: usize, n: usize) -> usize {
    let mut fit = QuantFormat::ALL.iter().filter(|c| n.is_multiple_of(c.block() as usize)).map(|c| *c as usize);
    let count = fit.clone().count() + 1;
    fit.nth(i % count).unwrap_or(quant_format::NONE as usize)
}
