//! Commands about kernels: `kernels`, `inspect`, `compare`, `budget`, `tune`.

use super::*;

#[test]
fn compare_finds_the_bits_of_the_simulated_device_on_the_driver() {
    let found = json(&["compare", "swiglu", "residual_add", "argmax", "--driver", "software", "--json"]);
    let rows = found["kernels"].as_array().unwrap();
    assert_eq!(rows.len(), 3, "{found}");
    for row in rows {
        assert_eq!((&row["identical"], &row["explained"]), (&Value::Bool(true), &Value::Bool(true)), "{row}");
        assert!(row["cases"].as_u64().unwrap() > 3 && row["elements"].as_u64().unwrap() > 20, "{row}");
    }
    assert!(rows.iter().any(|r| r["kernels"] == "swiglu" && r["approximate"][0]["kernel"] == "swiglu"), "{found}");
    refused(&["compare", "swigl"], 2, &["did you mean swiglu"]);
    refused(&["compare", "swiglu", "--shape", "m=1"], 2, &["no size `m`"]);
}

#[test]
fn tuning_by_time_needs_a_gpu() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
    let output = command.args(["tune", "--by", "time"]).env("WARPSMITH_DRIVER", "software").output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(stderr(&output).contains("--by model"), "{}", stderr(&output));
    refused(&["tune", "--by", "time", "--gpu", "h200"], 2, &["--gpu", "the one that is here"]);
    refused(&["tune", "--gpu", "voodoo2"], 2, &["voodoo2", "h200"]);
}

#[test]
fn a_budget_without_its_tools_says_how_to_get_them() {
    let without = |variable: &str, tool: &str, package: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
        command.args(["budget", "Q4_0", "--rows", "32", "--cols", "256"]).env(variable, "/nonexistent/tool");
        let output = command.current_dir(ROOT).output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(6), "{text}");
        assert!(text.contains(tool) && text.contains(package) && text.contains(variable), "{text}");
    };
    without("WARPSMITH_PTXAS", "ptxas", "nvidia-cuda-nvcc==");
    refused(&["budget", "nothing"], 2, &["nothing", "Q1_0"]);
}

#[test]
fn inspect_shows_the_code_of_a_kernel_that_ships_and_says_what_it_lacks() {
    let shown = json(&["inspect", "rms_norm", "--shape", "rows=3,cols=256", "--json"]);
    assert_eq!((&shown["kernel"], &shown["grid"][0], &shown["threads"]), (&"rms_norm".into(), &3.into(), &256.into()));
    let sum = |list: &str, counter: &str| -> u64 {
        shown[list].as_array().unwrap().iter().filter_map(|l| l["counters"][counter].as_u64()).sum()
    };
    // Every instruction that ran stands in both lists, and all of a warp's sectors: x is loaded twice, y stored, w loaded.
    assert_eq!(sum("ptx", "warp_instructions"), shown["metrics"]["smsp__inst_executed.sum"].as_u64().unwrap());
    assert_eq!(sum("ptx", "sectors"), 4 * 3 * 256 * 4 / 32);
    assert_eq!(sum("rust", "sectors"), sum("ptx", "sectors"));
    let line = |l: &&Value| l["text"].as_str().is_some_and(|t| t.contains("block_reduce::sum_f32"));
    let sum = shown["rust"].as_array().unwrap().iter().find(line).unwrap();
    assert!(sum["file"].as_str().unwrap().ends_with("gpu-kernels/src/norm.rs"), "{sum}");

    // A text of another compiler, without lines of a source and without a profile.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("k.ptx");
    let ptx = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n    ret;\n}\n";
    std::fs::write(&file, ptx).unwrap();
    let file = file.to_str().unwrap();
    let text = stdout(&warpsmith(&["inspect", "k", "--ptx-file", file]));
    assert!(text.contains("ret;") && text.contains("no counters"), "{text}");
    refused(&["inspect", "other", "--ptx-file", file], 2, &["other", "it has k"]);
    refused(&["inspect", "nothing"], 2, &["nothing", "warpsmith kernels", "--ptx-file"]);
    let mut without = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
    without.args(["inspect", "rms_norm", "--sass"]).env("WARPSMITH_PTXAS", "/nonexistent/tool").current_dir(ROOT);
    let output = without.output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(6), "{text}");
    assert!(text.contains("inspect --sass") && text.contains("nvidia-cuda-nvcc"), "{text}");
}

