//! Prompts with the bits of single steps: over what a cache may hold, each column gets what a step of it alone gives.

use crate::machine::{Buffer, Gpu, Rng};
use gpu_kernels::attention::prefill::{PrefillArguments, QueryTile};
use gpu_kernels::attention::{partials_len, prompt::PromptArguments, step::StepArguments};
use gpu_kernels::gemv::quant_format::NONE;
use gpu_kernels::kv::KvType;
use gpu_kernels::layer::{Layer, SINKS};
use gpu_kernels::state::Column;
use half::f16;
use warpsmith_device::DeviceSlice;

/// Caches of one sequence, of any type.
enum Rows {
    F16([Buffer<f16>; 2]),
    F32([Buffer<f32>; 2]),
    Int8([Buffer<i8>; 2]),
}

/// A prompt of `count` tokens from position `first` on.
#[derive(Clone, Copy, Debug)]
struct Case {
    heads: (u32, u32),
    dim: u32,
    window: u32,
    first: usize,
    count: usize,
    /// Positions that there is room for beside those of the prompt; fewer, and its last columns have no place.
    room: i64,
    /// Some rows of keys and values are not numbers, or infinite.
    broken: bool,
    paged: bool,
    /// Single steps in the same launch.
    beside: usize,
}

const PLAIN: Case =
    Case { heads: (8, 2), dim: 128, window: 0, first: 0, count: 20, room: 5, broken: false, paged: false, beside: 0 };

fn rows(gpu: &Gpu, rng: &mut Rng, case: &Case, kv: KvType, positions: usize) -> Rows {
    let n = case.heads.1 as usize * positions * case.dim as usize;
    let mut all = [rng.floats(n), rng.floats(n)];
    if case.broken {
        // A few rows of each head.
        for (of, number) in [(0, f32::NAN), (1, f32::NAN), (1, f32::INFINITY), (0, f32::NEG_INFINITY)] {
            for head in 0..case.heads.1 as usize {
                let place = case.first + (rng.unit().abs() * case.count as f32) as usize;
                let place = place.min(positions - 1);
                all[of][(head * positions + place) * case.dim as usize + 5] = number;
            }
        }
    }
    let code = |v: &f32| (v * 60.0) as i8;
    match kv {
        KvType::F16 => Rows::F16(all.map(|v| gpu.upload(&v.iter().map(|v| f16::from_f32(*v)).collect::<Vec<_>>()))),
        KvType::F32 => Rows::F32(all.map(|v| gpu.upload(&v))),
        KvType::Int8 => Rows::Int8(all.map(|v| gpu.upload(&v.iter().map(code).collect::<Vec<_>>()))),
    }
}

/// Scales of rows: of very different sizes, and not a number where the case is broken.
fn scales(gpu: &Gpu, rng: &mut Rng, case: &Case, positions: usize) -> Buffer<f32> {
    let mut all: Vec<f32> =
        (0..case.heads.1 as usize * positions).map(|_| 0.02 * (4.0 * rng.unit()).round().exp2()).collect();
    if case.broken {
        for head in 0..case.heads.1 as usize {
            all[head * positions + (case.first + case.count / 2).min(positions - 1)] = f32::NAN;
        }
    }
    gpu.upload(&all)
}

