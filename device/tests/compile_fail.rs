//! Misuse that is refused at compile time, with the text that it is refused with; and the documentation's examples, which are not.
//!
//! After an intended change of a text: `TRYBUILD=overwrite cargo test -p warpsmith-device --test compile_fail`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{fs, path::Path};

#[test]
fn misuse_does_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
    // For the host: documentation tests skip modules that only the GPU has.
    let (modules, count) = common::examples::modules(&common::examples::files());
    assert!(count >= 18, "{count} examples were found");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples_on_the_host.rs");
    fs::write(&file, format!("#![allow(unused_imports)]\n{modules}\nfn main() {{}}\n")).unwrap();
    cases.pass(file);
}
