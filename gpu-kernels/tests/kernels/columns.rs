//! Attention of columns: what must not change a bit, and what is refused.

use crate::machine::{Buffer, Gpu, Rng, assert_close};
use gpu_kernels::attention::prefill::{PrefillArguments, QueryTile, tensor_bound};
use gpu_kernels::attention::prompt::PromptArguments;
use gpu_kernels::attention::{AttnDecode, AttnStepF16, partials_len, step};
use gpu_kernels::cases::{StepArgs, attend};
use gpu_kernels::gemv::quant_format::NONE;
use gpu_kernels::kv::KvType;
use gpu_kernels::layer::{FUSED, Layer, NEOX, QK_NORM};
use gpu_kernels::rope::rope_tables;
use gpu_kernels::state::Column;
use half::f16;
use warpsmith_device::{Contract, DeviceSlice, Element, Launcher};

pub const POSITIONS: usize = 150;

pub fn layer(flags: u32) -> Layer {
    Layer {
        index: 0,
        q_heads: 6,
        kv_heads: 2,
        head_dim: 64,
        n_rot: 64,
        context: POSITIONS as u32,
        window: 0,
        flags: NEOX | QK_NORM | flags,
        eps: 1e-6,
    }
}

pub struct Sequence<T> {
    k: Buffer<T>,
    v: Buffer<T>,
    k_scales: Buffer<f32>,
    v_scales: Buffer<f32>,
    capacity: usize,
    /// Positions of a page, and the table of pages.
    pages: Option<(u32, Buffer<u32>)>,
}

impl<T: Element> Sequence<T> {
    pub fn new(gpu: &Gpu, capacity: usize) -> Sequence<T> {
        let rows = 2 * capacity;
        let (k, v) = (gpu.poisoned(rows * 64), gpu.poisoned(rows * 64));
        Sequence { k, v, k_scales: gpu.poisoned(rows), v_scales: gpu.poisoned(rows), capacity, pages: None }
    }

    /// In pages of so many positions, which lie in memory in some other order.
    pub fn in_pages(gpu: &Gpu, capacity: usize, page: usize) -> Sequence<T> {
        // One more than there are, which nobody writes.
        let whole = Sequence::new(gpu, (capacity.div_ceil(page) + 1) * page);
        let mut sequence = Sequence { capacity, ..whole };
        sequence.lay(gpu, page, 0);
        sequence
    }

    /// Rows that nobody has written get that scale.
    pub fn scale(&mut self, gpu: &Gpu, scale: f32) {
        for scales in [&mut self.k_scales, &mut self.v_scales] {
            *scales = gpu.upload(&vec![scale; scales.len()]);
        }
    }

    /// Lays the table of pages; those of positions before `from` alone lead to the page that nobody writes.
    pub fn lay(&mut self, gpu: &Gpu, page: usize, from: usize) {
        let count = self.capacity.div_ceil(page);
        let place = |i: usize| if (i + 1) * page <= from { count } else { (7 * i + 3) % count };
        let first = |i: usize| (0..page / 16).map(move |group| (place(i) * 2 * page + 16 * group) as u32);
        let table: Vec<u32> = (0..count).flat_map(first).collect();
        self.pages = Some((page as u32, gpu.upload(&table)));
    }

    pub fn column(&self, position: usize) -> Column {
        let column = Column::at(0, position as u32)
            .with_caches(self.capacity as u32, self.k.address(), self.v.address())
            .with_scales(self.k_scales.address(), self.v_scales.address());
        match &self.pages {
            Some((page, table)) => column.in_pages(*page, table.address()),
            None => column,
        }
    }
}

/// What all launches here share.
pub struct Bench {
    pub gpu: Gpu,
    pub x: Vec<f32>,
    q_weight: Buffer<f32>,
    k_weight: Buffer<f32>,
    cos: Buffer<f32>,
    sin: Buffer<f32>,
    pub window: u32,
}

pub const ROW: usize = 10 * 64;

