//! Kernels of a decoding step, in shapes of Qwen3 8B cut to what takes some milliseconds here.

use gpu_kernels::cases::{Bench, Case, Product, Subject};
use gpu_kernels::format::Format;
use gpu_kernels::kv::KvType;
use warpsmith_device::{AnyKernel, Element, Launcher};
use warpsmith_host::{Buffer, Device, Stream, builtin_image};

use crate::Outcome;
use crate::turns::{Bits, Clock, Spent};

/// What is launched: subject and shape.
const ROWS: [(Subject, &str); 13] = [
    (product(Format::Q1_0, Product::Gemv), MATRIX),
    (product(Format::Q1_0, Product::Int16), MATRIX),
    (product(Format::Q1_0, Product::Int8), MATRIX),
    (product(Format::Q4_K, Product::Gemv), MATRIX),
    (product(Format::Q4_K, Product::Int16), MATRIX),
    (product(Format::Q4_K, Product::Int8), MATRIX),
    (product(Format::Q8_0, Product::Gemv), MATRIX),
    (product(Format::Q8_0, Product::Int16), MATRIX),
    (product(Format::Q8_0, Product::Int8), MATRIX),
    (Subject::AttentionStep(KvType::F16), STEP),
    (Subject::AttentionStep(KvType::Int8), STEP),
    (Subject::AttentionPrefill(KvType::F16), PROMPT),
    (Subject::AttentionPrefill(KvType::Int8), PROMPT),
];

const MATRIX: &str = "rows=1024,cols=4096";
const STEP: &str = "q_heads=32,kv_heads=8,capacity=1024,position=1023";
const PROMPT: &str = "columns=64,q_heads=16,kv_heads=4,capacity=64";

const fn product(format: Format, product: Product) -> Subject {
    Subject::Gemv { format, product }
}

/// Their names, in order. What a case is named after is launched last.
pub fn names() -> Vec<String> {
    ROWS.iter().filter_map(|(subject, _)| subject.kernels().pop()).collect()
}

/// A device whose launches of one kernel are timed. Everything else of a case, its reference above all, is not.
pub struct Timed {
    stream: Stream,
    kernel: String,
    spent: Spent,
    bits: Bits,
}

impl Timed {
    pub fn open() -> Outcome<Timed> {
        let device = Device::open(0)?;
        device.load(builtin_image())?;
        Ok(Timed { stream: device.stream()?, kernel: String::new(), spent: Spent::default(), bits: Bits::default() })
    }

    /// Runs a row of the table once: what its launch took, and a digest of what it gave.
    pub fn run(&mut self, row: usize) -> Outcome<(Spent, Bits)> {
        let (subject, shape) = ROWS.get(row).copied().ok_or("there is no such row")?;
        let case: Case = subject.parse(shape)?;
        self.kernel = names().swap_remove(row);
        (self.spent, self.bits) = (Spent::default(), Bits::default());
        case.run(self)?;
        Ok((self.spent, self.bits))
    }
}

impl Launcher for Timed {
    type Error = String;

    unsafe fn launch_any(&mut self, kernel: &dyn AnyKernel) -> Result<(), String> {
        // Recorded, it can be launched again: every launch of these kernels on the same inputs writes the same.
        // SAFETY: the caller's promise.
        let graph = self.stream.capture(|scope| unsafe { scope.launch_any(kernel) }).map_err(|e| e.to_string())?;
        let launch = || {
            graph.launch(&self.stream).map_err(|e| e.to_string())?;
            self.stream.synchronize().map_err(|e| e.to_string())
        };
        // The first launch of a kernel lowers it.
        launch()?;
        if kernel.meta().name == self.kernel {
            self.spent = Clock::mean(launch)?;
        }
        Ok(())
    }
}

impl Bench for Timed {
    type Buffer<T: Element> = Buffer<T>;

    fn upload<T: Element>(&mut self, data: &[T]) -> Result<Buffer<T>, String> {
        self.stream.upload(data).map_err(|e| e.to_string())
    }

    fn output<T: Element>(&mut self, len: usize) -> Result<Buffer<T>, String> {
        // NaN, whatever the type of floats.
        let nothing: T = bytemuck::pod_read_unaligned(&vec![0xff; size_of::<T>()]);
        self.upload(&vec![nothing; len])
    }

    fn read<T: Element>(&mut self, buffer: &Buffer<T>) -> Result<Vec<T>, String> {
        let values = self.stream.read(buffer).map_err(|e| e.to_string())?;
        self.bits.add(bytemuck::cast_slice(&values));
        Ok(values)
    }
}
