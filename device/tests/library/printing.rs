//! What kernels print, and assertions that fail.

use super::{
    all_device::printing::*,
    gpu::{Gpu, noise},
};
use std::sync::{Arc, Mutex};
use warpsmith_check::Inspection;
use warpsmith_simt::FaultKind;

fn with_text(gpu: &Gpu) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let sink = text.clone();
    gpu.on_print(move |bytes| sink.lock().unwrap().push_str(std::str::from_utf8(bytes).unwrap()));
    text
}

#[test]
fn kernels_print_numbers_and_texts() {
    let x = [0.5f32, -1234.5678, 3e-9, f32::INFINITY];
    for gpu in Gpu::all() {
        let text = with_text(&gpu);
        let bx = gpu.upload(&x);
        gpu.check(Printing { x: &bx, n: 4 }, [1, 1, 1]);
        let text = text.lock().unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [
                "-7 65535|12   |-0034|beef true text 0.5 0.0 {}",
                "plain",
                "thread 0 of 4: 0.500 (5.000000e-01), 100 %",
                "thread 1 of 4: -1234.568 (-1.234568e+03), 100 %",
                "thread 2 of 4: 0.000 (3.000000e-09), 100 %",
                "thread 3 of 4: inf (inf), 100 %",
            ]
        );
    }
}

#[test]
fn an_assertion_names_its_text_and_line() {
    let mut x: Vec<u32> = noise(1).take(32).map(|v| (v % 100) as u32).collect();
    for gpu in Gpu::all() {
        let text = with_text(&gpu);
        let bx = gpu.upload(&x);
        gpu.check(GpuAsserts { x: &bx, n: 100 }, [1, 1, 1]);
        assert_eq!(*text.lock().unwrap(), "");
        x[17] = 100;
        let bx = gpu.upload(&x);
        let Inspection { fault, .. } = gpu.inspect(GpuAsserts { x: &bx, n: 100 }, [1, 1, 1], 0);
        x[17] = 99;
        let fault = fault.unwrap();
        let line =
            include_str!("../fixtures/all-device/src/printing.rs").lines().position(|l| l.contains("x.at(t) < n"));
        let said = fault.to_string();
        assert_eq!(fault.kind, FaultKind::AssertFailed);
        assert!(said.contains(&format!("src/printing.rs:{}: all_device::printing", line.unwrap() + 1)), "{said}");
        assert!(said.contains("assertion `x.at(t) < n` failed"), "{said}");
        assert_eq!(*text.lock().unwrap(), "x[17] = 100\n");
    }
}
