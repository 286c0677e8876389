//! Products of matrices by tensor cores, as PTX: a loop of `mma` on fragments of ordinary numbers.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;

use warpsmith_driver_api::{
    CUfunction, CUmodule, CUstream, cuCtxSynchronize, cuLaunchKernel, cuMemAlloc_v2, cuMemFree_v2, cuMemcpyDtoH_v2,
    cuModuleGetFunction, cuModuleLoadData, cuModuleUnload, result_name,
};

use crate::Outcome;
use crate::turns::{Bits, Clock, Spent};

/// The instruction, registers of A and B (C and D have four), and what the bits of a fragment's word are put into: those of
/// the first word are kept, those of the second set.
const ROWS: [(&str, [usize; 2], [u32; 2]); 6] = [
    ("m16n8k16.row.col.f32.f16.f16.f32", [4, 2], [0x8fff_8fff, 0x3000_3000]),
    ("m16n8k16.row.col.f32.bf16.bf16.f32", [4, 2], [0x83ff_83ff, 0x3c00_3c00]),
    ("m16n8k8.row.col.f32.tf32.tf32.f32", [4, 2], [0x83ff_ffff, 0x3c00_0000]),
    ("m16n8k32.row.col.f32.e4m3.e4m3.f32", [4, 2], [0xbfbf_bfbf, 0]),
    ("m16n8k32.row.col.s32.s8.s8.s32", [4, 2], [!0, 0]),
    ("m16n8k128.row.col.s32.b1.b1.s32.and.popc", [2, 1], [!0, 0]),
];

/// Blocks, threads of a block, and iterations of the loop.
const SIZES: [u32; 3] = [32, 128, 16];

/// Their names, in order.
pub fn names() -> Vec<String> {
    ROWS.iter().map(|(name, ..)| format!("mma {}", name.replace(".row.col", ""))).collect()
}

/// The kernel `loop`. Fragments are a hash of the thread and the register; sums go round from iteration to iteration.
fn text((instruction, [na, nb], [keep, set]): (&str, [usize; 2], [u32; 2])) -> String {
    let list = |name: char, n: usize| (0..n).map(|i| format!("%{name}{i}")).collect::<Vec<_>>().join(", ");
    let fill = |(name, i): (char, usize)| {
        let salt = 0x9e37_79b9u32.wrapping_mul(2 * i as u32 + 1 + u32::from(name == 'b'));
        format!(
            "xor.b32 %{name}{i}, %t1, {salt}; mul.lo.u32 %{name}{i}, %{name}{i}, 0x85ebca6b; shr.u32 %t2, %{name}{i}, 15;
             xor.b32 %{name}{i}, %{name}{i}, %t2; and.b32 %{name}{i}, %{name}{i}, {keep}; or.b32 %{name}{i}, %{name}{i}, {set};\n"
        )
    };
    let fragments: String = (0..na).map(|i| ('a', i)).chain((0..nb).map(|i| ('b', i))).map(fill).collect();
    let [_, _, iterations] = SIZES;
    format!(
        ".version 8.4
         .target sm_90
         .address_size 64
         .visible .entry loop(.param .u64 out) {{
         .reg .b32 %a<4>, %b<2>, %c<4>, %t<5>; .reg .b64 %p<3>; .reg .pred %q;
         mov.u32 %t0, %ctaid.x; mov.u32 %t1, %ntid.x; mov.u32 %t2, %tid.x; mad.lo.u32 %t0, %t0, %t1, %t2;
         mad.lo.u32 %t1, %t0, 0x9e3779b1, 0x7f4a7c15;
         {fragments}
         mov.b32 %c0, 0; mov.b32 %c1, 0; mov.b32 %c2, 0; mov.b32 %c3, 0; mov.u32 %t3, {iterations};
         again:
         mma.sync.aligned.{instruction} {{{c}}}, {{{a}}}, {{{b}}}, {{{c}}};
         sub.u32 %t3, %t3, 1; setp.ne.u32 %q, %t3, 0; @%q bra again;
         ld.param.u64 %p0, [out]; mul.wide.u32 %p1, %t0, 16; add.u64 %p0, %p0, %p1;
         st.global.v4.b32 [%p0], {{{c}}};
         ret;
         }}
",
        c = list('c', 4),
        a = list('a', na),
        b = list('b', nb),
    )
}

/// An error of a driver function.
fn ok(code: i32) -> Outcome {
    if code == 0 { Ok(()) } else { Err(result_name(code).into()) }
}

/// Runs a row of the table once, in the current context: what its launch took, and a digest of what it gave.
pub fn run(row: usize) -> Outcome<(Spent, Bits)> {
    let text = CString::new(text(*ROWS.get(row).ok_or("there is no such row")?))?;
    let [blocks, threads, _] = SIZES;
    let mut sums = vec![0u8; (blocks * threads * 16) as usize];
    let (mut module, mut function, mut out) = (CUmodule::NULL, CUfunction::NULL, 0u64);
    let mut bits = Bits::default();
    // SAFETY: pointers are to live values; the kernel takes one address, and writes 16 bytes a thread there.
    unsafe {
        ok(cuModuleLoadData(&mut module, text.as_ptr().cast()))?;
        ok(cuModuleGetFunction(&mut function, module, c"loop".as_ptr()))?;
        ok(cuMemAlloc_v2(&mut out, sums.len()))?;
        let arguments: [*mut c_void; 1] = [(&raw mut out).cast()];
        let launch = || -> Outcome {
            let (given, nothing) = (arguments.as_ptr().cast_mut(), null_mut());
            ok(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, CUstream::NULL, given, nothing))?;
            ok(cuCtxSynchronize())
        };
        // The first launch of a module lowers it.
        launch()?;
        let spent = Clock::mean(launch)?;
        ok(cuMemcpyDtoH_v2(sums.as_mut_ptr().cast(), out, sums.len()))?;
        ok(cuMemFree_v2(out))?;
        ok(cuModuleUnload(module))?;
        bits.add(&sums);
        Ok((spent, bits))
    }
}
