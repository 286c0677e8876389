//! warpsmith
