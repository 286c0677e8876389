//! The tensor types of ggml: ids, names, block sizes.
//!
//! The table is wider than what can be run, so that a file with other types still opens, its sizes are
//! checked, and a refusal can name the type.

use gpu_kernels::format::Format;
use std::fmt;

macro_rules! tensor_types {
    (
        ($($other:ident = $other_id:literal, $elements:literal, $bytes:literal;)*)
        $($layout:ident {
            $($(#[$doc:meta])* $format:ident: $name:expr, $id:literal, $elems:literal, $block:literal, $units:literal;)*
        })*
    ) => {
        /// A tensor type that ggml (or a published fork) defines.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types, missing_docs)]
        #[non_exhaustive]
        pub enum TensorType { $($($format,)*)* $($other,)* }

        impl TensorType {
            /// Every type of the table.
            pub const ALL: &'static [TensorType] =
                &[$($(TensorType::$format,)*)* $(TensorType::$other,)*];

            /// The id as stored in files.
            pub fn id(self) -> u32 {
                match self { $($(Self::$format => $id,)*)* $(Self::$other => $other_id,)* }
            }
            /// ggml's name for it.
            pub fn name(self) -> &'static str {
                match self { $($(Self::$format => $name,)*)* $(Self::$other => stringify!($other),)* }
            }
            /// Elements in a block.
            pub fn block_elements(self) -> u64 {
                match self { $($(Self::$format => $elems,)*)* $(Self::$other => $elements,)* }
            }
            /// Bytes in a block.
            pub fn block_bytes(self) -> u64 {
                match self { $($(Self::$format => $block,)*)* $(Self::$other => $bytes,)* }
            }
            /// The format that kernels read it as, if there are kernels for it.
            pub fn format(self) -> Option<Format> {
                match self { $($(Self::$format => Some(Format::$format),)*)* $(Self::$other => None,)* }
            }
        }
    };
}

// The types that there are kernels for, from their list, and those that there are none for.
gpu_kernels::formats! { stored tensor_types (
    Q8_1 = 9, 32, 36;
    Q8_K = 15, 256, 292;
    I8 = 24, 1, 1;
    I16 = 25, 1, 2;
    I32 = 26, 1, 4;
    I64 = 27, 1, 8;
    F64 = 28, 1, 8;
) }

/// The id that means three different layouts: ggml's Q2_0, OxiBonsai's TQ2_0_g128, and in older files PrismML's PQ2_0.
/// Which one a file means is decided by the sizes and the contents of its tensors.
pub const AMBIGUOUS_TYPE_ID: u32 = 42;

impl TensorType {
    /// The type with this id, if the table has it and the id means one type only.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|t| t.id() == id && id != AMBIGUOUS_TYPE_ID)
    }

    /// Bytes that `elements` take, or `None` if they are no whole number of blocks or do not fit.
    pub fn bytes_for(self, elements: u64) -> Option<u64> {
        let block = self.block_elements();
        if !elements.is_multiple_of(block) {
            return None;
        }
        (elements / block).checked_mul(self.block_bytes())
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is known about an id that the table does not have.
pub(super) fn note_on(id: u32) -> &'static str {
    match id {
        4 | 5 => " (Q4_2 and Q4_3 were removed from ggml; convert the model again)",
        31..=33 | 36..=38 => " (a removed repacked type; convert the model again from its original)",
        43 | 44 => " (ggml ends at 42; OxiBonsai uses 43 and 44 for F8 blocks)",
        _ => " (the file is newer than this reader, or corrupt)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_an_id_without_a_type_is_said() {
        let notes = [
            (4, "Q4_2 and Q4_3 were removed"),
            (5, "Q4_2 and Q4_3 were removed"),
            (31, "removed repacked type"),
            (33, "removed repacked type"),
            (36, "removed repacked type"),
            (38, "removed repacked type"),
            (43, "OxiBonsai"),
            (44, "OxiBonsai"),
            (45, "newer than this reader"),
            (u32::MAX, "newer than this reader"),
        ];
        for (id, note) in notes {
            assert!(TensorType::from_id(id).is_none(), "{id}");
            assert!(note_on(id).contains(note), "{id}: {}", note_on(id));
        }
    }
}
