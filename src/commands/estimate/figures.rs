//! What the model knows of a GPU: its data sheet, and rates that are assumed, or were measured by `warpsmith-rates` on such a GPU.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use warpsmith_arch::{Gpu, Rates};

use crate::commands::budget::pipes::{ISSUE, Pipe};
use crate::failure::Failure;

/// Of a barrier of all blocks of a launch, in microseconds, by an atomic on an H200 (gpu-benches, small kernels: 1.04 to 1.15).
pub const BARRIER: f64 = 1.10;

/// A GPU that times are for.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Its data sheet.
    pub gpu: &'static Gpu,
    /// Of a barrier of the grid, in microseconds.
    pub barrier: f64,
    /// What was measured.
    measured: Option<MeasuredRates>,
}

/// What a file says.
#[derive(Clone, Debug, PartialEq)]
struct MeasuredRates {
    /// On which device.
    device: String,
    /// Lanes of warps a clock and multiprocessor.
    lanes: BTreeMap<Pipe, f64>,
    /// Multiply-additions a clock and multiprocessor, by the name of the instruction, beside those that are assumed of sm_90.
    tensor: [(&'static str, f64, f64); 3],
}

/// What `warpsmith-rates --json` prints.
#[derive(Deserialize)]
struct File {
    device: String,
    engine: String,
    multiprocessors: u32,
    rates: Vec<InstructionRate>,
    ticks_per_grid_barrier: Option<f64>,
}

#[derive(Deserialize)]
struct InstructionRate {
    name: String,
    per_tick_and_multiprocessor: Option<f64>,
}

/// Rates of lanes, the pipes that they are of, and how many instructions of a step these take.
const LANES: [(&str, Pipe, f64); 5] = [
    ("FFMA", Pipe::F32, 1.0),
    ("LOP3 (and an IADD)", Pipe::Alu, 2.0),
    ("POPC (and a LOP3)", Pipe::Popc, 1.0),
    ("IDP.4A", Pipe::Dp4a, 1.0),
    ("SHFL (and an IADD)", Pipe::Shuffle, 1.0),
];

/// Products of tensor cores: name, instruction, and what is assumed of sm_90.
const TENSOR: [(&str, &str, u32); 3] = [
    ("mma m16n8k16 f16", "HMMA", Rates::SM90.tensor_f16),
    ("mma m16n8k32 s8", "IMMA", Rates::SM90.tensor_int8),
    ("mma m16n8k128 b1 and.popc", "BMMA", Rates::SM90.tensor_b1),
];

/// What a rate of lanes may be above what a multiprocessor issues: clocks are read a little apart.
const ABOVE: f64 = 1.05;

impl From<&'static Gpu> for Figures {
    fn from(gpu: &'static Gpu) -> Figures {
        Figures { gpu, barrier: BARRIER, measured: None }
    }
}

impl Figures {
    /// Those of a GPU, with the rates of a file where there is one.
    pub fn new(gpu: &'static Gpu, file: Option<&Path>) -> Result<Figures, Failure> {
        let Some(path) = file else { return Ok(gpu.into()) };
        let failed = |why: String| Failure::input(format!("--rates {}: {why}", path.display()));
        let text = fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
        Figures::read(gpu, &text).map_err(failed)
    }

