//! What errors say.

use super::*;

#[test]
fn a_driver_error_names_call_code_and_remedy() {
    let error = Error::driver("cuModuleLoadDataEx", 222);
    let text = error.to_string();
    assert!(text.contains("cuModuleLoadDataEx failed"), "{text}");
    assert!(text.contains("(222)") && text.contains("update the GPU driver"), "{text}");
    assert_eq!(error.code(), Some(222));
    assert!(!error.is_device_lost());
}

#[test]
fn each_code_of_the_driver_has_the_remedy_that_is_for_it() {
    for (code, remedy) in [
        (3, "not initialised"),
        (35, "stub or too old"),
        (100, "no GPU is visible"),
        (209, "`KernelCrate::archs`"),
        (218, "refuses the PTX"),
        (222, "update the GPU driver"),
        (500, "no symbol of this name"),
        (701, "more registers or shared memory"),
        (900, "stream capture forbids"),
        (908, "stream capture forbids"),
    ] {
        let text = Error::driver("cuAnything", code).to_string();
        assert!(text.contains(remedy), "{code}: {text}");
    }
}

#[test]
fn the_root_of_a_nested_error_is_what_failed_first() {
    let inner = Error::NodeCount { nodes: 2, recorded: 3 };
    let error = Error::CaptureFailed { stage: "checking", source: Box::new(inner) };
    assert!(matches!(error.root(), Error::NodeCount { nodes: 2, recorded: 3 }));
    assert_eq!(
        error.to_string(),
        "capture failed while checking: the captured graph has 2 nodes, 3 operations were recorded"
    );
}

#[test]
fn lists_and_plurals_read_well() {
    let text = Error::NoDevice { ordinal: 3, count: 1, engine: "software".into() }.to_string();
    assert!(text.contains("no device 3") && text.contains("has 1 device\n"), "{text}");
    let text = Error::NoCodeForDevice { library: "k".into(), sm: 70, available: vec![75, 90] };
    assert!(text.to_string().contains("code for sm_75, sm_90,"), "{text}");
    let text = Error::KernelNotLoaded { kernel: "k", library: "l", loaded: vec![] }.to_string();
    assert!(text.contains("(loaded: none)"), "{text}");
}
