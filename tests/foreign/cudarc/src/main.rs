//! Drives the `libcuda.so.1` that the loader finds, as any program on cudarc does: devices, streams, memory, modules,
//! launches, events, graphs, pools, occupancy, errors. Prints one line per part that held; the first that does not hold
//! ends the program.

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::sys::{
    self, CUevent_flags, CUgraphInstantiate_flags, CUlimit, CUmemPool_attribute, CUresult, CUstreamCaptureMode,
    CUstreamCaptureStatus,
};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, LaunchConfig, PushKernelArg, result};
use cudarc::nvrtc::Ptx;

type Outcome = Result<(), Box<dyn Error>>;

const PTX: &str = r#"
.version 7.8
.target sm_75
.address_size 64

.global .align 4 .f32 factor = 0f40400000;

// y[i] = a * x[i] + y[i] for i < n
.visible .entry saxpy(.param .f32 a, .param .u64 x, .param .u64 y, .param .u64 n)
{
    .reg .pred %p<2>;
    .reg .f32 %f<5>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<8>;
    ld.param.f32 %f1, [a];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u64 %rd3, [n];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    cvt.u64.u32 %rd4, %r4;
    setp.ge.u64 %p1, %rd4, %rd3;
    @%p1 bra DONE;
    shl.b64 %rd5, %rd4, 2;
    add.u64 %rd6, %rd1, %rd5;
    add.u64 %rd7, %rd2, %rd5;
    ld.global.f32 %f2, [%rd6];
    ld.global.f32 %f3, [%rd7];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%rd7], %f4;
DONE:
    ret;
}

// x[i] *= factor, one thread
.visible .entry scale(.param .u64 x)
{
    .reg .f32 %f<4>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [x];
    ld.global.f32 %f1, [%rd1];
    ld.global.f32 %f2, [factor];
    mul.rn.f32 %f3, %f1, %f2;
    st.global.f32 [%rd1], %f3;
    ret;
}

// sums[block] = sum of the block's 128 words, by shared memory
.visible .entry block_sum(.param .u64 x, .param .u64 sums)
{
    .reg .pred %p<3>;
    .reg .b32 %r<14>;
    .reg .b64 %rd<7>;
    .shared .align 4 .b8 tile[512];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [sums];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %tid.x;
    shl.b32 %r3, %r1, 7;
    add.u32 %r4, %r3, %r2;
    mul.wide.u32 %rd3, %r4, 4;
    add.u64 %rd4, %rd1, %rd3;
    ld.global.u32 %r5, [%rd4];
    shl.b32 %r6, %r2, 2;
    mov.u32 %r7, tile;
    add.u32 %r8, %r7, %r6;
    st.shared.u32 [%r8], %r5;
    mov.u32 %r9, 64;
LOOP:
    bar.sync 0;
    setp.ge.u32 %p1, %r2, %r9;
    @%p1 bra NEXT;
    shl.b32 %r10, %r9, 2;
    add.u32 %r11, %r8, %r10;
    ld.shared.u32 %r12, [%r11];
    ld.shared.u32 %r13, [%r8];
    add.u32 %r13, %r13, %r12;
    st.shared.u32 [%r8], %r13;
NEXT:
    shr.u32 %r9, %r9, 1;
    setp.ne.u32 %p2, %r9, 0;
    @%p2 bra LOOP;
    setp.ne.u32 %p1, %r2, 0;
    @%p1 bra END;
    ld.shared.u32 %r13, [tile];
    mul.wide.u32 %rd5, %r1, 4;
    add.u64 %rd6, %rd2, %rd5;
    st.global.u32 [%rd6], %r13;
END:
    ret;
}

.visible .entry stray()
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    mov.u64 %rd1, 64;
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
"#;

struct Gpu {
    ctx: Arc<CudaContext>,
    module: Arc<CudaModule>,
}

impl Gpu {
    fn function(&self, name: &str) -> Result<CudaFunction, Box<dyn Error>> {
        Ok(self.module.load_function(name)?)
    }
}

fn one() -> LaunchConfig {
    LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 }
}

/// SAFETY of the launches here: the arguments are those that the PTX above declares, of buffers that are long enough.
macro_rules! launch {
    ($stream:expr, $f:expr, $cfg:expr, $($arg:expr),+) => {{
        let function = $f;
        let mut builder = $stream.launch_builder(&function);
        $(builder.arg($arg);)+
        // SAFETY: see above.
        unsafe { builder.launch($cfg) }
    }};
}

fn ensure(holds: bool, what: impl Into<String>) -> Outcome {
    if holds { Ok(()) } else { Err(what.into().into()) }
}

