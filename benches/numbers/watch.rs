//! The time from a save to the verdict of `warpsmith watch`, in a project of `warpsmith new`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Outcome, ROOT, median};

/// Ends with this program, whatever happens.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Saves the kernel of a new project five times, each time with other arithmetic, and prints the median.
pub fn save_to_verdict() -> Outcome {
    let tool = env!("CARGO_BIN_EXE_warpsmith");
    let dir = tempfile::tempdir()?;
    let made = Command::new(tool).args(["new", "numbers", "--path", ROOT]).current_dir(dir.path()).output()?;
    if !made.status.success() {
        return Err(format!("warpsmith new: {}", String::from_utf8_lossy(&made.stderr)).into());
    }
    let project = dir.path().join("numbers");
    // Kept between runs, so that the crates which a project depends on are built once.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("numbers-project");
    let mut watch = Command::new(tool)
        .args(["watch", "saxpy", "--json"])
        .current_dir(&project)
        .env("CARGO_TARGET_DIR", target)
        .env("WARPSMITH_DRIVER", "software")
        .stdout(Stdio::piped())
        .spawn()?;
    let mut rounds = BufReader::new(watch.stdout.take().ok_or("warpsmith watch has no output")?).lines();
    let _watch = Ended(watch);
    let mut verdict = || -> Outcome {
        let line = rounds.next().ok_or("warpsmith watch has ended")??;
        let round: serde_json::Value = serde_json::from_str(&line)?;
        if round["verdict"] != "pass" {
            return Err(format!("warpsmith watch: {line}").into());
        }
        Ok(())
    };
    verdict()?;
    let kernel = project.join("kernels/src/saxpy.rs");
    let source = fs::read_to_string(&kernel)?;
    let (product, mut times): (_, Vec<Duration>) = ("math::fma(a, ", Vec::new());
    if !source.contains(product) {
        return Err(format!("{} has no {product}", kernel.display()).into());
    }
    for round in 1..=5 {
        // Another constant in the text each time, and too small to change a result.
        let edited = source.replace(product, &format!("math::fma(a + {round}e-44, "));
        let start = Instant::now();
        fs::write(&kernel, edited)?;
        verdict()?;
        times.push(start.elapsed());
    }
    println!(
        "save of the kernel of a new project to the verdict of `warpsmith watch`, warm: {:.2} s (median of 5)",
        median(times).as_secs_f64()
    );
    Ok(())
}
