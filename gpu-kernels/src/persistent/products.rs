//! The phases that are products: of weights in the layouts that the activations have products with, whichever a matrix has.

use super::{
    LayoutNumber,
    arguments::Arguments,
    at::{At, Taken},
    frame::{PhaseProduct, UNITS},
};
use crate::{
    format::{self, decode::Decode},
    gemv::{
        PAIRS, ROWS,
        epilogue::Epilogue,
        frame as product, half, int8, planes,
        quant_format::{self, NONE},
        quantized::{Invocation, QuantizedArgs},
    },
    load::{again, sync_role},
};
use warpsmith_device::prelude::*;

/// A phase as the products of quantized activations find it.
#[derive(Clone, Copy)]
struct Phase<'a, const QUANT: u32, const THREADS: u32> {
    a: &'a Arguments,
    shared: Shared<F32x4>,
    role: Taken<THREADS>,
}

impl<const QUANT: u32, const THREADS: u32> Invocation for Phase<'_, QUANT, THREADS> {
    type Role = Taken<THREADS>;
    #[inline(always)]
    fn role(self) -> Self::Role {
        self.role
    }
    #[inline(always)]
    unsafe fn args(self) -> QuantizedArgs {
        let a = self.a;
        // SAFETY: the phase is a product of a layer of the launch.
        let (at, PhaseProduct { weights, shape: (rows, cols), parts, block_units, epilogue, .. }) = unsafe {
            let at = At::kept(self.shared);
            (at, a.product::<QUANT>(at))
        };
        let x = if at.phase == 0 || at.phase == 3 { a.quantized_scaled } else { a.quantized_inner };
        let pairs = if QUANT == quant_format::F16X2 { PAIRS } else { 0 };
        QuantizedArgs {
            weights,
            // SAFETY: blocks wrote it before a barrier of the grid.
            x: unsafe { Awaited::from_raw(x.ptr()).buffer() },
            rows,
            cols,
            columns: 1,
            block_units,
            sums: a.sums.into(),
            parts,
            eps: a.layer.eps,
            epilogue: Epilogue { flags: epilogue.flags | pairs, ..epilogue },
            experts: None,
            quantizer: a.quantizer::<QUANT>(at),
            kept: None,
        }
    }
    #[inline(always)]
    unsafe fn again(self) -> QuantizedArgs {
        // SAFETY: the caller's promise.
        unsafe { Phase::<QUANT, THREADS> { a: &self.a.anew(), ..self }.args() }
    }
    #[inline(always)]
    unsafe fn begin(self, _: u32, _: u32, _ahead: bool) {}
    #[inline(always)]
    unsafe fn wait(self) {}
}

/// The sums of the rows of a role, of weights in f32's products, of the layout with a number.
///
/// All threads of the block make this call.
#[device]
unsafe fn products(
    args: &product::GemvArgs,
    layout: u32,
    rows: [usize; ROWS],
    shared: Shared<F32x4>,
) -> [[f32; 1]; ROWS] {
    macro_rules! of {
        (() $($F:ident $part:tt $formats:tt)*) => { $(
            if again(layout) == LayoutNumber::$F as u32 {
                // Known anew, or what follows from it for each layout is worked out before it is asked which one it is.
                let (cols, block_units) = (again(args.cols as u32) as usize, again(args.block_units));
                let (args, record) =
                    (product::GemvArgs { cols, block_units, ..*args }, format::$F::record(cols, block_units));
                return product::products::<format::$F, ROWS, 1, UNITS>(&args, &record, rows, 0, shared);
            }
        )* };
    }
    crate::formats! { product of () }
    // There is no such layout.
    [[0.0]; ROWS]
}

/// What a phase's product of f32 takes, and the number of its weights' layout.
#[inline(always)]
unsafe fn args_of(a: &Arguments, shared: Shared<F32x4>) -> (product::GemvArgs, u32) {
    // SAFETY: the phase is a product of a layer of the launch.
    let (at, PhaseProduct { weights, shape: (rows, cols), parts, block_units, layout, epilogue }) = unsafe {
        let at = At::kept(shared);
        (at, a.product::<NONE>(at))
    };
    let x = match at.phase {
        0 | 3 => a.scaled,
        2 => a.attended,
        _ => a.inner,
    };
    let args = product::GemvArgs {
        weights,
        x: x.into(),
        sums: a.sums.into(),
        rows: rows as usize,
        cols: cols as usize,
        columns: 1,
        x_stride: 0,
        parts: parts as usize,
        block_units,
        eps: a.layer.eps,
        epilogue,
        experts: None,
    };
    (args, layout)
}

/// A phase that is a product of f32.
///
/// All threads of the grid make this call.
#[device]
pub unsafe fn multiply(a: &Arguments, at: At, shared: Shared<F32x4>) {
    let role = a.roles::<NONE, { super::THREADS }>(at, shared);
    while role.is_there() {
        // Lanes of a row are the same for all layouts.
        let lanes = |args: &product::GemvArgs| format::F32::record(args.cols, 0);
        let acc = {
            let (args, layout) = args_of(&a.anew(), shared);
            products(&args, layout, product::rows_of_role(&args, &lanes(&args), role), shared)
        };
        let (args, _) = args_of(&a.anew(), shared);
        product::finish::<1>(&args, role, &lanes(&args), product::Part::FIRST, &acc, shared);
        role.advance();
    }
}

