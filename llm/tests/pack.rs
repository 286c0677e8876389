//! The pack of all kernels that ship: what the builder wrote is what the runtime reads.

#![allow(clippy::unwrap_used)] // Tests fail by panicking.

use warpsmith_llm::builtin_image;
use warpsmith_runtime::KernelImage;

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
    // The head is the magic and three numbers, the first of them the bytes of the index; then come the frames.
    let data = 20 + u32::from_le_bytes(pack[8..12].try_into().unwrap()) as usize;
    for length in [0, 7, 8, 19, 20, data - 1, data, data + 12] {
        let error = says(pack[..length].to_vec()).unwrap_err().to_string();
        assert!(error.contains("its pack is damaged") && error.contains("again"), "{length}: {error}");
    }
    // A bit of the magic, of each number, of the index, and of the first frame.
    for at in [3, 8, 12, 16, data / 3, data / 2, data + 12] {
        let mut bytes = pack.to_vec();
        bytes[at] ^= 4;
        let error = says(bytes).err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|e| e.contains("its pack is damaged")), "{at} of {data}: {error:?}");
    }
    // Of any other frame: all are read.
    for at in [data + (pack.len() - data) / 2, pack.len() - 1] {
        let mut bytes = pack.to_vec();
        bytes[at] ^= 4;
        // SAFETY: nothing of it is launched.
        let image = unsafe { KernelImage::from_pack((library, manifest, bytes.leak())) };
        let error = image.code().err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|e| e.contains("its pack is damaged")), "{at} of {}: {error:?}", pack.len());
    }
}

#[test]
fn what_is_embedded_is_small() {
    let texts: usize = builtin_image().code().unwrap().iter().map(|(_, text)| text.len()).sum();
    let embedded = builtin_image().embedded_bytes();
    println!("{texts} bytes of PTX in {embedded}");
    // A build that nobody ships is packed with less effort, into up to twice as much.
    let most = if cfg!(debug_assertions) { 6 << 20 } else { 3 << 20 };
    assert!(embedded <= most, "{embedded} bytes are embedded");
}
