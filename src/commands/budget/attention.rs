//! Budgets of attention: of a step (decode) over caches of every type and of two lengths, and of a prompt on tensor cores.
//!
//! A step has to read keys and values once for all query heads that share them, in one launch, which is split over positions
//! where there are more than [`WHOLE`], and then to issue no more than [`SLOTS`] for each of their bytes. With fewer positions most
//! of what is issued is what a block does once, and [`once`] says how much that may be. A prompt's loop over keys has to leave tensor cores [`RATE`] of their time at least: an
//! `HMMA.16816` is 16 * 8 * 16 multiply-adds, of which a multiprocessor does 2048 a clock and one of its four parts 512, so it
//! takes 4 clocks, in which that part issues 4 instructions. A loop of `s` issue slots, `h` of them matrix products, leaves
//! tensor cores the share `4 h / s` at most, or less if another pipe is busy for longer. A prompt with the bits of single steps puts
//! its results together as often as they do, and may issue [`exact`] slots for each multiply-add.

use std::sync::Arc;

use serde_json::{Value, json};
use warpsmith_driver_api::software::LaunchProfile;
use warpsmith_host::gpu_kernels::attention::cases::{prefill_kernel, prompt_kernel, step_kernel};
use warpsmith_host::gpu_kernels::attention::{prefill, step};
use warpsmith_host::gpu_kernels::cases::{Case, Measured, Subject};
use warpsmith_host::gpu_kernels::kv::KvType;
use warpsmith_host::gpu_kernels::list::listed;
use warpsmith_host::gpu_kernels::state::GROUP;

use super::families::TRAFFIC;
use super::known::Miss;
use super::pipes::Pipe;
use super::weighed::Weighed;
use super::{Assembled, profiles, slots};
use crate::failure::{Failure, Kind};
use crate::table::{Align, Table};

/// Positions that one part may hold.
const WHOLE: usize = 1024;
/// Issue slots of a lane that an H200 has in the time in which memory delivers a byte: 132 multiprocessors of 128 lanes at
/// 1.98 GHz, 4.48 TB/s read.
const SLOTS: f64 = 7.5;
/// The same where a part has as few positions as parts do: a tile of tensor cores for half of a block's warps, so that more than half
/// of the instructions norm and turn queries, and put together what warps and blocks found, in order: prompts get the same bits. A fifth of
/// them is for being over sooner: a block asks for keys and values before it stages queries, and has loads of several results under way
/// together ([project](crate::commands::project) says by how much).
const fn once(kv: KvType) -> f64 {
    match kv {
        KvType::F16 => 4.9,
        KvType::F32 => 5.7,
        // As many instructions for a quarter of the bytes.
        KvType::Int8 => 11.3,
    }
}
/// Share of the time in which tensor cores are busy, at least.
const RATE: f64 = 0.60;
/// Issue slots of a lane for a multiply-add of a prompt with the bits of single steps, at most: what a tile takes beside its products does not
/// depend on the elements of a head.
const fn exact(kv: KvType, dim: usize) -> f64 {
    let of_128 = match kv {
        KvType::F16 | KvType::F32 => 0.5,
        // Each position has a scale of its own.
        KvType::Int8 => 0.7,
    };
    if dim < 128 { 1.45 * of_128 } else { of_128 }
}
/// Lengths of caches that steps are run over.
const LENGTHS: [usize; 2] = [1000, 4096];
/// Heads of prompts that are run, and their tokens.
const DIMS: [usize; 2] = [64, 128];
const TOKENS: usize = 1024;

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionRun {
    /// One token at the end of so many positions, with the heads of Qwen3 8B.
    Step(KvType, usize),
    /// [`TOKENS`] tokens from the first on, with heads of so many elements.
    Prompt(KvType, usize),
    /// The same with the bits of single steps.
    Exact(KvType, usize),
}

impl AttentionRun {
    /// Those of a filter.
    pub fn chosen(filter: Option<&str>) -> Vec<AttentionRun> {
        let kernels = listed();
        let held = |r: &AttentionRun| {
            let kernel = r.kernel();
            kernels.iter().any(|k| k.meta.name == kernel && matches!(k.budget, Measured::By(_)))
        };
        let steps = KvType::ALL.into_iter().flat_map(|kv| LENGTHS.map(|n| AttentionRun::Step(kv, n)));
        let prompts = KvType::ALL.into_iter().flat_map(|kv| DIMS.map(|dim| AttentionRun::Prompt(kv, dim)));
        let exact = KvType::ALL.into_iter().flat_map(|kv| DIMS.map(|dim| AttentionRun::Exact(kv, dim)));
        let all = steps.chain(prompts).chain(exact).filter(held);
        let named = |r: &AttentionRun, f: &str| r.family().contains(&f.to_lowercase()) || r.kernel().contains(f);
        all.filter(|r| filter.is_none_or(|f| named(r, f))).collect()
    }

