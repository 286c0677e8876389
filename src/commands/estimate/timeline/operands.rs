//! What an instruction of machine code reads and writes: registers of a lane and of a warp, and predicates.

use crate::commands::budget::sass::Instruction;

/// A register: `R0` to `R254`, then `UR0` to `UR62`, then predicates of both kinds. `RZ`, `URZ` and `PT` are none.
pub type Register = u16;

/// How many there are.
pub const REGISTERS: usize = 256 + 64 + 8 + 8;
const UNIFORM: u16 = 256;
const PREDICATE: u16 = UNIFORM + 64;
const UNIFORM_PREDICATE: u16 = PREDICATE + 8;

/// Registers of an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    pub reads: Vec<Register>,
    pub writes: Vec<Register>,
}

/// Instructions whose first operand is no result.
fn has_no_result(stem: &str) -> bool {
    const NONE: [&str; 27] = [
        "ST",
        "STG",
        "STS",
        "STL",
        "STSM",
        "RED",
        "REDG",
        "LDGSTS",
        "UBLKCP",
        "UTMALDG",
        "BAR",
        "BRA",
        "BRX",
        "BSSY",
        "BSYNC",
        "BREAK",
        "CALL",
        "RET",
        "EXIT",
        "KILL",
        "MEMBAR",
        "CCTL",
        "NOP",
        "WARPSYNC",
        "DEPBAR",
        "SYNCS",
        "NANOSLEEP",
    ];
    NONE.contains(&stem)
}

/// Registers in a row that an operand names: of the result (0) or of a source, counted from 1.
fn width(i: &Instruction, operand: usize) -> u16 {
    let (stem, has) = (i.stem(), |modifier: &str| i.opcode.split('.').any(|m| m == modifier));
    let words = || (i.width() / 4).max(1) as u16;
    match stem {
        "LDG" | "LDS" | "LD" | "LDL" | "LDC" | "ULDC" | "LDCU" if operand == 0 => words(),
        "STG" | "STS" | "ST" | "STL" if operand > 1 => words(),
        "LDSM" | "STSM" => match () {
            () if stem == "LDSM" && operand > 0 => 1,
            () if has("4") => 4,
            () if has("2") => 2,
            () => 1,
        },
        // The shapes: m16 n8 and k behind that.
        "HMMA" | "IMMA" | "BMMA" | "QMMA" => {
            let whole =
                ["16816", "16832", "168256"].iter().any(|shape| has(shape)) && !(stem == "IMMA" && has("16816"));
            match operand {
                1 => 2 << u16::from(whole),
                2 => 1 << u16::from(whole),
                _ if stem == "HMMA" && has("F16") && !has("F32") => 2,
                _ => 4,
            }
        }
        "IMAD" | "UIMAD" if has("WIDE") && (operand == 0 || operand == 3) => 2,
        "CS2R" if !has("32") => 2,
        "DADD" | "DMUL" | "DFMA" | "DSETP" | "DMMA" => 2,
        _ => 1,
    }
}

/// The number behind a prefix, at the start of a name.
fn number(name: &str, prefix: &str) -> Option<u16> {
    let digits = name.strip_prefix(prefix)?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// The register that a name is, if it is one.
fn named(name: &str) -> Option<Register> {
    let of = |prefix, base| number(name, prefix).map(|n| base + n);
    of("UR", UNIFORM)
        .or_else(|| of("UP", UNIFORM_PREDICATE))
        .or_else(|| of("R", 0))
        .or_else(|| of("P", PREDICATE))
        .filter(|r| usize::from(*r) < REGISTERS)
}

/// Operands, which commas part.
fn operands(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|o| !o.is_empty())
}

/// All registers that an operand names: an address may have several.
fn inside(operand: &str, wide: u16, all: &mut Vec<Register>) {
    // `desc[UR6][R10.64+0x10]`: a descriptor is two registers, an address of 64 bits too.
    for (i, part) in operand.split(|c: char| "[]+-|~!".contains(c)).enumerate() {
        let Some(first) = named(part.trim()) else { continue };
        let in_brackets = operand.contains('[');
        let pair = in_brackets && (part.contains(".64") || (i == 1 && operand.starts_with("desc")));
        let many = if in_brackets { 1 + u16::from(pair) } else { wide };
        all.extend(first..first + many);
    }
}

