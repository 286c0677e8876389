//! Whether a model over several devices is that of one.
#![allow(dead_code)]

use crate::{agree::*, device::*, several::clean};
use warpsmith_host::Device;
use warpsmith_host::decode::{DecodeError, KvType, Mode, Model, Session};
use warpsmith_host::model::{ModelError, ModelFile};

/// The greedy text of a prompt, by a decoder of this mode.
pub fn text(model: &Model, mode: Mode, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut session = Session::new(model, options(mode, KvType::F16)).unwrap();
    session.generate(prompt, count, |_| std::ops::ControlFlow::Continue(())).unwrap()
}

/// Exact activations by graph against f64; and launch by launch the text of one device.
pub fn same_over(what: &str, file: &ModelFile, all: &[Device], ranks: &[usize]) {
    let prompt = [3, 1, 4];
    let want = text(&Model::load(&all[0], file).unwrap(), Mode::Eager, &prompt, 3);
    for &ranks in ranks {
        clean(|| {
            let model = Model::load_over(&all[..ranks], file).unwrap();
            let mut session = Session::new(&model, exact(Mode::Graph, KvType::F32)).unwrap();
            let off = distance(file, &mut session, 3);
            assert!(off <= 1e-4, "{what}, {ranks} devices: {off:e}");
            assert_eq!(text(&model, Mode::Eager, &prompt, 3), want, "{what}, {ranks} devices");
        });
    }
}

/// What a model says that cannot be divided among so many devices, and among how many it can.
pub fn refused(devices: &[Device], file: &ModelFile) -> (String, Vec<usize>) {
    match Model::load_over(devices, file) {
        Err(DecodeError::Model(e @ ModelError::Share { .. })) => {
            let ModelError::Share { fits, .. } = &e else { panic!() };
            (e.to_string(), fits.clone())
        }
        other => panic!("{other:?}"),
    }
}
