//! What an instruction of sm_90 occupies: the issue slot that each one takes, and the pipe behind it.
//!
//! Results a clock and multiprocessor are those of the table "Throughput of Native Arithmetic Instructions" of the CUDA
//! C++ Programming Guide for compute capability 9.0, and for matrix instructions those of [`Rates`]. Four warps issue a clock,
//! which is 128 lanes. Not measured: those of `IDP` and `BMMA` are
//! assumed, as neither is published for this architecture, and a GPU may correct any of them.

use warpsmith_arch::{PARTITIONS, Rates, WARP};

use super::sass::Instruction;

/// Lanes that a multiprocessor issues a clock.
pub const ISSUE: f64 = (PARTITIONS * WARP) as f64;

/// A group of instructions that share a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pipe {
    /// f32 additions, multiplications, fused multiply-adds.
    F32,
    /// f16 and bf16 arithmetic, among it f16 to f32.
    Half,
    /// Integer multiply-adds, also as moves and shifts.
    Imad,
    /// Packed dot products of bytes.
    Dp4a,
    /// Logic, shifts, permutations, comparisons, selections, integer additions.
    Alu,
    /// Conversions between integers and floats.
    Convert,
    /// Bit counts and searches.
    Popc,
    /// Special functions.
    Mufu,
    /// Shuffles and reductions of a warp.
    Shuffle,
    /// Shared memory.
    Shared,
    /// Global and local memory.
    Global,
    /// Matrix instructions.
    Tensor,
    /// The datapath of a warp's uniform registers.
    Uniform,
    /// Branches, barriers, special registers, constants, everything else.
    Control,
}

impl Pipe {
    /// How many there are.
    pub const COUNT: usize = Pipe::Control as usize + 1;

    /// As reports have it.
    pub fn name(self) -> &'static str {
        match self {
            Pipe::F32 => "f32",
            Pipe::Half => "half",
            Pipe::Imad => "imad",
            Pipe::Dp4a => "dp4a",
            Pipe::Alu => "alu",
            Pipe::Convert => "convert",
            Pipe::Popc => "popc",
            Pipe::Mufu => "mufu",
            Pipe::Shuffle => "shuffle",
            Pipe::Shared => "shared",
            Pipe::Global => "global",
            Pipe::Tensor => "tensor",
            Pipe::Uniform => "uniform",
            Pipe::Control => "control",
        }
    }

    /// Of an instruction.
    pub fn of(i: &Instruction) -> Pipe {
        let stem = i.stem();
        match stem {
            "FFMA" | "FADD" | "FMUL" | "FFMA32I" | "FADD32I" | "FMUL32I" => Pipe::F32,
            "HFMA2" | "HADD2" | "HMUL2" | "HMNMX2" | "HSET2" | "HSETP2" => Pipe::Half,
            "IMAD" | "IMUL" => Pipe::Imad,
            "IDP" | "IDP4A" => Pipe::Dp4a,
            "I2F" | "F2I" | "F2F" | "F2FP" | "I2I" | "FRND" => Pipe::Convert,
            "POPC" | "FLO" | "BREV" => Pipe::Popc,
            "MUFU" => Pipe::Mufu,
            "SHFL" | "REDUX" | "CREDUX" => Pipe::Shuffle,
            "LDS" | "STS" | "LDSM" | "STSM" | "ATOMS" => Pipe::Shared,
            "LDG" | "STG" | "LD" | "ST" | "LDGSTS" | "LDL" | "STL" | "ATOM" | "ATOMG" | "RED" | "UBLKCP"
            | "UTMALDG" => Pipe::Global,
            // Asks for a line ahead.
            "CCTL" if i.opcode.contains("PF") => Pipe::Global,
            "HMMA" | "IMMA" | "BMMA" | "DMMA" | "QMMA" | "HGMMA" | "IGMMA" | "BGMMA" | "QGMMA" => Pipe::Tensor,
            "LOP3" | "PLOP3" | "SHF" | "SHL" | "SHR" | "PRMT" | "SEL" | "FSEL" | "ISETP" | "FSETP" | "FSET"
            | "IADD3" | "IADD" | "VIADD" | "LEA" | "IMNMX" | "VIMNMX" | "FMNMX" | "IABS" | "SGXT" | "BMSK" | "MOV"
            | "MOV32I" | "I2FP" | "P2R" | "R2P" | "VOTE" | "FCHK" | "LOP" | "VIADDMNMX" => Pipe::Alu,
            // `ULDC`, `UMOV`, `R2UR` and so on; constants by `LDC` go another way.
            _ if stem.starts_with('U') || stem == "R2UR" => Pipe::Uniform,
            _ => Pipe::Control,
        }
    }

    /// Lanes a clock and multiprocessor; for shared and global memory one request of a warp a clock, whatever its width. Those of tensor cores
    /// differ from instruction to instruction.
    pub fn lanes(self) -> Option<f64> {
        match self {
            Pipe::F32 | Pipe::Half | Pipe::Control | Pipe::Uniform => Some(ISSUE),
            Pipe::Imad | Pipe::Dp4a | Pipe::Alu => Some(64.0),
            Pipe::Convert | Pipe::Popc | Pipe::Mufu => Some(16.0),
            Pipe::Shuffle | Pipe::Shared | Pipe::Global => Some(32.0),
            Pipe::Tensor => None,
        }
    }

    /// Those of an instruction.
    pub fn rate(i: &Instruction) -> f64 {
        match Pipe::of(i) {
            Pipe::Shuffle if i.stem() != "SHFL" => 16.0,
            pipe => pipe.lanes().unwrap_or_else(|| tensor(&i.opcode)),
        }
    }
}

