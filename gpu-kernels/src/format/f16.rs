//! F16: IEEE binary16, dense. Subnormals are real values.

/// The format's codec.
#[derive(Clone, Copy, Debug)]
pub struct F16;

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::F16;
    use crate::format::{
        Codec,
        codec::{f16_at, scale_not_finite},
    };
    use half::f16;

    impl Codec for F16 {
        fn name(&self) -> &'static str {
            "F16"
        }
        fn type_id(&self) -> u32 {
            1
        }
        fn block_elems(&self) -> usize {
            1
        }
        fn block_bytes(&self) -> usize {
            2
        }
        fn split(&self) -> Option<(usize, usize)> {
            None
        }
        fn decode(&self, block: &[u8], out: &mut [f32]) {
            out[0] = f16_at(block, 0).to_f32();
        }
        fn not_finite(&self, block: &[u8]) -> Option<f32> {
            scale_not_finite(block, 0)
        }
        fn pack(&self, _: &[u8], _: &mut [u32], _: &mut [f16]) {}
    }
}
