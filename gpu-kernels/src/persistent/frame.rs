//! The phases of a layer, and the barriers between them. What a launch writes is read as [`InOut`], so past no cache that may be
//! stale.

use super::{ATTEND, LINE, PHASES, arguments::Arguments, by_decoder};
use crate::{
    attention::step::{self, frame as attention},
    format::{self, decode::QUADS},
    gemv::{self, ADD, NEXT, NORM, ROWS, SWIGLU, epilogue::Epilogue, frame as product},
    kv::cached::Cached,
    load::{Role, Source},
};
use warpsmith_device::prelude::*;

/// Units of a row that are staged at once, as by the products' own entry points.
const UNITS: usize = 128;

/// Bytes of shared memory: what the phase that needs most does.
pub const SHARED: usize = {
    let staged = UNITS * QUADS * size_of::<F32x4>();
    if staged > attention::Memory::BYTES { staged } else { attention::Memory::BYTES }
};

/// A block of the launch that a layer would be without grid barriers.
#[derive(Clone, Copy)]
struct Taken {
    block: u32,
    blocks: u32,
}

impl Role for Taken {
    #[inline(always)]
    fn block(self) -> u32 {
        self.block
    }
    #[inline(always)]
    fn blocks(self) -> u32 {
        self.blocks
    }
    #[inline(always)]
    fn column(self) -> u32 {
        0
    }
}

/// The number, of which the compiler does not know: there is one copy of the code behind it, not one for each number.
#[inline(always)]
fn opaque(n: u32) -> u32 {
    let same: u32;
    // SAFETY: a move between registers.
    unsafe {
        core::arch::asm!("mov.u32 {0}, {1};", lateout(reg32) same, in(reg32) n, options(nomem, nostack, preserves_flags));
    }
    same
}

/// A product, and which decoder it takes.
struct Product {
    args: product::Args,
    decoder: u32,
}

impl Arguments {
    /// The weights of the four products.
    #[inline(always)]
    fn weights(&self) -> [In<U32x4>; 4] {
        [self.qkv_weights, self.output_weights, self.gate_up_weights, self.down_weights]
    }

    /// The product that is number `n` of four.
    #[inline(always)]
    fn product(&self, n: u32) -> Product {
        let (l, s) = (&self.layer, &self.sizes);
        let attended = l.q_heads * l.head_dim;
        let [qkv, output, gate_up, down] = self.weights();
        let [x, y, scaled, inner] = [self.x, self.y, self.scaled, self.inner].map(Source::from);
        let (weights, from, (rows, cols)) = match n {
            0 => (qkv, scaled, (l.qkv(), s.hidden)),
            1 => (output, self.attended.into(), (s.hidden, attended)),
            2 => (gate_up, scaled, (s.feed_forward, s.hidden)),
            _ => (down, inner, (s.hidden, s.feed_forward)),
        };
        let (to, add, flags) = match n {
            0 => (self.qkv, self.bias.into(), NORM | if s.bias != 0 { ADD } else { 0 }),
            1 => (self.y, x, ADD | NEXT),
            2 => (self.inner, x, NORM | SWIGLU),
            _ => (self.x, y, ADD | NEXT),
        };
        let [records0, records1, records2, records3] = s.matrices;
        let records = match n {
            0 => records0,
            1 => records1,
            2 => records2,
            _ => records3,
        };
        let args = product::Args {
            weights,
            x: from,
            sums: self.sums.into(),
            rows: rows as usize,
            cols: cols as usize,
            columns: 1,
            x_stride: 0,
            parts: if n == 0 { s.parts } else { gemv::parts(s.hidden, attended, false) } as usize,
            block_units: records.block_units,
            eps: l.eps,
            epilogue: Epilogue {
                add,
                next_weight: if n == 1 { self.ffn_norm } else { self.next_norm },
                y: to.into(),
                scaled: self.scaled.into(),
                next_sums: self.sums.into(),
                y_stride: 0,
                add_stride: 0,
                flags,
            },
        };
        Product { args, decoder: records.decoder }
    }

    /// Asks for weights of the product behind the phase that is next, one line a thread.
    #[inline(always)]
    unsafe fn ask(&self, phase: u32) {
        let (l, s) = (&self.layer, &self.sizes);
        let [_, output, gate_up, down] = self.weights();
        let [_, of_output, of_gate_up, of_down] = s.matrices.map(|m| m.vectors);
        let (weights, vectors, (rows, cols)) = match phase {
            0 => (output, of_output, (s.hidden, l.q_heads * l.head_dim)),
            ATTEND => (gate_up, of_gate_up, (s.feed_forward, s.hidden)),
            2 => (down, of_down, (s.hidden, s.feed_forward)),
            3 => (self.next_weights, s.next_vectors, (s.next_rows, s.hidden)),
            _ => return,
        };
        let swiglu = phase == ATTEND;
        // A block reads the rows of a role one after the other, or some of gates and as many of ups.
        let rows_of_role = gemv::groups(cols) * if swiglu { 1 } else { ROWS as u32 };
        let run = (rows_of_role * vectors).max(1);
        let at = thread::idx_x() * (LINE / size_of::<U32x4>() as u32);
        let (n, within) = (at / run, at % run);
        let (turn, up) = if swiglu { (n / 2, n % 2) } else { (n, 0) };
        let row = (block::idx_x() + turn * grid::dim_x()) * rows_of_role;
        if row < rows {
            let at = (up * rows + row) as usize * vectors as usize + within as usize;
            // SAFETY: at most a role's rows past a row of the matrix, and nothing is read there: a hint.
            unsafe { mem::prefetch_l2(weights.from(at).ptr()) }
        }
    }
}

/// A layer of one column.
///
/// All threads of the grid make this call.
#[device]
pub unsafe fn layer<T: Cached>(a: Arguments, shared: Shared<F32x4>) {
    let mut phase = 0;
    while phase < PHASES {
        let now = opaque(phase);
        let mut block = block::idx_x();
        if now == ATTEND {
            let args = attention::Args {
                qkv: a.qkv.into(),
                weights: (a.q_weight, a.k_weight),
                tables: (a.cos, a.sin),
                columns: a.columns,
                partials: a.partials,
                counters: a.counters,
                y: a.attended.into(),
                quantizer: None,
                stride: 0,
                y_stride: 0,
                layer: a.layer,
            };
            let blocks = a.layer.kv_heads * step::splits(a.layer.kv_heads);
            while block < blocks {
                // What the last role left in shared memory was read.
                sync::block();
                attention::attend::<T>(args, Taken { block, blocks }, attention::Memory::within(shared.cast()));
                block += grid::dim_x();
            }
        } else {
            let Product { args, decoder } = a.product(if now > ATTEND { now - 1 } else { now });
            let blocks = gemv::parts(args.rows as u32, args.cols as u32, args.epilogue.has(SWIGLU));
            while block < blocks {
                let role = Taken { block, blocks };
                macro_rules! run {
                    ($F:ident) => {
                        product::run::<format::$F, 1, UNITS>(&args, role, shared)
                    };
                }
                // The same choice in every thread of the grid.
                crate::formats!(persistent by_decoder (decoder, run, ()));
                block += grid::dim_x();
            }
        }
        // They come while this block waits, and in the next phase.
        a.ask(now);
        phase += 1;
        if phase < PHASES {
            grid::sync(a.barrier.ptr_at(0));
        }
    }
}
