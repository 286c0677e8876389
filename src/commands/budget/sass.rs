//! Machine code as nvdisasm prints it: instructions, basic blocks, loops.

use std::collections::HashMap;

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Offset in the function.
    pub address: u32,
    /// Line of the PTX text that it is from; 0 if the assembler does not say.
    pub ptx_line: u32,
    /// Guard such as `@!P0`, or nothing.
    pub guard: String,
    /// Operation with its modifiers, such as `LDG.E.128.CONSTANT`.
    pub opcode: String,
    /// What follows.
    pub operands: String,
}

impl Instruction {
    /// The operation without modifiers.
    pub fn stem(&self) -> &str {
        self.opcode.split('.').next().unwrap_or_default()
    }

    fn has(&self, modifier: &str) -> bool {
        self.opcode.split('.').any(|m| m == modifier)
    }

    /// A load from global memory, into registers or into shared memory.
    pub fn is_global_load(&self) -> bool {
        matches!(self.stem(), "LDG" | "LD" | "LDGSTS" | "UBLKCP" | "UTMALDG")
    }

    /// Bytes that a lane's load or store has.
    pub fn width(&self) -> u32 {
        match () {
            () if self.has("128") => 16,
            () if self.has("64") => 8,
            () if self.has("U16") || self.has("S16") => 2,
            () if self.has("U8") || self.has("S8") => 1,
            () => 4,
        }
    }

    /// Ends a block: control may go elsewhere after it.
    fn ends_block(&self) -> bool {
        matches!(self.stem(), "BRA" | "BRX" | "BRXU" | "JMP" | "JMX" | "EXIT" | "RET" | "BREAK" | "KILL")
    }

    /// Control never reaches the next instruction.
    fn never_falls_through(&self) -> bool {
        // A branch may have a second condition, as in `BRA P1, label` and `BRA.DIV UR4, label`.
        let conditional = !self.guard.is_empty() || (self.stem() == "BRA" && self.operands.contains(','));
        matches!(self.stem(), "BRA" | "BRX" | "BRXU" | "JMP" | "JMX" | "EXIT" | "RET" | "KILL") && !conditional
    }
}

/// The code of one kernel.
#[derive(Clone, Debug, Default)]
pub struct Code {
    /// In the order of addresses.
    pub instructions: Vec<Instruction>,
    /// Basic blocks in the order of addresses.
    pub blocks: Vec<Block>,
    /// Loops, by the address of their heads; inner ones after those that they are in.
    pub loops: Vec<Loop>,
    /// Of each block the innermost of its loops, and how many it is in.
    nesting: Vec<(Option<usize>, usize)>,
    /// Of each block, whether only the lanes of a divided warp get there.
    divided: Vec<bool>,
}

/// A run of instructions that is entered at its first and left at its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Indices of its instructions.
    pub range: std::ops::Range<usize>,
    /// Blocks that may follow.
    pub next: Vec<usize>,
    /// Whether threads may end in it.
    pub leaves: bool,
}

/// A natural loop: what a branch back to a block that dominates it closes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Its first block, where iterations start.
    pub head: usize,
    /// All its blocks in order, those of inner loops too.
    pub blocks: Vec<usize>,
}

/// Reads the function `name` out of what `nvdisasm -c -gp` prints.
pub fn read(text: &str, name: &str) -> Result<Code, String> {
    let (mut instructions, mut labels) = (Vec::new(), HashMap::new());
    let (mut inside, mut ptx_line) = (false, 0);
    let section = format!(".text.{name}");
    for line in text.lines() {
        let line = line.trim();
        if let Some(label) = line.strip_suffix(':') {
            if label.starts_with(".text.") {
                inside = label == section;
                ptx_line = 0;
            } else if inside {
                labels.insert(label.to_owned(), instructions.len());
            }
        } else if let Some(rest) = line.strip_prefix("//## File \".nv_debug_ptx_txt\", line ") {
            ptx_line = rest.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
        } else if inside && let Some(instruction) = instruction(line, ptx_line) {
            instructions.push(instruction);
        }
    }
    if instructions.is_empty() {
        return Err(format!("nvdisasm printed no instructions of `{name}`"));
    }
    let blocks = blocks(&instructions, &labels)?;
    let loops = loops(&blocks);
    let nesting = nesting(blocks.len(), &loops);
    let divided = divided(&instructions, &blocks);
    Ok(Code { instructions, blocks, loops, nesting, divided })
}

