//! Runs the fixture's kernels on the SIMT machine.
#![allow(dead_code)]

use super::common::{fixture, nvvm::nvvm};
use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};
use warpsmith_check::{CheckedMemory, Checks, Inspect, Inspection};
use warpsmith_device::launch::param_block;
use warpsmith_device::{DeviceSlice, Element, Kernel};
use warpsmith_simt::{Counters, Fault, Instance, Launch, LoadOptions, Machine, MachineConfig, Module};

/// A machine with the fixture's text for one architecture.
pub struct Gpu {
    pub sm: u32,
    machine: Arc<Machine>,
    instance: Instance,
}

/// Device memory of one test.
pub struct Buffer<T> {
    machine: Arc<Machine>,
    address: u64,
    len: usize,
    element: core::marker::PhantomData<T>,
}

impl<T: Element> Deref for Buffer<T> {
    type Target = DeviceSlice<T>;
    fn deref(&self) -> &DeviceSlice<T> {
        // SAFETY: the allocation has this length, is aligned to 256 and lives as long as `self`.
        unsafe { DeviceSlice::from_raw(self.address, self.len) }
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut DeviceSlice<T> {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { DeviceSlice::from_raw_mut(self.address, self.len) }
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        self.machine.memory().free(self.address).expect("freed once");
    }
}

impl<T: Element> Buffer<T> {
    pub fn read(&self) -> Vec<T> {
        let mut values = vec![<T as bytemuck::Zeroable>::zeroed(); self.len];
        self.machine.memory().read(self.address, bytemuck::cast_slice_mut(&mut values)).unwrap();
        values
    }
}

impl Gpu {
    /// One machine per architecture, each with the text for it: without `redux` and the packed
    /// conversions, with them, and the newest that the machine knows all instructions of.
    pub fn stock() -> Vec<Gpu> {
        [75, 80, 90].map(Gpu::new).into()
    }

    /// The same, and one with the forms for rust-cuda.
    pub fn all() -> Vec<Gpu> {
        // With the other generator, `stock` is what it made, and nothing stands in for it.
        let approximated = (!super::common::other_generator()).then(|| Gpu::of(75, nvvm()));
        Gpu::stock().into_iter().chain(approximated).collect()
    }

    pub fn new(sm: u32) -> Gpu {
        Gpu::of(sm, fixture().ptx(sm))
    }

    pub fn of(sm: u32, ptx: &str) -> Gpu {
        let module = Module::load(ptx, &LoadOptions { sm }).unwrap_or_else(|e| panic!("sm_{sm}: {e}"));
        let machine = Arc::new(Machine::new(MachineConfig { sm, ..MachineConfig::default() }));
        let instance = machine.instantiate(Arc::new(module)).unwrap();
        machine.memory().track(true);
        Gpu { sm, machine, instance }
    }

    /// Memory that no kernel has written: its bytes are poison.
    pub fn alloc<T: Element>(&self, len: usize) -> Buffer<T> {
        let bytes = (len * size_of::<T>()).max(1) as u64;
        let address = self.machine.memory().alloc(bytes, 256).unwrap();
        Buffer { machine: self.machine.clone(), address, len, element: core::marker::PhantomData }
    }

    pub fn upload<T: Element>(&self, values: &[T]) -> Buffer<T> {
        let buffer = self.alloc(values.len());
        self.machine.memory().write(buffer.address, bytemuck::cast_slice(values)).unwrap();
        buffer
    }

    pub fn try_run<K: Kernel>(&self, k: K, grid: [u32; 3], dynamic_shared: u32) -> Result<(), Box<Fault>> {
        let launch = Launch { dynamic_shared, ..Launch::new(grid, K::META.block) };
        self.machine.launch(&self.instance, K::META.name, &launch, &param_block(|sink| k.args(sink))).map(drop)
    }

    /// What a launch does under every check.
    pub fn inspect<K: Kernel>(&self, k: K, grid: [u32; 3], dynamic_shared: u32) -> Inspection {
        let launch = Launch { dynamic_shared, ..Launch::new(grid, K::META.block) };
        self.machine.inspect(&self.instance, K::META.name, &launch, &param_block(|sink| k.args(sink)), &Checks::ALL)
    }

    /// Runs under every check, which must find nothing; gives the counters.
    pub fn check<K: Kernel>(&self, k: K, grid: [u32; 3]) -> Counters {
        let Inspection { fault, findings, counters, .. } = self.inspect(k, grid, 0);
        if let Some(fault) = fault {
            panic!("sm_{}: {}: {fault}", self.sm, K::META.name);
        }
        assert!(findings.is_empty(), "sm_{}: {}: {}", self.sm, K::META.name, findings[0]);
        counters
    }

    /// What kernels print goes to `sink`.
    pub fn on_print(&self, sink: impl Fn(&[u8]) + Send + Sync + 'static) {
        self.machine.on_print(sink);
    }

    /// The same where nobody wants the counters.
    pub fn run<K: Kernel>(&self, k: K, grid: [u32; 3]) {
        self.check(k, grid);
    }
}

/// What a butterfly over lane distances 16, 8, 4, 2, 1 gives lane 0.
pub fn butterfly<T: Copy>(values: &[T], op: impl Fn(T, T) -> T) -> T {
    let mut v = values.to_vec();
    let mut distance = v.len() / 2;
    while distance > 0 {
        v = (0..v.len()).map(|i| op(v[i], v[i ^ distance])).collect();
        distance /= 2;
    }
    v[0]
}

/// What a reduction of a block gives: warps first, then their results with `identity` up to 32.
pub fn block_butterfly<T: Copy>(values: &[T], identity: T, op: impl Fn(T, T) -> T + Copy) -> T {
    let mut warps: Vec<T> = values.chunks(32).map(|w| butterfly(w, op)).collect();
    warps.resize(32, identity);
    butterfly(&warps, op)
}

/// Numbers without a pattern: SplitMix64.
pub fn noise(seed: u64) -> impl Iterator<Item = u64> {
    (1..).map(move |i: u64| {
        let mut z = (seed + i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}
