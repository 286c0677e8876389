//! Kernels that are compiled as a whole, because their modules alone keep an array in local memory.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::Fixture;
use warpsmith_builder::Output;

/// rustc inlines more where modules are compiled apart, and LLVM then leaves these loops as they are.
const ROTATE: &str = r#"
global_asm!(
    "// @kernel {{\"name\":\"rotate\",\"block\":[64,1,1],\"args\":[\
     {{\"name\":\"x\",\"type\":\"In<f32>\",\"kind\":\"in\",\"element\":\"f32\",\"size\":8,\"align\":8}},\
     {{\"name\":\"y\",\"type\":\"Out<f32>\",\"kind\":\"out\",\"element\":\"f32\",\"size\":8,\"align\":8}},\
     {{\"name\":\"n\",\"type\":\"u32\",\"kind\":\"scalar\",\"element\":\"u32\",\"size\":4,\"align\":4}}]}}"
);
entry! {
    fn rotate(x: *const f32, y: *mut f32, n: u32) {
        let mut sums = [[0.0f32; 8]; 2];
        for k in 0..n as usize {
            for (r, row) in sums.iter_mut().enumerate() {
                for (c, sum) in row.iter_mut().enumerate() {
                    *sum += *x.add(k + r * 8 + c);
                }
            }
            sums.swap(0, 1);
        }
        for row in sums {
            for (i, sum) in row.into_iter().enumerate() {
                *y.add(i) = sum;
            }
        }
    }
}
"#;

#[test]
fn an_array_that_the_whole_keeps_in_registers_is_not_refused() {
    if common::other_generator() {
        return;
    }
    let fixture = Fixture::basic();
    fixture.append(ROTATE);
    let local = |output: &Output| output.manifest.kernel("rotate").unwrap().local_bytes;
    let text = |output: &Output| std::fs::read_to_string(&output.images[0].path).unwrap();
    // Where it may be in local memory, its module's text is taken: there it is, or this test says nothing.
    let modules = fixture.kernel_crate().allow_local(["rotate"]).build().unwrap();
    assert!(local(&modules) > 0 && text(&modules).contains("__local_depot"), "another kernel is needed here");
    let modules = text(&modules);
    let whole = fixture.build().unwrap();
    assert_eq!(local(&whole), 0);
    assert!(!text(&whole).contains("__local_depot"));
    assert_eq!(whole.manifest.kernels.len(), 4, "the others are compiled with it");
    // A build after it takes what is there, and the first is made anew where it is allowed again.
    assert!(fixture.build().unwrap().images[0].fresh);
    assert!(text(&fixture.kernel_crate().allow_local(["rotate"]).build().unwrap()) == modules);
}