/// `/*0090*/ @P0 EXIT ;`
fn instruction(line: &str, ptx_line: u32) -> Option<Instruction> {
    let (address, rest) = line.strip_prefix("/*")?.split_once("*/")?;
    let address = u32::from_str_radix(address, 16).ok()?;
    let rest = rest.split(';').next()?.trim().trim_start_matches('{').trim();
    let (guard, rest) = match rest.strip_prefix('@') {
        Some(_) => rest.split_once(char::is_whitespace)?,
        None => ("", rest),
    };
    let rest = rest.trim();
    let (opcode, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if opcode.is_empty() {
        return None;
    }
    let [guard, opcode, operands] = [guard, opcode, operands.trim()].map(str::to_owned);
    Some(Instruction { address, ptx_line, guard, opcode, operands })
}

/// The label in `` `(.L_x_1) ``.
fn target(i: &Instruction) -> Option<&str> {
    i.operands.split_once("`(")?.1.split(')').next()
}

fn blocks(code: &[Instruction], labels: &HashMap<String, usize>) -> Result<Vec<Block>, String> {
    let mut starts: Vec<usize> = labels.values().copied().filter(|i| *i < code.len()).chain([0]).collect();
    starts.extend((1..code.len()).filter(|i| code[i - 1].ends_block()));
    starts.sort_unstable();
    starts.dedup();
    let at = |index: usize| starts.binary_search(&index).ok();
    let mut all = Vec::new();
    for (b, start) in starts.iter().enumerate() {
        let end = starts.get(b + 1).copied().unwrap_or(code.len());
        let last = &code[end - 1];
        let mut next = Vec::new();
        if last.stem() == "BRA" {
            let label = target(last).ok_or_else(|| format!("a branch without a label: {}", last.operands))?;
            let index = labels.get(label).ok_or_else(|| format!("no label {label}"))?;
            next.extend(at(*index));
        }
        if !last.never_falls_through() && b + 1 < starts.len() && !next.contains(&(b + 1)) {
            next.push(b + 1);
        }
        let leaves = matches!(last.stem(), "EXIT" | "RET" | "KILL");
        all.push(Block { range: *start..end, next, leaves });
    }
    Ok(all)
}

fn loops(blocks: &[Block]) -> Vec<Loop> {
    let n = blocks.len();
    let mut before = vec![Vec::new(); n];
    for (b, block) in blocks.iter().enumerate() {
        block.next.iter().for_each(|to| before[*to].push(b));
    }
    // Dominators, as sets, until nothing changes; what control does not reach has all.
    let mut dominators = vec![vec![true; n]; n];
    if let Some(first) = dominators.first_mut() {
        *first = (0..n).map(|b| b == 0).collect();
    }
    let mut changed = true;
    while changed {
        changed = false;
        for b in 1..n {
            let mut all = vec![true; n];
            for p in &before[b] {
                all.iter_mut().zip(&dominators[*p]).for_each(|(a, d)| *a &= *d);
            }
            all[b] = true;
            if before[b].is_empty() {
                continue;
            }
            changed |= all != dominators[b];
            dominators[b] = all;
        }
    }
    let mut found: Vec<Loop> = Vec::new();
    for (tail, block) in blocks.iter().enumerate() {
        for &head in block.next.iter().filter(|head| dominators[tail][**head]) {
            let mut members = vec![false; n];
            members[head] = true;
            let mut rest = vec![tail];
            while let Some(b) = rest.pop() {
                if !std::mem::replace(&mut members[b], true) {
                    rest.extend(&before[b]);
                }
            }
            // Several branches back to one head are one loop.
            let known = found.iter_mut().find(|l| l.head == head);
            if let Some(known) = known {
                known.blocks.iter().for_each(|b| members[*b] = true);
                known.blocks = (0..n).filter(|b| members[*b]).collect();
            } else {
                found.push(Loop { head, blocks: (0..n).filter(|b| members[*b]).collect() });
            }
        }
    }
    found.sort_by_key(|l| (l.head, std::cmp::Reverse(l.blocks.len())));
    found
}

/// Blocks from the target of a `BRA.DIV` on, up to where they branch back, and those that only such lead to, or none: what their calls
/// return to, and what fills up the code.
fn divided(code: &[Instruction], blocks: &[Block]) -> Vec<bool> {
    let mut all = vec![false; blocks.len()];
    for block in blocks {
        let last = block.range.end - 1;
        if !code[last].opcode.starts_with("BRA.DIV") {
            continue;
        }
        // What falls through is the other way.
        let Some(target) = block.next.iter().copied().find(|b| blocks[*b].range.start != last + 1) else { continue };
        for b in target..blocks.len() {
            all[b] = true;
            if code[blocks[b].range.end - 1].never_falls_through() {
                break;
            }
        }
    }
    let mut before = vec![Vec::new(); blocks.len()];
    for (b, block) in blocks.iter().enumerate() {
        block.next.iter().for_each(|to| before[*to].push(b));
    }
    let mut changed = true;
    while changed {
        changed = false;
        for b in 1..blocks.len() {
            if !all[b] && before[b].iter().all(|p| all[*p] || *p == b) {
                (all[b], changed) = (true, true);
            }
        }
    }
    all
}

fn nesting(blocks: usize, loops: &[Loop]) -> Vec<(Option<usize>, usize)> {
    let mut all: Vec<(Option<usize>, usize)> = vec![(None, 0); blocks];
    for (i, l) in loops.iter().enumerate() {
        for &b in &l.blocks {
            let (innermost, depth) = &mut all[b];
            // Of equal ones the first.
            if innermost.is_none_or(|other| l.blocks.len() < loops[other].blocks.len()) {
                *innermost = Some(i);
            }
            *depth += 1;
        }
    }
    all
}

impl Code {
    /// The innermost loop of a block.
    pub fn innermost(&self, block: usize) -> Option<usize> {
        self.nesting[block].0
    }

    /// Whether no warp that is together gets to a block: before a shuffle, a vote or a reduction, a warp that is not together goes to
    /// where its lanes are gathered first (`BRA.DIV`). No kernel of ours, and none whose collectives are sound, does.
    pub fn is_divided(&self, block: usize) -> bool {
        self.divided[block]
    }

    /// How many loops a block is in.
    pub fn depth(&self, block: usize) -> usize {
        self.nesting[block].1
    }

    /// Instructions of some blocks.
    pub fn of<'a>(&'a self, blocks: &'a [usize]) -> impl Iterator<Item = (usize, &'a Instruction)> + 'a {
        blocks.iter().flat_map(move |b| self.blocks[*b].range.clone().map(move |i| (*b, &self.instructions[i])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel as nvdisasm prints it, written by hand: a loop in a loop, a way out of line that branches back, and the
    /// endless branch behind the last instruction.
    const TEXT: &str = r#"
	.section	.text.other,"ax",@progbits
other:
.text.other:
        /*0000*/                   EXIT ;
	.section	.text.k,"ax",@progbits
k:
.text.k:
	//## File ".nv_debug_ptx_txt", line 10
        /*0000*/                   S2R R0, SR_TID.X ;
        /*0010*/               @P0 EXIT ;
.L_x_0:
	//## File ".nv_debug_ptx_txt", line 11
        /*0020*/                   LDG.E.128.CONSTANT R4, desc[UR6][R10.64] ;
        /*0030*/                   BSSY B0, `(.L_x_2) ;
.L_x_1:
	//## File ".nv_debug_ptx_txt", line 12 inlined at "x", line 3
        /*0040*/                   LDS.128 R8, [R2] ;
        /*0050*/                   FFMA R1, R4, R8, R1 ;
        /*0060*/              @!P1 BRA `(.L_x_1) ;
.L_x_2:
        /*0070*/                   BSYNC B0 ;
        /*0080*/               @P3 BRA `(.L_x_4) ;
.L_x_3:
        /*0090*/               @P2 BRA `(.L_x_0) ;
        /*00a0*/                   STG.E [R12.64], R1 ;
        /*00b0*/                   EXIT ;
.L_x_4:
        /*00c0*/                   MUFU.RCP R1, R1 ;
        /*00d0*/                   BRA `(.L_x_3) ;
.L_x_5:
        /*00e0*/                   BRA `(.L_x_5);
        /*00f0*/                   NOP;
"#;

    #[test]
    fn instructions_have_opcode_guard_and_line() {
        let code = read(TEXT, "k").unwrap();
        assert_eq!(code.instructions.len(), 16);
        let load = &code.instructions[2];
        assert_eq!((load.address, load.ptx_line, load.stem(), load.width()), (0x20, 11, "LDG", 16));
        assert!(load.is_global_load());
        assert_eq!((code.instructions[6].guard.as_str(), code.instructions[6].ptx_line), ("@!P1", 12));
        assert!(read(TEXT, "absent").unwrap_err().contains("absent"));
    }

    #[test]
    fn loops_are_what_a_branch_back_to_a_dominator_closes() {
        let code = read(TEXT, "k").unwrap();
        let range = |b: usize| {
            let r = &code.blocks[b].range;
            (code.instructions[r.start].address, code.instructions[r.end - 1].address)
        };
        let live: Vec<&Loop> = code.loops.iter().filter(|l| l.blocks.len() > 1 || range(l.head).0 != 0xe0).collect();
        assert_eq!(live.len(), 2, "{:?}", code.loops);
        // The outer one holds the way out of line, though that stands behind the exit.
        assert_eq!(range(live[0].head).0, 0x20);
        let all: Vec<u32> = live[0].blocks.iter().map(|b| range(*b).0).collect();
        assert_eq!(all, [0x20, 0x40, 0x70, 0x90, 0xc0]);
        assert_eq!((range(live[1].head), live[1].blocks.len()), ((0x40, 0x60), 1));
        // `BRA .L_x_3` goes back in addresses, and closes no loop.
        assert!(code.loops.iter().all(|l| range(l.head).0 != 0x90));
        assert_eq!((code.depth(live[1].head), code.innermost(live[1].head)), (2, Some(1)));
    }

    #[test]
    fn a_label_that_is_not_there_is_an_error() {
        let text = ".text.k:\n /*0000*/ BRA `(.L_nowhere) ;\n";
        assert!(read(text, "k").unwrap_err().contains(".L_nowhere"));
    }

    /// A shuffle whose lanes may have to be gathered first, as ptxas writes it; behind the code what fills it up.
    const GATHERED: &str = r#"
.text.k:
        /*0000*/                   BRA.DIV UR4, `(.L_x_1) ;
        /*0010*/                   SHFL.BFLY PT, R2, R3, 0x10, 0x1f ;
.L_x_0:
        /*0020*/                   STG.E [R12.64], R2 ;
        /*0030*/                   EXIT ;
.L_x_1:
        /*0040*/                   MOV R5, 0x10 ;
        /*0050*/                   WARPSYNC.COLLECTIVE R6, `(.L_x_2) ;
        /*0060*/                   SHFL.BFLY P6, R2, R3, R5, R7 ;
.L_x_2:
        /*0070*/                   ENDCOLLECTIVE ;
        /*0080*/                   BRA `(.L_x_0) ;
.L_x_3:
        /*0090*/                   BRA `(.L_x_3);
        /*00a0*/                   NOP;
"#;

    #[test]
    fn no_warp_that_is_together_gets_to_where_lanes_are_gathered() {
        let code = read(GATHERED, "k").unwrap();
        let first = |b: usize| code.instructions[code.blocks[b].range.start].address;
        let divided: Vec<u32> = (0..code.blocks.len()).filter(|b| code.is_divided(*b)).map(first).collect();
        assert_eq!(divided, [0x40, 0x70, 0x90, 0xa0]);
        let code = read(TEXT, "k").unwrap();
        let together: Vec<bool> = (0..code.blocks.len()).map(|b| !code.is_divided(b)).collect();
        // All but the endless branch, and what is behind it.
        assert_eq!(together.iter().filter(|t| !**t).count(), 2, "{together:?}");
    }
}
