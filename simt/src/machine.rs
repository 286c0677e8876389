//! The state of the machine as observers see it, and what they need to read it. This is no stable interface.

pub use crate::exec::{CONST, Cx, Flow, LANES, Op, PRED_SINK, PRED_TRUE, ROW, uniform};
pub use crate::{note, program, shadow};

pub mod atom {
    pub use crate::exec::atom::{address, via};
}
pub mod barrier {
    pub use crate::exec::barrier::{BARRIERS, CLUSTER, bar};
}
pub mod block {
    pub use crate::program::Grid;
}
pub mod bounds {
    pub use crate::fault::Place;
}
pub mod bulk {
    pub use crate::exec::bulk::{NO_REDUCTION, barrier, ends, mask, parts, reaches};
}
pub mod collective {
    pub use crate::exec::collective::{gather, named, source};
    pub use crate::exec::exchange::{Collective, Exchange};
}
pub mod fill {
    pub use crate::exec::fill::range;
}
pub mod fragment {
    pub use crate::exec::fragment::{Cost, Piece, matrix_pieces, matrix_rows, tile_pieces};
}
pub mod lanes {
    pub use crate::exec::lanes::{Lane, combine, lane_of, lanes_of, simd};
}
pub mod mbarrier {
    pub use crate::exec::mbarrier::{Edge, edge};
}
pub mod memory {
    pub use crate::memory::{Allocation, Snapshot, lookup};
}
pub mod mma {
    pub use crate::exec::mma::{Shape, accumulator_place, factor_place};
}
pub mod remote {
    pub use crate::exec::remote::{Target, element};
}
pub mod space {
    pub use crate::exec::layout::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
    pub use crate::exec::space::{Pattern, classify, place_of};
}
pub mod tensor {
    pub use crate::exec::tensor::Kind;
}
#[cfg(target_arch = "x86_64")]
pub mod vector {
    pub use crate::exec::vector::{permutes, rises};
}
pub mod warp {
    pub use crate::exec::layout::Row;
}
pub mod words {
    pub use crate::exec::words::{Atomic, Bulk, CopyAsync, Plain, Via, Words};
}
