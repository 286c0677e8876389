//! Budgets of kernels that do next to nothing with each byte: the bytes that they move in a step of [`COLUMNS`] columns, where these are
//! megabytes. With one column they are some KiB, and a launch costs more.
//!
//! Two figures by the bytes that have to move: what memory moves where caches are perfect, each sector once, within [`TRAFFIC`]; and what is
//! asked for, each sector of each request, within what the kernel's own re-reading takes.

use rayon::prelude::*;
use serde_json::{Value, json};
use warpsmith_host::gpu_kernels::cases::{BYTES, Case, Subject};

use super::known::{Held, Miss};
use super::profiles;
use crate::failure::{Failure, Kind};
use crate::table::{Align, Table, bytes};

/// Columns of a step.
const COLUMNS: u64 = 512;
/// Elements of a column.
const HIDDEN: u64 = 1024;
/// Devices of a collective.
const RANKS: u64 = 4;
/// Bytes of memory by those that have to move.
const TRAFFIC: f64 = 1.1;

/// A launch.
struct Launch {
    subject: Subject,
    shape: String,
    /// What is done, where a kernel does several things.
    what: &'static str,
    /// Bytes that have to move.
    needed: u64,
    /// Bytes that may be asked for, by those.
    asked: f64,
}

/// What is run.
fn launches() -> Vec<Launch> {
    let elements = COLUMNS * HIDDEN;
    let norm = Launch {
        subject: Subject::LayerNorm,
        shape: format!("columns={COLUMNS},cols={HIDDEN},flags=2"),
        what: "",
        // Weights and biases once.
        needed: 4 * (2 * elements + 2 * HIDDEN),
        // For its mean, for the squares of what is off it, and for the results; and weights and biases for each column.
        asked: 3.1,
    };
    let (experts, used) = (128, 8);
    let route = Launch {
        subject: Subject::Route,
        shape: format!("columns={COLUMNS},n={experts},used={used},flags=2"),
        what: "",
        needed: COLUMNS * (4 * experts + 8 * used),
        // A column's logits for each expert that is chosen, from L1.
        asked: 9.0,
    };
    let (keys, values, dim) = (4, 8, 128);
    let channels = dim * (2 * keys + values);
    let conv = Launch {
        subject: Subject::DeltaConv,
        shape: format!("tokens={COLUMNS},key_heads={keys},value_heads={values},dim={dim}"),
        what: "",
        // Weights of four tokens; the three inputs before, and the last three.
        needed: channels * (8 * COLUMNS + 16 + 24),
        // Weights and three inputs for each tile of 32 tokens; and columns begin within sectors.
        asked: 1.2,
    };
    // By the words of an element that have to move. What is staged begins within sectors.
    let reduce = |mode: u64, what, words: f64, asked| Launch {
        subject: Subject::Collective,
        shape: format!("ranks={RANKS},rank=1,len={elements},kind=0,mode={mode}"),
        what,
        needed: (4.0 * words * elements as f64) as u64,
        asked,
    };
    let others = (RANKS - 1) as f64 / RANKS as f64;
    let exchange = |receive: u64, what| Launch {
        subject: Subject::Exchange,
        shape: format!("halves={},receive={receive}", 2 * elements),
        what,
        needed: 8 * elements,
        // What is staged begins within sectors.
        asked: 1.15,
    };
    vec![
        norm,
        route,
        conv,
        // Elements are read, staged and written; those of the others are read. What the rank itself has staged it reads again.
        reduce(0, "all-reduce in one shot", 3.0 + (RANKS - 1) as f64, 1.35),
        // Of the others a slice, and the slices that they have reduced. The own slice is read again twice, and written again.
        reduce(1, "all-reduce in two shots", 3.0 + 2.0 * others, 1.25),
        exchange(0, "sends"),
        exchange(1, "receives"),
    ]
}