/// Of the kinds of activations that layouts have products with, those that are wanted.
macro_rules! lanes_of {
    (($wanted:ident $bytes:literal $given:tt) $($F:ident { $($kind:ident: $blocks:literal, $name:ident $Name:ident $shared:ident;)* } $formats:tt)*) => { $($(
        lanes_of! { $wanted $kind $F $bytes $given }
    )*)* };
    (I8 I8 $F:ident $bytes:literal $given:tt) => { lanes_of! { $F $bytes $given } };
    (I16 I16 $F:ident $bytes:literal $given:tt) => { lanes_of! { $F $bytes $given } };
    ($F:ident $bytes:literal ($layout:ident $given:ident)) => {
        if again($layout) == LayoutNumber::$F as u32 {
            let (acc, zero, _) = int8::frame::lanes::<format::$F, $bytes>($given);
            return (acc, zero);
        }
    };
    ($wanted:ident $kind:ident $F:ident $bytes:literal $given:tt) => {};
}

/// What a lane has of its rows, of weights of the layout with a number, times bytes of eight bits.
#[device]
unsafe fn lanes_i8(layout: u32, given: impl Invocation) -> ([f32; int8::ROWS], u32) {
    crate::formats! { quantized lanes_of (I8 1 (layout given)) }
    // There is no such layout.
    ([0.0; int8::ROWS], 0)
}

/// As [`lanes_i8`], times two bytes.
#[device]
unsafe fn lanes_i16(layout: u32, given: impl Invocation) -> ([f32; int8::ROWS], u32) {
    crate::formats! { quantized lanes_of (I16 2 (layout given)) }
    // There is no such layout.
    ([0.0; int8::ROWS], 0)
}

/// A phase that is a product of activations of eight or 16 bits, in bytes.
///
/// All threads of the grid make this call.
#[device]
pub unsafe fn multiply_bytes<const QUANT: u32>(a: &Arguments, at: At, shared: Shared<F32x4>) {
    let role = a.roles::<QUANT, { int8::THREADS }>(at, shared);
    while role.is_there() {
        // What the last role left in shared memory was read.
        sync_role(role);
        let a = &a.anew();
        let given = Phase::<QUANT, { int8::THREADS }> { a, shared, role };
        let layout = a.matrix(At::kept(shared)).layout;
        let (acc, zero) = if QUANT == quant_format::I8 { lanes_i8(layout, given) } else { lanes_i16(layout, given) };
        int8::frame::finish(&given.again(), role, zero, &acc, shared.cast());
        role.advance();
    }
}

/// Of the kinds of activations that layouts have products with, those in f16.
macro_rules! sums_of {
    ($given:tt $($F:ident { $($kind:ident: $blocks:literal, $name:ident $Name:ident $shared:ident;)* } $formats:tt)*) => { $($(
        sums_of! { $kind $F $given }
    )*)* };
    (F16 $F:ident ($layout:ident $given:ident)) => {
        if again($layout) == LayoutNumber::$F as u32 {
            return half::one::sums::<format::$F>($given);
        }
    };
    ($kind:ident $F:ident $given:tt) => {};
}

/// What a warp has of its run of rows of weights of the layout with a number, times f16.
#[device]
unsafe fn sums_f16(layout: u32, given: impl Invocation) -> (half::one::LaneSums, f32) {
    crate::formats! { quantized sums_of (layout given) }
    // There is no such layout.
    ([0.0; 8], 1.0)
}

/// A phase that is a product of activations in f16, one or two for each.
///
/// All threads of the grid make this call.
#[device]
pub unsafe fn multiply_halves<const QUANT: u32>(a: &Arguments, at: At, shared: Shared<F32x4>) {
    let role = a.roles::<QUANT, { super::THREADS }>(at, shared);
    while role.is_there() {
        // What the last role left in shared memory was read.
        sync_role(role);
        let a = &a.anew();
        let given = Phase::<QUANT, { super::THREADS }> { a, shared, role };
        let sums = sums_f16(a.matrix(At::kept(shared)).layout, given);
        half::one::finish(&given.again(), role, sums, shared.cast());
        role.advance();
    }
}

/// A phase that is a product of activations in bit planes.
///
/// All threads of the grid make this call.
#[device]
pub unsafe fn multiply_planes<F: Decode, const BYTES: usize, const BITS: usize, const QUANT: u32>(
    a: &Arguments,
    at: At,
    shared: Shared<F32x4>,
) {
    let role = a.roles::<QUANT, { planes::THREADS }>(at, shared);
    while role.is_there() {
        // What the last role left in shared memory was read.
        sync_role(role);
        let given = Phase::<QUANT, { planes::THREADS }> { a, shared, role };
        planes::frame::product::<F, BYTES, BITS>(given, shared.cast());
        role.advance();
    }
}
