mod common;
use common::*;

#[test]
fn corpus() {
    let Ok(dir) = std::env::var("PTX_CORPUS") else { return };
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "ptx") { continue }
        let text = std::fs::read_to_string(&path).unwrap();
        match warpsmith_simt::Module::load(&text, &warpsmith_simt::LoadOptions { sm: 90 }) {
            Ok(m) => println!("{}: {:?}", path.display(), m.kernels().map(|k| (k.name.clone(), k.registers, k.static_shared, k.local_bytes)).collect::<Vec<_>>()),
            Err(e) => println!("{}: FAIL\n{e}", path.display()),
        }
    }
}

#[test]
fn adds() {
    assert_eq!(op32("add.s32 %d, %a, %b;", &[1, 2], &[3, 4], &[0, 0]), [4, 6]);
}