fn devices(gpu: &Gpu) -> Outcome {
    ensure(CudaContext::device_count()? == 2, "two devices, as the environment asks")?;
    let (major, minor) = gpu.ctx.compute_capability()?;
    ensure((major, minor) == (8, 0), format!("capability {major}.{minor}"))?;
    ensure(gpu.ctx.name()?.contains("sm_80"), "the name says what it is")?;
    let (free, total) = gpu.ctx.mem_get_info()?;
    ensure(free <= total && total == gpu.ctx.total_mem()?, "memory figures agree")?;
    ensure(gpu.ctx.uuid()?.bytes != CudaContext::new(1)?.uuid()?.bytes, "devices differ")?;
    gpu.ctx.set_limit(CUlimit::CU_LIMIT_STACK_SIZE, 4096)?;
    ensure(gpu.ctx.get_limit(CUlimit::CU_LIMIT_STACK_SIZE)? == 4096, "limits are kept")
}

fn memory(gpu: &Gpu) -> Outcome {
    let stream = gpu.ctx.new_stream()?;
    let host: Vec<u32> = (0..1000).map(|i| i * i).collect();
    let a = stream.clone_htod(&host)?;
    let mut b = stream.alloc_zeros::<u32>(1000)?;
    ensure(stream.clone_dtoh(&b)? == vec![0; 1000], "zeros")?;
    stream.memcpy_dtod(&a.slice(100..300), &mut b.slice_mut(500..700))?;
    let back = stream.clone_dtoh(&b)?;
    ensure(back[500..700] == host[100..300], "a part of a copy lands where it should")?;
    ensure(back[..500].iter().chain(&back[700..]).all(|v| *v == 0), "and nowhere else")?;
    let clone = a.try_clone()?;
    ensure(stream.clone_dtoh(&clone)? == host, "a clone is equal")?;
    // SAFETY: every element is written before it is read.
    let mut pinned = unsafe { gpu.ctx.alloc_pinned::<u32>(1000)? };
    stream.memcpy_dtoh(&a, &mut pinned)?;
    ensure(pinned.as_slice()? == host, "pinned memory")?;
    // SAFETY: as above.
    let mut unified = unsafe { gpu.ctx.alloc_unified::<u32>(4, true)? };
    unified.as_mut_slice()?.copy_from_slice(&[1, 2, 3, 4]);
    unified.prefetch()?;
    ensure(stream.clone_dtoh(&unified)? == [1, 2, 3, 4], "unified memory")
}

fn launches(gpu: &Gpu) -> Outcome {
    let stream = gpu.ctx.new_stream()?;
    let saxpy = gpu.function("saxpy")?;
    let n = 1000usize;
    let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let y: Vec<f32> = (0..n).map(|i| 0.5 - i as f32).collect();
    let (dx, mut dy) = (stream.clone_htod(&x)?, stream.clone_htod(&y)?);
    let cfg = LaunchConfig { grid_dim: (8, 1, 1), block_dim: (128, 1, 1), shared_mem_bytes: 0 };
    launch!(stream, saxpy, cfg, &3.0f32, &dx, &mut dy, &n)?;
    let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 3.0f32.mul_add(*x, *y)).collect();
    ensure(stream.clone_dtoh(&dy)? == expected, "saxpy")?;

    let words: Vec<u32> = (0..512).map(|i| i * 7 + 1).collect();
    let (dw, mut sums) = (stream.clone_htod(&words)?, stream.alloc_zeros::<u32>(4)?);
    let cfg = LaunchConfig { grid_dim: (4, 1, 1), block_dim: (128, 1, 1), shared_mem_bytes: 0 };
    launch!(stream, gpu.function("block_sum")?, cfg, &dw, &mut sums)?;
    let expected: Vec<u32> = words.chunks(128).map(|c| c.iter().sum()).collect();
    ensure(stream.clone_dtoh(&sums)? == expected, "sums by shared memory")?;
    launch!(stream, gpu.function("scale")?, one(), &mut dy)?;
    // A variable of the module, changed from the host.
    let mut factor = gpu.module.get_global("factor", &stream)?;
    stream.memcpy_htod(&2.0f32.to_le_bytes(), &mut factor)?;
    let before = stream.clone_dtoh(&dy)?[0];
    launch!(stream, gpu.function("scale")?, one(), &mut dy)?;
    ensure(stream.clone_dtoh(&dy)?[0] == before * 2.0, "the variable's new value")?;
    stream.memcpy_htod(&3.0f32.to_le_bytes(), &mut factor)?;
    Ok(())
}