/// The bits of results by the kernel for prompts, and by that for steps, whatever the number is that is none.
fn both(gpu: &mut Gpu, case: &Case, kv: KvType, seed: u64) -> [Vec<u32>; 2] {
    let mut rng = Rng(seed);
    let Case { heads: (q_heads, kv_heads), dim, window, first, count, room, paged, .. } = *case;
    let capacity = ((first + count) as i64 + room) as usize;
    let positions = capacity.next_multiple_of(16);
    let rows = rows(gpu, &mut rng, case, kv, positions);
    let scales = [scales(gpu, &mut rng, case, positions), scales(gpu, &mut rng, case, positions)];
    let [k, v] = match &rows {
        Rows::F16(all) => [all[0].address(), all[1].address()],
        Rows::F32(all) => [all[0].address(), all[1].address()],
        Rows::Int8(all) => [all[0].address(), all[1].address()],
    };
    // One page, whose groups lie in another order.
    let groups = (positions / 16) as u32;
    let order: Vec<u32> = (0..groups).map(|i| 16 * (groups - 1 - i)).collect();
    let table = gpu.upload(&order);
    let column = |position: usize| {
        let column = Column::at(0, position as u32)
            .with_caches(positions as u32, k, v)
            .with_scales(scales[0].address(), scales[1].address());
        let column = Column { capacity: capacity as u32, ..column };
        if paged { column.in_pages(positions as u32, table.address()) } else { column }
    };
    // Of the prompt, but for its last; of steps; the last.
    let (alone, count) = (count, count + case.beside);
    let mut columns: Vec<Column> = (first..first + alone - 1).map(column).collect();
    columns.extend((0..case.beside).map(|i| column(capacity * (i + 1) / (case.beside + 1))));
    columns.push(column(first + alone - 1));
    let sinks = gpu.upload(&rng.floats(q_heads as usize));
    let flags = if seed.is_multiple_of(2) { SINKS } else { 0 };
    let layer = Layer { q_heads, kv_heads, head_dim: dim, context: 1 << 20, window, flags, ..Layer::default() };
    let sinks: &DeviceSlice<f32> = if flags == 0 { DeviceSlice::empty() } else { &sinks };
    let row = (q_heads + 2 * kv_heads) * dim;
    let qkv = gpu.upload(&rng.floats(count * row as usize).iter().map(|v| 3.0 * v).collect::<Vec<_>>());
    let width = q_heads * dim;
    let columns_ = gpu.upload(&columns);
    let canonical = |y: Vec<f32>| y.iter().map(|v| if v.is_nan() { f32::NAN } else { *v }.to_bits()).collect();

    let mut y = gpu.poisoned::<f32>(count * width as usize);
    let tiles = gpu.upload(&QueryTile::cut(0, alone as u32, count as u32 - 1, dim).collect::<Vec<_>>());
    // What is in a tile is no step; without others there are none.
    let mut steps = columns[alone - 1..].to_vec();
    steps[case.beside] = Column::default();
    let steps = if case.beside == 0 { &[] } else { &steps[..] };
    let mut partials = gpu.poisoned::<f32>(partials_len(steps.len(), &layer) as usize);
    let mut counters = gpu.upload(&vec![0u32; steps.len() * kv_heads as usize]);
    let steps = gpu.upload(steps);
    let given = PrefillArguments {
        qkv: &qkv,
        columns: &columns_,
        tiles: &tiles,
        sinks,
        y: &mut y,
        strides: (row, width),
        layer,
    };
    let given = PromptArguments::from(given).with_steps(&steps, (&mut partials, &mut counters));
    // SAFETY: the caches are the test's, which nothing else touches meanwhile.
    unsafe { given.launch(gpu, kv, false) }.unwrap();
    let got = canonical(gpu.read(&y));

    let mut y = gpu.poisoned::<f32>(count * width as usize);
    let none = gpu.upload(&[0.0f32]);
    let mut partials = gpu.poisoned::<f32>(partials_len(count, &layer) as usize);
    let mut counters = gpu.upload(&vec![0u32; count * kv_heads as usize]);
    let given = StepArguments {
        qkv: &qkv,
        q_weight: &none,
        k_weight: &none,
        cos: &none,
        sin: &none,
        sinks,
        columns: &columns_,
        partials: &mut partials,
        counters: &mut counters,
        y: &mut y,
        quantized: DeviceSlice::empty_mut(),
        group_counters: DeviceSlice::empty_mut(),
        stride: row,
        y_stride: width,
        quant_format: NONE,
        layer,
    };
    // SAFETY: as above.
    unsafe { given.launch(gpu, kv, false) }.unwrap();
    [got, canonical(gpu.read(&y))]
}

