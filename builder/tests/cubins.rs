//! Machine code beside PTX, made by the real ptxas where it is found.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::Fixture;
use warpsmith_builder::{Output, nvdisasm, ptxas};
use warpsmith_image::pack::Pack;

fn pack(output: &Output) -> Pack {
    let bytes = std::fs::read(output.manifest_path.with_file_name("kernels.pack")).unwrap();
    Pack::read(bytes.leak()).unwrap()
}

/// What an ELF of NVIDIA's says it is for: machine 190, and the architecture in the second byte of the flags (those of CUDA 13).
fn architecture(cubin: &[u8]) -> u32 {
    assert_eq!(cubin[..4], *b"\x7fELF");
    assert_eq!(u16::from_le_bytes(cubin[18..20].try_into().unwrap()), 190);
    (u32::from_le_bytes(cubin[48..52].try_into().unwrap()) >> 8) & 0xFF
}

#[test]
fn every_module_of_a_text_has_its_cubin() {
    let Some(ptxas) = ptxas::find() else {
        println!("SKIPPED: ptxas was not found");
        return;
    };
    let fixture = Fixture::basic();
    let targets = ["sm_80", "sm_86", "sm_90a"];
    let output = fixture.kernel_crate().archs(["sm_80", "sm_90"]).cubins(targets).build().unwrap();
    let pack = pack(&output);
    let found: Vec<_> = pack.cubins().iter().map(|cubins| (cubins.target.as_str(), cubins.sm)).collect();
    assert_eq!(found, [("sm_80", 80), ("sm_86", 80), ("sm_90a", 90)], "the text that each was made of");
    let disassembler = nvdisasm::find(Some(&ptxas));
    for (cubins, sm) in pack.cubins().iter().zip([80, 86, 90]) {
        let image = pack.images().iter().find(|image| image.sm == cubins.sm).unwrap();
        for (module, kernels) in image.modules.iter().enumerate() {
            let code = pack.cubin(cubins, module).unwrap();
            assert_eq!(architecture(&code), sm, "{}", cubins.target);
            let Some(disassembler) = &disassembler else { continue };
            let listing = disassembler.disassemble(&code).unwrap();
            for kernel in output.manifest.kernels.iter().map(|kernel| &kernel.name) {
                let has = listing.contains(&format!(".text.{kernel},"));
                assert_eq!(has, kernels.contains(kernel), "{}, module {module}: {kernel}", cubins.target);
            }
        }
        assert!(pack.cubin(cubins, image.modules.len()).is_err());
    }
    // Texts and manifest are those of a build without.
    let bare = fixture.kernel_crate().archs(["sm_80", "sm_90"]).build().unwrap();
    assert_eq!(bare.manifest, output.manifest);
    let without = self::pack(&bare);
    assert!(without.cubins().is_empty());
    let texts = |pack: &Pack| pack.images().iter().map(|i| pack.text(i, None, true).unwrap()).collect::<Vec<_>>();
    assert!(texts(&without) == texts(&pack));
}

#[test]
fn a_target_without_a_text_is_refused_before_anything_is_compiled() {
    let fixture = Fixture::basic();
    let error = fixture.kernel_crate().cubins(["sm_75"]).build().unwrap_err().to_string();
    assert!(error.contains("KernelCrate::cubins") && error.contains("PTX for sm_75 or older"), "{error}");
    assert!(!fixture.dir.path().join("out dir").exists());
}
