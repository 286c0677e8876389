//! What a product costs for each weight.

use std::sync::Arc;

use warpsmith_check::Checks;
use warpsmith_host::gpu_kernels::cases::{self, Case, Inputs, Product, Rng, Tensor, multiply};
use warpsmith_host::gpu_kernels::gemv::{self, Activations};

use super::families::{self, Family, TRAFFIC};
use super::known::Miss;
use super::slots::Work;
use super::weighed::Weighed;
use super::{Assembled, Gpu, KERNELS, profiles};
use crate::failure::{Failure, Kind};

/// A product that decoders launch, of a family.
#[derive(Clone, Copy, Debug)]
pub struct FamilyProduct {
    pub family: &'static Family,
    pub activations: Activations,
    product: Product,
}

impl FamilyProduct {
    /// Those of a filter.
    pub fn chosen(filter: Option<&str>) -> Vec<FamilyProduct> {
        let of = |family: &'static Family| {
            let launched = family.launched().into_iter();
            launched.map(move |(activations, product)| FamilyProduct { family, activations, product })
        };
        let wanted = |s: &FamilyProduct| filter.is_none_or(|f| s.family.is_named(f) || s.kernel().contains(f));
        families::FAMILIES.iter().flat_map(of).filter(wanted).collect()
    }

    pub fn kernel(&self) -> String {
        self.product.kernel(self.family.format)
    }

    /// The case that runs it, which quantizes its outputs if it reads quantized activations, as in a step.
    pub fn case(&self, (rows, cols): (usize, usize)) -> Result<Case, Failure> {
        let subject = cases::Subject::Gemv { format: self.family.format, product: self.product };
        let quantized = self
            .product
            .quant_format(self.family.format)
            .map_or(String::new(), |c| format!(",quant_format={}", c as u32));
        let text = format!("rows={rows},cols={cols}{quantized}");
        subject.parse(&text).map_err(|e| Failure::usage(format!("{} with {text}: {e}", self.kernel())))
    }

    /// How far off the product is for a few rows and activations of which one is 26 times their root mean square.
    fn error(&self, cols: usize) -> Result<f64, String> {
        const ROWS: usize = 64;
        let mut rng = Rng(cols as u64);
        let t = Tensor::random(&mut rng, self.family.format, ROWS, cols);
        let mut x = rng.floats(cols);
        // The others are evenly spread up to 1.
        x[cols / 3] = 15.0;
        let weights = self.family.format.decode(&t.bytes, ROWS, cols).map_err(|e| e.to_string())?;
        let mut gpu = Gpu::new(&KERNELS, Checks::default());
        let got = multiply(&mut gpu, &t, self.product, &Inputs::one(&x, ROWS)).map_err(|e| e.to_string())?;
        let wanted = gemv::reference(&weights, &x, None).into_iter().zip(gemv::magnitudes(&weights, &x));
        let off = got.y.iter().zip(wanted).map(|(y, (want, scale))| (f64::from(*y) - want).abs() / scale);
        Ok(off.fold(0.0, f64::max))
    }
}

/// What a kernel costs in rows of one length.
pub struct Cost {
    pub family: &'static Family,
    pub activations: Activations,
    pub kernel: String,
    pub cols: usize,
    pub shape: String,
    pub weights: u64,
    /// Largest distance from the f64 reference, as a share of the row's `sum |w * x|`.
    pub error: f64,
    pub limit: Option<f64>,
    pub weighed: Weighed,
    /// Bytes that have to move.
    floor: u64,
}

