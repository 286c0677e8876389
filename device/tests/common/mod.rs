//! The fixture crate as PTX, built once per test program.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod examples;
pub mod nvvm;

use std::{path::Path, sync::OnceLock};
use warpsmith_builder::{KernelCrate, Manifest};

/// The architectures that the fixture is built for.
pub const ARCHS: [u32; 4] = [75, 80, 90, 120];

pub struct Fixture {
    pub images: Vec<(u32, String)>,
    pub manifest: Manifest,
}

impl Fixture {
    pub fn ptx(&self, sm: u32) -> &str {
        &self.images.iter().find(|(s, _)| *s == sm).unwrap().1
    }
}

/// Whether `WARPSMITH_BACKEND` names another generator than the stock one, of which the calling test is.
pub fn other_generator() -> bool {
    let other = std::env::var("WARPSMITH_BACKEND").is_ok_and(|backend| !backend.is_empty() && backend != "stock");
    if other {
        println!("SKIPPED: a test of the stock generator");
    }
    other
}

pub fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| build(&ARCHS, &[]))
}

pub fn build(archs: &[u32], features: &[&str]) -> Fixture {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Test programs and their tests run at the same time: each has a folder of its own.
    let out = scratch.join(format!("all-device-{}-{}{}", std::process::id(), archs[0], features.concat()));
    std::fs::create_dir_all(&out).unwrap();
    let output = KernelCrate::new("tests/fixtures/all-device")
        .archs(archs.iter().map(|sm| format!("sm_{sm}")))
        .features(features.iter().copied())
        .out_dir(&out)
        .cache_dir(scratch.join("../warpsmith"))
        .quiet()
        .build()
        .unwrap_or_else(|e| panic!("{e}"));
    // The other generator's LLVM 7 keeps more in local memory, and says so.
    assert!(output.warnings.is_empty() || output.manifest.backend != "stock", "{:?}", output.warnings);
    let images = output.images.iter().map(|i| (i.sm, std::fs::read_to_string(&i.path).unwrap())).collect();
    let fixture = Fixture { images, manifest: output.manifest };
    std::fs::remove_dir_all(&out).unwrap();
    fixture
}
