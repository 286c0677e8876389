//! What the runtime's tests share: kernels whose PTX is written by hand, and child processes for
//! tests that need another environment or that lose their device.
#![allow(dead_code)] // Each test binary uses its part.

use std::process::{Command, Output};
use warpsmith_device::{U32x4, prelude::*};
use warpsmith_host::{Device, KernelImage, Stream};

/// An image of code that the test has written, under the names of its kernels: it touches their arguments alone.
pub const fn image(parts: (&'static str, &'static str, &'static [(u32, &'static str)])) -> KernelImage {
    // SAFETY: as above.
    unsafe { KernelImage::from_parts(parts) }
}

pub const MANIFEST: &str = include_str!("manifest.json");
pub const PTX: &str = include_str!("kernels.ptx");

/// The kernels below. They belong to this package, so the library has its name.
pub static KERNELS: KernelImage = image(("warpsmith-host", MANIFEST, &[(75, PTX)]));

/// y = a * x + y.
#[kernel(block = 128)]
pub unsafe fn axpy(x: In<f32>, y: InOut<f32>, n: u32, a: f32) {}

impl Contract for Axpy<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.n.div_ceil(128))
    }
    fn check(&self) -> Result<(), ContractError> {
        contract::at_least(Self::META, "x", self.x.len(), (self.n, "n"))?;
        contract::at_least(Self::META, "y", self.y.len(), (self.n, "n"))
    }
}

/// cells[i] += by.
#[kernel(block = 128)]
pub unsafe fn bump(cells: InOut<u32>, n: u32, by: u32) {}

impl Contract for Bump<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.n.div_ceil(128))
    }
    fn check(&self) -> Result<(), ContractError> {
        contract::at_least(Self::META, "cells", self.cells.len(), (self.n, "n"))
    }
}

/// Uses the last word of its dynamic shared memory.
#[kernel(block = 32)]
pub unsafe fn last_word(out: Out<u32>, words: u32) {}

impl Contract for LastWord<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(1u32).shared(u64::from(self.words) * 4)
    }
    fn check(&self) -> Result<(), ContractError> {
        contract::at_least(Self::META, "out", self.out.len(), 1u32)?;
        contract::require(Self::META, self.words > 0, "words", "1 or more", self.words)
    }
}

/// Waits until all blocks have come. `cooperative` is for the host: whether the launch says so.
#[kernel(block = 32)]
pub unsafe fn meet(word: InOut<u32>, out: Out<u32>, cooperative: u32) {}

impl Contract for Meet<'_> {
    fn geometry(&self) -> Geometry {
        let geometry = Geometry::blocks(self.out.len());
        if self.cooperative == 0 { geometry } else { geometry.cooperative() }
    }
    fn check(&self) -> Result<(), ContractError> {
        contract::exactly(Self::META, "word", self.word.len(), 1u32)
    }
}

/// y = x + 1, beside the end of the launch before it.
#[kernel(block = 64)]
pub unsafe fn follow(x: Awaited<u32>, y: Out<u32>) {}

impl Contract for Follow<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.x.len() / 64).programmatic()
    }
    fn check(&self) -> Result<(), ContractError> {
        contract::multiple_of(Self::META, "x", self.x.len(), 64u32)?;
        contract::exactly(Self::META, "y", self.y.len(), (self.x.len(), "x"))
    }
}

/// The kernels for sm_90, where `follow` has these instructions at `place`: `before the load` or `behind the load`.
pub fn kernels_that_wait(place: &str, instructions: &str) -> KernelImage {
    let text = PTX.replace(".version 6.3\n.target sm_75", ".version 7.8\n.target sm_90");
    let text = text.replace(&format!("// wait {place}"), instructions);
    image(("warpsmith-host", MANIFEST, vec![(90, &*text.leak())].leak()))
}

/// Stores its arguments.
#[kernel(block = 1)]
pub unsafe fn unpack(out: Out<u32>, a: u8, b: u64, c: U32x4, d: u16, e: f32) {}

impl Contract for Unpack<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(1u32)
    }
    fn check(&self) -> Result<(), ContractError> {
        contract::at_least(Self::META, "out", self.out.len(), 9u32)
    }
}

/// Writes out of bounds, and its contract does not object.
#[kernel(block = 1)]
pub unsafe fn wild(out: Out<u32>, offset: u64) {}

impl Contract for Wild<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(1u32)
    }
    fn check(&self) -> Result<(), ContractError> {
        Ok(())
    }
}

/// A device with the kernels loaded, and a stream. Says which engine runs.
pub fn device() -> (Device, Stream) {
    let device = Device::open(0).unwrap();
    println!("engine: {} on {}", device.engine(), device.name());
    device.load(&KERNELS).unwrap();
    let stream = device.stream().unwrap();
    (device, stream)
}

const CHILD: &str = "WARPSMITH_TEST_CHILD";

/// Whether this process was started by [`child`].
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs the test `name` of this binary in a process of its own, where `is_child` holds.
pub fn child(name: &str, environment: &[(&str, &str)]) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

/// The same, and it must pass.
pub fn child_passes(name: &str, environment: &[(&str, &str)]) {
    let output = child(name, environment);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// How many allocations of a device are alive, and how many of its bytes are free. The latter are those of all who have it open, which
/// other tests of a process do.
pub fn memory_of_child(device: &Device) -> (usize, u64) {
    assert!(is_child(), "other tests of this process would disturb the numbers");
    (device.live_allocations(), device.memory_info().unwrap().free)
}

/// A small deterministic generator, for orders and sizes.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

/// Eager work, and a capture with a replay, both with the right result.
pub fn all_is_well(stream: &Stream) {
    let mut cells = stream.upload(&[10u32, 20]).unwrap();
    stream.launch(Bump { cells: &mut cells, n: 2, by: 1 }).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [11, 21]);
    let graph = stream.capture(|scope| scope.launch(Bump { cells: &mut cells, n: 2, by: 1 })).unwrap();
    graph.launch(stream).unwrap();
    graph.launch(stream).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [13, 23]);
}
