//! For build scripts: a crate of kernels to PTX and a manifest
