//! Machine code beside PTX, made by the real ptxas where it is found.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::Fixture;
use warpsmith_builder::listing::{Source, listings};
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

/// Kernels that are assembled together have the code, the figures and the lines that each has alone; those that do not go together too.
#[test]
fn listings_of_several_kernels_are_those_of_each() {
    let Some((ptxas, nvdisasm)) = ptxas::find().and_then(|p| nvdisasm::find(Some(&p)).map(|n| (p, n))) else {
        println!("SKIPPED: ptxas or nvdisasm was not found");
        return;
    };
    let kernel = |name: &str, more: &str| {
        format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.extern .shared .align 16 .b8 dynamic[];\n{more}\n\
             .visible .entry {name}(.param .u64 p)\n{{\n.reg .b64 %d;\n.reg .b32 %r<2>;\n.loc 1 2 3\nld.param.u64 %d, [p];\n\
             mov.u32 %r1, %tid.x;\nst.global.u32 [%d], %r1;\nret;\n}}\n"
        )
    };
    let alike = [("a", kernel("a", "")), ("b", kernel("b", ".global .align 4 .u32 own;"))];
    // Two that declare something else by one name.
    let apart =
        [("a", kernel("a", ".global .align 4 .u32 own = 1;")), ("b", kernel("b", ".global .align 4 .u32 own = 2;"))];
    for texts in [alike, apart] {
        let sources: Vec<Source<'_>> = texts.iter().map(|(kernel, text)| Source { kernel, text }).collect();
        let of = |some: &[Source<'_>]| listings((&ptxas, &nvdisasm), some, "sm_90".parse().unwrap()).unwrap();
        let together = of(&sources);
        assert_eq!(together.len(), 2);
        for (one, source) in together.iter().zip(&sources) {
            assert_eq!(one.resources.kernel, source.kernel);
            let alone = of(std::slice::from_ref(source)).remove(0);
            assert_eq!(one.resources, alone.resources);
            let code =
                |text: &str| text.lines().filter(|l| !l.contains(".L_x_")).map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(code(&one.text), code(&alone.text));
            // The store is in the thirteenth line of either text.
            assert!(one.text.contains("line 13\n") && one.text.contains("STG.E"), "{}", one.text);
        }
    }
    let absent = [Source { kernel: "absent", text: &kernel("a", "") }];
    assert!(listings((&ptxas, &nvdisasm), &absent, "sm_90".parse().unwrap()).is_err());
}
