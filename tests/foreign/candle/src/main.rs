//! Kernels of `gpu-kernels` as operations of candle, on its stream and its tensors; and a buffer of `warpsmith-host` as a tensor that candle's
//! operations read.
//!
//! It needs a GPU: candle makes a handle of cuBLAS and one of cuRAND with every device, and their kernels are machine code. `check` looks
//! at it without one.

use std::error::Error;
use std::mem::ManuallyDrop;

use candle_core::cuda_backend::cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut};
use candle_core::op::BackpropOp;
use candle_core::{CpuStorage, CudaDevice, CudaStorage, CustomOp2, Device, Layout, Shape, Storage, Tensor};
use warpsmith_host::device::DeviceSlice;
use warpsmith_host::gpu_kernels::elementwise::ResidualAdd;
use warpsmith_host::{Buffer, Stream};

const N: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    // First: candle loads the driver, and what comes after joins it. Its context is the device's primary one, which ours is too.
    let theirs = Device::new_cuda_with_stream(0)?;
    let cuda = theirs.as_cuda_device()?;
    let ours = warpsmith_host::Device::open(0)?;
    println!("engine: {}", ours.engine());
    // SAFETY: candle's device, which has the stream, lives to the end.
    let stream = unsafe { Stream::from_raw(&ours, cuda.cuda_stream().cu_stream().cast()) }?;

    // Their tensors, our kernel, their stream.
    let host: Vec<f32> = (0..N).map(|i| i as f32).collect();
    let (x, y) = (Tensor::from_vec(host.clone(), N, &theirs)?, Tensor::ones(N, candle_core::DType::F32, &theirs)?);
    let sum = x.apply_op2_no_bwd(&y, &Add { stream: stream.clone() })?;
    let want: Vec<f32> = host.iter().map(|x| x + 1.0).collect();
    same("our kernel on candle's tensors", &sum.to_vec1()?, &want)?;

    // Our buffer, their operation.
    let buffer = stream.upload(&host)?;
    let tensor = Lent::new(&buffer, cuda);
    let squares = (&*tensor.0 * &*tensor.0)?;
    let want: Vec<f32> = host.iter().map(|x| x * x).collect();
    same("candle's operation on our buffer", &squares.to_vec1()?, &want)?;
    // What candle has queued on its stream reads the buffer, which is freed behind it.
    theirs.synchronize()?;
    drop(buffer);
    Ok(())
}

fn same(what: &str, got: &[f32], want: &[f32]) -> Result<(), Box<dyn Error>> {
    if got != want {
        return Err(format!("{what}: {got:?} instead of {want:?}").into());
    }
    println!("ok: {what}");
    Ok(())
}

/// x + y, by a kernel of ours.
struct Add {
    stream: Stream,
}

/// The part of a slice that a layout without strides has.
fn part(layout: &Layout) -> candle_core::Result<std::ops::Range<usize>> {
    let (first, end) =
        layout.contiguous_offsets().ok_or_else(|| candle_core::Error::Msg("tensors with strides".into()))?;
    Ok(first..end)
}

impl Add {
    /// Launches on the stream by which candle knows its tensors.
    fn launch(
        &self,
        theirs: &CudaStream,
        x: &impl DevicePtr<f32>,
        y: &impl DevicePtr<f32>,
        sum: &mut impl DevicePtrMut<f32>,
        n: usize,
    ) -> Result<(), warpsmith_host::Error> {
        // cudarc takes note of the use when the second half of each pair is dropped.
        let ((x, _x), (y, _y), (sum, _sum)) = (x.device_ptr(theirs), y.device_ptr(theirs), sum.device_ptr_mut(theirs));
        // SAFETY: n elements each of live allocations, borrowed shared and exclusively; the launch is on the stream that cudarc knows.
        let (x, residual, y) = unsafe {
            (DeviceSlice::from_raw(x, n), DeviceSlice::from_raw(y, n), DeviceSlice::from_raw_mut(sum, n))
        };
        self.stream.launch(ResidualAdd { x, residual, y, n: n as u32 })
    }
}

impl CustomOp2 for Add {
    fn name(&self) -> &'static str {
        "residual-add"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        Err(candle_core::Error::Msg("residual-add is for CUDA tensors".into()))
    }

    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        of_x: &Layout,
        y: &CudaStorage,
        of_y: &Layout,
    ) -> candle_core::Result<(CudaStorage, Shape)> {
        let (device, n) = (&x.device, of_x.shape().elem_count());
        let (x, y) = (x.as_cuda_slice::<f32>()?.slice(part(of_x)?), y.as_cuda_slice::<f32>()?.slice(part(of_y)?));
        // SAFETY: the launch writes every element.
        let mut sum = unsafe { device.alloc::<f32>(n) }?;
        let launched = self.launch(&device.cuda_stream(), &x, &y, &mut sum, n);
        launched.map_err(candle_core::Error::wrap)?;
        Ok((CudaStorage::wrap_cuda_slice(sum, device.clone()), of_x.shape().clone()))
    }
}

/// A tensor on a buffer of ours. It is not dropped, as candle would free the buffer: what it takes on the host stays until the program ends.
struct Lent<'a>(ManuallyDrop<Tensor>, std::marker::PhantomData<&'a Buffer<f32>>);

impl<'a> Lent<'a> {
    fn new(buffer: &'a Buffer<f32>, device: &CudaDevice) -> Self {
        // SAFETY: so many elements of a live allocation, all of which were written on this stream; nothing frees or writes them through
        // what is made of them here.
        let slice =
            unsafe { device.cuda_stream().upgrade_device_ptr::<f32>(buffer.address().raw(), buffer.len()) };
        let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(slice, device.clone()));
        let tensor = Tensor::from_storage(storage, buffer.len(), BackpropOp::none(), false);
        Lent(ManuallyDrop::new(tensor), std::marker::PhantomData)
    }
}