#[test]
fn inspect_takes_the_counters_of_any_program() {
    let dir = tempfile::tempdir().unwrap();
    let (ptx, report) = (dir.path().join("k.ptx"), dir.path().join("report"));
    let text = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n    bar.sync 0;\n    ret;\n}\n";
    std::fs::write(&ptx, text).unwrap();
    // As WARPSMITH_REPORT has it: a line an object.
    let counted = |line: u64, text: &str| {
        format!(
            r#"{{"type":"profile","kernel":"k","launches":2,"grid":[3,1,1],"block":[64,1,1],"metrics":{{"smsp__inst_executed.sum":24}},
                "ptx":[{{"line":{line},"text":"{text}","metrics":{{"smsp__inst_executed.sum":12}}}}]}}"#
        )
        .replace('\n', "")
    };
    let (ptx, report) = (ptx.to_str().unwrap(), report.to_str().unwrap());
    let arguments = ["inspect", "k", "--ptx-file", ptx, "--counters", report, "--json"];
    std::fs::write(report, counted(5, "bar.sync 0;")).unwrap();
    let shown = json(&arguments);
    assert_eq!((&shown["launches"], &shown["metrics"]["smsp__inst_executed.sum"]), (&2.into(), &24.into()));
    let barrier = shown["ptx"].as_array().unwrap().iter().find(|l| l["text"] == "bar.sync 0;").unwrap();
    assert_eq!(barrier["counters"]["warp_instructions"], 12);
    // Machine code was not asked for.
    assert_eq!(shown["issue"], Value::Null);
    std::fs::write(report, counted(5, "ret;")).unwrap();
    refused(&arguments, 2, &["--counters", "another text", "`k`"]);
    std::fs::write(report, counted(5, "bar.sync 0;").replace(r#""k""#, r#""other""#)).unwrap();
    refused(&arguments, 2, &["--counters", "no launch", "`k`"]);
    refused(&["inspect", "k", "--counters", report], 2, &["--ptx-file"]);
}

#[test]
fn kernels_are_exported_as_the_builder_wrote_them() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("image");
    let listed = json(&["kernels", "--export", folder.to_str().unwrap(), "--json"]);
    let image = warpsmith_host::builtin_image();
    assert_eq!(listed["files"].as_array().unwrap().len(), 1 + image.code().unwrap().len());
    assert_eq!(std::fs::read_to_string(folder.join("manifest.json")).unwrap(), image.manifest_text());
    for (sm, ptx) in image.code().unwrap() {
        assert_eq!(std::fs::read_to_string(folder.join(format!("sm_{sm}.ptx"))).unwrap(), *ptx);
    }
    let file = folder.join("manifest.json");
    let refused = warpsmith(&["kernels", "--export", file.to_str().unwrap()]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("--export"), "{refused:?}");
}

#[test]
fn kernels_lists_every_kernel_with_its_arguments() {
    let list = json(&["kernels", "--json"]);
    let kernels = list["kernels"].as_array().unwrap();
    let named = |name: &str| kernels.iter().find(|k| k["name"] == name);
    let norm = named("rms_norm").unwrap_or_else(|| panic!("no rms_norm in {list}"));
    assert!(norm["args"].as_array().unwrap().iter().any(|a| a["name"] == "eps" && a["type"] == "f32"));
    assert!(norm["block"][0].as_u64().unwrap() > 0);
    let families: std::collections::BTreeSet<&str> = kernels.iter().filter_map(|k| k["family"].as_str()).collect();
    for family in ["gemv", "norm", "rope", "kv", "attention", "elementwise", "embed", "sampling"] {
        assert!(families.contains(family), "{family} is not among {families:?}");
    }
    let text = stdout(&warpsmith(&["kernels", "norm"]));
    assert!(text.contains("rms_norm") && !text.contains("argmax"), "{text}");
}

#[test]
fn what_is_assembled_is_what_is_claimed_but_for_what_is_left_out() {
    refused(&["kernels", "--except", "sm_90"], 2, &["--assemble"]);
    refused(&["kernels", "--assemble", "--except", "sm_70"], 2, &["sm_70", "sm_75, sm_80"]);
    let Some(ptxas) = std::env::var_os("WARPSMITH_PTXAS").filter(|p| !p.is_empty()) else {
        eprintln!("SKIPPED: WARPSMITH_PTXAS names no ptxas");
        return;
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
    command.args(["kernels", "residual_add", "--assemble", "--except", "sm_80", "--except", "sm_86", "--json"]);
    let output = command.env("WARPSMITH_PTXAS", ptxas).current_dir(ROOT).output().unwrap();
    let list: Value = serde_json::from_str(&stdout(&output)).unwrap_or_else(|e| panic!("{e}: {}", stderr(&output)));
    let archs: Vec<&str> = list["architectures"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
    assert!(
        archs.contains(&"sm_75") && archs.contains(&"sm_90") && !archs.iter().any(|a| ["sm_80", "sm_86"].contains(a))
    );
    let resources = list["kernels"][0]["resources"].as_array().unwrap();
    assert_eq!(resources.iter().map(|r| r["arch"].as_str().unwrap()).collect::<Vec<_>>(), archs);
}
