//! `project`: what a step would take on a GPU that is not here.

use super::*;

fn sum(launches: &Value, of: impl Fn(&Value) -> f64) -> f64 {
    launches.as_array().unwrap().iter().map(|l| l["launches"].as_f64().unwrap() * of(l)).sum()
}

#[test]
fn a_step_of_a_file_has_the_launches_that_run_replays() {
    let p = json(&["project", "--model", MODEL, "--context", "9", "--json"]);
    let ran = json(&[
        "run", "--model", MODEL, "--tokens", HI_GPU, "-n", "2", "--driver", "software", "--verify", "off", "--json",
    ]);
    assert_eq!(p["launches_a_step"], ran["graph"]["nodes"], "{p}");
    assert_eq!(sum(&p["launches"], |_| 1.0), p["launches_a_step"].as_f64().unwrap());
    let total = sum(&p["launches"], |l| l["us"]["total"].as_f64().unwrap());
    assert!((total / p["sum_us"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{p}");
    for l in p["launches"].as_array().unwrap() {
        let us = |name: &str| l["us"][name].as_f64().unwrap();
        let longest = ["memory", "issue", "pipe", "latency"].map(us).into_iter().fold(0.0, f64::max);
        assert!((us("total") - us("edges") - longest).abs() < 1e-9 && us("edges") >= 0.66, "{l}");
        let followed = !l["waits"].is_null();
        assert_eq!(followed, p["counts"] == "machine code", "{l}");
        // What binds is the longest of them all, or nearly all of what warps wait for.
        let names = ["edges", "memory", "issue", "pipe", "latency"];
        let most = names.map(us).into_iter().fold(0.0, f64::max);
        assert!(us(l["binds"].as_str().unwrap()) >= if followed { 0.9 * most } else { most } - 1e-9, "{l}");
        // What is issued, counted in PTX where there is no ptxas, takes little more than the edge of a programmatic launch.
        assert!(us("issue") < 2.0 * us("edges"), "{l}");
        if followed {
            let waits = &l["waits"];
            let places = waits["places"].as_array().unwrap();
            for of in ["path", "warps"] {
                let shares: f64 = waits[of].as_object().unwrap().values().map(|s| s.as_f64().unwrap()).sum();
                let of_places: f64 = places.iter().map(|p| p[of].as_f64().unwrap()).sum();
                // The places listed are those for which the end waits longest.
                let least = if of == "path" { 0.2 } else { 0.0 };
                assert!(shares < 1.0 && of_places > least && of_places <= shares + 1e-9, "{of} {l}");
            }
            assert!(places.iter().any(|p| p["file"].as_str().is_some_and(|f| f.ends_with(".rs"))), "{l}");
        }
    }
}

#[test]
fn layers_in_one_launch_take_as_long_as_their_phases() {
    let p = json(&["project", "--model", MODEL, "--context", "9", "--persistent", "--json"]);
    let all = p["launches"].as_array().unwrap();
    let layers = all.iter().find(|l| l["kernel"].as_str().unwrap().starts_with("layers_")).unwrap();
    let us = |l: &Value, name: &str| l["us"][name].as_f64().unwrap();
    // Two layers of five phases, and a barrier behind all but the last. The head is a product of the shape of one of theirs.
    assert_eq!((sum(&p["phases"], |_| 1.0), layers["barriers"].as_f64().unwrap()), (10.0, 9.0), "{p}");
    let longest =
        |l: &Value| ["memory", "issue", "pipe", "latency"].map(|name| us(l, name)).into_iter().fold(0.0, f64::max);
    let waits = sum(&p["phases"], |l| us(l, "edges") - 1.10);
    // Attention's parts are one, but the outputs of gate and up wait for others to be quantized: two ways to memory, which warps that are
    // followed have behind them.
    let ways = if p["phases"][0]["waits"].is_null() { 1.30 } else { 0.0 };
    assert!(waits >= 2.0 * ways - 1e-9, "{p}");
    let expected = 1.31 + 9.0 * 1.10 + waits + sum(&p["phases"], longest);
    assert!((us(layers, "total") - expected).abs() < 1e-9, "{p}");
    let bytes = sum(&p["phases"], |l| l["dram_bytes"].as_f64().unwrap());
    assert!((bytes / layers["dram_bytes"].as_f64().unwrap() - 1.0).abs() < 0.02, "{p}");
    // Without it nothing has phases.
    assert_eq!(json(&["project", "--model", MODEL, "--context", "9", "--json"])["phases"], Value::Array(Vec::new()));
}

/// Rates of a GPU in place of those that are assumed; those of another one are refused.
#[test]
fn rates_that_were_measured_count() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, device: &str, ticks: Value| {
        let names = [
            "FFMA",
            "LOP3 (and an IADD)",
            "POPC (and a LOP3)",
            "IDP.4A",
            "SHFL (and an IADD)",
            "mma m16n8k16 f16",
            "mma m16n8k32 s8",
            "mma m16n8k128 b1 and.popc",
        ];
        let rates = names.map(|name| serde_json::json!({ "name": name, "per_tick_and_multiprocessor": 16.0 }));
        let all = serde_json::json!({
            "device": device, "engine": "a test", "multiprocessors": 132, "rates": rates, "ticks_per_grid_barrier": ticks
        });
        let path = dir.path().join(name);
        std::fs::write(&path, all.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let project = ["project", "--model", MODEL, "--context", "9", "--persistent", "--json"];
    // 1980 ticks are a microsecond.
    let own = file("h200.json", "NVIDIA H200", 3960.into());
    let measured = json(&[&project[..], &["--rates", &own]].concat());
    assert_eq!(measured["rates_measured_on"], "NVIDIA H200");
    let layers = measured["launches"].as_array().unwrap().iter().find(|l| l["barriers"] != 0.0).unwrap();
    let edges = |l: &Value| l["us"]["edges"].as_f64().unwrap();
    let waits = sum(&measured["phases"], |l| edges(l) - 2.0);
    assert!((edges(layers) - 1.31 - 9.0 * 2.0 - waits).abs() < 1e-9, "{measured}");
    // Warps that are followed have the ways to memory behind them.
    assert_eq!(waits > 1e-9, measured["phases"][0]["waits"].is_null(), "{measured}");

    let refuses = |path: &str, names: &[&str]| refused(&[&project[..], &["--rates", path]].concat(), 3, names);
    refuses(
        &file("a100.json", "NVIDIA A100-SXM4-80GB", 3960.into()),
        &["a100.json", "NVIDIA A100-SXM4-80GB", "NVIDIA H200 SXM"],
    );
    refuses(&file("software.json", "NVIDIA H200", Value::Null), &["software.json", "no rates"]);
    refuses(MODEL, &["tiny-qwen3-q4_0.gguf"]);
    refuses("/no/such/rates.json", &["/no/such/rates.json"]);
    refused(&["tune", "--rates", &own], 2, &["--gpu"]);
    refused(&["tune", "--gpu", "h200", "--rates", &own, "--write"], 2, &["--write"]);
}

#[test]
fn a_step_of_a_shape_moves_what_its_model_card_says() {
    let of = |more: &[&str]| {
        let args =
            ["project", "--model", "0.6b", "--format", "Q1_0", "--context", "64", "--activations", "f32", "--json"];
        json(&[&args[..], more].concat())
    };
    let p = of(&["--no-programmatic"]);
    // 28 layers of five launches; embedding, output projection and the choice of a token.
    assert_eq!(p["launches_a_step"], 28 * 5 + 3, "{p}");
    // 0.596 billion weights (the embedding once) of 18 bytes for each 128, and 64 positions of 28 layers of 8 heads of 128 in f16.
    let expected = 0.596e9 * 18.0 / 128.0 + f64::from(2 * 28 * 8 * 128 * 64 * 2);
    for bytes in ["needed_bytes", "dram_bytes"] {
        assert!((p[bytes].as_f64().unwrap() / expected - 1.0).abs() < 0.02, "{bytes}: {p}");
    }
    let floor = expected / 4.48e6;
    assert!((p["floor_us"].as_f64().unwrap() / floor - 1.0).abs() < 0.02, "{p}");
    assert!(p["sum_us"].as_f64().unwrap() > 143.0 * 1.31 + floor, "{p}");
    assert_eq!(p["goal_us"], Value::Null);
    // Each launch but the first is programmatic, and its edge a latency of memory shorter.
    let q = of(&[]);
    let [before, after] = [&p, &q].map(|p| sum(&p["launches"], |l| l["us"]["edges"].as_f64().unwrap()));
    assert!(q["programmatic"] == true && (before - after - 142.0 * 0.65).abs() < 1e-6, "{before} {after}: {q}");
}

/// Columns share the weights; sequences have keys and values of their own.
#[test]
fn prompts_and_sequences_are_steps_of_several_tokens() {
    let of = |more: &[&str]| json(&[&["project", "--model", MODEL, "--context", "40", "--json"][..], more].concat());
    let number = |p: &Value, name: &str| p[name].as_f64().unwrap();
    let (one, three) = (of(&[]), of(&["--sequences", "3"]));
    let prompt = of(&["--prompt", "33"]);
    for (p, tokens) in [(&one, 1.0), (&three, 3.0), (&prompt, 33.0)] {
        assert_eq!(number(p, "tokens"), tokens, "{p}");
        assert!((number(p, "tokens_a_second") * number(p, "sum_us") / 1e6 - tokens).abs() < 1e-9, "{p}");
    }
    // Two layers of keys and values of two heads of 64 elements in f16, at 40 positions.
    let cached = f64::from(2 * 2 * 2 * 64 * 2 * 40);
    assert_eq!(number(&three, "needed_bytes") - number(&one, "needed_bytes"), 2.0 * cached, "{three}");
    // Rotations of 64 dimensions for 32 positions more; what is stored is read again.
    let more = number(&prompt, "needed_bytes") - number(&one, "needed_bytes");
    assert_eq!(more, 32.0 * 4.0 * 64.0 + cached * 33.0 / 40.0, "{prompt}");
    assert!(number(&prompt, "sum_us") < 33.0 * number(&one, "sum_us"), "{prompt}");
    refused(&["project", "--model", MODEL, "--waits", "0"], 2, &["--waits"]);
    refused(&["project", "--model", MODEL, "--gpu", "a100", "--waits"], 2, &["--waits", "sm_90", "sm_80"]);
    refused(&["project", "--model", MODEL, "--context", "40", "--prompt", "41"], 2, &["41", "--context 40"]);
    refused(&["project", "--model", MODEL, "--prompt", "4", "--sequences", "2"], 2, &["--sequences"]);
    refused(&["project", "--model", MODEL, "--prompt", "4", "--persistent"], 2, &["--persistent"]);
}

#[test]
fn what_cannot_be_projected_is_named() {
    refused(&["project", "--model", "9b", "--format", "Q1_0"], 2, &["9b", "0.6b", "llama3-8b"]);
    refused(&["project", "--model", "8b"], 2, &["--format", "Q4_K"]);
    refused(&["project", "--model", MODEL, "--format", "Q4_K"], 2, &["--format"]);
    refused(&["project", "--model", "8b", "--format", "Q4_K", "--gpu", "voodoo2"], 2, &["voodoo2", "h200"]);
    refused(&["project", "--model", "8b", "--format", "Q9_K"], 2, &["Q9_K"]);
    refused(&["project", "--model", MODEL, "--context", "1000000"], 3, &["1000000"]);
}
