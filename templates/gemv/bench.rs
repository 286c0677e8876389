//! What the kernel costs: device time on a GPU, counted lane instructions on the software driver.
//!
//! `cargo bench` compares with the run before. A variant of the kernel goes beside the first, in
//! the same group.

use kernels::gemv::Gemv;
use warpsmith_bench::criterion::{BenchmarkId, Throughput};
use warpsmith_host::{Device, Error, KernelImage, include_kernels};

static KERNELS: KernelImage = include_kernels!("kernels");

fn main() -> Result<(), Error> {
    let device = Device::open(0)?;
    device.load(&KERNELS)?;
    println!("engine: {}", device.engine());
    let stream = device.stream()?;
    let mut criterion = warpsmith_bench::criterion_for(&device);
    let mut group = criterion.benchmark_group("gemv");
    for (rows, cols) in [(64, 512), (64, 1024)] {
        let w = stream.upload(&vec![1.0f32; (rows * cols) as usize])?;
        let x = stream.upload(&vec![1.0f32; cols as usize])?;
        let mut y = stream.zeros::<f32>(rows as usize)?;
        group.throughput(Throughput::Elements((rows * cols).into()));
        let id = BenchmarkId::new("a warp a row", format!("{rows}x{cols}"));
        group.bench_function(id, |b| {
            warpsmith_bench::launches(b, &stream, || stream.launch(Gemv { w: &w, x: &x, y: &mut y, rows, cols }));
        });
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