impl Bench {
    pub fn new() -> Bench {
        let (gpu, mut rng) = (Gpu::new(), Rng(91));
        let tables = rope_tables(POSITIONS, 64, 1e4, None, 1.0);
        let x = rng.floats(POSITIONS * ROW);
        let (q_weight, k_weight) = (gpu.upload(&rng.floats(64)), gpu.upload(&rng.floats(64)));
        let (cos, sin) = (gpu.upload(&tables.cos), gpu.upload(&tables.sin));
        Bench { gpu, x, q_weight, k_weight, cos, sin, window: 0 }
    }

    /// Queries, keys and values of those positions.
    fn inputs(&self, columns: &[Column]) -> Buffer<f32> {
        let x: Vec<f32> = columns.iter().flat_map(|c| self.x[c.position as usize * ROW..][..ROW].to_vec()).collect();
        self.gpu.upload(&x)
    }

    /// The outputs of columns whose inputs are the rows of those positions.
    fn run(&mut self, columns: &[Column], fused: bool, kv: KvType) -> Vec<Vec<u32>> {
        let layer = Layer { window: self.window, ..layer(if fused { FUSED } else { 0 }) };
        let (mut qkv, gpu) = (self.inputs(columns), &mut self.gpu);
        let columns_ = gpu.upload(columns);
        let mut partials = gpu.poisoned::<f32>(partials_len(columns.len(), &layer) as usize);
        let mut counters = gpu.upload(&vec![0u32; columns.len() * 2]);
        let mut y = gpu.poisoned::<f32>(columns.len() * 384);
        let args = StepArgs {
            weights: (&self.q_weight, &self.k_weight),
            tables: (&self.cos, &self.sin),
            sinks: DeviceSlice::empty(),
            columns: &columns_,
            stride: ROW as u32,
            layer,
        };
        if !fused {
            // SAFETY: the columns lead to buffers of the caller, which nothing else touches meanwhile.
            unsafe { args.store(gpu, kv, &mut qkv) }.unwrap();
        }
        // SAFETY: as for the store.
        unsafe { args.attend(gpu, kv, &qkv, (&mut partials, &mut counters, &mut y, None), 384) }.unwrap();
        rows_of(&gpu.read(&y))
    }

    /// The same by the kernel for prompts, which rounds or else has the bits of single steps.
    pub fn prefill(&mut self, columns: &[Column], tiles: &[QueryTile], kv: KvType, rounds: bool) -> Vec<Vec<u32>> {
        let layer = Layer { window: self.window, ..layer(0) };
        let (mut qkv, gpu) = (self.inputs(columns), &mut self.gpu);
        let (columns, tiles) = (&gpu.upload(columns), &gpu.upload(tiles));
        let mut y = gpu.poisoned::<f32>(columns.len() * 384);
        let (weights, tables) = ((&*self.q_weight, &*self.k_weight), (&*self.cos, &*self.sin));
        // SAFETY: the columns lead to buffers of the caller, which nothing else touches meanwhile.
        unsafe {
            StepArgs { weights, tables, columns, sinks: DeviceSlice::empty(), stride: ROW as u32, layer }
                .store(gpu, kv, &mut qkv)
        }
        .unwrap();
        let attend = PrefillArguments {
            qkv: &qkv,
            columns,
            tiles,
            sinks: DeviceSlice::empty(),
            y: &mut y,
            strides: (ROW as u32, 384),
            layer,
        };
        // SAFETY: as for the store.
        unsafe {
            if rounds { attend.launch(gpu, kv, false) } else { PromptArguments::from(attend).launch(gpu, kv, false) }
        }
        .unwrap();
        rows_of(&gpu.read(&y))
    }
}

fn rows_of(y: &[f32]) -> Vec<Vec<u32>> {
    y.chunks_exact(384).map(|c| c.iter().map(|v| v.to_bits()).collect()).collect()
}

