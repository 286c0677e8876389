//! How undefined bits pass from what lanes bring to a collective to what they get.

use warpsmith_simt::machine::LANES;
use warpsmith_simt::machine::collective::{Collective, Exchange, source};
use warpsmith_simt::machine::lanes::lanes_of;

/// What lanes bring, and the undefined bits of what they get.
pub(super) struct Brought {
    /// Who has come.
    pub lanes: u32,
    /// The undefined bits of each lane's value, and the lanes whose predicate is undefined.
    pub a: [u64; LANES],
    pub p: u32,
    /// Where the last of them came from.
    pub origin: u32,
    /// The same of values and predicates that they get.
    pub results: [u64; LANES],
    pub truths: u32,
}

impl Default for Brought {
    fn default() -> Brought {
        Brought { lanes: 0, a: [0; LANES], p: 0, origin: 0, results: [0; LANES], truths: 0 }
    }
}

/// Works out the undefined bits of the results for the group `present`.
pub(super) fn compute(brought: &mut Brought, imm: u64, present: u32, x: &Exchange) {
    let any = lanes_of(present).fold(0, |m, l| m | brought.a[l]);
    let truths = brought.p & present;
    let all = |undefined: bool| if undefined { !0u64 } else { 0 };
    for lane in lanes_of(present) {
        let (result, truth) = match Collective::of(imm) {
            kind @ (Collective::ShflUp | Collective::ShflDown | Collective::ShflBfly | Collective::ShflIdx) => {
                let (from, _) = source(kind, lane as u32, x.b[lane], x.c[lane]);
                // A lane that takes no part has nothing defined to give.
                let bits = if present >> from & 1 != 0 { brought.a[from as usize & 31] } else { !0 };
                (bits, false)
            }
            Collective::VoteAll => (0, truths != 0 && present & !truths & !x.p == 0),
            Collective::VoteAny => (0, truths != 0 && present & !truths & x.p == 0),
            Collective::VoteUni => (0, truths != 0),
            Collective::VoteBallot => (truths.into(), false),
            Collective::ReduxAdd => (any | any.wrapping_neg(), false),
            Collective::ReduxAnd | Collective::ReduxOr | Collective::ReduxXor => (any, false),
            Collective::Elect | Collective::WarpSync => (0, false),
            _ => (all(any != 0), any != 0),
        };
        brought.results[lane] = result;
        brought.truths = brought.truths & !(1 << lane) | u32::from(truth) << lane;
    }
}
