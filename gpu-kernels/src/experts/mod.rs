//! Mixtures of experts: from a router's products to the experts of each column, and from the experts' outputs to the layer's.
//!
//! A layer multiplies a column with a router, one row an expert, [routes](route) it to the `used` experts of the largest products,
//! multiplies it with [their matrices](crate::gemv::EXPERTS) alone, and [combines](combine) what they give. Of many columns those of
//! each expert are first [put side by side](group). Experts of some models read their columns [times a weight](weighted).
//!
//! Source: Shazeer et al., arXiv 1701.06538; Jiang et al., arXiv 2401.04088, section 2.1.

pub mod combine;
pub mod group;
pub mod route;
pub mod weighted;

#[cfg(not(target_arch = "nvptx64"))]
pub use combine::{Combine, CombineExperts};
#[cfg(not(target_arch = "nvptx64"))]
pub use group::GroupExperts;
#[cfg(not(target_arch = "nvptx64"))]
pub use route::Route;
#[cfg(not(target_arch = "nvptx64"))]
pub use weighted::SwigluWeighted;
