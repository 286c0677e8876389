//! The software machine with this crate's kernels on it.

pub use crate::support::{Rng, assert_close, vector};
use std::sync::{Arc, OnceLock};
use warpsmith_builder::{KernelCrate, Output};
use warpsmith_check::{CheckedMemory, Checks, Inspect, Severity};
use warpsmith_device::launch::param_block;
use warpsmith_device::{AnyKernel, DeviceSlice, Element, Launcher};
use warpsmith_simt::{Counters, Instance, Launch, LoadOptions, Machine, MachineConfig, Module};

/// Elements of poison on each side of a buffer.
const GUARD: usize = 64;

/// What the builder made of this crate.
pub fn output() -> &'static Output {
    static OUTPUT: OnceLock<Output> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let out = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels");
        std::fs::create_dir_all(&out).unwrap();
        KernelCrate::new(env!("CARGO_MANIFEST_DIR"))
            .archs(["sm_75", "sm_90"])
            .out_dir(out)
            .build()
            .unwrap_or_else(|e| panic!("the kernels do not compile:\n{e}"))
    })
}

/// A device with the kernels loaded.
pub struct Gpu {
    machine: Machine,
    instance: Instance,
    /// What the last launch did.
    pub counters: Counters,
}

impl Gpu {
    pub fn new() -> Gpu {
        Gpu::of(90)
    }

    /// A device for every way in which the kernels were compiled; `WARPSMITH_ARCHS` may have left one out.
    pub fn all() -> Vec<Gpu> {
        output().images.iter().map(|image| Gpu::of(image.sm)).collect()
    }

    pub fn name(&self) -> String {
        format!("sm_{}", self.machine.config().sm)
    }

    /// A device of architecture `sm` with the newest image that fits it.
    pub fn of(sm: u32) -> Gpu {
        static MODULES: [OnceLock<Arc<Module>>; 2] = [OnceLock::new(), OnceLock::new()];
        let slot = usize::from(sm >= 90);
        let module = MODULES[slot].get_or_init(|| {
            let image = output().images.iter().rev().find(|i| i.sm <= sm).expect("an image for the device");
            let text = std::fs::read_to_string(&image.path).unwrap();
            Arc::new(Module::load(&text, &LoadOptions { sm }).unwrap_or_else(|e| panic!("{e}")))
        });
        Gpu::with(sm, module)
    }

    /// A device with kernels of another text.
    pub fn from_text(sm: u32, text: &str) -> Gpu {
        Gpu::with(sm, &Arc::new(Module::load(text, &LoadOptions { sm }).unwrap_or_else(|e| panic!("{e}"))))
    }

    fn with(sm: u32, module: &Arc<Module>) -> Gpu {
        let machine = Machine::new(MachineConfig { sm, threads: 1, ..MachineConfig::default() });
        machine.memory().track(true);
        let instance = machine.instantiate(module.clone()).unwrap();
        Gpu { machine, instance, counters: Counters::default() }
    }

    /// Which of an operation's cases are run: all, or the first and the last where `WARPSMITH_CASES=ends` says that another compiler's
    /// code is what is looked at.
    pub fn share<T>(&self, mut cases: Vec<T>) -> Vec<T> {
        match std::env::var("WARPSMITH_CASES").as_deref() {
            Ok("ends") if cases.len() > 2 => drop(cases.drain(1..cases.len() - 1)),
            Ok("ends" | "") | Err(_) => {}
            Ok(other) => panic!("WARPSMITH_CASES={other} is not `ends`"),
        }
        cases
    }

    /// Which of the operations that are alike are run: all.
    pub fn some<T>(alike: Vec<T>) -> Vec<T> {
        alike
    }

    /// A buffer with guards, filled with the machine's poison (for floats: not a number of interest).
    pub fn poisoned<T: Element>(&self, len: usize) -> Buffer<T> {
        let mut buffer = self.output_buffer(len);
        // All ones is NaN in every float format.
        self.write(&mut buffer, 0, &vec![bytemuck::pod_read_unaligned::<T>(&vec![0xFF; size_of::<T>()]); len]);
        buffer
    }

    /// A buffer with guards for what a case writes: nothing of it is defined.
    pub fn output_buffer<T: Element>(&self, len: usize) -> Buffer<T> {
        let bytes = (len + 2 * GUARD) * size_of::<T>();
        let base = self.machine.memory().alloc(bytes as u64, 256).unwrap();
        let buffer = Buffer { base, len, element: std::marker::PhantomData };
        let guard = vec![0xFF; GUARD * size_of::<T>()];
        for at in [base, buffer.start() + (len * size_of::<T>()) as u64] {
            self.machine.memory().write(at, &guard).unwrap();
        }
        buffer
    }

