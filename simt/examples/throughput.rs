//! Measures the interpreter: lane-instructions per second of a few kernels on one core.
//!
//! `cargo run --release -p warpsmith-simt --example throughput`

use std::sync::Arc;
use std::time::Instant;

use warpsmith_check::{CheckedMemory, Checks, Inspect};
use warpsmith_simt::{Instance, Launch, LoadOptions, Machine, MachineConfig, Module};

const HEAD: &str = ".version 8.0\n.target sm_90\n.address_size 64\n";

/// y[row] = Σ w[row, c] · x[c], one warp per row.
const GEMV: &str = "
.visible .entry gemv(.param .u64 w, .param .u64 x, .param .u64 y, .param .u32 cols) {
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<12>; .reg .f32 %f<16>;
    ld.param.u64 %rd1, [w]; ld.param.u64 %rd2, [x]; ld.param.u64 %rd3, [y]; ld.param.u32 %r1, [cols];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %tid.x; mov.u32 %r4, %ntid.x;
    shr.u32 %r5, %r4, 5; shr.u32 %r6, %r3, 5; mad.lo.u32 %r7, %r2, %r5, %r6;
    and.b32 %r8, %r3, 31;
    mul.wide.u32 %rd4, %r7, %r1; shl.b64 %rd4, %rd4, 2; add.s64 %rd4, %rd1, %rd4;
    mul.wide.u32 %rd5, %r8, 4; add.s64 %rd4, %rd4, %rd5; add.s64 %rd5, %rd2, %rd5;
    mov.f32 %f1, 0f00000000; mov.u32 %r9, %r8;
LOOP:
    ld.global.nc.f32 %f2, [%rd4]; ld.global.nc.f32 %f3, [%rd5];
    fma.rn.f32 %f1, %f2, %f3, %f1;
    add.s64 %rd4, %rd4, 128; add.s64 %rd5, %rd5, 128;
    add.u32 %r9, %r9, 32;
    setp.lt.u32 %p1, %r9, %r1;
    @%p1 bra LOOP;
    mov.b32 %r10, %f1; shfl.sync.bfly.b32 %r11, %r10, 16, 31, -1; mov.b32 %f4, %r11; add.f32 %f1, %f1, %f4;
    mov.b32 %r10, %f1; shfl.sync.bfly.b32 %r11, %r10, 8, 31, -1; mov.b32 %f4, %r11; add.f32 %f1, %f1, %f4;
    mov.b32 %r10, %f1; shfl.sync.bfly.b32 %r11, %r10, 4, 31, -1; mov.b32 %f4, %r11; add.f32 %f1, %f1, %f4;
    mov.b32 %r10, %f1; shfl.sync.bfly.b32 %r11, %r10, 2, 31, -1; mov.b32 %f4, %r11; add.f32 %f1, %f1, %f4;
    mov.b32 %r10, %f1; shfl.sync.bfly.b32 %r11, %r10, 1, 31, -1; mov.b32 %f4, %r11; add.f32 %f1, %f1, %f4;
    setp.ne.u32 %p2, %r8, 0;
    @%p2 bra DONE;
    mul.wide.u32 %rd6, %r7, 4; add.s64 %rd6, %rd3, %rd6; st.global.f32 [%rd6], %f1;
DONE:
    ret;
}
.visible .entry gemv4(.param .u64 w, .param .u64 x, .param .u64 y, .param .u32 cols) {
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<12>; .reg .f32 %f<16>;
    ld.param.u64 %rd1, [w]; ld.param.u64 %rd2, [x]; ld.param.u64 %rd3, [y]; ld.param.u32 %r1, [cols];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %tid.x; mov.u32 %r4, %ntid.x;
    shr.u32 %r5, %r4, 5; shr.u32 %r6, %r3, 5; mad.lo.u32 %r7, %r2, %r5, %r6;
    and.b32 %r8, %r3, 31;
    mul.wide.u32 %rd4, %r7, %r1; shl.b64 %rd4, %rd4, 2; add.s64 %rd4, %rd1, %rd4;
    mul.wide.u32 %rd5, %r8, 16; add.s64 %rd4, %rd4, %rd5; add.s64 %rd5, %rd2, %rd5;
    mov.f32 %f1, 0f00000000; shl.b32 %r9, %r8, 2;
LOOP:
    ld.global.nc.v4.f32 {%f2,%f3,%f4,%f5}, [%rd4]; ld.global.nc.v4.f32 {%f6,%f7,%f8,%f9}, [%rd5];
    fma.rn.f32 %f1, %f2, %f6, %f1; fma.rn.f32 %f1, %f3, %f7, %f1;
    fma.rn.f32 %f1, %f4, %f8, %f1; fma.rn.f32 %f1, %f5, %f9, %f1;
    add.s64 %rd4, %rd4, 512; add.s64 %rd5, %rd5, 512;
    add.u32 %r9, %r9, 128;
    setp.lt.u32 %p1, %r9, %r1;
    @%p1 bra LOOP;
    mov.b32 %r10, %f1; shfl.sync.bfly.b32 %r11, %r10, 16, 31, -1; mov.b32 %f4, %r11; add.f32 %f1, %f1, %f4;
    mov.b32 %r10, %f1; shfl.sync.bfly.b32 %r11, %r10, 8, 31, -1; mov.b32 %f4, %r11; add.f32 %f1, %f1, %f4;
    mov.b32 %r10, %f1; shfl.sync.bfly.b32 %r11, %r10, 4, 31, -1; mov.b32 %f4, %r11; add.f32 %f1, %f1, %f4;
    mov.b32 %r10, %f1; shfl.sync.bfly.b32 %r11, %r10, 2, 31, -1; mov.b32 %f4, %r11; add.f32 %f1, %f1, %f4;
    mov.b32 %r10, %f1; shfl.sync.bfly.b32 %r11, %r10, 1, 31, -1; mov.b32 %f4, %r11; add.f32 %f1, %f1, %f4;
    setp.ne.u32 %p2, %r8, 0;
    @%p2 bra DONE;
    mul.wide.u32 %rd6, %r7, 4; add.s64 %rd6, %rd3, %rd6; st.global.f32 [%rd6], %f1;
DONE:
    ret;
}
";

