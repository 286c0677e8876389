//! The instructions that a warp executes one after the other: blocks of machine code in the order of addresses, loops as often as their
//! heads ran.

use crate::commands::budget::sass::Code;

/// How often a thing that happens `all` times in `of` turns happens in turn `turn`: spread evenly.
fn share(turn: u64, all: u64, of: u64) -> u64 {
    (turn + 1) * all / of.max(1) - turn * all / of.max(1)
}

/// What is done in a turn of a loop, or of the kernel.
enum Item {
    Block(usize),
    Loop(usize),
}

/// The order in which warps execute the blocks of a kernel.
pub struct Walk<'a> {
    code: &'a Code,
    /// Of the kernel, and behind that of each loop.
    items: Vec<Vec<Item>>,
}

impl<'a> Walk<'a> {
    /// Through this code.
    pub fn new(code: &'a Code) -> Walk<'a> {
        let mut items: Vec<Vec<Item>> = (0..=code.loops.len()).map(|_| Vec::new()).collect();
        let mut entered = vec![false; code.loops.len()];
        for b in 0..code.blocks.len() {
            // The loops that it is in, outer ones first.
            let mut around: Vec<usize> =
                (0..code.loops.len()).filter(|l| code.loops[*l].blocks.binary_search(&b).is_ok()).collect();
            around.sort_by_key(|l| std::cmp::Reverse(code.loops[*l].blocks.len()));
            let mut place = 0;
            for l in around {
                if !std::mem::replace(&mut entered[l], true) {
                    items[place].push(Item::Loop(l));
                }
                place = 1 + l;
            }
            items[place].push(Item::Block(b));
        }
        Walk { code, items }
    }

    /// Indices of the instructions of a warp that executes each block so many times. Of what is divided among copies of a line, the
    /// nearest whole number counts.
    pub fn of_warp(&self, executions: &[f64]) -> Vec<u32> {
        let counts: Vec<u64> = executions.iter().map(|e| e.round() as u64).collect();
        let mut done = Turns { counts, turns: vec![0; self.code.loops.len()], order: Vec::new() };
        self.turn(0, 0, 1, &mut done);
        done.order
    }

    /// A turn of the kernel (0) or of a loop, which has `of` of them.
    fn turn(&self, place: usize, turn: u64, of: u64, done: &mut Turns) {
        for item in &self.items[place] {
            match *item {
                Item::Block(b) => {
                    for _ in 0..share(turn, done.counts[b], of) {
                        done.order.extend(self.code.blocks[b].range.clone().map(|i| i as u32));
                    }
                }
                Item::Loop(l) => {
                    let all = done.counts[self.code.loops[l].head];
                    for _ in 0..share(turn, all, of) {
                        let turn = done.turns[l];
                        done.turns[l] += 1;
                        self.turn(1 + l, turn, all, done);
                    }
                }
            }
        }
    }
}

struct Turns {
    counts: Vec<u64>,
    turns: Vec<u64>,
    order: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::budget::sass;

    /// Two nested loops, and a way out of line that the outer one may take.
    const TEXT: &str = r#"
.text.k:
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_0:
        /*0010*/                   IADD3 R1, R1, R2, RZ ;
.L_x_1:
        /*0020*/                   FFMA R1, R4, R8, R1 ;
        /*0030*/              @!P1 BRA `(.L_x_1) ;
        /*0040*/               @P3 BRA `(.L_x_4) ;
.L_x_3:
        /*0050*/               @P2 BRA `(.L_x_0) ;
        /*0060*/                   EXIT ;
.L_x_4:
        /*0070*/                   MUFU.RCP R1, R1 ;
        /*0080*/                   BRA `(.L_x_3) ;
"#;

    fn order(executions: &[f64]) -> Vec<u32> {
        let code = sass::read(TEXT, "k").unwrap();
        assert_eq!(code.blocks.len(), executions.len());
        Walk::new(&code).of_warp(executions)
    }

    #[test]
    fn loops_turn_as_often_as_their_heads_ran_and_inner_ones_in_equal_shares() {
        // Start, outer head, inner loop, its end, back, exit, out of line.
        let all = order(&[1.0, 2.0, 5.0, 2.0, 2.0, 1.0, 0.0]);
        assert_eq!(all, [0, 1, 2, 3, 2, 3, 4, 5, 1, 2, 3, 2, 3, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn what_a_warp_executes_in_some_turns_of_a_loop_is_spread_over_them() {
        // Once in four turns; copies of a line share its executions.
        let turns = |executions: f64| order(&[1.0, 4.0, 4.0, 4.0, 4.0, 1.0, executions]);
        assert_eq!(turns(1.0).iter().filter(|i| **i == 7).count(), 1);
        assert_eq!(turns(1.6).iter().filter(|i| **i == 7).count(), 2);
        assert_eq!(turns(0.4).iter().filter(|i| **i == 7).count(), 0);
    }

    #[test]
    fn what_never_ran_is_in_no_order() {
        assert_eq!(order(&[1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]), [0, 6]);
    }
}
