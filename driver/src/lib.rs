//! The CUDA driver API: the real one where there is one, else a software one
