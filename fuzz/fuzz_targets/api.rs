//! Sequences of driver calls with good, stale and invented handles, sizes and ranges: answers only, no crash. Host
//! pointers are always to memory that is as large as the call says, as in CUDA the caller's word.
#![no_main]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Once;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use warpsmith_driver_api::*;

const PTX: &str = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u32 n) {\n.reg .pred %p<2>; \
.reg .b32 %r<5>; .reg .b64 %rd<5>;\nld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; setp.ge.u32 %p1, \
%r2, %r1; @%p1 bra D; mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r2;\nD: ret; }\n\0";

#[derive(Arbitrary, Debug)]
enum Call {
    Alloc(u32),
    Free(u8),
    FreeRaw(u64),
    Write(u8, u16, u16),
    Read(u8, u16, u16),
    ReadRaw(u64, u16),
    Fill(u8, u16, u16, u8),
    Copy(u8, u8, u16),
    Stream,
    Destroy(u8),
    Launch(u8, u8, u8, u16, u32),
    LaunchRaw(u64, u16),
    Begin(u8),
    End(u8),
    Replay(u8, u8),
    DropGraph(u8),
    Event,
    Record(u8, u8),
    Wait(u8, u8),
    Query(u8),
    Synchronize(u8),
    Load(Vec<u8>),
    Attribute(i32, i32),
}

static START: Once = Once::new();

fn pick(list: &[u64], i: u8) -> u64 {
    if list.is_empty() { u64::from(i) } else { list[i as usize % list.len()] }
}

fn raw<T>(handle: u64) -> T {
    assert_eq!(size_of::<T>(), 8);
    // SAFETY: handles of the API are 8 plain bytes.
    unsafe { std::mem::transmute_copy(&handle) }
}

fuzz_target!(|calls: Vec<Call>| {
    START.call_once(|| {
        select(Choice::Software).expect("the software engine");
        // SAFETY: cuInit takes no pointers.
        assert_eq!(unsafe { cuInit(0) }, 0);
    });
    // SAFETY: see the module's documentation.
    unsafe { drive(&calls) }
});

unsafe fn drive(calls: &[Call]) {
    let (mut memory, mut streams, mut graphs, mut events) = (Vec::new(), vec![0u64], Vec::new(), Vec::new());
    let mut host = vec![0u8; 1 << 16];
    let mut out = 0u64;
    let slot = (&raw mut out).cast::<c_void>();
    // SAFETY: every pointer is to memory of the size that the call reads or writes.
    unsafe {
        assert_eq!(cuDevicePrimaryCtxReset_v2(0), 0);
        cuDevicePrimaryCtxRetain(slot.cast(), 0);
        cuCtxSetCurrent(raw(out));
        cuModuleLoadData(slot.cast(), PTX.as_ptr().cast());
        let module = out;
        cuModuleGetFunction(slot.cast(), raw(module), c"k".as_ptr());
        let kernel = out;
        for call in calls.iter().take(64) {
            out = 0;
            match call {
                Call::Alloc(n) => {
                    if cuMemAlloc_v2(slot.cast(), *n as usize % (1 << 22)) == 0 {
                        memory.push(out);
                    }
                }
                Call::Free(i) => drop(cuMemFree_v2(pick(&memory, *i))),
                Call::FreeRaw(a) => drop(cuMemFree_v2(*a)),
                Call::Write(i, at, n) => {
                    cuMemcpyHtoD_v2(pick(&memory, *i).wrapping_add((*at).into()), host.as_ptr().cast(), *n as usize);
                }
                Call::Read(i, at, n) => {
                    cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), pick(&memory, *i).wrapping_add((*at).into()), *n as usize);
                }
                Call::ReadRaw(a, n) => {
                    // Addresses below 2^48 could be the host's own under unified addressing: the caller's word again.
                    cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), *a | 1 << 50, *n as usize);
                }
                Call::Fill(i, at, n, v) => {
                    cuMemsetD8_v2(pick(&memory, *i).wrapping_add((*at).into()), *v, *n as usize);
                }
                Call::Copy(to, from, n) => {
                    cuMemcpyDtoD_v2(pick(&memory, *to), pick(&memory, *from), *n as usize);
                }
                Call::Stream => {
                    if cuStreamCreate(slot.cast(), 1) == 0 {
                        streams.push(out);
                    }
                }
                Call::Destroy(i) => drop(cuStreamDestroy_v2(raw(pick(&streams, *i)))),
                Call::Launch(s, blocks, threads, shared, n) => {
                    let (mut p, mut n) = (pick(&memory, *threads), *n);
                    let mut list = [(&raw mut p).cast::<c_void>(), (&raw mut n).cast::<c_void>()];
                    let (g, b) = (u32::from(*blocks), u32::from(*threads));
                    let stream = raw(pick(&streams, *s));
                    cuLaunchKernel(raw(kernel), g, 1, 1, b, 1, 1, (*shared).into(), stream, list.as_mut_ptr(), null_mut());
                }
                Call::LaunchRaw(f, n) => {
                    cuLaunchKernel(raw(*f), 1, 1, 1, (*n).into(), 1, 1, 0, raw(0), null_mut(), null_mut());
                }
                Call::Begin(s) => drop(cuStreamBeginCapture_v2(raw(pick(&streams, *s)), i32::from(*s % 4))),
                Call::End(s) => {
                    if cuStreamEndCapture(raw(pick(&streams, *s)), slot.cast()) == 0 && out != 0 {
                        let graph = out;
                        if cuGraphInstantiateWithFlags(slot.cast(), raw(graph), 0) == 0 {
                            graphs.push(out);
                        }
                        cuGraphDestroy(raw(graph));
                    }
                }
                Call::Replay(g, s) => drop(cuGraphLaunch(raw(pick(&graphs, *g)), raw(pick(&streams, *s)))),
                Call::DropGraph(g) => drop(cuGraphExecDestroy(raw(pick(&graphs, *g)))),
                Call::Event => {
                    if cuEventCreate(slot.cast(), 0) == 0 {
                        events.push(out);
                    }
                }
                Call::Record(e, s) => drop(cuEventRecord(raw(pick(&events, *e)), raw(pick(&streams, *s)))),
                Call::Wait(s, e) => drop(cuStreamWaitEvent(raw(pick(&streams, *s)), raw(pick(&events, *e)), 0)),
                Call::Query(e) => drop(cuEventQuery(raw(pick(&events, *e)))),
                Call::Synchronize(s) => drop(cuStreamSynchronize(raw(pick(&streams, *s)))),
                Call::Load(bytes) => {
                    let mut text = bytes.clone();
                    text.push(0);
                    // An image of another format would be read to the length that its header says.
                    if !text.starts_with(b"\x7fELF") && !text.starts_with(&[0x50, 0xed, 0x55, 0xba]) {
                        cuModuleLoadData(slot.cast(), text.as_ptr().cast());
                    }
                }
                Call::Attribute(a, d) => drop(cuDeviceGetAttribute(slot.cast(), *a, *d)),
            }
        }
    }
}
