//! `libcuda.so.1`: every `cu*` function of [`warpsmith_driver_api`], exported by name.

extern crate warpsmith_driver_api;
