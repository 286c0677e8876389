//! Runs small kernels through the public interface.
#![allow(dead_code)]

pub mod corpus;

use std::sync::Arc;

use warpsmith_check::{CheckedMemory, Checks, Finding, Inspect};
use warpsmith_simt::{Counters, Fault, Instance, Launch, LoadOptions, Machine, MachineConfig, Module};

/// A machine, a module on it, and output memory.
pub struct Rig {
    pub machine: Machine,
    pub instance: Instance,
}

/// A module of one kernel `k` with the given parameters and body.
pub fn module_text(params: &str, body: &str) -> String {
    format!(".version 8.2\n.target sm_90\n.address_size 64\n.visible .entry k({params}) {{\n{body}\n}}\n")
}

pub fn load(text: &str) -> Module {
    Module::load(text, &LoadOptions { sm: 90 }).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// The log of a module that does not load.
pub fn load_error(text: &str) -> String {
    match Module::load(text, &LoadOptions { sm: 90 }) {
        Ok(_) => panic!("loads:\n{text}"),
        Err(e) => e.to_string(),
    }
}

impl Rig {
    pub fn with(config: MachineConfig, text: &str) -> Rig {
        let machine = Machine::new(config);
        machine.memory().track(std::env::var_os("WARPSMITH_TEST_CHECKED").is_some());
        let instance = machine.instantiate(Arc::new(load(text))).unwrap();
        Rig { machine, instance }
    }

    pub fn new(text: &str) -> Rig {
        Rig::with(MachineConfig { threads: 1, ..MachineConfig::default() }, text)
    }

    pub fn alloc(&self, bytes: u64) -> u64 {
        self.machine.memory().alloc(bytes, 256).unwrap()
    }

    pub fn upload<T: Copy>(&self, data: &[T]) -> u64 {
        let bytes = bytes_of(data);
        let p = self.alloc(bytes.len() as u64);
        self.machine.memory().write(p, bytes).unwrap();
        p
    }

    pub fn download<T: Copy + Default>(&self, p: u64, n: usize) -> Vec<T> {
        let mut bytes = vec![0u8; n * size_of::<T>()];
        self.machine.memory().read(p, &mut bytes).unwrap();
        let mut out = vec![T::default(); n];
        // SAFETY: `out` has as many bytes, and every type used here allows any bits.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.as_mut_ptr().cast(), bytes.len()) };
        out
    }

    pub fn try_run(&self, grid: u32, block: u32, params: &[u64]) -> Result<Counters, Box<Fault>> {
        let bytes: Vec<u8> = params.iter().flat_map(|p| p.to_le_bytes()).collect();
        let launch = Launch::new([grid, 1, 1], [block, 1, 1]);
        if std::env::var_os("WARPSMITH_TEST_CHECKED").is_none() {
            return self.machine.launch(&self.instance, "k", &launch, &bytes);
        }
        // The same test of the same results, but of a checked launch; nothing in these kernels depends on undefined data.
        let inspection = self.machine.inspect(&self.instance, "k", &launch, &bytes, &Checks::ALL);
        let undefined = |f: &&Finding| f.rule.name().starts_with("init::");
        if let Some(finding) = inspection.findings.iter().find(undefined) {
            panic!("{finding}");
        }
        inspection.fault.map_or(Ok(inspection.counters), Err)
    }

    pub fn run(&self, grid: u32, block: u32, params: &[u64]) -> Counters {
        self.try_run(grid, block, params).unwrap_or_else(|f| panic!("{f}"))
    }
}

pub fn bytes_of<T: Copy>(data: &[T]) -> &[u8] {
    // SAFETY: the slice's own bytes; types used here have no padding.
    unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) }
}