const RACES: Checks = Checks { init: false, races: true, sync: true, profile: false, seed: 0 };

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const ROWS: u32 = 2048;
const COLS: u32 = 4096;

fn main() -> Outcome<()> {
    let threads = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1);
    let machine = Machine::new(MachineConfig { threads, ..MachineConfig::default() });
    products(&machine)?;
    empty_blocks(&machine)?;
    loading()
}

fn load(text: &str) -> Outcome<Arc<Module>> {
    Ok(Arc::new(Module::load(text, &LoadOptions { sm: 90 })?))
}

/// Products of a matrix and a vector, without checks and under them.
fn products(machine: &Machine) -> Outcome<()> {
    let instance = machine.instantiate(load(&format!("{HEAD}{GEMV}"))?)?;
    let memory = machine.memory();
    // Bits for undefined bytes, for the checked launches below; the others do not look at them.
    memory.track(true);
    let values: Vec<u8> =
        (0..ROWS as usize * COLS as usize).flat_map(|i| ((i % 7) as f32 - 3.0).to_le_bytes()).collect();
    let w = memory.alloc(values.len() as u64, 256)?;
    memory.write(w, &values)?;
    let x = memory.alloc(u64::from(COLS) * 4, 256)?;
    memory.write(x, &values[..COLS as usize * 4])?;
    let y = memory.alloc(u64::from(ROWS) * 4, 256)?;
    let mut params = Vec::new();
    [w, x, y].iter().for_each(|p| params.extend(p.to_le_bytes()));
    params.extend(COLS.to_le_bytes());
    for kernel in ["gemv", "gemv4"] {
        let mut best = f64::INFINITY;
        let mut counters = None;
        for _ in 0..7 {
            let start = Instant::now();
            let c = machine.launch(&instance, kernel, &Launch::new([ROWS / 8, 1, 1], [256, 1, 1]), &params)?;
            best = best.min(start.elapsed().as_secs_f64());
            counters = Some(c);
        }
        let Some(c) = counters else { continue };
        println!(
            "{kernel}: {:.2} ms, {:.2} G lane-instructions/s, {:.1} ns per warp instruction, {:.2} GB/s of weights",
            best * 1e3,
            c.lane_instructions as f64 / best / 1e9,
            best * 1e9 / c.warp_instructions as f64,
            values.len() as f64 / best / 1e9
        );
        let kinds = [
            ("hooks alone", Checks::default()),
            ("undefined data", Checks { init: true, ..Checks::default() }),
            ("races", RACES),
            ("undefined data and races", Checks { init: true, ..RACES }),
        ];
        for (name, checks) in kinds {
            let checked = checked_product(machine, &instance, kernel, &params, &checks)?;
            println!("{kernel}, checked for {name}: {:.2} ms, {:.2} times as long", checked * 1e3, checked / best);
        }
    }
    let mut out = [0; 4];
    memory.read(y, &mut out)?;
    let want: f64 = (0..COLS as usize).map(|i| ((i % 7) as f64 - 3.0).powi(2)).sum();
    println!("y[0] = {} (exact: {want})", f32::from_le_bytes(out));
    Ok(())
}

