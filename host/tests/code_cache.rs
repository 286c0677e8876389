//! Compiled code on disk, as processes meet it: each of these tests runs this program again, which loads one kernel and says how
//! often it let the driver compile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gpu_kernels::elementwise::ResidualAdd;
use warpsmith_host::driver::software;
use warpsmith_host::{Device, code_cache};

/// What the child writes before its figures.
const SAYS: &str = "compiled, loaded: ";

/// Not a test of its own: what the others run.
#[test]
#[ignore = "run by the other tests, with a cache"]
fn adds_one_vector() {
    let device = Device::open(0).unwrap();
    let stream = device.stream().unwrap();
    let x = stream.upload(&[1.0f32; 64]).unwrap();
    let mut y = stream.zeros::<f32>(64).unwrap();
    stream.launch(ResidualAdd { x: &x, residual: &x, y: &mut y, n: 64 }).unwrap();
    assert_eq!(stream.read(&y).unwrap(), [2.0; 64]);
    let counts = software::call_counts();
    let loaded = counts.get("cuModuleLoadDataEx") + counts.get("cuModuleLoadData");
    println!("{SAYS}{} {loaded}", counts.get("cuLinkComplete"));
}

/// A process that adds a vector, with the cache at a place.
fn start(cache: &str, variables: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "adds_one_vector", "--ignored", "--nocapture"])
        .env("WARPSMITH_DRIVER", "software")
        .env(code_cache::VARIABLE, cache)
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// How often it let the driver compile, and load.
#[track_caller]
fn end(child: Child) -> (u32, u32) {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let said = text.split(SAYS).nth(1).unwrap_or_else(|| panic!("{text}"));
    let mut figures = said.split_whitespace().map(|n| n.parse().unwrap());
    (figures.next().unwrap(), figures.next().unwrap())
}

/// A folder of its own for a test; removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("warpsmith-code-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// What lies in it.
    fn files(&self) -> Vec<PathBuf> {
        let list = std::fs::read_dir(&self.0).into_iter().flatten();
        list.map(|file| file.unwrap().path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[track_caller]
fn only(folder: &Folder) -> PathBuf {
    let files = folder.files();
    let [file] = &files[..] else { panic!("{files:?}") };
    file.clone()
}

#[test]
fn ox_22_an_entry_is_of_one_text_architecture_and_driver() {
    let folder = Folder::new("second");
    assert_eq!(end(start(folder.text(), &[])), (1, 1));
    let entry = only(&folder);
    assert_eq!(end(start(folder.text(), &[])), (0, 1));
    assert_eq!(only(&folder), entry);
    // Another architecture is another entry; the first is still good.
    assert_eq!(end(start(folder.text(), &[("WARPSMITH_SM", "80")])), (1, 1));
    assert_eq!(folder.files().len(), 2);
    assert_eq!(end(start(folder.text(), &[])), (0, 1));
}

#[test]
fn a_damaged_entry_is_made_anew() {
    let folder = Folder::new("damaged");
    end(start(folder.text(), &[]));
    let entry = only(&folder);
    let whole = std::fs::read(&entry).unwrap();
    for damaged in [&whole[..whole.len() / 2], b"", b"what is this?"] {
        std::fs::write(&entry, damaged).unwrap();
        assert_eq!(end(start(folder.text(), &[])), (1, 1), "{} bytes", damaged.len());
        assert_eq!(std::fs::read(&entry).unwrap(), whole, "it is replaced");
    }
    assert_eq!(end(start(folder.text(), &[])), (0, 1));
}

#[test]
fn processes_race_for_an_entry() {
    let folder = Folder::new("race");
    let children: Vec<Child> = (0..4).map(|_| start(folder.text(), &[])).collect();
    let compiled: u32 = children.into_iter().map(|child| end(child).0).sum();
    assert!((1..=4).contains(&compiled), "{compiled}");
    only(&folder);
    assert_eq!(end(start(folder.text(), &[])), (0, 1));
}

#[test]
fn it_can_be_switched_off_and_fails_no_load() {
    let folder = Folder::new("off");
    let home = [("XDG_CACHE_HOME", folder.text())];
    assert_eq!(end(start("0", &home)), (0, 1));
    assert_eq!(end(start("off", &home)), (0, 1));
    // The software driver compiles nothing: it has a cache only where one is asked for by name.
    assert_eq!(end(start("", &home)), (0, 1));
    assert!(!Path::new(folder.text()).exists());
    // A file where the folder should be: compiled, not kept, and the kernel runs.
    std::fs::write(&folder.0, "no folder").unwrap();
    assert_eq!(end(start(folder.text(), &[])), (1, 1));
    std::fs::remove_file(&folder.0).unwrap();
}