    /// As reports have it.
    pub fn family(self) -> &'static str {
        match self {
            AttentionRun::Step(..) => "attention",
            AttentionRun::Prompt(..) | AttentionRun::Exact(..) => "prefill",
        }
    }

    /// The kernel that is launched.
    pub fn kernel(self) -> String {
        let meta = match self {
            AttentionRun::Step(kv, _) => step_kernel(kv),
            AttentionRun::Prompt(kv, _) => prefill_kernel(kv),
            AttentionRun::Exact(kv, _) => prompt_kernel(kv),
        };
        meta.name.to_owned()
    }

    /// Query heads, key heads, elements of a head.
    fn heads(self) -> [usize; 3] {
        match self {
            AttentionRun::Step(..) => [32, 8, 128],
            AttentionRun::Prompt(_, dim) => [2, 1, dim],
            AttentionRun::Exact(_, dim) => [4, 1, dim],
        }
    }

    /// Heads and positions.
    pub fn shape(self) -> String {
        let [q_heads, kv_heads, dim] = self.heads();
        let n = match self {
            AttentionRun::Step(_, n) => n,
            AttentionRun::Prompt(..) | AttentionRun::Exact(..) => TOKENS,
        };
        format!("{q_heads}/{kv_heads} x {dim}, {n}")
    }

    /// The case that runs it.
    pub fn case(self) -> Result<Case, Failure> {
        let [q_heads, kv_heads, dim] = self.heads();
        let heads = format!("q_heads={q_heads},kv_heads={kv_heads},head_dim={dim}");
        let (subject, sizes) = match self {
            AttentionRun::Step(kv, n) => {
                let place = format!("columns=1,n_rot={dim},capacity={n},position={}", n - 1);
                (Subject::AttentionStep(kv), place)
            }
            AttentionRun::Prompt(kv, _) => {
                (Subject::AttentionPrefill(kv), format!("columns={TOKENS},capacity={TOKENS}"))
            }
            AttentionRun::Exact(kv, _) => (Subject::AttentionPrompt(kv), format!("columns={TOKENS},capacity={TOKENS}")),
        };
        subject.parse(&format!("{heads},{sizes}")).map_err(|e| Failure::new(Kind::Operation, e))
    }

    /// Bytes of keys and values that have to be read: by a step once for each key head, by a prompt once for each block, or for each
    /// warp, of which two columns share all groups of positions but those that one of them does not attend to as a whole.
    pub fn needed(self) -> u64 {
        let [q_heads, kv_heads, dim] = self.heads();
        let row = |kv: KvType| dim * kv.bytes() + kv.scale_bytes();
        let bytes = match self {
            AttentionRun::Step(kv, n) => 2 * kv_heads * n * row(kv),
            AttentionRun::Prompt(kv, _) => {
                let rows = prefill::rows(dim as u32) as usize;
                let positions: usize = (1..=TOKENS.div_ceil(rows)).map(|b| TOKENS.min(b * rows)).sum();
                2 * q_heads * positions * row(kv)
            }
            AttentionRun::Exact(kv, _) => {
                let group = GROUP as usize;
                // The last group is that of both, and neither has it whole.
                let of_two = |end: usize| ((end - 1) / group + 2) * group;
                let positions: usize = (1..=TOKENS / 2).map(|pair| of_two(2 * pair)).sum();
                2 * kv_heads * positions * row(kv)
            }
        };
        bytes as u64
    }

    /// What is missed by issuing so many slots for a byte of keys and values.
    pub fn issued(self, slots: f64) -> Option<Miss> {
        let budget = match self {
            AttentionRun::Step(_, n) if n > WHOLE => SLOTS,
            AttentionRun::Step(kv, _) => once(kv),
            AttentionRun::Prompt(..) | AttentionRun::Exact(..) => return None,
        };
        let text = || format!("{slots:.2} issue slots a byte of keys and values, budget {budget}");
        (slots > budget).then(|| Miss::larger("slots a byte", slots, text()))
    }

    /// Blocks that have work.
    fn blocks(self, launch: &LaunchProfile) -> u64 {
        match self {
            AttentionRun::Step(_, n) => {
                let kv_heads = self.heads()[1] as u32;
                u64::from(kv_heads * step::parts(n as u32, step::splits(kv_heads)).0)
            }
            AttentionRun::Prompt(..) | AttentionRun::Exact(..) => {
                launch.launch.grid.iter().map(|n| u64::from(*n)).product()
            }
        }
    }
}

