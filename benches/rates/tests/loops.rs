//! The loops do what their rates are divided by, and give the right results.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::process::Command;

use rate_kernels::{CHAINS, RateDp4a, RateFfma, RateMmaB1, RatePopc, THREADS, UNROLL};
use warpsmith_host::driver::software::{self, Checks};
use warpsmith_host::{Device, KernelImage, include_kernels};

static KERNELS: KernelImage = include_kernels!("rate_kernels");

#[test]
fn every_loop_gives_what_the_cpu_computes() {
    let program = Command::new(env!("CARGO_BIN_EXE_warpsmith-rates"))
        .args(["--runs", "1", "--json"])
        .env("WARPSMITH_DRIVER", "software")
        .env("WARPSMITH_CHECK", "all")
        .output()
        .unwrap();
    assert!(program.status.success(), "{}", String::from_utf8_lossy(&program.stderr));
    let found: serde_json::Value = serde_json::from_slice(&program.stdout).unwrap();
    assert_eq!(found["rates"].as_array().unwrap().len(), 8, "{found}");
    // Ticks of a simulation are no rates.
    assert!(found["rates"][0]["ticks"].is_null() && found["ticks_per_grid_barrier"].is_null(), "{found}");
}

/// What an iteration more costs in lane instructions of a kernel, for a thread.
fn of_an_iteration(run: impl Fn(&Device, u32)) -> f64 {
    let device = Device::open(0).unwrap();
    device.load(&KERNELS).unwrap();
    let count = |iterations| {
        software::reset_launch_profiles();
        let _counting = software::check(Checks { profile: true, ..Checks::default() });
        run(&device, iterations);
        software::launch_profiles().iter().map(|p| p.profile.total.lane_instructions).sum::<u64>()
    };
    (count(5) - count(2)) as f64 / 3.0 / f64::from(THREADS)
}

macro_rules! iteration {
    ($Kernel:ident) => {
        of_an_iteration(|device, iterations| {
            let stream = device.stream().unwrap();
            let (mut sums, mut ticks) = (stream.zeros(THREADS as usize).unwrap(), stream.zeros(1).unwrap());
            stream.launch($Kernel { sums: &mut sums, ticks: &mut ticks, iterations }).unwrap();
            stream.synchronize().unwrap();
        })
    };
}

#[test]
fn little_but_the_instruction_is_in_a_loop() {
    if !Device::open(0).unwrap().is_software() {
        return;
    }
    let steps = (CHAINS * UNROLL) as f64;
    // The loop itself takes three or four instructions; POPC's step takes two.
    for (found, wanted) in
        [(iteration!(RateFfma), steps), (iteration!(RateDp4a), steps), (iteration!(RatePopc), 2.0 * steps)]
    {
        assert!(found >= wanted && found <= wanted + 5.0, "{found} instructions for {wanted}");
    }
    let products = iteration!(RateMmaB1);
    assert!((4.0..10.0).contains(&products), "{products} instructions for 4 products");
}
