//! What a router's products become.

/// What a router's products become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gating {
    /// Shares of a softmax over all experts.
    Softmax,
    /// A sigmoid for each.
    Sigmoid,
}
