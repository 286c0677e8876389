//! Rows in another order than a checkpoint has them in.

/// An order of rows, or of the elements of their biases.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// That of queries and keys where RoPE rotates neighbours, as GGUF has it for [these](crate::model::RopeStyle::Norm) architectures: a
    /// checkpoint rotates element `i` of a head with `i + width / 2`, which here are elements `2i` and `2i + 1`.
    Interleaved {
        /// Rows of a head.
        width: usize,
    },
    /// All queries, then all keys, then all values, where a checkpoint has those of a head together.
    Parts {
        /// Rows of a head in one part.
        width: usize,
        /// Heads.
        heads: usize,
    },
}

impl Order {
    /// Whether so many rows can be put into it.
    pub fn fits(self, rows: usize) -> bool {
        match self {
            Order::Interleaved { width } => width >= 2 && width.is_multiple_of(2) && rows.is_multiple_of(width),
            Order::Parts { width, heads } => {
                width > 0 && width.checked_mul(heads).and_then(|n| n.checked_mul(3)) == Some(rows)
            }
        }
    }

    /// The checkpoint's row that is this one.
    pub fn source(self, row: usize) -> usize {
        match self {
            Order::Interleaved { width } => {
                let (head, at) = (row / width, row % width);
                head * width + at % 2 * (width / 2) + at / 2
            }
            Order::Parts { width, heads } => {
                let (head, at) = (row / width, row % width);
                (head % heads * 3 + head / heads) * width + at
            }
        }
    }

    /// Rows from this one on that follow one another in the checkpoint too.
    pub fn run(self, row: usize) -> usize {
        match self {
            Order::Interleaved { .. } => 1,
            Order::Parts { width, .. } => width - row % width,
        }
    }
}
