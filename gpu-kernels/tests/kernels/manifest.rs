//! The host's list of kernels against what the device build found.

use crate::machine::output;
use gpu_kernels::catalogue;

#[test]
fn the_catalogue_is_the_manifest() {
    let manifest = &output().manifest;
    let mut host: Vec<_> = catalogue().iter().map(|m| m.name).collect();
    let mut device: Vec<_> = manifest.kernels.iter().map(|k| k.name.as_str()).collect();
    host.sort_unstable();
    device.sort_unstable();
    assert_eq!(host, device);
    for meta in catalogue() {
        let kernel = manifest.kernels.iter().find(|k| k.name == meta.name).unwrap();
        assert_eq!(kernel.family, meta.family, "{}", meta.name);
        assert_eq!(kernel.variant, meta.variant, "{}", meta.name);
        assert_eq!(kernel.block, meta.block, "{}", meta.name);
        let args: Vec<_> = kernel.args.iter().map(|a| (a.name.as_str(), a.size)).collect();
        let expected: Vec<_> = meta.args.iter().map(|a| (a.name, a.size)).collect();
        assert_eq!(args, expected, "{}", meta.name);
    }
}
