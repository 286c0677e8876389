//! `warpsmith doctor`: every probe, and settings that stop builds or runs.

use super::*;

#[test]
fn doctor_reports_every_probe_and_the_fix_for_what_is_missing() {
    let report = json(&["doctor", "--json"]);
    let probes = report["probes"].as_array().unwrap();
    for name in ["rustc", "rust-src", "ptxas", "driver"] {
        assert!(probes.iter().any(|p| p["name"].as_str().unwrap().contains(name)), "{name} is not probed: {report}");
    }
    for probe in probes.iter().filter(|p| p["state"] != "ok") {
        assert!(!probe["fix"].as_str().unwrap_or_default().is_empty(), "no fix: {probe}");
    }
}

#[test]
fn doctor_names_a_setting_that_stops_builds_or_runs() {
    let doctor = |name: &str, value: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
        let output = command.args(["doctor", "--json"]).env(name, value).current_dir(ROOT).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), report)
    };
    let probe = |report: &Value, name: &str| {
        report["probes"]
            .as_array()
            .unwrap()
            .iter()
            .find(|p| p["name"] == name)
            .unwrap_or_else(|| panic!("{name}"))
            .clone()
    };
    for (variable, value, name, part) in [
        ("WARPSMITH_DRIVER", "gpu", "engine", "expected auto, cuda or software"),
        ("WARPSMITH_MEMORY", "lots", "engine", "WARPSMITH_MEMORY"),
        ("WARPSMITH_ARCHS", "sm_61", "WARPSMITH_ARCHS", "sm_70"),
    ] {
        let (code, report) = doctor(variable, value);
        let found = probe(&report, name);
        assert_eq!((code, &report["ok"], &found["state"]), (Some(6), &false.into(), &"missing".into()), "{found}");
        assert!(found["detail"].as_str().unwrap().contains(part) && found["fix"].is_string(), "{found}");
    }
    // What only rust-cuda needs is needed by the build that asks for it.
    let needs = |report: &Value| probe(report, "llvm-config of LLVM 7")["needed_for"].clone();
    assert_eq!(needs(&doctor("WARPSMITH_BACKEND", "").1), "cuda_builder");
    assert_eq!(needs(&doctor("WARPSMITH_BACKEND", "cuda_builder").1), "build");
}

#[test]
fn doctor_shows_what_the_program_carries() {
    let report = json(&["doctor", "--json"]);
    let probes = report["probes"].as_array().unwrap();
    let found = probes.iter().find(|probe| probe["name"] == "kernels of gpu-kernels").unwrap();
    let built = warpsmith::builtin_image().architectures().unwrap();
    let names: Vec<String> = built.iter().map(|sm| format!("sm_{sm}")).collect();
    let machine = warpsmith::builtin_image().cubins().unwrap();
    let machine = if machine.is_empty() { "none".to_owned() } else { machine.join(", ") };
    assert_eq!(found["detail"], format!("PTX: {}; machine code: {machine}", names.join(", ")));
}

/// Two entries of 3 and 5 bytes, and what is none.
#[test]
fn doctor_shows_where_compiled_code_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let doctor = |value: &std::ffi::OsStr| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
        command.args(["doctor", "--json"]).env("WARPSMITH_CODE_CACHE", value).current_dir(ROOT);
        let report: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        let probes = report["probes"].as_array().unwrap();
        probes.iter().find(|p| p["name"] == "compiled code").unwrap().clone()
    };
    let missing = folder.path().join("missing");
    assert!(doctor(missing.as_os_str())["detail"].as_str().unwrap().starts_with("on: 0 entries, "));
    for (name, text) in [("a.code", "abc"), ("b.code", "abcde"), ("c.partial", "x")] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let found = doctor(folder.path().as_os_str());
    let detail = found["detail"].as_str().unwrap();
    assert!(detail.starts_with("on: 2 entries, 8 B of at most 512.0 MiB, in "), "{detail}");
    assert!(detail.contains(folder.path().to_str().unwrap()), "{detail}");
    assert_eq!(doctor("0".as_ref())["detail"], "off: switched off by WARPSMITH_CODE_CACHE");
    let file = doctor(folder.path().join("a.code").as_os_str());
    assert!(file["state"] == "warning" && file["fix"].as_str().unwrap().contains("WARPSMITH_CODE_CACHE=0"), "{file}");
}
