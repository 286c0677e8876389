//! A layer in one launch, with its barriers taken out.

use crate::machine::{Gpu, output};
use gpu_kernels::cases::Subject;
use gpu_kernels::format::Format;
use gpu_kernels::persistent::Instance;

/// The kernels' text for sm_90, where blocks of a layer no longer wait at barriers of the grid: the branch back to the load of the
/// barrier's word is gone.
fn without_waiting() -> String {
    let image = output().images.iter().rev().find(|i| i.sm == 90).unwrap();
    let text = std::fs::read_to_string(&image.path).unwrap();
    let entry = text.find(".entry layers_q1_0_i16(").unwrap();
    let (before, layer) = text.split_at(entry);
    let load = layer.find("ld.acquire.gpu").expect("a wait for other blocks");
    let branch = load + layer[load..].find(" bra ").expect("a branch back");
    let line = layer[..branch].rfind('\n').unwrap() + 1;
    let end = branch + layer[branch..].find('\n').unwrap();
    assert!(layer[line..end].trim_start().starts_with('@'), "{}", &layer[line..end]);
    [before, &layer[..line], &layer[end..]].concat()
}

#[test]
#[should_panic(expected = "error[race::global]")]
fn a_layer_whose_blocks_do_not_wait_is_found() {
    let mut gpu = Gpu::from_text(90, &without_waiting());
    Subject::Layers { instance: Instance::LayersQ10I16, format: Format::Q1_0 }.case().run(&mut gpu).unwrap();
}