impl Registers {
    /// Those of an instruction.
    pub fn of(i: &Instruction) -> Registers {
        let mut all = Registers::default();
        inside(i.guard.trim_start_matches(['@', '!']), 1, &mut all.reads);
        let is_predicate = |name: &str| name == "PT" || name == "UPT" || named(name).is_some_and(|r| r >= PREDICATE);
        // Results come first: two predicates of what compares, one of a vote, else predicates, a register, and behind it predicates again
        // (a carry).
        let first = match i.stem() {
            "ISETP" | "FSETP" | "DSETP" | "HSETP2" | "PLOP3" | "UISETP" | "UPLOP3" => Some(2),
            "VOTE" | "VOTEU" => Some(1),
            _ => None,
        };
        let (mut results, mut found) = (!has_no_result(i.stem()), false);
        let mut source = 0;
        for (place, operand) in operands(&i.operands).enumerate() {
            let bare = operand.strip_suffix(".reuse").unwrap_or(operand);
            let predicate = is_predicate(bare);
            let result = first.map_or(predicate || !found, |first| place < first);
            if results && result {
                let wide = if predicate { 1 } else { width(i, 0) };
                inside(bare, wide, &mut all.writes);
                found |= !predicate;
                continue;
            }
            results = false;
            source += 1;
            inside(bare, width(i, source), &mut all.reads);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(opcode: &str, operands: &str) -> Registers {
        guarded("", opcode, operands)
    }

    fn guarded(guard: &str, opcode: &str, operands: &str) -> Registers {
        let [guard, opcode, operands] = [guard, opcode, operands].map(str::to_owned);
        Registers::of(&Instruction { address: 0, ptx_line: 0, guard, opcode, operands })
    }

    fn is(found: Registers, writes: &[u16], reads: &[u16]) {
        assert_eq!(found, Registers { reads: reads.to_vec(), writes: writes.to_vec() });
    }

    const UR: u16 = UNIFORM;
    const P: u16 = PREDICATE;
    const UP: u16 = UNIFORM_PREDICATE;

    #[test]
    fn loads_write_as_many_registers_as_they_are_wide() {
        let loaded = of("LDG.E.NA.128.CONSTANT", "R36, desc[UR10][R44.64+0x200]");
        is(loaded, &[36, 37, 38, 39], &[UR + 10, UR + 11, 44, 45]);
        is(of("LDG.E.U16", "R3, desc[UR4][R2.64]"), &[3], &[UR + 4, UR + 5, 2, 3]);
        is(of("LDS.64", "R8, [R2+UR5+0x10]"), &[8, 9], &[2, UR + 5]);
        is(of("LDSM.16.M88.4", "R8, [R2]"), &[8, 9, 10, 11], &[2]);
        is(of("LDC.64", "R98, c[0x0][0x270]"), &[98, 99], &[]);
        is(of("ULDC.64", "UR4, c[0x0][0x210]"), &[UR + 4, UR + 5], &[]);
    }

    #[test]
    fn stores_write_none_and_read_what_is_stored() {
        is(of("STG.E.128", "desc[UR4][R2.64], R8"), &[], &[UR + 4, UR + 5, 2, 3, 8, 9, 10, 11]);
        is(of("STS.64", "[R2+0x8], R4"), &[], &[2, 4, 5]);
        is(of("LDGSTS.E.BYPASS.128", "[R5], desc[UR4][R2.64]"), &[], &[5, UR + 4, UR + 5, 2, 3]);
        is(of("RED.E.ADD.F32.FTZ.RN.STRONG.GPU", "desc[UR4][R2.64], R5"), &[], &[UR + 4, UR + 5, 2, 3, 5]);
        is(of("ATOMG.E.ADD.STRONG.GPU", "PT, R5, desc[UR4][R2.64], R7"), &[5], &[UR + 4, UR + 5, 2, 3, 7]);
    }

    #[test]
    fn results_are_the_predicates_before_and_behind_the_first_register() {
        is(of("IADD3", "R20, P0, R3.reuse, UR5, RZ"), &[20, P], &[3, UR + 5]);
        is(of("IADD3.X", "R21, R6, UR6, RZ, P0, !PT"), &[21], &[6, UR + 6, P]);
        is(of("ISETP.NE.U32.OR", "P0, PT, R120, RZ, !P1"), &[P], &[120, P + 1]);
        is(of("LOP3.LUT", "P2, RZ, R124, 0x20, RZ, 0xc0, !PT"), &[P + 2], &[124]);
        is(of("SHFL.BFLY", "PT, R5, R4, 0x10, 0x1f"), &[5], &[4]);
        is(of("PLOP3.LUT", "P0, PT, P1, P2, PT, 0x80, 0x0"), &[P], &[P + 1, P + 2]);
        is(of("UISETP.NE.AND", "UP0, UPT, UR4, URZ, UPT"), &[UP], &[UR + 4]);
        is(of("VOTE.ANY", "R5, PT, P0"), &[5], &[P]);
        is(of("VOTE.ALL", "P1, P0"), &[P + 1], &[P]);
        is(guarded("@!P3", "SEL", "R86, R21, -R22, !P6"), &[86], &[P + 3, 21, 22, P + 6]);
        is(guarded("@P1", "BRA", "`(.L_x_2)"), &[], &[P + 1]);
    }

    #[test]
    fn tiles_and_wide_numbers_are_several_registers() {
        is(of("IMAD.WIDE.U32", "R2, R4.reuse, 0x50, R6"), &[2, 3], &[4, 6, 7]);
        let tile = of("HMMA.16816.F32", "R8, R20, R30, R8");
        is(tile, &[8, 9, 10, 11], &[20, 21, 22, 23, 30, 31, 8, 9, 10, 11]);
        is(of("HMMA.16816.F16", "R8, R20, R30, RZ"), &[8, 9], &[20, 21, 22, 23, 30, 31]);
        is(of("HMMA.1688.F32", "R8, R20, R30, RZ"), &[8, 9, 10, 11], &[20, 21, 30]);
        is(of("IMMA.16816.S8.S8", "R8, R20.ROW, R30.COL, RZ"), &[8, 9, 10, 11], &[20, 21, 30]);
        is(of("CS2R", "R104, SRZ"), &[104, 105], &[]);
        is(of("FFMA", "R1, |R4|, -R8.reuse, R1"), &[1], &[4, 8, 1]);
    }
}