/// What a run costs.
pub struct AttentionCost {
    pub run: AttentionRun,
    pub weighed: Weighed,
    launches: usize,
    /// Bytes of keys and values that warps asked for, each time that they did; and of the sectors that these lie in.
    read: u64,
    sectors: u64,
}

/// Runs and weighs.
pub fn cost(run: AttentionRun, code: &Arc<Assembled>) -> Result<AttentionCost, Failure> {
    let (name, case) = (run.kernel(), run.case()?);
    let mut all = profiles(&case)?;
    let of_kernel = all.iter().position(|p| p.kernel == name);
    let operation = |e: &str| Failure::new(Kind::Operation, format!("{name} with {case}: {e}"));
    let launches = all.len();
    let launch = all.swap_remove(of_kernel.ok_or_else(|| operation("it was not launched"))?);
    let lines = &launch.profile.lines;
    // Rows are loaded by functions of the cache, or else copied, as nothing else is.
    let of_cache = lines.iter().filter(|l| l.source.iter().any(|f| f.file.ends_with("kv/cached.rs")));
    let mut read = launch.profile.total.global_copy_bytes;
    let mut sectors = launch.profile.total.global_copy_sectors;
    of_cache.for_each(|l| {
        read += l.metrics.global_load_bytes;
        sectors += l.metrics.global_load_sectors;
    });
    if read == 0 {
        return Err(operation("no access to keys and values was counted"));
    }
    Ok(AttentionCost {
        run,
        weighed: Weighed::new(launch, run.needed(), code, 1.0)?,
        launches,
        read,
        sectors: 32 * sectors,
    })
}

impl AttentionCost {
    /// Bytes of keys and values asked for, by those that have to be.
    fn traffic(&self) -> f64 {
        self.read as f64 / self.run.needed() as f64
    }

    /// The same of whole sectors, which is what L2 gives if no cache above it helps.
    fn sectors(&self) -> f64 {
        self.sectors as f64 / self.run.needed() as f64
    }

    /// Issue slots of a lane for a byte of keys and values.
    fn slots_per_byte(&self) -> f64 {
        32.0 * self.weighed.slots.kernel / self.run.needed() as f64
    }

    /// Share of the time in which the loop lets tensor cores be busy.
    fn rate(&self) -> Option<f64> {
        self.weighed.slots.hot.as_ref().and_then(tensor_rate)
    }

    /// What binds the loop, in words; shares are of its issue slots.
    fn binding(&self) -> String {
        let work = self.weighed.slots.hot.as_ref().map(|h| &h.work);
        let slots = work.map_or(1.0, |w| w.slots);
        Weighed::binding(work, |s| s / slots)
    }

    /// Every part of the budget that is missed.
    pub fn misses(&self) -> Vec<Miss> {
        let mut all = self.weighed.misses();
        if self.traffic() > TRAFFIC {
            let text = format!("keys and values read {:.3} times, budget {TRAFFIC}", self.traffic());
            all.push(Miss::larger("K/V read", self.traffic(), text));
        }
        if let Some(miss) = self.run.issued(self.slots_per_byte()) {
            all.push(Miss { text: format!("{}; {} binds its loop", miss.text, self.binding()), ..miss });
        }
        match self.run {
            AttentionRun::Step(_, n) => {
                if self.launches != 1 {
                    let text = format!("{} launches, budget 1", self.launches);
                    all.push(Miss::larger("launches", self.launches as f64, text));
                }
                let (parts, heads) = (self.run.blocks(&self.weighed.launch), self.run.heads()[1] as u64);
                if n > WHOLE && parts <= heads {
                    all.push(Miss::smaller("blocks", parts as f64, format!("{n} positions in one part")));
                }
                // With few positions the loop over them may not be the one that takes most.
                if n > WHOLE || self.weighed.slots.hot.as_ref().is_some_and(|h| h.work.holds_codes) {
                    all.extend(self.weighed.exposed());
                }
            }
            AttentionRun::Exact(kv, dim) => {
                let [q_heads, ..] = self.run.heads();
                let products = (2 * q_heads * dim * TOKENS * (TOKENS + 1) / 2) as f64;
                let slots = 32.0 * self.weighed.slots.kernel / products;
                let budget = exact(kv, dim);
                if slots > budget {
                    let text = format!(
                        "{slots:.3} issue slots a multiply-add, budget {budget}; {} binds its loop",
                        self.binding()
                    );
                    all.push(Miss::larger("slots a multiply-add", slots, text));
                }
            }
            AttentionRun::Prompt(..) => {
                let rate = self.rate().unwrap_or(0.0);
                if rate < RATE {
                    let [have, need] = [rate, RATE].map(|r| 100.0 * r);
                    let text =
                        format!("{have:.0} % of the tensor cores' rate, budget {need:.0} %; {} binds", self.binding());
                    all.push(Miss::smaller("tensor", rate, text));
                }
            }
        }
        all
    }

