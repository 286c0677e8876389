//! A signal that ends `warpsmith check -- PROGRAM` ends the program too, and what that has started.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not seen as tests
#![cfg(target_os = "linux")]

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Deaf to what asks it to end, as a program is that waits for a kernel; so is its own child. The comment is what
/// `check` knows a program by that has the software driver built in.
const PROGRAM: &str = "#!/bin/sh\n# warpsmith_software_driver\ntrap '' INT TERM HUP\nsleep 1000 &\n\
    echo $! $$ > \"$1.part\"\nmv \"$1.part\" \"$1\"\nwait\nsleep 1000\n";

/// Waits, generously, until something is so.
#[track_caller]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn lives(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // A zombie has ended; whoever is its parent now looks after it.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn interrupted_by(signal: i32, folder: &Path) {
    let (program, numbers) = (folder.join("deaf.sh"), folder.join(format!("numbers-{signal}")));
    std::fs::write(&program, PROGRAM).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
    command.args(["check", "--"]).arg(&program).arg(&numbers);
    let mut warpsmith = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let text = until("the program does not start", || std::fs::read_to_string(&numbers).ok());
    let started: Vec<i32> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert!(started.len() == 2 && started.iter().all(|p| lives(*p)), "{text}");
    // SAFETY: no pointers; the process is this one's child, which nobody has waited for.
    assert_eq!(unsafe { libc::kill(i32::try_from(warpsmith.id()).unwrap(), signal) }, 0);
    let status = until("warpsmith does not end", || warpsmith.try_wait().unwrap());
    assert_eq!(status.signal(), Some(signal), "{status}");
    until("what it started lives on", || (!started.iter().any(|p| lives(*p))).then_some(()));
}

#[test]
fn a_signal_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        interrupted_by(signal, folder.path());
    }
}
