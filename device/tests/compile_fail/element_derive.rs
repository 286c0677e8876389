use warpsmith_device::prelude::*;

/// `repr(Rust)`.
#[derive(Clone, Copy, Element)]
pub struct NoRepr {
    a: u32,
}

/// Three bytes between the fields.
#[derive(Clone, Copy, Element)]
#[repr(C)]
pub struct Padding {
    a: u8,
    b: u32,
}

/// Bytes after the last field.
#[derive(Clone, Copy, Element)]
#[repr(C, align(16))]
pub struct Tail {
    a: u32,
}

/// A field that is no `Element`.
#[derive(Clone, Copy, Element)]
#[repr(C)]
pub struct Truth {
    a: bool,
}

/// Not `Copy`.
#[derive(Element)]
#[repr(C)]
pub struct Moved {
    a: u32,
}

/// An enum.
#[derive(Clone, Copy, Element)]
#[repr(u32)]
pub enum Choice {
    /// One.
    A,
}

/// A union.
#[derive(Clone, Copy, Element)]
#[repr(C)]
pub union Either {
    a: u32,
    b: f32,
}

/// For every type.
#[derive(Clone, Copy, Element)]
#[repr(C)]
pub struct Generic<T> {
    a: T,
}

/// Unaligned.
#[derive(Clone, Copy, Element)]
#[repr(C, packed)]
pub struct Packed {
    a: u8,
    b: u32,
}

/// Nothing.
#[derive(Clone, Copy, Element)]
#[repr(C)]
pub struct Empty;

fn main() {}