fn a_prompt_gives_the_bits_of_single_steps<T: Element>(kv: KvType) {
    let mut bench = Bench::new();
    // Steps one by one; a prompt in columns of one sequence, in pieces; another capacity.
    let single = Sequence::<T>::new(&bench.gpu, POSITIONS);
    let want: Vec<_> = (0..POSITIONS).flat_map(|p| bench.run(&[single.column(p)], true, kv)).collect();
    let prompt = Sequence::<T>::new(&bench.gpu, POSITIONS + 37);
    let mut got = Vec::new();
    for piece in [0..1, 1..6, 6..80, 80..POSITIONS] {
        let columns: Vec<Column> = piece.map(|p| prompt.column(p)).collect();
        got.extend(bench.run(&columns, false, kv));
    }
    assert!(want == got, "a prompt and single steps differ");
    // A step of several sequences at different places.
    let (a, b) = (Sequence::<T>::new(&bench.gpu, POSITIONS), Sequence::<T>::new(&bench.gpu, 90));
    for (p, q) in [(0, 0), (1, 1), (2, 2)] {
        let both = bench.run(&[a.column(p), b.column(q)], true, kv);
        assert!(both[0] == want[p] && both[1] == want[q], "a batch and single steps differ");
    }
    let longer = [single.column(POSITIONS - 1), b.column(3), prompt.column(100)];
    let batch = bench.run(&longer, true, kv);
    assert!(batch[0] == want[POSITIONS - 1] && batch[1] == want[3] && batch[2] == want[100]);
}

/// Pages of every size, in any order, as single steps and as prompts, with windows whose first position is any of a page's.
fn pages_change_no_bit<T: Element>(kv: KvType) {
    let mut bench = Bench::new();
    for (window, pages) in [(0, &[16, 48][..]), (23, &[16]), (70, &[48])] {
        bench.window = window;
        let whole = Sequence::<T>::new(&bench.gpu, POSITIONS);
        let want: Vec<_> = (0..POSITIONS).flat_map(|p| bench.run(&[whole.column(p)], true, kv)).collect();
        for &page in pages {
            let steps = Sequence::<T>::in_pages(&bench.gpu, POSITIONS, page);
            let got: Vec<_> = (0..POSITIONS).flat_map(|p| bench.run(&[steps.column(p)], true, kv)).collect();
            assert!(want == got, "{kv}: steps in pages of {page}, window {window}");
            let prompt = Sequence::<T>::in_pages(&bench.gpu, POSITIONS + 9, page);
            let mut got = Vec::new();
            for piece in [0..5, 5..100, 100..POSITIONS] {
                let columns: Vec<Column> = piece.map(|p| prompt.column(p)).collect();
                got.extend(bench.run(&columns, false, kv));
            }
            assert!(want == got, "{kv}: a prompt in pages of {page}, window {window}");
            let both = bench.run(&[whole.column(POSITIONS - 1), steps.column(90)], true, kv);
            assert!(both[0] == want[POSITIONS - 1] && both[1] == want[90], "{kv}: side by side");
        }
    }
}

#[test]
fn pages_change_no_bit_f16() {
    pages_change_no_bit::<f16>(KvType::F16);
}

#[test]
fn pages_change_no_bit_f32() {
    pages_change_no_bit::<f32>(KvType::F32);
}

#[test]
fn pages_change_no_bit_int8() {
    pages_change_no_bit::<i8>(KvType::Int8);
}

#[test]
fn a_prompt_gives_the_bits_of_single_steps_f16() {
    a_prompt_gives_the_bits_of_single_steps::<f16>(KvType::F16);
}

#[test]
fn a_prompt_gives_the_bits_of_single_steps_int8() {
    a_prompt_gives_the_bits_of_single_steps::<i8>(KvType::Int8);
}

