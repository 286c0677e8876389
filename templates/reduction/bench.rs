//! What the kernel costs: device time on a GPU, counted lane instructions on the software driver.
//!
//! `cargo bench` compares with the run before. A variant of the kernel goes beside the first, in
//! the same group.

use kernels::sum::Sum;
use warpsmith_bench::criterion::{BenchmarkId, Throughput};
use warpsmith_host::{Device, Error, KernelImage, include_kernels};

static KERNELS: KernelImage = include_kernels!("kernels");

fn main() -> Result<(), Error> {
    let device = Device::open(0)?;
    device.load(&KERNELS)?;
    println!("engine: {}", device.engine());
    let stream = device.stream()?;
    let mut criterion = warpsmith_bench::criterion_for(&device);
    let mut group = criterion.benchmark_group("sum");
    for n in [1 << 10, 1 << 14] {
        let x = stream.upload(&vec![1.0f32; n as usize])?;
        // Four elements a thread.
        let mut y = stream.zeros::<f32>(n as usize / 1024)?;
        group.throughput(Throughput::Elements(n.into()));
        group.bench_function(BenchmarkId::new("block_reduce", n), |b| {
            warpsmith_bench::launches(b, &stream, || stream.launch(Sum { x: &x, y: &mut y, n }));
        });
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
