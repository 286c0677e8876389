//! Whatever loads also runs: every kernel of a text, on hostile parameters, plain and under all checks, to its end or to a
//! fault, with the same outcome.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use warpsmith_check::{Checks, Inspect};
use warpsmith_simt::{Launch, LoadOptions, Machine, MachineConfig, Module};

fuzz_target!(|data: &[u8]| {
    let [shape, text @ ..] = data else { return };
    let Ok(module) = Module::load(&String::from_utf8_lossy(text), &LoadOptions { sm: 90 }) else { return };
    let module = Arc::new(module);
    let config = MachineConfig {
        sm: 90,
        total_memory: 1 << 24,
        threads: 1,
        instruction_limit: 20_000,
        spin_limit: 64,
    };
    let launch = Launch::new([1 + u32::from(shape >> 6), 1, 1], [1 + u32::from(shape & 63), 1, 1]);
    let names: Vec<(String, usize)> =
        module.kernels().take(4).map(|k| (k.name.clone(), k.param_bytes as usize)).collect();
    for (name, bytes) in names {
        let mut outcomes = Vec::new();
        for checked in [false, true] {
            let machine = Machine::new(config);
            let Ok(instance) = machine.instantiate(module.clone()) else { return };
            let Ok(buffer) = machine.memory().alloc(4096, 256) else { return };
            let params: Vec<u8> = buffer.to_le_bytes().into_iter().cycle().take(bytes).collect();
            let fault = if checked {
                machine.inspect(&instance, &name, &launch, &params, &Checks { profile: true, ..Checks::ALL }).fault
            } else {
                machine.launch(&instance, &name, &launch, &params).err()
            };
            let mut out = vec![0; 4096];
            assert!(machine.memory().read(buffer, &mut out).is_ok());
            outcomes.push((fault.map(|f| f.kind.name()), out));
        }
        // Device addresses differ between machines: only kernels that stored none can be compared.
        if outcomes[0].0 != outcomes[1].0 {
            panic!("{name}: {:?} plain, {:?} checked", outcomes[0].0, outcomes[1].0);
        }
    }
});
