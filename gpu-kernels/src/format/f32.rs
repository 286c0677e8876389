//! F32: IEEE binary32, dense.

/// The format's codec.
#[derive(Clone, Copy, Debug)]
pub struct F32;

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::F32;
    use crate::format::Codec;
    use half::f16;

    fn value(block: &[u8]) -> f32 {
        f32::from_le_bytes([block[0], block[1], block[2], block[3]])
    }

    impl Codec for F32 {
        fn name(&self) -> &'static str {
            "F32"
        }
        fn type_id(&self) -> u32 {
            0
        }
        fn block_elems(&self) -> usize {
            1
        }
        fn block_bytes(&self) -> usize {
            4
        }
        fn split(&self) -> Option<(usize, usize)> {
            None
        }
        fn decode(&self, block: &[u8], out: &mut [f32]) {
            out[0] = value(block);
        }
        fn not_finite(&self, block: &[u8]) -> Option<f32> {
            let v = value(block);
            (!v.is_finite()).then_some(v)
        }
        fn pack(&self, _: &[u8], _: &mut [u32], _: &mut [f16]) {}
    }
}