fn events(gpu: &Gpu) -> Outcome {
    let (a, b) = (gpu.ctx.new_stream()?, gpu.ctx.new_stream()?);
    let timed = Some(CUevent_flags::CU_EVENT_DEFAULT);
    let start = a.record_event(timed)?;
    let mut x = a.clone_htod(&[1.0f32])?;
    launch!(a, gpu.function("scale")?, one(), &mut x)?;
    let end = a.record_event(timed)?;
    b.wait(&end)?;
    ensure(b.clone_dtoh(&x)? == [3.0], "what another stream did before its event")?;
    end.synchronize()?;
    ensure(end.try_is_complete()?, "an event that was waited for")?;
    let ms = start.elapsed_ms(&end)?;
    ensure(ms > 0.0 && ms < 60_000.0, format!("{ms} ms"))?;
    let untimed = gpu.ctx.new_event(None)?;
    untimed.record(&a)?;
    let refused = start.elapsed_ms(&untimed).expect_err("an event without timing has no time");
    ensure(refused.0 == CUresult::CUDA_ERROR_INVALID_HANDLE, format!("{refused:?}"))
}

fn graphs(gpu: &Gpu) -> Outcome {
    let scale = gpu.function("scale")?;
    let stream = gpu.ctx.new_stream()?;
    let side = gpu.ctx.new_stream()?;
    let mut x = stream.clone_htod(&[1.0f32])?;
    let mut y = side.clone_htod(&[10.0f32])?;
    // cudarc's own events would tie the capture to what came before it.
    // SAFETY: the streams are joined by hand below.
    unsafe { gpu.ctx.disable_event_tracking() };
    let (mut u, mut v) = (stream.clone_htod(&[1.0f32])?, side.clone_htod(&[10.0f32])?);
    gpu.ctx.synchronize()?;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    ensure(stream.capture_status()? == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE, "the stream captures")?;
    launch!(stream, scale.clone(), one(), &mut u)?;
    side.join(&stream)?;
    launch!(side, scale.clone(), one(), &mut v)?;
    launch!(stream, scale.clone(), one(), &mut u)?;
    stream.join(&side)?;
    let graph = stream.end_capture(CUgraphInstantiate_flags(0))?.ok_or("a graph")?;
    ensure(stream.clone_dtoh(&u)? == [1.0], "a capture does nothing")?;
    for _ in 0..2 {
        graph.launch()?;
    }
    ensure(stream.clone_dtoh(&u)? == [81.0] && stream.clone_dtoh(&v)? == [90.0], "two launches")?;

    // What must not happen while capturing.
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
    let refused = stream.synchronize().expect_err("a capturing stream cannot be waited for");
    ensure(refused.0 == CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, format!("{refused:?}"))?;
    let Err(ended) = stream.end_capture(CUgraphInstantiate_flags(0)) else { return Err("spoiled captures end".into()) };
    ensure(ended.0 == CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, format!("{ended:?}"))?;
    // SAFETY: as the context was made.
    unsafe { gpu.ctx.enable_event_tracking() };
    launch!(stream, scale.clone(), one(), &mut x)?;
    launch!(side, scale.clone(), one(), &mut y)?;
    ensure(stream.clone_dtoh(&x)? == [3.0] && side.clone_dtoh(&y)? == [30.0], "the streams work on")
}

fn pools(gpu: &Gpu) -> Outcome {
    ensure(gpu.ctx.has_async_alloc(), "memory pools")?;
    let stream = gpu.ctx.new_stream()?;
    let mut used = 0u64;
    // SAFETY: handles are live, and places are of the attributes' types.
    unsafe {
        let pool = result::device::get_default_mem_pool(gpu.ctx.cu_device())?;
        let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
        let mut in_use = || -> Result<u64, Box<dyn Error>> {
            result::mem_pool::get_attribute(pool, attribute, (&raw mut used).cast())?;
            Ok(used)
        };
        let before = in_use()?;
        let p = result::mem_pool::alloc_async(pool, 4096, stream.cu_stream())?;
        result::memset_d8_async(p, 7, 4096, stream.cu_stream())?;
        let mut out = [0u8; 4096];
        result::memcpy_dtoh_async(&mut out, p, stream.cu_stream())?;
        stream.synchronize()?;
        ensure(out == [7; 4096], "memory of a pool")?;
        ensure(in_use()? == before + 4096, "is accounted for")?;
        result::free_async(p, stream.cu_stream())?;
        ensure(in_use()? == before, "until it is freed")?;
    }
    Ok(())
}

