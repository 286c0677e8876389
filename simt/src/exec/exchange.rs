//! Kinds of collectives, and what their lanes bring and get.

use super::layout::LANES;

/// Set in [`Op::imm`](super::Op) of every collective. The rest of `imm` is its [`Collective`]; all of it is the key by which
/// arrivals match.
pub const COLLECTIVE: u64 = 1 << 63;

/// Set in `Op::imm` of `redux.f32`: `.abs`, and `.NaN`.
pub const ABS: u64 = 1 << 8;
pub const NAN: u64 = 1 << 9;

/// What a collective does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Collective {
    ShflUp,
    ShflDown,
    ShflBfly,
    ShflIdx,
    VoteAll,
    VoteAny,
    VoteUni,
    VoteBallot,
    MatchAny32,
    MatchAny64,
    MatchAll32,
    MatchAll64,
    ReduxAdd,
    ReduxMinU,
    ReduxMaxU,
    ReduxMinS,
    ReduxMaxS,
    ReduxAnd,
    ReduxOr,
    ReduxXor,
    Elect,
    WarpSync,
    ReduxMinF,
    ReduxMaxF,
}

impl Collective {
    const ALL: [Collective; 24] = [
        Collective::ShflUp,
        Collective::ShflDown,
        Collective::ShflBfly,
        Collective::ShflIdx,
        Collective::VoteAll,
        Collective::VoteAny,
        Collective::VoteUni,
        Collective::VoteBallot,
        Collective::MatchAny32,
        Collective::MatchAny64,
        Collective::MatchAll32,
        Collective::MatchAll64,
        Collective::ReduxAdd,
        Collective::ReduxMinU,
        Collective::ReduxMaxU,
        Collective::ReduxMinS,
        Collective::ReduxMaxS,
        Collective::ReduxAnd,
        Collective::ReduxOr,
        Collective::ReduxXor,
        Collective::Elect,
        Collective::WarpSync,
        Collective::ReduxMinF,
        Collective::ReduxMaxF,
    ];

    #[inline]
    pub fn of(imm: u64) -> Collective {
        Collective::ALL[usize::from(imm as u8).min(Collective::ALL.len() - 1)]
    }

    /// As PTX calls it.
    pub fn name(self) -> &'static str {
        match self {
            Collective::ShflUp => "shfl.sync.up",
            Collective::ShflDown => "shfl.sync.down",
            Collective::ShflBfly => "shfl.sync.bfly",
            Collective::ShflIdx => "shfl.sync.idx",
            Collective::VoteAll => "vote.sync.all",
            Collective::VoteAny => "vote.sync.any",
            Collective::VoteUni => "vote.sync.uni",
            Collective::VoteBallot => "vote.sync.ballot",
            Collective::MatchAny32 | Collective::MatchAny64 => "match.any.sync",
            Collective::MatchAll32 | Collective::MatchAll64 => "match.all.sync",
            Collective::Elect => "elect.sync",
            Collective::WarpSync => "bar.warp.sync",
            _ => "redux.sync",
        }
    }

    #[inline]
    pub fn wide(self) -> bool {
        matches!(self, Collective::MatchAny64 | Collective::MatchAll64)
    }

    #[inline]
    pub fn has_value(self) -> bool {
        !matches!(
            self,
            Collective::VoteAll
                | Collective::VoteAny
                | Collective::VoteUni
                | Collective::VoteBallot
                | Collective::Elect
                | Collective::WarpSync
        )
    }

    /// Whether the result is (also) a row.
    #[inline]
    pub fn has_row(self) -> bool {
        !matches!(self, Collective::VoteAll | Collective::VoteAny | Collective::VoteUni | Collective::WarpSync)
    }
}

/// What lanes bring, and what they get.
pub struct Exchange {
    /// Lanes that take part.
    pub present: u32,
    pub(super) a: [u64; LANES],
    pub b: [u32; LANES],
    pub c: [u32; LANES],
    pub p: u32,
    pub(super) d: [u64; LANES],
    pub(super) q: u32,
}

impl Default for Exchange {
    #[inline]
    fn default() -> Exchange {
        Exchange { present: 0, a: [0; LANES], b: [0; LANES], c: [0; LANES], p: 0, d: [0; LANES], q: 0 }
    }
}
