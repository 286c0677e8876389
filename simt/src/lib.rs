//! A SIMT machine: runs PTX on the CPU