/// A launch, and what it moved.
pub struct Traffic {
    launch: Launch,
    kernel: String,
    case: Case,
    /// With perfect caches, and with none.
    moved: (u64, u64),
}

/// Kernels that are measured.
#[cfg(test)]
pub fn kernels() -> Vec<String> {
    launches().iter().flat_map(|l| l.subject.kernels()).collect()
}

/// Whether a filter wants any.
pub fn wanted(filter: Option<&str>) -> bool {
    launches().iter().any(|l| l.wanted(filter))
}

impl Launch {
    fn wanted(&self, filter: Option<&str>) -> bool {
        filter.is_none_or(|f| BYTES.contains(&f.to_lowercase()) || self.subject.kernels().iter().any(|k| k.contains(f)))
    }
}

/// Runs those of a filter.
pub fn costs(filter: Option<&str>) -> Result<Vec<Traffic>, Failure> {
    launches().into_par_iter().filter(|l| l.wanted(filter)).map(Traffic::new).collect()
}

impl Traffic {
    fn new(launch: Launch) -> Result<Traffic, Failure> {
        let failed = |e: String| Failure::new(Kind::Operation, e);
        let case = launch.subject.parse(&launch.shape).map_err(failed)?;
        let ran = profiles(&case)?;
        let kernel = launch.subject.kernels().into_iter().next().unwrap_or_default();
        let own = ran.iter().find(|p| p.kernel == kernel);
        let own = own.ok_or_else(|| failed(format!("{case} ran no {kernel}")))?;
        Ok(Traffic { moved: own.profile.dram_bytes(), kernel, case, launch })
    }

    fn traffic(&self) -> f64 {
        self.moved.0 as f64 / self.launch.needed as f64
    }

    fn asked(&self) -> f64 {
        self.moved.1 as f64 / self.launch.needed as f64
    }

    fn misses(&self) -> Vec<Miss> {
        let figures = [("DRAM/floor", self.traffic(), TRAFFIC), ("asked/floor", self.asked(), self.launch.asked)];
        let miss = |(measure, figure, limit)| {
            let text = format!("{measure} {figure:.3}, budget {limit:.2}");
            (figure > limit).then(|| Miss::larger(measure, figure, text))
        };
        figures.into_iter().filter_map(miss).collect()
    }

    /// As a budget.
    pub fn held(&self) -> Held {
        let what = if self.launch.what.is_empty() { &self.kernel } else { self.launch.what };
        Held {
            budget: format!("{BYTES}, {what} of {COLUMNS} columns"),
            kernel: self.kernel.clone(),
            misses: self.misses(),
        }
    }

    /// For machines.
    pub fn json(&self) -> Value {
        json!({
            "kernel": self.kernel,
            "case": self.case.to_string(),
            "needed_bytes": self.launch.needed,
            "dram_bytes_per_floor": self.traffic(),
            "asked_bytes_per_floor": self.asked(),
            "misses": self.misses().into_iter().map(|m| m.text).collect::<Vec<_>>(),
        })
    }
}

/// Prints the table.
pub fn print(costs: &[Traffic]) {
    let columns = [("kernel", Align::Left), ("", Align::Left)].into_iter();
    let right = ["needed", "DRAM/floor", "asked/floor", "budget"].map(|name| (name, Align::Right));
    let mut table = Table::new(columns.chain(right).chain([("", Align::Left)]));
    for c in costs {
        table.row(vec![
            c.kernel.clone(),
            c.launch.what.to_owned(),
            bytes(c.launch.needed),
            format!("{:.3}", c.traffic()),
            format!("{:.3}", c.asked()),
            format!("{TRAFFIC}, {:.2}", c.launch.asked),
            if c.misses().is_empty() { "held" } else { "missed" }.to_owned(),
        ]);
    }
    print!("{table}");
    println!(
        "\nbytes in a step of {COLUMNS} columns of {HIDDEN} elements, of {RANKS} devices where there are several, by those that have to move: each sector \
         once, and as often as it is asked for\n"
    );
}