    /// As the list of what is known has it.
    pub fn name(&self) -> String {
        format!("{} {}", self.run.kernel(), self.shape())
    }

    /// Heads and positions.
    pub fn shape(&self) -> String {
        self.run.shape()
    }

    /// For machines.
    pub fn json(&self) -> Value {
        let hot = self.weighed.slots.hot.as_ref();
        let turns = hot.map_or(1.0, |h| h.iterations);
        let more = json!({
            "family": self.run.family(),
            "kernel": self.run.kernel(),
            "shape": self.shape(),
            "launches": self.launches,
            "blocks": self.run.blocks(&self.weighed.launch),
            "cache_bytes": self.run.needed(),
            "cache_bytes_read": self.read,
            "cache_sector_bytes_read": self.sectors,
            "kernel_slots_per_cache_byte": self.slots_per_byte(),
            "tensor_rate": self.rate(),
            "misses": super::report::texts(&self.misses()),
        });
        let of_loop = json!({ "slots_per_iteration": hot.map(|h| h.work.slots / turns) });
        self.weighed.json(|slots| slots / turns, more, of_loop)
    }
}

/// By how long its matrix instructions take, and what takes longest.
pub fn tensor_rate(hot: &slots::Hot) -> Option<f64> {
    Some(*hot.work.pressure.get(&Pipe::Tensor)? / hot.work.time())
}

/// Prints the table.
pub fn print(costs: &[AttentionCost]) {
    let mut table = Table::new([
        ("family", Align::Left),
        ("kernel", Align::Left),
        ("heads, positions", Align::Left),
        ("K/V read", Align::Right),
        ("sectors", Align::Right),
        ("slots/byte", Align::Right),
        ("tensor", Align::Right),
        ("binds", Align::Left),
        ("launches", Align::Right),
        ("blocks", Align::Right),
        ("regs", Align::Right),
        ("local", Align::Right),
        ("occupancy", Align::Right),
        ("in flight", Align::Right),
        ("conflicts", Align::Right),
        ("", Align::Left),
    ]);
    for c in costs {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let [registers, local, occupancy] = c.weighed.resources();
        table.row(vec![
            c.run.family().to_owned(),
            c.run.kernel(),
            c.shape(),
            format!("{:.3}", c.traffic()),
            format!("{:.3}", c.sectors()),
            format!("{:.2}", c.slots_per_byte()),
            or_dash(c.rate().map(|r| format!("{:.0} %", 100.0 * r))),
            c.binding(),
            c.launches.to_string(),
            c.run.blocks(&c.weighed.launch).to_string(),
            registers,
            local,
            occupancy,
            or_dash(c.weighed.in_flight().map(|b| format!("{:.1} KiB", b / 1024.0))),
            c.weighed.conflicts().to_string(),
            if c.misses().is_empty() { "held" } else { "missed" }.to_owned(),
        ]);
    }
    print!("{table}");
    println!();
    println!(
        "query heads / key heads x elements of a head; K/V read: bytes of keys and values asked for, by those that each key \
         head (prefill: each block) needs; tensor: share of the time in which the loop lets tensor cores be busy; not time"
    );
    println!();
    for c in costs {
        for miss in c.misses() {
            println!("{}: {}", c.name(), miss.text);
        }
    }
}
