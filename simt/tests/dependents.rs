//! Which kernels let the launch behind them begin only when they have waited for the one in front.
#![allow(clippy::unwrap_used)]

use warpsmith_simt::{LoadOptions, Module};

/// Whether a kernel with this body does, and another function of the module `other`.
fn behind_wait(body: &str, other: &str) -> bool {
    let text = format!(
        ".version 7.8\n.target sm_90\n.address_size 64\n\
         .func other()\n{{\n{other}\nret;\n}}\n\
         .visible .entry k(.param .u32 n)\n{{\n.reg .pred %p<2>;\n.reg .b32 %r<3>;\n\
         ld.param.u32 %r1, [n];\nsetp.eq.u32 %p1, %r1, 0;\n{body}\nret;\n}}\n"
    );
    Module::load(&text, &LoadOptions::default()).unwrap().lets_behind_wait("k")
}

#[test]
fn a_wait_stands_in_front_of_what_lets_others_begin_on_every_way() {
    const WAIT: &str = "griddepcontrol.wait;\n";
    const LAUNCH: &str = "griddepcontrol.launch_dependents;\n";
    let both = format!("{WAIT}mov.u32 %r2, 1;\n{LAUNCH}");
    let of = |body: &str| behind_wait(body, "");
    assert!(of(&both));
    assert!(of(&format!("@%p1 bra $a;\nmov.u32 %r2, 2;\n$a:\n{both}")));
    // Also where it waits twice, on two ways, of which threads take one, and in a loop.
    assert!(of(&format!("{both}@%p1 bra $a;\n{both}$a:\n")));
    assert!(of(&format!("@%p1 bra $a;\n{both}ret;\n$a:\n{both}")));
    assert!(of(&format!("$a:\n{both}@%p1 bra $a;\n")));
    // A way that fails needs neither.
    assert!(of(&format!("@%p1 bra $a;\n{both}ret;\n$a:\ntrap;\nexit;\n")));
    assert!(of(&format!("@%p1 trap;\n{both}")));
    // The other order, only one of the two, or for some threads.
    for body in [
        format!("{LAUNCH}{WAIT}"),
        format!("{LAUNCH}{both}"),
        WAIT.to_owned(),
        LAUNCH.to_owned(),
        String::new(),
        format!("@%p1 {WAIT}{LAUNCH}"),
        // Some threads end in front of it, or go around it.
        format!("@%p1 ret;\n{both}"),
        format!("@%p1 bra $a;\n{both}$a:\n"),
        format!("@%p1 bra $a;\n{both}ret;\n$a:\nmov.u32 %r2, 2;\n"),
        format!("@%p1 bra $a;\n{both}ret;\n$a:\n{LAUNCH}"),
        format!("@%p1 bra $a;\n{both}ret;\n$a:\n@%p1 exit;\n{both}"),
        // Only some of those who come by fail.
        format!("@%p1 bra $a;\n{both}ret;\n$a:\n@%p1 trap;\nexit;\n"),
        // On one of two ways to it nobody waits.
        format!("@%p1 bra $a;\n{WAIT}$a:\n{LAUNCH}"),
        // There is no way to the end.
        format!("$a:\nbra $a;\n{both}"),
    ] {
        assert!(!of(&body), "{body}");
    }
    // What it calls may let others begin anywhere, if it does at all.
    let call = format!("{both}call other, ();\n");
    assert!(behind_wait(&call, "") && behind_wait(&call, WAIT));
    assert!(!behind_wait(&call, LAUNCH) && !behind_wait(&call, &format!("{WAIT}{LAUNCH}")));
}