impl Cost {
    /// Runs a product and weighs it.
    pub fn new(s: &FamilyProduct, (rows, cols): (usize, usize), code: &Arc<Assembled>) -> Result<Cost, Failure> {
        let (kernel, family, case) = (s.kernel(), s.family, s.case((rows, cols))?);
        let operation = |e: String| Failure::new(Kind::Operation, format!("{kernel} with {case}: {e}"));
        let bytes = family.format.tensor_bytes(rows, cols).map_err(|e| Failure::usage(e.to_string()))?;
        // Outputs, and those of them that are quantized.
        let written =
            4 * rows + if s.activations == Activations::F32 { 0 } else { families::bytes(s.activations, rows) };
        let ran = profiles(&case)?.into_iter().find(|p| p.kernel == kernel);
        let launch = ran.ok_or_else(|| operation("it was not launched".to_owned()))?;
        let weights = (rows * cols) as u64;
        Ok(Cost {
            family,
            activations: s.activations,
            cols,
            shape: case.to_string(),
            weights,
            error: s.error(cols).map_err(operation)?,
            limit: family.limit(s.activations),
            weighed: Weighed::new(launch, weights * family.code_bits as u64 / 8, code, cols as f64 / rows as f64)?,
            floor: (bytes + written + families::bytes(s.activations, cols)) as u64,
            kernel,
        })
    }

    /// Whether a path of a family at a width is held by it.
    pub fn is_of(&self, family: &Family, cols: usize, path: Option<Activations>) -> bool {
        let of_path = path.is_none_or(|p| p == self.activations);
        std::ptr::eq(self.family, family) && self.cols == cols && of_path
    }

    pub fn per_weight(&self, slots: f64) -> f64 {
        32.0 * slots / self.weights as f64
    }

    fn loops(&self) -> Option<&Work> {
        self.weighed.slots.loops.as_ref()
    }

    /// Issue slots a weight in all loops that ran; of the whole kernel if it has no loop.
    pub fn loop_slots(&self) -> f64 {
        self.per_weight(self.loops().map_or(self.weighed.slots.kernel, |l| l.slots))
    }

    /// The same, or what passes while the busiest pipe works if that is more.
    pub fn loop_time(&self) -> f64 {
        self.per_weight(self.loops().map_or(self.weighed.slots.kernel, Work::time))
    }

    /// Issue slots a weight of the whole kernel.
    pub fn kernel_slots(&self) -> f64 {
        self.per_weight(self.weighed.slots.kernel)
    }

    /// The same by the software driver: instructions of PTX.
    pub fn counted_slots(&self) -> f64 {
        self.per_weight(self.weighed.launch.profile.total.warp_instructions as f64)
    }

    /// Bytes of memory, each sector once, by those that have to move.
    pub fn traffic(&self) -> f64 {
        self.weighed.launch.profile.dram_bytes().0 as f64 / self.floor as f64
    }

    /// Share of the bytes that loops load by 16 bytes a lane.
    pub fn wide(&self) -> Option<f64> {
        let work = self.loops().filter(|l| l.bytes > 0)?;
        Some((work.bytes - work.narrow_bytes) as f64 / work.bytes as f64)
    }

    /// Every part of the budget that is missed.
    pub fn misses(&self) -> Vec<Miss> {
        let mut all = Vec::new();
        if let Some(limit) = self.limit {
            let (slots, counted) = (self.loop_time(), self.counted_slots());
            if slots > limit {
                let binds = self.binding();
                let text = format!("{slots:.2} issue slots a weight in its loops, budget {limit}; {binds} binds");
                all.push(Miss::larger("loop", slots, text));
            }
            if counted > limit {
                let text = format!("{counted:.2} instructions a weight counted, budget {limit}");
                all.push(Miss::larger("counted", counted, text));
            }
        }
        all.extend(self.weighed.misses());
        let traffic = self.traffic();
        if traffic > TRAFFIC {
            let text = format!("{traffic:.3} times the bytes that have to move, budget {TRAFFIC}");
            all.push(Miss::larger("DRAM/floor", traffic, text));
        }
        let codes = self.weights * self.family.code_bits as u64 / 8;
        let wide = self.loops().map_or(0, |l| l.bytes - l.narrow_bytes);
        if wide < codes {
            let share = wide as f64 / codes as f64;
            let text = format!("{:.0} % of the codes loaded by 16 bytes a lane in loops, budget 100 %", 100.0 * share);
            all.push(Miss::smaller("16-byte", share, text));
        }
        all
    }

    /// What binds the loops, in words.
    pub fn binding(&self) -> String {
        Weighed::binding(self.loops(), |slots| self.per_weight(slots))
    }
}