#[test]
fn what_the_kernels_cannot_take_is_refused_with_the_reason() {
    // SAFETY: nothing is launched, so nothing reads or writes the memory.
    let refused = |layer: Layer, columns: usize, y: usize| unsafe {
        let a = |len| DeviceSlice::<f32>::from_raw(0x1000, len);
        let table = (layer.context * layer.n_rot / 2) as usize;
        AttnStepF16 {
            qkv: a(columns * 640),
            q_weight: a(64),
            k_weight: a(64),
            cos: a(table),
            sin: a(table),
            sinks: DeviceSlice::empty(),
            columns: DeviceSlice::from_raw(0x4000, columns),
            partials: DeviceSlice::from_raw_mut(0x8000, partials_len(columns, &layer) as usize),
            counters: DeviceSlice::from_raw_mut(0x8000, columns * 2),
            y: DeviceSlice::from_raw_mut(0x8000, y),
            quantized: DeviceSlice::empty_mut(),
            group_counters: DeviceSlice::empty_mut(),
            stride: 640,
            y_stride: 384,
            quant_format: NONE,
            layer,
        }
        .check()
    };
    let ok = layer(FUSED);
    assert!(refused(ok, 3, 3 * 384).is_ok());
    assert_eq!(refused(ok, 3, 3 * 384 - 1).unwrap_err().argument, "y");
    assert_eq!(refused(ok, 0, 384).unwrap_err().argument, "columns");
    for (layer, why) in [
        (Layer { head_dim: 72, ..ok }, "head_dim one of"),
        (Layer { head_dim: 288, ..ok }, "256 is the largest"),
        (Layer { q_heads: 34, ..ok }, "at most 16 query heads"),
        (Layer { q_heads: 5, ..ok }, "q_heads a multiple of"),
        (Layer { kv_heads: 0, ..ok }, "at least 1 key head"),
        (Layer { n_rot: 66, ..ok }, "n_rot"),
        (Layer { flags: 64, ..ok }, "flags"),
        (Layer { eps: f32::NAN, ..ok }, "eps"),
    ] {
        let e = refused(layer, 3, 3 * 384).unwrap_err();
        assert!(e.argument == "layer" && e.to_string().contains(why), "{e}");
    }
}

#[test]
fn parts_fill_a_gpu_and_cover_all_positions() {
    assert_eq!([1, 2, 4, 5, 8, 10, 32, 64].map(step::splits), [32, 32, 32, 32, 16, 16, 4, 4]);
    assert_eq!([1, 64, 65, 1000, 4096].map(|n| step::parts(n, 16)), [(1, 64), (1, 64), (2, 64), (16, 64), (16, 256)]);
    for (length, splits) in (1..5000).flat_map(|n| [4, 16, 32].map(|s| (n, s))) {
        let (used, part) = step::parts(length, splits);
        let covers = (used - 1) * part < length && length <= used * part;
        assert!(used <= splits && part.is_multiple_of(16) && covers, "{length} in {used} of {part}");
    }
}

/// Queries, keys and values whose elements differ by powers of two, as outliers of real models do: what f16 holds of one of them
/// at a time is not enough.
#[test]
fn outliers_keep_the_accuracy_of_f32() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(95));
    for (q_heads, dim, count) in [(8u32, 128usize, 131usize), (3, 80, 17), (16, 64, 70)] {
        let mut spread = |n: usize, low: i32, high: i32| -> Vec<f32> {
            let powers = rng.floats(n);
            let power = |p: f32| (low as f32 + (p * 0.5 + 0.5) * (high - low) as f32).round().exp2();
            rng.floats(n).iter().zip(powers).map(|(v, p)| v * power(p)).collect()
        };
        let halves = |v: Vec<f32>| v.into_iter().map(f16::from_f32).collect::<Vec<_>>();
        let queries: Vec<f32> = spread(q_heads as usize * dim, -12, 6);
        let (keys, values) = (halves(spread(count * dim, -10, 1)), halves(spread(count * dim, -14, 14)));
        let (k, v) = (gpu.upload(&keys), gpu.upload(&values));
        let place = Column::at(0, count as u32 - 1).with_caches(count as u32, k.address(), v.address());
        let layer = Layer { q_heads, kv_heads: 1, head_dim: dim as u32, context: count as u32, ..Layer::default() };
        let mut qkv = queries.clone();
        qkv.resize((q_heads as usize + 2) * dim, 0.0);
        let (columns, qkv, none) = (gpu.upload(&[place]), gpu.upload(&qkv), gpu.upload(&[0.0f32]));
        let mut partials = gpu.poisoned::<f32>(partials_len(1, &layer) as usize);
        let (mut counters, mut y) = (gpu.upload(&[0u32; 1]), gpu.poisoned::<f32>(queries.len()));
        let launch = AttnStepF16 {
            qkv: &qkv,
            q_weight: &none,
            k_weight: &none,
            cos: &none,
            sin: &none,
            sinks: DeviceSlice::empty(),
            columns: &columns,
            partials: &mut partials,
            counters: &mut counters,
            y: &mut y,
            quantized: DeviceSlice::empty_mut(),
            group_counters: DeviceSlice::empty_mut(),
            stride: (q_heads + 2) * dim as u32,
            y_stride: q_heads * dim as u32,
            quant_format: NONE,
            layer,
        };
        // SAFETY: the cache is the test's, which nothing else touches meanwhile.
        unsafe { gpu.launch_unchecked(launch) }.unwrap();
        let wide = |all: &[f16]| all.iter().map(|v| v.to_f32()).collect::<Vec<_>>();
        let (keys, values, got) = (wide(&keys), wide(&values), gpu.read(&y));
        let largest = values.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())));
        for (h, got) in got.chunks_exact(dim).enumerate() {
            let q: Vec<f64> = queries[h * dim..][..dim].iter().map(|v| f64::from(*v)).collect();
            let size = |t: usize| (0..dim).map(|d| (q[d] * f64::from(keys[t * dim + d])).abs()).sum::<f64>();
            let reach = (0..count).map(size).fold(0.0, f64::max) / (dim as f64).sqrt();
            let want = attend(&q, &keys, &values, 0..count, None);
            // One f16 for each query alone would be off by as much as this.
            assert!(tensor_bound(reach, count) > 20.0 * step::step_bound(reach), "head {h}: reach {reach}");
            assert_close(&format!("{dim}, head {h}"), got, &want, |_| step::step_bound(reach) * largest);
        }
    }
}