/// Seconds of the fastest of a few launches under checks.
fn checked_product(
    machine: &Machine,
    instance: &Instance,
    kernel: &str,
    params: &[u8],
    checks: &Checks,
) -> Outcome<f64> {
    let (memory, mut params, mut best) = (machine.memory(), params.to_vec(), f64::INFINITY);
    for _ in 0..5 {
        // Results that are undefined anew, as after an allocation.
        let y = memory.alloc(u64::from(ROWS) * 4, 256)?;
        params[16..24].copy_from_slice(&y.to_le_bytes());
        let start = Instant::now();
        let launch = Launch::new([ROWS / 8, 1, 1], [256, 1, 1]);
        let inspection = machine.inspect(instance, kernel, &launch, &params, checks);
        best = best.min(start.elapsed().as_secs_f64());
        if let Some(fault) = inspection.fault {
            return Err(fault.to_string().into());
        }
        if let Some(finding) = inspection.findings.first() {
            return Err(finding.to_string().into());
        }
        memory.free(y)?;
    }
    Ok(best)
}

/// Launches that do nothing.
fn empty_blocks(machine: &Machine) -> Outcome<()> {
    let tiny =
        format!("{HEAD}.visible .entry tiny(.param .u64 p) {{ .reg .b64 %rd<2>; ld.param.u64 %rd1, [p]; ret; }}");
    let instance = machine.instantiate(load(&tiny)?)?;
    for (blocks, block, launches) in [(1u32, 32u32, 20_000u32), (1000, 256, 20), (10_000, 32, 20)] {
        let start = Instant::now();
        for _ in 0..launches {
            machine.launch(&instance, "tiny", &Launch::new([blocks, 1, 1], [block, 1, 1]), &[0; 8])?;
        }
        let per_launch = start.elapsed().as_secs_f64() / f64::from(launches);
        println!(
            "{blocks} empty blocks of {block}: {:.2} µs per launch, {:.0} ns per warp",
            per_launch * 1e6,
            per_launch / f64::from(blocks * block / 32) * 1e9
        );
    }
    Ok(())
}

/// Many kernels in one text.
fn loading() -> Outcome<()> {
    let text = (0..2000).map(|i| GEMV.replace("gemv", &format!("k{i}_"))).collect::<String>();
    let start = Instant::now();
    let module = load(&format!("{HEAD}{text}"))?;
    let seconds = start.elapsed().as_secs_f64();
    println!("load: {:.1} MB/s, {} kernels", text.len() as f64 / seconds / 1e6, module.kernels().count());
    Ok(())
}
