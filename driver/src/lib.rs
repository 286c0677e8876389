//! `libcuda.so.1`: every `cu*` function of [`warpsmith_driver_api`], exported by name.

pub use warpsmith_driver_api as api;
