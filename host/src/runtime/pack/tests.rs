#![allow(clippy::unwrap_used)] // helpers of tests are not seen as tests

use super::*;
use crate::{KernelImage, builtin_image};

static BUILTIN: (&str, &str, &[u8]) = include!(env!("WARPSMITH_KERNELS_gpu_kernels"));

fn built(sm: u32) -> String {
    std::fs::read_to_string(format!("{}/gpu_kernels/sm_{sm}.ptx", env!("OUT_DIR"))).unwrap()
}

#[test]
fn a_pack_gives_the_text_back_that_was_built() {
    let all = builtin_image().code().unwrap();
    assert!(!all.is_empty());
    for (sm, text) in all {
        // Not `assert_eq!`, which would print both.
        assert!(*text == *built(sm), "sm_{sm}");
    }
}

#[test]
fn each_kernel_is_in_a_module_of_its_own() {
    let modules = builtin_image().modules_for(90).unwrap();
    let manifest = builtin_image().manifest().unwrap();
    assert_eq!((modules.count(), modules.are_cut()), (manifest.kernels.len(), true));
    let whole = built(modules.sm);
    for kernel in ["gemv_q4_0", "attn_step_f16", "swiglu"] {
        let module = modules.of(kernel).unwrap();
        let (text, bare) = (modules.text(module, true).unwrap(), modules.text(module, false).unwrap());
        assert_eq!(text.matches(".entry ").count(), 1, "{kernel}");
        // Its body, with every line directive and the calls that each place was inlined through.
        let from = whole.find(&format!(".visible .entry {kernel}(")).unwrap();
        let body = &whole[from..from + whole[from..].find("\n}").unwrap()];
        assert!(body.contains(".loc") && body.contains("// @["));
        assert!(text.contains(body), "{kernel}");
        assert!(!bare.contains("\t.loc"), "{kernel}");
        let without: String = text.split_inclusive('\n').filter(|l| !l.starts_with("\t.loc")).collect();
        assert!(without == *bare, "{kernel}");
    }
    let error = builtin_image().code_of("gone", 90).unwrap_err().to_string();
    assert!(error.contains("has no kernel `gone`"), "{error}");
}

#[test]
fn a_damaged_pack_is_an_error_wherever_it_is_damaged() {
    let (library, manifest, pack) = BUILTIN;
    let says = |bytes: Vec<u8>| {
        // SAFETY: nothing of it is launched.
        let image = unsafe { KernelImage::from_pack((library, manifest, bytes.leak())) };
        let answer = image.code_of("swiglu", 75).and_then(|_| image.code_of("gemv_q4_0", 90));
        answer.map(drop)
    };
    assert!(says(pack.to_vec()).is_ok());
    let read = Pack::read(library, pack).unwrap();
    let frame = &read.index.frames[0];
    let data = pack.len() - read.data.len();
    for length in [0, 7, 8, 19, 20, data - 1, data, data + frame.bytes - 1] {
        let error = says(pack[..length].to_vec()).unwrap_err().to_string();
        assert!(error.contains("its pack is damaged") && error.contains("again"), "{length}: {error}");
    }
    // A bit of the magic, of each number, of the index, and of the content of a frame.
    for at in [3, 8, 12, 16, data / 3, data / 2, data + 12, data + frame.bytes / 2] {
        let mut bytes = pack.to_vec();
        bytes[at] ^= 4;
        let error = says(bytes).err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|e| e.contains("its pack is damaged")), "{at} of {data}: {error:?}");
    }
}

#[test]
fn lines_that_do_not_add_up_are_refused() {
    let read = |bytes: &[u8]| Lines::read(bytes).is_some();
    assert!(read(&[0]) && read(&[1, 1, b'x', 1, 0, 0]));
    for bad in [&[][..], &[1], &[1, 2, b'x'], &[1, 1, 0xFF], &[0, 9], &[0, 1, 0], &[0x80; 12]] {
        assert!(!read(bad), "{bad:?}");
    }
    let lines = Lines::read(&[1, 1, b'x', 1, 1, 0, 1, 0, 9]).unwrap();
    let merged = |nth| {
        let mut out = String::new();
        lines.merge(&mut out, "a\nb\n", nth).map(|()| out)
    };
    assert_eq!(merged(0).as_deref(), Some("a\nx\nb\n"));
    assert_eq!((merged(1), merged(2)), (None, None), "no such place, no such piece");
}

#[test]
fn what_is_embedded_is_small() {
    let texts: usize = builtin_image().code().unwrap().iter().map(|(_, text)| text.len()).sum();
    let embedded = builtin_image().embedded_bytes();
    println!("{texts} bytes of PTX in {embedded}");
    assert!(embedded <= 3 << 20, "{embedded} bytes are embedded");
}