fn occupancy(gpu: &Gpu) -> Outcome {
    extern "C" fn none(_: i32) -> usize {
        0
    }
    let f = gpu.function("block_sum")?;
    ensure(f.shared_size_bytes()? == 512, "static shared memory")?;
    ensure(f.max_threads_per_block()? == 1024 && f.num_regs()? > 0, "attributes")?;
    // 512 bytes and few registers: 2048 threads of a multiprocessor, and 32 blocks, are the bounds (sm_80).
    ensure(f.occupancy_max_active_blocks_per_multiprocessor(128, 0, None)? == 16, "2048 / 128")?;
    ensure(f.occupancy_max_active_blocks_per_multiprocessor(32, 0, None)? == 32, "at most 32 blocks")?;
    ensure(f.occupancy_max_active_blocks_per_multiprocessor(128, 64 << 10, None)? == 2, "164 KiB / 64 KiB")?;
    let (grid, block) = f.occupancy_max_potential_block_size(none, 0, 0, None)?;
    ensure(grid * block == 108 * 2048, format!("{grid} blocks of {block} fill 108 multiprocessors"))
}

fn two_devices() -> Outcome {
    let (first, second) = (CudaContext::new(0)?, CudaContext::new(1)?);
    let (a, b) = (first.default_stream(), second.default_stream());
    let x = a.clone_htod(&[1u32, 2, 3])?;
    let y = b.clone_dtod(&x)?;
    ensure(b.clone_dtoh(&y)? == [1, 2, 3], "a copy between devices")?;
    let mut can = 0;
    // SAFETY: a live place and a live context.
    unsafe {
        sys::cuDeviceCanAccessPeer(&mut can, 0, 1).result()?;
        first.bind_to_thread()?;
        sys::cuCtxEnablePeerAccess(second.cu_ctx(), 0).result()?;
    }
    ensure(can == 1, "peers")?;
    let module = first.load_module(Ptx::from_src(PTX))?;
    let mut far = b.clone_htod(&[5.0f32])?;
    b.synchronize()?;
    let scale = module.load_function("scale")?;
    launch!(a, scale.clone(), one(), &mut far)?;
    a.synchronize()?;
    ensure(b.clone_dtoh(&far)? == [15.0], "a kernel reaches the other device's memory")
}

fn refusals(gpu: &Gpu) -> Outcome {
    let missing = gpu.module.load_function("absent").err().ok_or("a kernel that is not there")?;
    ensure(missing.0 == CUresult::CUDA_ERROR_NOT_FOUND, format!("{missing:?}"))?;
    let bad = gpu.ctx.load_module(Ptx::from_src(".version 7.0\nnonsense")).err().ok_or("PTX that is none")?;
    ensure(bad.0 == CUresult::CUDA_ERROR_INVALID_PTX, format!("{bad:?}"))?;
    ensure(bad.error_name()?.to_str()? == "CUDA_ERROR_INVALID_PTX", "names of errors")?;
    let stream = gpu.ctx.new_stream()?;
    let mut x = stream.clone_htod(&[1.0f32])?;
    let wide = LaunchConfig { block_dim: (2048, 1, 1), ..one() };
    let refused = launch!(stream, gpu.function("scale")?, wide, &mut x).expect_err("too many threads");
    ensure(refused.0 == CUresult::CUDA_ERROR_INVALID_VALUE, format!("{refused:?}"))?;
    ensure(CudaContext::new(7).err().is_some_and(|e| e.0 == CUresult::CUDA_ERROR_INVALID_DEVICE), "device 7")
}

/// Last: what a stray kernel leaves behind is a context that answers its error to every call.
fn sticky_errors(gpu: &Gpu) -> Outcome {
    let stream = gpu.ctx.new_stream()?;
    let stray = gpu.function("stray")?;
    // SAFETY: no arguments; the kernel is meant to fail.
    unsafe { stream.launch_builder(&stray).launch(one()) }?;
    for _ in 0..2 {
        let failed = stream.synchronize().expect_err("a store to address 64");
        ensure(failed.0 == CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, format!("{failed:?}"))?;
    }
    Ok(())
}

fn main() -> Outcome {
    let ctx = CudaContext::new(0)?;
    let module = ctx.load_module(Ptx::from_src(PTX))?;
    let gpu = Gpu { ctx, module };
    let parts: [(&str, &dyn Fn() -> Outcome); 10] = [
        ("devices", &|| devices(&gpu)),
        ("memory", &|| memory(&gpu)),
        ("launches", &|| launches(&gpu)),
        ("events", &|| events(&gpu)),
        ("graphs", &|| graphs(&gpu)),
        ("pools", &|| pools(&gpu)),
        ("occupancy", &|| occupancy(&gpu)),
        ("two devices", &two_devices),
        ("refusals", &|| refusals(&gpu)),
        ("sticky errors", &|| sticky_errors(&gpu)),
    ];
    for (name, part) in parts {
        part().map_err(|e| format!("{name}: {e}"))?;
        println!("ok: {name}");
    }
    Ok(())
}
