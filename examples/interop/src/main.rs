//! Kernels of `gpu-kernels` in a program on cudarc: its context, its stream, its buffers, and buffers handed back.
//!
//! `warpsmith-interop late` opens the device before cudarc has loaded a driver, and shows what is said where there are two.

use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut};
use std::error::Error;
use std::sync::Arc;
use warpsmith_host::device::{DeviceSlice, bf16};
use warpsmith_host::gpu_kernels::elementwise::ResidualAdd;
use warpsmith_host::gpu_kernels::sixteen::AddRmsNormShadowBf16;
use warpsmith_host::{Buffer, Device, Stream};

const N: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("late") {
        return late();
    }
    // First: cudarc loads the driver, and what comes after joins it.
    let context = CudaContext::new(0)?;
    let theirs = context.new_stream()?;
    let x = theirs.clone_htod(&[1.0f32; N])?;
    let mut y = theirs.alloc_zeros::<f32>(N)?;

    // cudarc's context is the device's primary one, which `open` shares.
    let device = Device::open(0)?;
    println!("engine: {}", device.engine());
    // SAFETY: `theirs` lives to the end, and so do cudarc's buffers; all work on them is on this stream.
    let stream = unsafe { Stream::from_raw(&device, theirs.cu_stream().cast()) }?;

    one_launch(&stream, &theirs, &x, &mut y)?;
    println!("a launch on cudarc's buffers: {}", theirs.clone_dtoh(&y)?[N - 1]);

    println!("a norm of cudarc's bf16: {}", one_norm(&stream, &theirs)?);

    // A graph keeps what it uses, so it takes buffers, and a buffer can keep cudarc's.
    let (address, _) = y.device_ptr(&theirs);
    // SAFETY: `y` is moved into the buffer, which frees it last; work on it is on this stream.
    let mut y = unsafe { Buffer::<f32>::from_raw(&device, address, N, y) }?;
    let one = stream.upload(&[1.0f32; N])?;
    let mut sum = stream.zeros::<f32>(N)?;
    let graph = stream.capture(|scope| {
        scope.launch(ResidualAdd { x: &one, residual: &y, y: &mut sum, n: N as u32 })?;
        scope.copy(&sum, &mut y)
    })?;
    for _ in 0..10 {
        graph.launch(&stream)?;
    }
    println!("after ten replays: {}", stream.read(&y)?[N - 1]);

    // Calls of theirs in a graph of ours, which keeps what they work with.
    let graph = stream.capture(|scope| {
        scope.writes(&mut sum)?;
        let address = sum.address().raw();
        // SAFETY: bytes of a buffer that the graph keeps, as the scope was told.
        let set = unsafe {
            scope.foreign(context.clone(), |raw| {
                cudarc::driver::result::memset_d8_async(address, 0, size_of::<f32>() * N, raw.cast())
            })
        }?;
        set.map_err(|error| warpsmith_host::Error::Ignored { message: error.to_string() })?;
        scope.launch(ResidualAdd { x: &one, residual: &one, y: &mut sum, n: 1 })
    })?;
    graph.launch(&stream)?;
    println!("with a call of cudarc's in the graph: {:?}", &stream.read(&sum)?[..2]);

    // Memory of ours, in a call of theirs.
    let mut host = [0.0f32; N];
    // SAFETY: `sum` has as many elements and lives on; the stream has been waited for.
    unsafe { cudarc::driver::result::memcpy_dtoh_sync(&mut host, sum.address().raw()) }?;
    println!("read by cudarc: {}", host[N - 1]);
    Ok(())
}

/// y = x + x
fn one_launch(
    stream: &Stream,
    theirs: &CudaStream,
    x: &cudarc::driver::CudaSlice<f32>,
    y: &mut cudarc::driver::CudaSlice<f32>,
) -> Result<(), warpsmith_host::Error> {
    // cudarc takes note of the use when the second half of each pair is dropped.
    let ((x, _x), (y, _y)) = (x.device_ptr(theirs), y.device_ptr_mut(theirs));
    // SAFETY: N elements each of live allocations, borrowed shared and exclusively; the launch is on the stream that cudarc knows.
    let (x, y) = unsafe { (DeviceSlice::from_raw(x, N), DeviceSlice::from_raw_mut(y, N)) };
    stream.launch(ResidualAdd { x, residual: x, y, n: N as u32 })
}

/// residual += x, y = norm(residual): tensors of bf16, and a residual stream of f32 that they are added to without rounding. Without
/// its feature for them cudarc takes numbers of 16 bits as u16.
fn one_norm(stream: &Stream, theirs: &Arc<CudaStream>) -> Result<bf16, Box<dyn Error>> {
    let mut residual = theirs.clone_htod(&[-1.0f32; N])?;
    let x = theirs.clone_htod(&[bf16::from_f32(3.0).to_bits(); N])?;
    let weight = theirs.clone_htod(&[bf16::from_f32(1.5).to_bits(); N])?;
    let mut y = theirs.alloc_zeros::<u16>(N)?;
    {
        let ((x, _x), (w, _w)) = (x.device_ptr(theirs), weight.device_ptr(theirs));
        let ((residual, _residual), (y, _y)) = (residual.device_ptr_mut(theirs), y.device_ptr_mut(theirs));
        // SAFETY: as in `one_launch`.
        let (x, w) = unsafe { (DeviceSlice::<bf16>::from_raw(x, N), DeviceSlice::<bf16>::from_raw(w, N)) };
        // SAFETY: as above.
        let (residual, y) =
            unsafe { (DeviceSlice::from_raw_mut(residual, N), DeviceSlice::<bf16>::from_raw_mut(y, N)) };
        // A row of N columns.
        stream.launch(AddRmsNormShadowBf16 { x, residual, w, y, cols: N as u32, eps: 1e-6, added: 1 })?;
    }
    Ok(bf16::from_bits(theirs.clone_dtoh(&y)?[N - 1]))
}

/// The other way round, on the software driver: this crate has started its own by then, and cudarc loads another.
fn late() -> Result<(), Box<dyn Error>> {
    let device = Device::open(0)?;
    let context = CudaContext::new(0)?;
    let theirs = context.new_stream()?;
    // SAFETY: `theirs` lives longer.
    match unsafe { Stream::from_raw(&device, theirs.cu_stream().cast()) } {
        Ok(_) => println!("one driver: {}", device.engine()),
        Err(error) => println!("refused: {error}"),
    }
    Ok(())
}