    fn read(gpu: &'static Gpu, text: &str) -> Result<Figures, String> {
        let file: File =
            serde_json::from_str(text).map_err(|e| format!("this is not what `warpsmith-rates --json` prints: {e}"))?;
        let Some(ticks) = file.ticks_per_grid_barrier else {
            return Err(format!("it has no rates: {} has no clock of a GPU", file.engine));
        };
        if !is(gpu, &file.device) || file.multiprocessors != gpu.multiprocessors {
            let other = Gpu::ALL.iter().find(|g| is(g, &file.device) && g.multiprocessors == file.multiprocessors);
            let hint = other.map_or(String::new(), |g| format!("; hint: --gpu {}", g.name));
            return Err(format!(
                "it was measured on {} of {} multiprocessors, and this is for {} of {}{hint}",
                file.device, file.multiprocessors, gpu.title, gpu.multiprocessors
            ));
        }
        let rate = |name: &str, most: f64| {
            let told = file.rates.iter().find(|r| r.name == name).and_then(|r| r.per_tick_and_multiprocessor);
            let told = told.ok_or_else(|| format!("it lacks the rate of {name}"))?;
            if told > 0.0 && told <= most { Ok(told) } else { Err(format!("{told} is no rate of {name}")) }
        };
        let lanes = LANES.iter().map(|(name, pipe, each)| Ok((*pipe, each * rate(name, ABOVE * ISSUE / each)?)));
        let mut tensor = [("", 0.0, 0.0); 3];
        for (to, (name, instruction, assumed)) in tensor.iter_mut().zip(TENSOR) {
            *to = (instruction, rate(name, f64::MAX)?, f64::from(assumed));
        }
        if !(ticks > 0.0 && ticks.is_finite()) {
            return Err(format!("{ticks} ticks are no barrier of the grid"));
        }
        let measured = MeasuredRates { lanes: lanes.collect::<Result<_, String>>()?, tensor, device: file.device };
        Ok(Figures { gpu, barrier: ticks / f64::from(gpu.clock_mhz), measured: Some(measured) })
    }

    /// The device that rates were measured on.
    pub fn measured_on(&self) -> Option<&str> {
        self.measured.as_ref().map(|m| m.device.as_str())
    }

    /// Slots that issue while the pipe works in code that has such instructions, by those that are assumed of sm_90, which is what
    /// [`slots`](crate::commands::budget::slots) gives.
    pub fn by_pipe(&self, pipe: Pipe, has: impl Fn(&str) -> bool) -> f64 {
        let sheet = &self.gpu.rates;
        let Some(measured) = &self.measured else {
            return match pipe {
                Pipe::F32 => f64::from(Rates::SM90.fp32) / f64::from(sheet.fp32),
                Pipe::Tensor => tensor(sheet),
                _ => 1.0,
            };
        };
        if pipe == Pipe::Tensor {
            // Kernels have products of one kind; of several the slowest counts.
            let slower = measured.tensor.iter().filter(|(stem, ..)| has(stem)).map(|(_, own, assumed)| assumed / own);
            return slower.reduce(f64::max).unwrap_or_else(|| tensor(sheet));
        }
        measured.lanes.get(&pipe).zip(pipe.lanes()).map_or(1.0, |(own, assumed)| assumed / own)
    }
}

/// Whether a device of that name is such a GPU.
fn is(gpu: &Gpu, device: &str) -> bool {
    let words: Vec<String> = device
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|w| !w.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    // `RTX 4090` is `rtx4090`.
    words.iter().any(|w| w == gpu.name) || words.windows(2).any(|pair| pair.concat() == gpu.name)
}

/// Time of the tensor cores for an instruction by that on sm_90: of `BMMA`, and where there is none of the `IMMA` that the
/// assembler makes of it.
fn tensor(rates: &Rates) -> f64 {
    let (own, hopper) = match rates.tensor_b1 {
        0 => (rates.tensor_int8, Rates::SM90.tensor_int8),
        b1 => (b1, Rates::SM90.tensor_b1),
    };
    f64::from(hopper) / f64::from(own)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn h200() -> &'static Gpu {
        Gpu::find("h200").unwrap()
    }

    /// What a GPU would print, in which half of the lanes are there that are assumed, and a third of the products.
    fn file() -> Value {
        let lanes = LANES.map(|(name, pipe, each)| (name, pipe.lanes().unwrap() / each / 2.0));
        let rates = lanes.into_iter().chain(TENSOR.map(|(name, _, assumed)| (name, f64::from(assumed) / 3.0)));
        let rate = |(name, rate): (&str, f64)| json!({ "name": name, "unit": "-", "per_tick_and_multiprocessor": rate, "ticks": 7 });
        json!({
            "device": "NVIDIA H200",
            "engine": "NVIDIA driver",
            "multiprocessors": 132,
            "iterations": 4096,
            "rates": rates.map(rate).collect::<Vec<_>>(),
            "ticks_per_grid_barrier": 2970.0,
        })
    }

