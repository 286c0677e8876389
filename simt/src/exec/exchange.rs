//! Kinds of collectives, and what their lanes bring and get.

use super::layout::LANES;

/// Set in [`Op::imm`](super::Op) of every collective. The rest of `imm` is its [`Kind`]; all of it is the key by which arrivals match.
pub const COLLECTIVE: u64 = 1 << 63;

/// Set in `Op::imm` of `redux.f32`: `.abs`, and `.NaN`.
pub const ABS: u64 = 1 << 8;
pub const NAN: u64 = 1 << 9;

/// What a collective does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
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

impl Kind {
    const ALL: [Kind; 24] = [
        Kind::ShflUp,
        Kind::ShflDown,
        Kind::ShflBfly,
        Kind::ShflIdx,
        Kind::VoteAll,
        Kind::VoteAny,
        Kind::VoteUni,
        Kind::VoteBallot,
        Kind::MatchAny32,
        Kind::MatchAny64,
        Kind::MatchAll32,
        Kind::MatchAll64,
        Kind::ReduxAdd,
        Kind::ReduxMinU,
        Kind::ReduxMaxU,
        Kind::ReduxMinS,
        Kind::ReduxMaxS,
        Kind::ReduxAnd,
        Kind::ReduxOr,
        Kind::ReduxXor,
        Kind::Elect,
        Kind::WarpSync,
        Kind::ReduxMinF,
        Kind::ReduxMaxF,
    ];

    #[inline]
    pub fn of(imm: u64) -> Kind {
        Kind::ALL[usize::from(imm as u8).min(Kind::ALL.len() - 1)]
    }

    /// As PTX calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::ShflUp => "shfl.sync.up",
            Kind::ShflDown => "shfl.sync.down",
            Kind::ShflBfly => "shfl.sync.bfly",
            Kind::ShflIdx => "shfl.sync.idx",
            Kind::VoteAll => "vote.sync.all",
            Kind::VoteAny => "vote.sync.any",
            Kind::VoteUni => "vote.sync.uni",
            Kind::VoteBallot => "vote.sync.ballot",
            Kind::MatchAny32 | Kind::MatchAny64 => "match.any.sync",
            Kind::MatchAll32 | Kind::MatchAll64 => "match.all.sync",
            Kind::Elect => "elect.sync",
            Kind::WarpSync => "bar.warp.sync",
            _ => "redux.sync",
        }
    }

    #[inline]
    pub fn wide(self) -> bool {
        matches!(self, Kind::MatchAny64 | Kind::MatchAll64)
    }

    #[inline]
    pub fn has_value(self) -> bool {
        !matches!(self, Kind::VoteAll | Kind::VoteAny | Kind::VoteUni | Kind::VoteBallot | Kind::Elect | Kind::WarpSync)
    }

    /// Whether the result is (also) a row.
    #[inline]
    pub fn has_row(self) -> bool {
        !matches!(self, Kind::VoteAll | Kind::VoteAny | Kind::VoteUni | Kind::WarpSync)
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
