//! What the tests share: small PTX kernels, and short forms of raw calls. Everything runs on the
//! software engine.

#![allow(dead_code)]

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpsmith_driver_api::*;

pub const PTX: &str = r#"
.version 7.0
.target sm_75
.address_size 64

.global .align 4 .u32 seven = 7;

// y[i] = x[i] + k for i < n
.visible .entry add(.param .u64 x, .param .u64 y, .param .u32 k, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r1, [k];
    ld.param.u32 %r2, [n];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r6, %r2;
    @%p1 bra DONE;
    mul.wide.u32 %rd3, %r6, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.u32 %r7, [%rd4];
    add.s32 %r7, %r7, %r1;
    st.global.u32 [%rd5], %r7;
DONE:
    ret;
}

// *p = *p * 3 + 1
.visible .entry step(.param .u64 p)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    ld.global.u32 %r1, [%rd1];
    mad.lo.s32 %r1, %r1, 3, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}

// *p = 0
.visible .entry poke(.param .u64 p)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, 0;
    st.global.u32 [%rd1], %r1;
    ret;
}

.visible .entry trapped()
{
    trap;
    ret;
}

.visible .entry nothing()
{
    ret;
}

.visible .entry bounded()
.maxntid 64, 1, 1
{
    ret;
}

.extern .shared .align 4 .b8 dynamic[];

// *p = the last word of n bytes of dynamic shared memory, after writing n there
.visible .entry shared_last(.param .u64 p, .param .u32 n)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, dynamic;
    add.s32 %r2, %r2, %r1;
    st.shared.u32 [%r2+-4], %r1;
    ld.shared.u32 %r3, [%r2+-4];
    st.global.u32 [%rd1], %r3;
    ret;
}
"#;

/// Captures, contexts and reports are the process's: one test at a time. The guard leaves the
/// thread with a fresh primary context.
pub struct Gpu {
    pub context: CUcontext,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

pub fn gpu() -> Gpu {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    select(Choice::Software).expect("the software engine");
    let mut context = CUcontext::NULL;
    // SAFETY: places for results are live.
    unsafe {
        ok(cuInit(0));
        ok(cuDevicePrimaryCtxRetain(&mut context, 0));
        ok(cuCtxSetCurrent(context));
    }
    Gpu { context, _turn: turn }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: no pointers.
        unsafe {
            cuDevicePrimaryCtxReset_v2(0);
            cuCtxSetCurrent(CUcontext::NULL);
        }
        let _ = software::take_report();
    }
}

#[track_caller]
pub fn ok(code: CUresult) {
    assert_eq!(code, 0, "{} ({})", result_name(code), result_text(code));
}

#[track_caller]
pub fn is(code: CUresult, expected: i32) {
    assert_eq!(code, expected, "{}, expected {}", result_name(code), result_name(expected));
}

pub fn load(ptx: &str) -> CUmodule {
    let text = CString::new(ptx).unwrap();
    let mut module = CUmodule::NULL;
    // SAFETY: a NUL-terminated image and a live place.
    let code = unsafe { cuModuleLoadData(&mut module, text.as_ptr().cast()) };
    assert_eq!(code, 0, "{}", software::last_report().unwrap_or_default());
    module
}

pub fn function(module: CUmodule, name: &str) -> CUfunction {
    let name = CString::new(name).unwrap();
    let mut f = CUfunction::NULL;
    // SAFETY: a NUL-terminated name and a live place.
    ok(unsafe { cuModuleGetFunction(&mut f, module, name.as_ptr()) });
    f
}

pub fn alloc(bytes: usize) -> CUdeviceptr {
    let mut p = 0;
    // SAFETY: a live place.
    ok(unsafe { cuMemAlloc_v2(&mut p, bytes) });
    p
}

pub fn upload(values: &[u32]) -> CUdeviceptr {
    let p = alloc(values.len() * 4);
    // SAFETY: the slice is as long as said.
    ok(unsafe { cuMemcpyHtoD_v2(p, values.as_ptr().cast(), values.len() * 4) });
    p
}

pub fn download(p: CUdeviceptr, n: usize) -> Vec<u32> {
    let mut out = vec![0u32; n];
    // SAFETY: the vector is as long as said.
    ok(unsafe { cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), p, n * 4) });
    out
}

pub fn stream() -> CUstream {
    let mut s = CUstream::NULL;
    // SAFETY: a live place. 1: non-blocking.
    ok(unsafe { cuStreamCreate(&mut s, 1) });
    s
}

pub fn blocking_stream() -> CUstream {
    let mut s = CUstream::NULL;
    // SAFETY: a live place.
    ok(unsafe { cuStreamCreate(&mut s, 0) });
    s
}

pub fn event() -> CUevent {
    let mut e = CUevent::NULL;
    // SAFETY: a live place.
    ok(unsafe { cuEventCreate(&mut e, 0) });
    e
}

pub fn launch(f: CUfunction, grid: u32, block: u32, shared: u32, s: CUstream, args: &[*const c_void]) -> CUresult {
    // SAFETY: the callers pass one live argument per parameter.
    unsafe { cuLaunchKernel(f, grid, 1, 1, block, 1, 1, shared, s, args.as_ptr().cast_mut().cast(), null_mut()) }
}

pub fn arg<T>(value: &T) -> *const c_void {
    (&raw const *value).cast()
}

pub fn launch_step(f: CUfunction, p: CUdeviceptr, s: CUstream) -> CUresult {
    launch(f, 1, 1, 0, s, &[arg(&p)])
}

pub fn begin(s: CUstream, mode: i32) {
    // SAFETY: no pointers.
    ok(unsafe { cuStreamBeginCapture_v2(s, mode) });
}

pub fn end(s: CUstream) -> Result<CUgraph, i32> {
    let mut g = CUgraph::NULL;
    // SAFETY: a live place.
    let code = unsafe { cuStreamEndCapture(s, &mut g) };
    if code == 0 {
        Ok(g)
    } else {
        assert_eq!(g, CUgraph::NULL, "a failed capture leaves no graph");
        Err(code)
    }
}

pub fn instantiate(g: CUgraph) -> CUgraphExec {
    let mut exec = CUgraphExec(null_mut());
    // SAFETY: a live place.
    ok(unsafe { cuGraphInstantiateWithFlags(&mut exec, g, 0) });
    exec
}

pub fn node_count(g: CUgraph) -> usize {
    let mut n = 0;
    // SAFETY: a live place; no array.
    ok(unsafe { cuGraphGetNodes(g, null_mut(), &mut n) });
    n
}

pub fn edge_count(g: CUgraph) -> usize {
    let mut n = 0;
    // SAFETY: a live place; no arrays.
    ok(unsafe { cuGraphGetEdges(g, null_mut(), null_mut(), &mut n) });
    n
}

pub fn nodes(g: CUgraph) -> Vec<CUgraphNode> {
    let mut n = node_count(g);
    let mut out = vec![CUgraphNode::NULL; n];
    // SAFETY: the array is as long as said.
    ok(unsafe { cuGraphGetNodes(g, out.as_mut_ptr(), &mut n) });
    out
}

pub fn no_args() -> *const c_void {
    null()
}
