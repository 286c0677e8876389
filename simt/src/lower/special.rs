//! Special registers.

use super::operand::{V, X};
use super::proto::{Builder, Lowered};
use crate::exec::lanes::map0;
use crate::exec::layout::{RESERVED, uniform};
use crate::exec::{OpFn, control, int};
use crate::note::Taint;
use crate::program::Const;
use crate::ptx::ast::Type;

impl Builder<'_> {
    /// The value of a special register.
    pub(super) fn special(&mut self, name: &str, is_wide: bool) -> Lowered<V> {
        let (base, dimension) = match name.split_once('.') {
            None => (name, 0),
            Some((base, d)) => (
                base,
                match d {
                    "x" => 0,
                    "y" => 1,
                    "z" => 2,
                    _ => 3,
                },
            ),
        };
        let constant = |b: &mut Self, v: u64| Ok(b.constant(Const::Bits(v), is_wide));
        let lanes = |b: &mut Self, f: OpFn| {
            let narrow = b.temp(false);
            b.given(f, narrow);
            Ok(b.widened(narrow, is_wide))
        };
        let slot = match base {
            // The fourth component of the vectors is 0, or 1 for sizes.
            "tid" | "ctaid" | "cluster_ctaid" | "clusterid" if dimension == 3 => return constant(self, 0),
            "ntid" | "nctaid" | "cluster_nctaid" | "nclusterid" if dimension == 3 => return constant(self, 1),
            "tid" => {
                let d = self.temp(is_wide);
                let op = self.given(control::thread_index, d);
                (op.imm, op.x) = (dimension as u64, X::Raw(is_wide.into()));
                return Ok(d);
            }
            "laneid" => return lanes(self, map0(|l| l as u32)),
            "lanemask_eq" => return lanes(self, map0(|l| 1u32 << l)),
            "lanemask_lt" => return lanes(self, map0(|l| (1u32 << l) - 1)),
            "lanemask_le" => return lanes(self, map0(|l| ((2u64 << l) as u32).wrapping_sub(1))),
            "lanemask_gt" => return lanes(self, map0(|l| !((2u64 << l) as u32).wrapping_sub(1))),
            "lanemask_ge" => return lanes(self, map0(|l| !((1u32 << l) - 1))),
            "ntid" => uniform::NTID + dimension,
            "ctaid" | "clusterid" => uniform::CTAID + dimension,
            "nctaid" | "nclusterid" => uniform::NCTAID + dimension,
            "warpid" => uniform::WARPID,
            "nwarpid" => uniform::NWARPID,
            "smid" => uniform::SMID,
            "nsmid" => uniform::NSMID,
            "gridid" => uniform::GRIDID,
            "dynamic_smem_size" => uniform::DYNAMIC_SHARED,
            "total_smem_size" | "aggr_smem_size" => uniform::TOTAL_SHARED,
            // A cluster is one block.
            "cluster_ctaid" | "cluster_ctarank" | "current_graph_exec" => return constant(self, 0),
            "cluster_nctaid" | "cluster_nctarank" => return constant(self, 1),
            "clock" | "clock64" | "globaltimer" | "globaltimer_lo" | "clock_hi" | "globaltimer_hi" => {
                let d = self.temp(is_wide);
                let op = self.given(control::clock, d);
                op.x = X::Raw(is_wide.into());
                op.imm = if base.ends_with("_hi") { 32 } else { 0 };
                return Ok(d);
            }
            // Where a cooperative launch has its workspace.
            "envreg1" => uniform::WORKSPACE_HIGH,
            "envreg2" => uniform::WORKSPACE_LOW,
            _ if base.starts_with("envreg") => return constant(self, 0),
            "reserved_smem_offset_cap" => return constant(self, RESERVED.into()),
            "reserved_smem_offset_begin" | "reserved_smem_offset_0" => return self.reserved(0, is_wide),
            "reserved_smem_offset_1" => return self.reserved(RESERVED / 2, is_wide),
            "reserved_smem_offset_end" => return self.reserved(RESERVED, is_wide),
            _ => return Err(format!("special register `%{name}` is not supported")),
        };
        let d = self.temp(is_wide);
        let op = self.given(control::uniform, d);
        (op.imm, op.x) = (slot as u64, X::Raw(is_wide.into()));
        Ok(d)
    }

    /// An offset in the shared memory that is reserved for the system.
    fn reserved(&mut self, offset: u32, is_wide: bool) -> Lowered<V> {
        self.reserved = true;
        let d = self.temp(is_wide);
        let op = self.given(control::uniform, d);
        (op.imm, op.x) = (uniform::RESERVED as u64, X::Raw(is_wide.into()));
        if offset != 0 {
            let ty = if is_wide { Type::U64 } else { Type::U32 };
            let add = int::bin(int::Bin::Add, ty).ok_or("this special register is not supported")?;
            let by = self.constant(Const::Bits(offset.into()), is_wide);
            self.op2(add, Taint::Left, d, [d, by]);
        }
        Ok(d)
    }
}