/// Lanes of warps that a multiprocessor's tensor cores take a clock, by multiply-adds.
fn tensor(opcode: &str) -> f64 {
    // The shape as in `HMMA.16816.F32`: m16 n8 k16.
    let k = opcode.split('.').find_map(|m| match m {
        "168256" => Some(256.0),
        "168128" => Some(128.0),
        "16864" => Some(64.0),
        "16832" => Some(32.0),
        "16816" => Some(16.0),
        "1688" => Some(8.0),
        "1684" => Some(4.0),
        _ => None,
    });
    let products = 16.0 * 8.0 * k.unwrap_or(16.0);
    let peak = match opcode.split('.').next() {
        Some("BMMA") => f64::from(Rates::SM90.tensor_b1),
        Some("IMMA" | "QMMA") => f64::from(Rates::SM90.tensor_int8),
        Some("DMMA") => f64::from(Rates::SM90.fp64),
        _ if opcode.contains("TF32") => f64::from(Rates::SM90.tensor_f16 / 2),
        _ => f64::from(Rates::SM90.tensor_f16),
    };
    32.0 * peak / products
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(opcode: &str) -> (Pipe, f64) {
        let i = Instruction {
            address: 0,
            ptx_line: 0,
            guard: String::new(),
            opcode: opcode.to_owned(),
            operands: String::new(),
        };
        (Pipe::of(&i), Pipe::rate(&i))
    }

    #[test]
    fn an_instruction_has_a_pipe_and_its_rate() {
        assert_eq!(of("FFMA.FTZ"), (Pipe::F32, 128.0));
        assert_eq!(of("LOP3.LUT"), (Pipe::Alu, 64.0));
        assert_eq!(of("IMAD.MOV.U32"), (Pipe::Imad, 64.0));
        assert_eq!(of("ULDC.64"), (Pipe::Uniform, 128.0));
        assert_eq!(of("LDG.E.128.CONSTANT"), (Pipe::Global, 32.0));
        assert_eq!((of("CCTL.E.PF2"), of("CCTL.IVALL").0), ((Pipe::Global, 32.0), Pipe::Control));
        // One of m16n8k16 a clock: 2048 multiply-adds.
        assert_eq!(of("HMMA.16816.F32"), (Pipe::Tensor, 32.0));
        assert_eq!(of("IMMA.16832.S8.S8"), (Pipe::Tensor, 32.0));
    }
}
