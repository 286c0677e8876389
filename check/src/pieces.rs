//! What the instructions that move matrices access.

use warpsmith_simt::machine::fragment::{self, Piece};
use warpsmith_simt::machine::note::Taint;
use warpsmith_simt::machine::{Cx, Op};

/// The pieces that `ldmatrix`, `stmatrix`, `wmma.load` or `wmma.store` accesses, and whether it stores them.
///
/// # Safety
/// The contract of handlers; the taint is the operation's.
pub(crate) unsafe fn of_matrix(cx: &Cx, op: &Op, taint: Taint) -> (Vec<Piece>, bool) {
    let mut pieces = Vec::new();
    // SAFETY: by the contract.
    unsafe {
        match taint {
            Taint::LoadMatrix | Taint::StoreMatrix => fragment::matrix_pieces(cx, op, |p| pieces.push(p)),
            _ => fragment::tile_pieces(cx, op, |p| pieces.push(p)),
        }
    }
    (pieces, matches!(taint, Taint::StoreMatrix | Taint::StoreTile))
}
