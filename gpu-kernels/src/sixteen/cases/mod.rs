//! The cases of these kernels, each of both types.

mod attention;
mod casts;
mod elementwise;
mod heads;
mod norms;
mod number;
mod tokens;

pub use attention::Attentions;
pub use casts::{Cast, Casts};
pub use elementwise::{Glus, Sums};
pub use heads::{Appends, Rotations16};
pub use norms::{Norm, Norms};
pub use number::{Number, near, numbers, values};
pub use tokens::{Argmaxes16, Embeddings16};

use super::Sixteen;
use crate::cases::Listed;
use warpsmith_device::Kernel;

/// Calls `$run` for the type with what launches its kernel.
macro_rules! by_type {
    ($of:expr => $run:ident($($given:expr),*), |$bench:ident, $($p:pat_param),*| $F16:ident | $Bf16:ident $fields:tt) => {
        match $of {
            crate::sixteen::Sixteen::F16 => {
                $run::<B, half::f16>($($given,)* |$bench: &mut B, $($p),*| $bench.launch(crate::sixteen::$F16 $fields))
            }
            crate::sixteen::Sixteen::Bf16 => {
                $run::<B, half::bf16>($($given,)* |$bench: &mut B, $($p),*| $bench.launch(crate::sixteen::$Bf16 $fields))
            }
        }
    };
}
use by_type;

/// The name of the kernel of a type.
fn name<F16: Kernel, Bf16: Kernel>(of: Sixteen) -> Vec<&'static str> {
    vec![match of {
        Sixteen::F16 => F16::META.name,
        Sixteen::Bf16 => Bf16::META.name,
    }]
}

/// Why none of them is measured.
const WHY: &str = "for tensors of other programs, which no decoder launches: no bound is set";

/// The kernels of both types.
fn listed<F16: Kernel, Bf16: Kernel>() -> [Listed; 2] {
    [Listed::unmeasured::<F16>(WHY), Listed::unmeasured::<Bf16>(WHY)]
}
