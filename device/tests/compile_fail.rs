//! Misuse that is refused at compile time, with the text that it is refused with.
//!
//! After an intended change of a text: `TRYBUILD=overwrite cargo test -p warpsmith-device --test compile_fail`.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
