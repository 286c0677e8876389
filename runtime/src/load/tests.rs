//! What is loaded when the driver refuses code, and what is told of it. On the software driver, which refuses all machine code.

#![allow(clippy::unwrap_used)]

use std::fmt::{Debug, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use warpsmith_driver_api::software;
use warpsmith_image::pack::{self, Piece};

use super::*;
use crate::Device;

const PTX: &str = ".version 7.4\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n\tret;\n}\n";

/// Keeps warnings as lines.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?};").unwrap();
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// An image of one kernel, with machine code for these targets.
fn image(cubins: &[&str]) -> KernelImage {
    let text = pack::Text {
        sm: 80,
        bare: PTX.to_owned(),
        places: Vec::new(),
        directives: Vec::new(),
        modules: vec![vec!["k".to_owned()]],
        pieces: vec![Piece { bytes: 0..PTX.len(), lines: 0..PTX.lines().count(), modules: None }],
    };
    let code = |target: &&str| pack::Machine {
        target: (*target).to_owned(),
        sm: 80,
        cubins: vec![b"\x7fELF, but no machine code that a driver takes".to_vec()],
    };
    let machine: Vec<pack::Machine> = cubins.iter().map(code).collect();
    // SAFETY: nothing of it is launched.
    unsafe {
        KernelImage::from_pack(("l", "{}", pack::write(&[text], &machine, pack::Effort::Fast, &[]).unwrap().leak()))
    }
}

/// Loads the kernel, finds it in the module, and says what was warned of.
fn warned(modules: &Modules, cache: Option<&CodeCache>) -> Vec<String> {
    let device = Device::open(0).unwrap();
    device.inner.bind().unwrap();
    let warnings = Warnings::default();
    let code = ModuleCode { image: &image(&[]), modules, number: 0, kernels: &["k"] };
    let module = tracing::subscriber::with_default(warnings.clone(), || code.load(cache, false)).unwrap();
    module.get_function("k").unwrap();
    drop(module);
    let lines = warnings.0.lock().unwrap();
    lines.clone()
}

#[track_caller]
fn names(lines: &[String], parts: &[&str]) {
    let [line] = lines else { panic!("one warning is expected: {lines:?}") };
    for part in parts {
        assert!(line.contains(part), "no {part:?} in {line}");
    }
}

#[test]
fn machine_code_is_that_of_the_device() {
    let image = image(&["sm_80", "sm_90a", "sm_86", "sm_999"]);
    let chosen = |sm| {
        let modules = image.modules_with_cubins_for(sm).unwrap();
        let target = modules.cubin(0).unwrap().map(|(target, _)| target.to_owned());
        (target, modules.sm)
    };
    for (sm, target) in
        [(80, Some("sm_80")), (86, Some("sm_86")), (87, None), (89, Some("sm_86")), (90, Some("sm_90a")), (100, None)]
    {
        assert_eq!(chosen(sm), (target.map(str::to_owned), 80), "sm_{sm}");
    }
    assert!(image.modules_for(90).unwrap().cubin(0).unwrap().is_none(), "a text was asked for");
    assert!(matches!(image.modules_with_cubins_for(75), Err(Error::NoCodeForDevice { sm: 75, .. })));
    assert_eq!(image.cubins().unwrap(), ["sm_80", "sm_90a", "sm_86", "sm_999"]);
    assert_eq!(image.architectures().unwrap(), [80]);
}

#[test]
fn refused_machine_code_is_told_and_its_text_is_loaded() {
    let modules = image(&["sm_90a"]).modules_with_cubins_for(90).unwrap();
    let lines = warned(&modules, None);
    names(
        &lines,
        &["machine code of the program is refused", "[\"k\"]", "sm_90a", "cuModuleLoadDataEx failed", "library=\"l\""],
    );
    assert_eq!(warned(&image(&[]).modules_with_cubins_for(90).unwrap(), None), Vec::<String>::new());
}

#[test]
fn refused_code_of_the_cache_is_told_and_made_anew() {
    let folder = std::env::temp_dir().join(format!("warpsmith-load-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let entries = |folder: &Path| std::fs::read_dir(folder).map_or(0, Iterator::count);
    let cache = CodeCache::of_test(&folder);
    let modules = image(&[]).modules_for(90).unwrap();
    assert_eq!(warned(&modules, Some(&cache)), Vec::<String>::new());
    assert_eq!(entries(&folder), 1);
    let guard = software::inject_failure(Some("cuModuleLoadDataEx"), 0, 300);
    let lines = warned(&modules, Some(&cache));
    assert!(guard.fired());
    names(&lines, &["compiled code of the cache is refused", "[\"k\"]", "sm_80", "CUDA_ERROR_INVALID_SOURCE (300)"]);
    assert_eq!(entries(&folder), 0, "it is forgotten");
    assert_eq!(warned(&modules, Some(&cache)), Vec::<String>::new());
    assert_eq!(entries(&folder), 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn code_that_the_compiler_has_nothing_against_gets_no_log() {
    let device = Device::open(0).unwrap();
    device.inner.bind().unwrap();
    let of = |ptx| match with_log(Error::driver("cuModuleLoadDataEx", 300), ptx) {
        Error::Driver { detail, .. } => detail,
        other => panic!("{other}"),
    };
    assert_eq!(of(PTX), None);
    assert!(of("this is not PTX").is_some_and(|log| !log.is_empty()));
}