/// Runs `body` once per element: `%a`, `%b`, `%c` hold the operands, `%d` takes the result, all declared with
/// `reg` (e.g. `.b32`) and `size` bytes. Registers `%t<9>` of 32, `%u<9>` of 64, `%h<9>` of 16 bits and `%p<9>` are free.
pub fn map3(reg: &str, out: &str, body: &str, a: &[u64], b: &[u64], c: &[u64]) -> Vec<u64> {
    let n = a.len();
    assert!(b.len() == n && c.len() == n && n > 0);
    let load = |r: &str| match r {
        ".b16" => "b16",
        ".b32" => "b32",
        _ => "b64",
    };
    let text = module_text(
        ".param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd, .param .u64 n",
        &format!(
            ".reg .b64 %rd<20>; .reg .b32 %r<4>; .reg .pred %q; .reg {reg} %a, %b, %c; .reg {out} %d;
             .reg .b32 %t<9>; .reg .b64 %u<9>; .reg .b16 %h<9>; .reg .pred %p<9>;
             ld.param.u64 %rd1, [pa]; ld.param.u64 %rd2, [pb]; ld.param.u64 %rd3, [pc]; ld.param.u64 %rd4, [pd];
             ld.param.u64 %rd9, [n];
             mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.s32 %r3, %r1, 64, %r2;
             cvt.u64.u32 %rd5, %r3;
             setp.ge.u64 %q, %rd5, %rd9;
             @%q bra DONE;
             shl.b64 %rd6, %rd5, 3;
             add.s64 %rd1, %rd1, %rd6; add.s64 %rd2, %rd2, %rd6; add.s64 %rd3, %rd3, %rd6; add.s64 %rd4, %rd4, %rd6;
             ld.global.{li} %a, [%rd1]; ld.global.{li} %b, [%rd2]; ld.global.{li} %c, [%rd3];
             {body}
             mov.u64 %rd7, 0;
             st.global.u64 [%rd4], %rd7;
             st.global.{lo} [%rd4], %d;
             DONE: ret;",
            li = load(reg),
            lo = load(out),
        ),
    );
    let rig = Rig::new(&text);
    let (pa, pb, pc) = (rig.upload(a), rig.upload(b), rig.upload(c));
    let pd = rig.alloc(8 * n as u64);
    rig.run(n.div_ceil(64) as u32, 64, &[pa, pb, pc, pd, n as u64]);
    rig.download(pd, n)
}

/// One 32-bit operation on lists of operands.
pub fn op32(body: &str, a: &[u32], b: &[u32], c: &[u32]) -> Vec<u32> {
    let wide = |x: &[u32]| x.iter().map(|&v| u64::from(v)).collect::<Vec<u64>>();
    map3(".b32", ".b32", body, &wide(a), &wide(b), &wide(c)).into_iter().map(|v| v as u32).collect()
}

/// One 64-bit operation.
pub fn op64(body: &str, a: &[u64], b: &[u64], c: &[u64]) -> Vec<u64> {
    map3(".b64", ".b64", body, a, b, c)
}

/// Numbers worth trying, and pseudo-random ones.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn u32s(&mut self, n: usize) -> Vec<u32> {
        let edge =
            [0, 1, 2, 31, 32, 33, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xffff_fffe, 0x00ff_ffff, 0x8000, 0xffff];
        (0..n).map(|i| if i % 3 == 0 { edge[self.next() as usize % edge.len()] } else { self.next() as u32 }).collect()
    }

    pub fn u64s(&mut self, n: usize) -> Vec<u64> {
        let edge = [0, 1, 63, 64, u64::MAX, 1 << 63, i64::MAX as u64, 0xffff_ffff, 1 << 32];
        (0..n).map(|i| if i % 3 == 0 { edge[self.next() as usize % edge.len()] } else { self.next() }).collect()
    }

    pub fn f32s(&mut self, n: usize) -> Vec<u32> {
        let edge = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            1.5,
            -2.5,
            0.5,
            f32::MAX,
            f32::MIN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::MIN_POSITIVE,
            1e-40,
            -1e-42,
            16777216.0,
            3e9,
            -3e9,
        ];
        (0..n)
            .map(|i| match i % 4 {
                0 => edge[self.next() as usize % edge.len()].to_bits(),
                1 if self.next().is_multiple_of(8) => 0x7fc0_1234 | (self.next() as u32 & 0x8000_0000),
                1 => self.next() as u32,
                _ => (self.next() as u32 & 0x807f_ffff) | ((107 + self.next() as u32 % 40) << 23),
            })
            .collect()
    }
}
