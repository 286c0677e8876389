//! Any text: parsed, checked and lowered, or refused with a message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpsmith_simt::{LoadOptions, Module};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    for sm in [75, 90, 120] {
        match Module::load(&text, &LoadOptions { sm }) {
            Ok(module) => assert!(module.kernels().all(|k| !k.name.is_empty())),
            Err(error) => assert!(!error.diagnostics.is_empty() && !error.to_string().is_empty()),
        }
    }
});
