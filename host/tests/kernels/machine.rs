//! A device of whatever engine runs, in the form that the kernels' tests want.

#[path = "../common/own_device.rs"]
mod own_device;

pub use crate::support::{Rng, assert_close, vector};
use own_device::own_device;
use std::sync::Once;
use warpsmith_device::{AnyKernel, DeviceSlice, Element, Launcher};
use warpsmith_host::{Device, Stream, driver::software};

/// Elements of poison on each side of a buffer.
const GUARD: usize = 64;

/// A device and a stream on it.
pub struct Gpu {
    device: Device,
    stream: Stream,
    /// Findings fail the test that caused them.
    _checks: software::CheckGuard,
}

impl Gpu {
    pub fn new() -> Gpu {
        static SAY: Once = Once::new();
        let _checks = software::check(software::Checks::ALL);
        let device = own_device();
        SAY.call_once(|| println!("engine: {} on {}", device.engine(), device.name()));
        let stream = device.stream().unwrap();
        Gpu { device, stream, _checks }
    }

    pub fn all() -> Vec<Gpu> {
        vec![Gpu::new()]
    }

    pub fn name(&self) -> String {
        self.device.name().to_string()
    }

    /// Which of an operation's cases, or of the formats of weights, are run: all on a GPU. On the software driver's machine the tests of the
    /// kernels' crate run all of them, so that the first and the last tell what the way there adds.
    pub fn share<T>(&self, mut cases: Vec<T>) -> Vec<T> {
        if self.device.is_software() && cases.len() > 2 {
            cases.drain(1..cases.len() - 1);
        }
        cases
    }

    /// Which of the operations that are alike are run: all on a GPU. For the reason above, of products of all formats every third on the
    /// software driver's machine.
    pub fn some<T>(alike: Vec<T>) -> Vec<T> {
        let every = if own_device().is_software() && alike.len() > 40 { 3 } else { 1 };
        alike.into_iter().step_by(every).collect()
    }

    /// A buffer with guards, filled with ones: NaN in every float format.
    pub fn poisoned<T: Element>(&self, len: usize) -> Buffer<T> {
        let mut whole = self.device.alloc::<T>(len + 2 * GUARD).unwrap();
        let bytes = whole.cast_mut::<u8>().unwrap();
        self.stream.fill(bytes, 0xFF).unwrap();
        Buffer { whole, len }
    }

    /// A buffer for what a case writes. Whether it writes all of it, the machine of the kernels' own tests knows.
    pub fn output_buffer<T: Element>(&self, len: usize) -> Buffer<T> {
        self.poisoned(len)
    }

    /// The contents of what a case wrote.
    pub fn read_output<T: Element>(&self, buffer: &Buffer<T>) -> Result<Vec<T>, String> {
        Ok(self.read(buffer))
    }

    pub fn upload<T: Element>(&self, data: &[T]) -> Buffer<T> {
        let mut buffer = self.poisoned(data.len());
        self.write(&mut buffer, 0, data);
        buffer
    }

    /// Writes elements from `at` on.
    pub fn write<T: Element>(&self, buffer: &mut Buffer<T>, at: usize, data: &[T]) {
        self.stream.write(&mut buffer[at..at + data.len()], data).unwrap();
    }

    /// The contents, after a look at the guards.
    pub fn read<T: Element>(&self, buffer: &Buffer<T>) -> Vec<T> {
        let all = self.stream.read(&buffer.whole).unwrap();
        let (head, rest) = all.split_at(GUARD);
        let (data, tail) = rest.split_at(buffer.len);
        for guard in [head, tail] {
            let bytes: &[u8] = bytemuck::cast_slice(guard);
            assert!(bytes.iter().all(|b| *b == 0xFF), "a kernel wrote outside of its buffer");
        }
        data.to_vec()
    }
}

impl Launcher for Gpu {
    type Error = String;
    unsafe fn launch_any(&mut self, kernel: &dyn AnyKernel) -> Result<(), String> {
        // SAFETY: the caller's promise.
        unsafe { Launcher::launch_any(&mut &self.stream, kernel) }.map_err(|e| e.to_string())?;
        self.stream.synchronize().map_err(|e| e.to_string())
    }
}

/// A part of a larger buffer.
pub struct Buffer<T: Element> {
    whole: warpsmith_host::Buffer<T>,
    len: usize,
}

impl<T: Element> std::ops::Deref for Buffer<T> {
    type Target = DeviceSlice<T>;
    fn deref(&self) -> &DeviceSlice<T> {
        &self.whole[GUARD..GUARD + self.len]
    }
}

impl<T: Element> std::ops::DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut DeviceSlice<T> {
        &mut self.whole[GUARD..GUARD + self.len]
    }
}
