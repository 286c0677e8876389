//! From an instruction to operations: the dispatch by opcode.

use super::floating::is_float;
use super::integer::unsupported;
use super::mods::Mods;
use super::proto::{Builder, Lowered};
use crate::ptx::ast::Instruction;

impl Builder<'_> {
    /// Decodes one instruction; `begin` has been called for it.
    pub(super) fn decode(&mut self, i: &Instruction) -> Lowered<()> {
        let m = &Mods::new(i);
        // Modifiers may stand in any order.
        let float = i.modifiers.iter().any(|w| is_float(w));
        match i.opcode.as_str() {
            "ld" | "ldu" => self.load(i, m),
            "st" | "red" if m.take("async") => self.store_async(i, m),
            "st" => self.store(i, m),
            "mov" => self.mov(i, m),
            "add" | "sub" | "mul" | "mad" | "fma" | "div" | "min" | "max" | "neg" | "abs" if float => self.float(i, m),
            "add" => self.add_sub(i, m, false),
            "sub" => self.add_sub(i, m, true),
            "mul" | "mad" | "madc" | "mul24" | "mad24" => self.multiply(i, m),
            "setp" => self.setp(i, m),
            "bra" => self.branch(i, m),
            "cvt" => self.cvt(i, m),
            "cvta" => self.cvta(i, m),
            "and" | "or" | "xor" => self.logic(i, m),
            "shl" | "shr" => self.shift(i, m),
            "selp" => self.selp(i, m),
            "addc" => self.add_sub_carry(i, m, false),
            "subc" => self.add_sub_carry(i, m, true),
            "div" | "rem" => self.divide(i, m),
            "min" | "max" => self.extreme(i, m),
            "neg" | "abs" | "not" | "cnot" | "popc" | "clz" | "brev" | "bfind" => self.unary_int(i, m),
            "shf" | "prmt" | "bfe" | "bfi" | "bmsk" | "szext" | "fns" | "sad" | "dp4a" | "dp2a" => self.fields(i, m),
            "vadd" | "vsub" | "vabsdiff" | "vmin" | "vmax" | "vshl" | "vshr" | "vmad" | "vset" => self.video(i, m),
            "vadd2" | "vsub2" | "vavrg2" | "vabsdiff2" | "vmin2" | "vmax2" | "vset2" | "vadd4" | "vsub4" | "vavrg4"
            | "vabsdiff4" | "vmin4" | "vmax4" | "vset4" => self.video_parts(i, m),
            "lop3" => self.lop3(i, m),
            "set" => self.set(i, m),
            "slct" => self.slct(i, m),
            "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" => self.function(i, m),
            "copysign" => self.copysign(i, m),
            "testp" => self.testp(i, m),
            "isspacep" => self.isspacep(i, m),
            "atom" | "red" => self.atomic(i, m),
            "fence" | "membar" => self.fence(i, m),
            "cp" => self.copy_async(i, m),
            "prefetch" | "prefetchu" | "applypriority" | "discard" | "createpolicy" | "nanosleep" | "pmevent"
            | "griddepcontrol" | "setmaxnreg" => self.hint(i, m),
            "mbarrier" => self.mbarrier(i, m),
            "brx" => self.branch_indexed(i, m),
            "call" => self.call(i, m),
            "ret" | "exit" | "trap" | "brkpt" => self.stop(i, m),
            "bar" | "barrier" => self.barrier(i, m),
            "shfl" => self.shuffle(i, m),
            "vote" | "match" | "redux" | "elect" => self.gather(i, m),
            "alloca" | "stacksave" | "stackrestore" => self.stack(i, m),
            "mapa" | "getctarank" => self.cluster_address(i, m),
            "activemask" => self.activemask(i, m),
            "mma" => self.mma(i, m),
            "ldmatrix" | "stmatrix" => self.matrix_access(i, m),
            "movmatrix" => self.move_matrix(i, m),
            "wmma" => self.wmma(i, m),
            _ => Err(unsupported(&format!("instruction `{}`", full_name(i)))),
        }
    }
}

/// Opcode and modifiers as they stand in the text.
fn full_name(i: &Instruction) -> String {
    i.modifiers.iter().fold(i.opcode.clone(), |name, word| name + "." + word)
}
