//! Where cargo has left the library of this build.

use std::path::PathBuf;

/// `<target>/<profile>/software-cuda`: the links that this package's build script lays. What they lead to is built before the
/// tests of this package are.
pub fn software_cuda() -> PathBuf {
    // <target>/<profile>/deps/<this test>
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("software-cuda")
}