    /// The contents, all of which a case wrote.
    pub fn read_output<T: Element>(&self, buffer: &Buffer<T>) -> Result<Vec<T>, String> {
        let bytes = (buffer.len * size_of::<T>()) as u64;
        match self.machine.memory().undefined_output(buffer.start(), bytes) {
            Some(finding) => Err(finding.to_string()),
            None => Ok(self.read(buffer)),
        }
    }

    pub fn upload<T: Element>(&self, data: &[T]) -> Buffer<T> {
        let mut buffer = self.poisoned(data.len());
        self.write(&mut buffer, 0, data);
        buffer
    }

    /// Writes elements from `at` on.
    pub fn write<T: Element>(&self, buffer: &mut Buffer<T>, at: usize, data: &[T]) {
        assert!(at + data.len() <= buffer.len);
        let address = buffer.start() + (at * size_of::<T>()) as u64;
        self.machine.memory().write(address, bytemuck::cast_slice(data)).unwrap();
    }

    /// The contents, after a look at the guards.
    pub fn read<T: Element>(&self, buffer: &Buffer<T>) -> Vec<T> {
        let mut all = vec![0u8; (buffer.len + 2 * GUARD) * size_of::<T>()];
        self.machine.memory().read(buffer.base, &mut all).unwrap();
        let guard = GUARD * size_of::<T>();
        let (head, rest) = all.split_at(guard);
        let (data, tail) = rest.split_at(buffer.len * size_of::<T>());
        assert!(head.iter().chain(tail).all(|b| *b == 0xFF), "a kernel wrote outside of its buffer");
        data.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    }

    /// The message of the refusal or of the fault, if there was one.
    pub fn try_launch(&mut self, kernel: &dyn AnyKernel) -> Result<(), String> {
        kernel.check().map_err(|e| e.to_string())?;
        let geometry = kernel.geometry();
        geometry.check(kernel.meta()).map_err(|e| e.to_string())?;
        let params = param_block(|sink| kernel.args(sink));
        let mut launch = Launch::new(geometry.grid, geometry.block_for(kernel.meta()));
        // As the runtime does, which tells the function.
        (launch.dynamic_shared, launch.max_dynamic_shared) = (geometry.dynamic_shared, geometry.dynamic_shared);
        // Under every check: a finding fails the test that caused it.
        let ran = self.machine.inspect(&self.instance, kernel.meta().name, &launch, &params, &Checks::ALL);
        self.counters = ran.counters;
        let errors: Vec<_> = ran.findings.iter().filter(|f| f.severity == Severity::Error).collect();
        assert!(errors.is_empty(), "{}", errors.iter().map(|f| format!("{f}\n")).collect::<String>());
        ran.fault.map_or(Ok(()), |fault| Err(fault.to_string()))
    }
}

impl Launcher for Gpu {
    type Error = String;
    unsafe fn launch_any(&mut self, kernel: &dyn AnyKernel) -> Result<(), String> {
        self.try_launch(kernel)
    }
}

/// Memory of a [`Gpu`], freed with it.
pub struct Buffer<T> {
    base: u64,
    len: usize,
    element: std::marker::PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    fn start(&self) -> u64 {
        self.base + (GUARD * size_of::<T>()) as u64
    }
}

impl<T: Element> std::ops::Deref for Buffer<T> {
    type Target = DeviceSlice<T>;
    fn deref(&self) -> &DeviceSlice<T> {
        // SAFETY: `len` elements of a live allocation of the machine, which lives as long as the test.
        unsafe { DeviceSlice::from_raw(self.start(), self.len) }
    }
}

impl<T: Element> std::ops::DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut DeviceSlice<T> {
        // SAFETY: as in `deref`; the buffer is borrowed exclusively.
        unsafe { DeviceSlice::from_raw_mut(self.start(), self.len) }
    }
}

#[test]
fn what_a_case_reads_and_nobody_wrote_is_an_error() {
    let gpu = Gpu::new();
    let mut buffer = gpu.output_buffer::<f32>(5);
    let finding = gpu.read_output(&buffer).unwrap_err();
    assert!(finding.contains("init::output") && finding.contains("20 undefined"), "{finding}");
    gpu.write(&mut buffer, 0, &[1.0; 4]);
    assert!(gpu.read_output(&buffer).unwrap_err().contains("4 undefined"));
    gpu.write(&mut buffer, 4, &[2.0]);
    assert_eq!(gpu.read_output(&buffer).unwrap(), [1.0, 1.0, 1.0, 1.0, 2.0]);
}
