//! What the kernel costs: device time on a GPU, counted lane instructions on the software driver.
//!
//! `cargo bench` compares with the run before. A variant of the kernel goes beside the first, in
//! the same group.

use kernels::matmul::Matmul;
use warpsmith_bench::criterion::{BenchmarkId, Throughput};
use warpsmith_host::{Device, Error, KernelImage, include_kernels};

static KERNELS: KernelImage = include_kernels!("kernels");

fn main() -> Result<(), Error> {
    let device = Device::open(0)?;
    device.load(&KERNELS)?;
    println!("engine: {}", device.engine());
    let stream = device.stream()?;
    let mut criterion = warpsmith_bench::criterion_for(&device);
    let mut group = criterion.benchmark_group("matmul");
    for size in [32, 64] {
        let elements = (size * size) as usize;
        let a = stream.upload(&vec![1.0f32; elements])?;
        let b = stream.upload(&vec![1.0f32; elements])?;
        let mut c = stream.zeros::<f32>(elements)?;
        let (m, n, k) = (size, size, size);
        // Multiplications with addition.
        group.throughput(Throughput::Elements(u64::from(size).pow(3)));
        group.bench_function(BenchmarkId::new("tiles of 16", size), |bencher| {
            warpsmith_bench::launches(bencher, &stream, || stream.launch(Matmul { a: &a, b: &b, c: &mut c, m, n, k }));
        });
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
