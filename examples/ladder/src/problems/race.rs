//! Step 20: the checks of the software driver on a kernel with a race, and on its clean twin.

use crate::bench::{Bench, Failure, Outcome, dimension, numbers, poison, worst};
use ladder_kernels::race::SumRace;
use ladder_kernels::sum::{SumShuffle, reference};
use warpsmith_host::Error;
use warpsmith_host::driver::software::{self, Checks};

/// Threads of a block.
const BLOCK: usize = 256;

/// What the checks say of a piece of work; nothing if they find nothing.
pub fn findings(bench: &Bench, work: impl FnOnce() -> Result<(), Error>) -> Result<Option<String>, Error> {
    let _checked = software::check(Checks::ALL);
    work()?;
    match bench.stream.synchronize() {
        Ok(()) => Ok(None),
        Err(Error::Findings { text, .. }) => Ok(Some(text)),
        Err(error) => Err(error),
    }
}

/// Sums up blocks of 256 elements with the kernel that has a race, and with the one that has none.
pub fn run(bench: &Bench, _step: u32, (rows, cols): (usize, usize)) -> Result<Outcome, Failure> {
    let stream = &bench.stream;
    let len = rows * cols;
    let n = dimension(len)?;
    let x_host = numbers(len, 12);
    let x = stream.upload(&x_host)?;
    let mut y = stream.upload(&poison(len.div_ceil(BLOCK)))?;

    let mut notes = Vec::new();
    if bench.device.is_software() {
        let found = findings(bench, || stream.launch(SumRace { x: &x, y: &mut y, n }))?;
        let found = found.ok_or("the race was not found")?;
        // The first line, without how often it was seen.
        let kind = found.lines().next().unwrap_or_default();
        let kind = kind.strip_suffix(" times)").and_then(|k| k.rsplit_once(" (")).map_or(kind, |(kind, _)| kind);
        notes.push(format!("Without the barrier: `{kind}`."));
        if let Some(text) = findings(bench, || stream.launch(SumShuffle { x: &x, y: &mut y, n }))? {
            return Err(format!("a finding where there is no mistake: {text}").into());
        }
        notes.push("With it (step 5, which is what the counters are of) the checks find nothing.".to_owned());
    } else {
        notes.push("Checks run on the software driver: WARPSMITH_DRIVER=software.".to_owned());
    }
    let counted = bench.count(|| stream.launch(SumShuffle { x: &x, y: &mut y, n }))?;

    let expected: Vec<_> = x_host
        .chunks(BLOCK)
        .map(|block| (reference(block), 1e-6 * block.iter().map(|x| f64::from(x.abs())).sum::<f64>()))
        .collect();
    Outcome::new(worst(&stream.read(&y)?, &expected), len, 4 * len, counted).map(|o| Outcome { notes, ..o })
}
