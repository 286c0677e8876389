//! Builds of the driver in turns: a process each, asked one row of the table after the other.
//!
//! The other build is a `libcuda.so.1` that is loaded first (`LD_PRELOAD`); the driver that is linked into the process then
//! passes every call on to it. Both so run the same PTX on the same inputs. What is compared is the CPU time of the process
//! during a launch, on one thread: other programs on the computer change it less than they change what the clock on the wall says.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Outcome, kernels, median, products};

/// The argument by which a process is told to answer.
pub const CHILD: &str = "--answer";
/// Names the other build.
const AGAINST: &str = "WARPSMITH_MACHINE_AGAINST";

/// What a launch took, in seconds.
#[derive(Clone, Copy, Default)]
pub struct Spent {
    cpu: f64,
    wall: f64,
}

/// Both clocks.
pub struct Clock {
    cpu: Duration,
    wall: Instant,
}

/// Work is repeated until it has taken so much CPU time.
const ENOUGH: f64 = 0.02;

impl Clock {
    fn start() -> Clock {
        Clock { cpu: cpu_time(), wall: Instant::now() }
    }

    fn read(&self) -> Spent {
        Spent { wall: self.wall.elapsed().as_secs_f64(), cpu: (cpu_time() - self.cpu).as_secs_f64() }
    }

    /// What some work takes that can be repeated.
    pub fn mean<E>(mut work: impl FnMut() -> Result<(), E>) -> Result<Spent, E> {
        let clock = Clock::start();
        for times in 1.. {
            work()?;
            let spent = clock.read();
            if spent.cpu > ENOUGH {
                return Ok(Spent { cpu: spent.cpu / f64::from(times), wall: spent.wall / f64::from(times) });
            }
        }
        Ok(Spent::default())
    }
}

/// CPU time of all threads of this process.
#[cfg(unix)]
fn cpu_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live value. If there were no such clock, 0 would stay.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Where there is no such clock, the time on the wall.
#[cfg(not(unix))]
fn cpu_time() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// A digest of outputs (FNV-1a).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bits(u64);

impl Default for Bits {
    fn default() -> Bits {
        Bits(0xcbf2_9ce4_8422_2325)
    }
}

impl Bits {
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    }
}

/// Answers numbers of rows, a line each, with a line of JSON.
pub fn child() -> Outcome {
    let mut timed = kernels::Timed::open()?;
    let first = kernels::names().len();
    for line in std::io::stdin().lock().lines() {
        let row: usize = line?.trim().parse()?;
        let answer = if row < first { timed.run(row) } else { products::run(row - first) };
        let answer = match answer {
            Ok((spent, bits)) => json!({ "cpu": spent.cpu, "wall": spent.wall, "bits": bits.0 }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        println!("{answer}");
    }
    Ok(())
}

/// A process that answers.
struct Answering {
    child: Child,
    rows: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Answering {
    fn start(threads: usize, library: Option<&OsStr>) -> Outcome<Answering> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(CHILD).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("WARPSMITH_DRIVER", "software").env("WARPSMITH_THREADS", threads.to_string());
        if let Some(library) = library {
            command.env("LD_PRELOAD", library);
        }
        let mut child = command.spawn()?;
        let answers = BufReader::new(child.stdout.take().ok_or("a process without output")?);
        Ok(Answering { rows: child.stdin.take(), answers, child })
    }

    fn ask(&mut self, row: usize) -> Outcome<(Spent, Bits)> {
        writeln!(self.rows.as_mut().ok_or("a process without input")?, "{row}")?;
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err("a process ended before it answered".into());
        }
        let answer: Value = serde_json::from_str(&line)?;
        let number = |name: &str| answer[name].as_f64();
        match (number("cpu"), number("wall"), answer["bits"].as_u64()) {
            (Some(cpu), Some(wall), Some(bits)) => Ok((Spent { cpu, wall }, Bits(bits))),
            _ => Err(answer["error"].as_str().unwrap_or("no answer").to_owned().into()),
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        // The end of its input ends it.
        drop(self.rows.take());
        let _ = self.child.wait();
    }
}

/// Medians of CPU and wall time of a row, in each of the processes, of so many rounds after one that warms up.
fn measure(row: usize, all: &mut [Answering], rounds: usize) -> Outcome<Vec<Spent>> {
    let mut times = vec![(Vec::new(), Vec::new()); all.len()];
    let mut first = None;
    for round in 0..=rounds {
        for (process, (cpu, wall)) in all.iter_mut().zip(&mut times) {
            let (spent, bits) = process.ask(row)?;
            if *first.get_or_insert(bits) != bits {
                return Err("the outputs are not those of the other build, or of another number of threads".into());
            }
            if round > 0 {
                cpu.push(spent.cpu);
                wall.push(spent.wall);
            }
        }
    }
    Ok(times.iter_mut().map(|(cpu, wall)| Spent { cpu: median(cpu), wall: median(wall) }).collect())
}

/// Prints the table.
pub fn compare(rounds: usize) -> Outcome {
    let against = std::env::var_os(AGAINST).filter(|path| !path.is_empty());
    let mut all = vec![Answering::start(1, None)?, Answering::start(2, None)?];
    if let Some(library) = &against {
        // The loader goes on without a library that it does not find.
        let library = std::fs::canonicalize(library).map_err(|e| format!("{AGAINST}: {}: {e}", library.display()))?;
        all.extend([Answering::start(1, Some(library.as_os_str()))?, Answering::start(2, Some(library.as_os_str()))?]);
    }
    println!(
        "a launch, medians of {rounds}: CPU time on one thread, and how much faster two threads are on the wall's clock"
    );
    if against.is_some() {
        println!("  the other build in turns, and how much more CPU time it takes; outputs are the same bits");
    }
    for (row, name) in kernels::names().iter().chain(&products::names()).enumerate() {
        let times = measure(row, &mut all, rounds).map_err(|e| format!("{name}: {e}"))?;
        let line = |times: &[Spent]| format!("{:7.2} ms {:5.2} x", times[0].cpu * 1e3, times[0].wall / times[1].wall);
        print!("  {name:40} {}", line(&times));
        match times.get(2..) {
            Some([]) | None => println!(),
            Some(other) => println!("   {}   {:5.2} x", line(other), other[0].cpu / times[0].cpu),
        }
    }
    Ok(())
}