/// Lane instructions for a position, a query head and an element, where keys and values are many.
#[test]
fn a_position_costs_fewer_instructions_than_one_head_at_a_time() {
    // Blocks merge what their warps found: little, where parts are long.
    for (length, most) in [(1024u32, 6.4), (4096, 3.6)] {
        let (v2, v3) = cost(length);
        println!("{length}: instructions for a position, head and element: v2 {v2:.2}, v3 {v3:.2}");
        assert!(v3 < most && v3 < v2, "{length}: v2 {v2:.2}, v3 {v3:.2}");
    }
}

fn cost(length: u32) -> (f64, f64) {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(93));
    let (q_heads, kv_heads, head_dim, capacity) = (8u32, 2u32, 128u32, length);
    let mut cache = || -> Vec<f16> { (0..kv_heads * capacity * head_dim).map(|_| f16::from_f32(rng.unit())).collect() };
    let (keys, values) = (cache(), cache());
    let (k, v) = (gpu.upload(&keys), gpu.upload(&values));
    let column = Column::at(0, capacity - 1).with_caches(capacity, k.address(), v.address());
    let (columns, qkv) = (gpu.upload(&[column]), gpu.upload(&rng.floats(12 * 128)));
    let layer = Layer { q_heads, kv_heads, head_dim, context: capacity, ..Layer::default() };
    let mut partials = gpu.poisoned::<f32>(partials_len(1, &layer) as usize);
    let (mut counters, mut y) = (gpu.upload(&[0u32; 2]), gpu.poisoned::<f32>(1024));
    let none = gpu.upload(&[0.0f32]);
    let work = f64::from(q_heads * capacity * head_dim);

    gpu.launch(AttnDecode {
        q: &qkv[..1024],
        k_cache: &k,
        v_cache: &v,
        y: &mut y,
        columns: &columns,
        q_heads,
        kv_heads,
        head_dim,
        capacity,
    })
    .unwrap();
    let (v2, before) = (gpu.counters.lane_instructions as f64 / work, gpu.read(&y));
    let launch = AttnStepF16 {
        qkv: &qkv,
        q_weight: &none,
        k_weight: &none,
        cos: &none,
        sin: &none,
        sinks: DeviceSlice::empty(),
        columns: &columns,
        partials: &mut partials,
        counters: &mut counters,
        y: &mut y,
        quantized: DeviceSlice::empty_mut(),
        group_counters: DeviceSlice::empty_mut(),
        stride: 12 * 128,
        y_stride: 1024,
        quant_format: NONE,
        layer,
    };
    // SAFETY: the cache is the test's, which nothing else touches meanwhile.
    unsafe { gpu.launch_unchecked(launch) }.unwrap();
    let (v3, after) = (gpu.counters.lane_instructions as f64 / work, gpu.read(&y));
    for (a, b) in before.iter().zip(&after) {
        assert!((a - b).abs() < 1e-6, "{a} and {b}");
    }
    (v2, v3)
}
