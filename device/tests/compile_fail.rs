//! Misuse that is refused at compile time, with the text that it is refused with; and the documentation's examples, which are not.
//!
//! After an intended change of a text: `TRYBUILD=overwrite cargo test -p warpsmith-device --test compile_fail`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{fs, path::Path};

const NOTHING_ELSE: &str = "panic!(\"nothing else\")";

#[test]
fn misuse_does_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
    // For the host: documentation tests skip modules that only the GPU has. They have one error, the last: for a program without one
    // trybuild would have all that this package's tests depend on made, optimised, where types are enough.
    let (modules, count) = common::examples::modules(&common::examples::files());
    assert!(count >= 18, "{count} examples were found");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples_on_the_host.rs");
    let text = format!("#![allow(warnings)]\n{modules}\nfn main() {{}}\nconst _: () = {NOTHING_ELSE};\n");
    let line = text.lines().count();
    fs::write(&file, text).unwrap();
    let (margin, underline) = (" ".repeat(line.to_string().len()), "^".repeat(NOTHING_ELSE.len()));
    let error = format!(
        "error[E0080]: evaluation panicked: nothing else\n\
         {margin}--> {}:{line}:15\n\
         {margin} |\n\
         {line} | const _: () = {NOTHING_ELSE};\n\
         {margin} |               {underline} evaluation of `_` failed here\n",
        file.display()
    );
    fs::write(file.with_extension("stderr"), error).unwrap();
    cases.compile_fail(file);
}