fn alike(mut gpu: Gpu, cases: &[Case], kv: KvType) {
    for (i, case) in cases.iter().enumerate() {
        let [got, want] = both(&mut gpu, case, kv, 70 + i as u64);
        let width = (case.heads.0 * case.dim) as usize;
        for (c, (got, want)) in got.chunks_exact(width).zip(want.chunks_exact(width)).enumerate() {
            assert!(got == want, "{kv} on {}: column {c} of {case:?}", gpu.name());
        }
        let numbers = got.iter().filter(|v| !f32::from_bits(**v).is_nan()).count();
        assert!(numbers > 0, "{kv}: nothing is a number in {case:?}");
    }
}

/// Every head size and number of query heads of a key head, the edges of tiles and parts, windows, pages, and what is no number.
fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for dim in [32, 64, 80, 96, 128, 192, 256] {
        all.push(Case { heads: (4, 2), dim, first: 60, ..PLAIN });
    }
    for group in [1, 2, 3, 5, 7, 8, 9, 16] {
        all.push(Case { heads: (group, 1), dim: 64, first: 190 + group as usize, count: 37, ..PLAIN });
    }
    // Parts of more than 64 positions, which grow from a column to the next; and several turns of a warp.
    all.push(Case { heads: (4, 4), dim: 64, first: 2040, count: 21, ..PLAIN });
    all.push(Case { heads: (2, 2), dim: 32, first: 4090, count: 19, paged: true, ..PLAIN });
    for (window, first) in [(1, 0), (16, 40), (23, 100), (300, 310), (700, 1000)] {
        all.push(Case { heads: (4, 2), dim: 64, window, first, count: 40, paged: first > 100, ..PLAIN });
    }
    // Single steps beside prompts: where a tile has more rows of blocks than a step, as many, and fewer; of one part and of several.
    for (heads, dim, beside) in [((8, 2), 128, 1), ((1, 1), 64, 3), ((9, 1), 64, 2), ((3, 3), 96, 9), ((16, 8), 32, 4)]
    {
        all.push(Case { heads, dim, first: 500, count: 30, beside, paged: beside == 2, ..PLAIN });
    }
    all.push(Case { heads: (4, 2), dim: 256, first: 90, count: 3, beside: 2, ..PLAIN });
    all.push(Case {
        heads: (4, 2),
        dim: 64,
        window: 70,
        first: 200,
        count: 20,
        beside: 5,
        broken: true,
        room: -2,
        ..PLAIN
    });
    // Some columns without a place, and rows that are not numbers.
    all.push(Case { room: -3, ..PLAIN });
    all.push(Case { heads: (4, 2), dim: 64, first: 30, count: 150, broken: true, ..PLAIN });
    all.push(Case { heads: (4, 2), dim: 64, window: 33, first: 90, count: 60, broken: true, paged: true, ..PLAIN });
    all
}

/// On tensor cores, but for heads of more than 128 elements.
#[test]
fn the_bits_of_single_steps_f16() {
    alike(Gpu::of(90), &cases(), KvType::F16);
}

#[test]
fn the_bits_of_single_steps_int8() {
    alike(Gpu::of(90), &cases(), KvType::Int8);
}

/// Where a block does what the blocks of a step do.
#[test]
fn the_bits_of_single_steps_without_tensor_cores() {
    let cases = [
        Case { heads: (5, 1), dim: 80, first: 150, count: 9, beside: 3, ..PLAIN },
        Case { heads: (16, 1), dim: 256, first: 70, count: 6, paged: true, ..PLAIN },
        Case { heads: (4, 2), dim: 64, window: 23, first: 90, count: 12, broken: true, room: -3, ..PLAIN },
    ];
    for kv in KvType::ALL {
        alike(Gpu::of(75), &cases, kv);
    }
    alike(Gpu::of(90), &cases[..1], KvType::F32);
}