    #[test]
    fn measured_rates_take_the_place_of_those_that_are_assumed() {
        let own = Figures::read(h200(), &file().to_string()).unwrap();
        let of = |pipe| own.by_pipe(pipe, |stem| stem == "IMMA");
        assert_eq!([Pipe::F32, Pipe::Alu, Pipe::Popc, Pipe::Dp4a, Pipe::Shuffle].map(of), [2.0; 5]);
        // Of those that were not measured nothing else is known.
        assert_eq!([Pipe::Imad, Pipe::Convert, Pipe::Shared, Pipe::Global].map(of), [1.0; 4]);
        assert!((of(Pipe::Tensor) - 3.0).abs() < 1e-6, "{}", of(Pipe::Tensor));
        // 2970 ticks at 1980 MHz.
        assert_eq!((own.barrier, own.measured_on()), (1.5, Some("NVIDIA H200")));
        let assumed = Figures::from(h200());
        assert_eq!((assumed.barrier, assumed.measured_on()), (BARRIER, None));
        assert_eq!([Pipe::F32, Pipe::Alu, Pipe::Tensor].map(|p| assumed.by_pipe(p, |_| true)), [1.0; 3]);
    }

    #[test]
    fn of_several_products_the_slowest_counts() {
        let mut file = file();
        file["rates"][7]["per_tick_and_multiprocessor"] = json!(f64::from(TENSOR[2].2) / 5.0);
        let own = Figures::read(h200(), &file.to_string()).unwrap();
        let of = |all: &[&str]| own.by_pipe(Pipe::Tensor, |stem| all.contains(&stem)).round();
        assert_eq!([of(&["HMMA"]), of(&["BMMA", "IMMA"]), of(&[])], [3.0, 5.0, 1.0]);
    }

    #[track_caller]
    fn refused(gpu: &str, text: &str, part: &str) {
        let error = Figures::read(Gpu::find(gpu).unwrap(), text).unwrap_err();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn what_is_no_such_file_or_of_another_gpu_is_refused_with_the_reason() {
        let whole = file().to_string();
        refused("h200", "", "this is not what `warpsmith-rates --json` prints: EOF");
        refused("h200", "{\"device\": \"NVIDIA H200\"}", "missing field `engine`");
        refused("h200", &whole[..whole.len() / 2], "EOF");
        refused(
            "a100",
            &whole,
            "on NVIDIA H200 of 132 multiprocessors, and this is for NVIDIA A100 SXM 80 GB of 108; hint: --gpu h200",
        );
        refused("h100", &whole, "hint: --gpu h200");
        let with = |change: &dyn Fn(&mut Value)| {
            let mut file = file();
            change(&mut file);
            file.to_string()
        };
        refused("h200", &with(&|f| f["multiprocessors"] = json!(114)), "of 114 multiprocessors");
        let software = with(&|f| {
            f["engine"] = json!("software driver: PTX for sm_90 on the CPU, no GPU");
            f["ticks_per_grid_barrier"] = Value::Null;
        });
        refused(
            "h200",
            &software,
            "it has no rates: software driver: PTX for sm_90 on the CPU, no GPU has no clock of a GPU",
        );
        let rate = |value: Value| with(&move |f| f["rates"][1]["per_tick_and_multiprocessor"] = value.clone());
        refused("h200", &rate(Value::Null), "it lacks the rate of LOP3 (and an IADD)");
        refused("h200", &rate(json!(0.0)), "0 is no rate of LOP3 (and an IADD)");
        refused("h200", &rate(json!(70.0)), "70 is no rate of LOP3 (and an IADD)");
        refused("h200", &with(&|f| f["rates"] = json!([])), "it lacks the rate of");
        refused("h200", &with(&|f| f["ticks_per_grid_barrier"] = json!(-1.0)), "-1 ticks are no barrier of the grid");
    }

    #[test]
    fn devices_have_the_names_of_their_gpus() {
        let of = |device: &str| Gpu::ALL.iter().filter(|g| is(g, device)).map(|g| g.name).collect::<Vec<_>>();
        for (device, gpu) in [
            ("NVIDIA H100 80GB HBM3", "h100"),
            ("NVIDIA A100-SXM4-80GB", "a100"),
            ("Tesla T4", "t4"),
            ("NVIDIA L40S", "l40s"),
            ("NVIDIA GeForce RTX 4090", "rtx4090"),
            ("NVIDIA B200", "b200"),
        ] {
            assert_eq!(of(device), [gpu], "{device}");
        }
        assert_eq!(of("NVIDIA GH200 480GB"), [""; 0]);
    }
}
