//! The tensor types of ggml: ids, names, block sizes.
//!
//! The table is wider than what can be run, so that a file with other types still opens, its sizes are
//! checked, and a refusal can name the type.

use std::fmt;

macro_rules! tensor_types {
    ($($variant:ident = $id:literal, $name:literal, $elements:literal, $bytes:literal;)*) => {
        /// A tensor type that ggml (or a published fork) defines.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types, missing_docs)]
        #[non_exhaustive]
        pub enum TensorType { $($variant,)* }

        impl TensorType {
            /// Every type of the table, by rising id.
            pub const ALL: &'static [TensorType] = &[$(TensorType::$variant,)*];

            /// The id as stored in files.
            pub fn id(self) -> u32 {
                match self { $(Self::$variant => $id,)* }
            }
            /// ggml's name for it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
            /// Elements in a block.
            pub fn block_elements(self) -> u64 {
                match self { $(Self::$variant => $elements,)* }
            }
            /// Bytes in a block.
            pub fn block_bytes(self) -> u64 {
                match self { $(Self::$variant => $bytes,)* }
            }
        }
    };
}

tensor_types! {
    F32 = 0, "F32", 1, 4;
    F16 = 1, "F16", 1, 2;
    Q4_0 = 2, "Q4_0", 32, 18;
    Q4_1 = 3, "Q4_1", 32, 20;
    Q5_0 = 6, "Q5_0", 32, 22;
    Q5_1 = 7, "Q5_1", 32, 24;
    Q8_0 = 8, "Q8_0", 32, 34;
    Q8_1 = 9, "Q8_1", 32, 36;
    Q2_K = 10, "Q2_K", 256, 84;
    Q3_K = 11, "Q3_K", 256, 110;
    Q4_K = 12, "Q4_K", 256, 144;
    Q5_K = 13, "Q5_K", 256, 176;
    Q6_K = 14, "Q6_K", 256, 210;
    Q8_K = 15, "Q8_K", 256, 292;
    IQ2_XXS = 16, "IQ2_XXS", 256, 66;
    IQ2_XS = 17, "IQ2_XS", 256, 74;
    IQ3_XXS = 18, "IQ3_XXS", 256, 98;
    IQ1_S = 19, "IQ1_S", 256, 50;
    IQ4_NL = 20, "IQ4_NL", 32, 18;
    IQ3_S = 21, "IQ3_S", 256, 110;
    IQ2_S = 22, "IQ2_S", 256, 82;
    IQ4_XS = 23, "IQ4_XS", 256, 136;
    I8 = 24, "I8", 1, 1;
    I16 = 25, "I16", 1, 2;
    I32 = 26, "I32", 1, 4;
    I64 = 27, "I64", 1, 8;
    F64 = 28, "F64", 1, 8;
    IQ1_M = 29, "IQ1_M", 256, 56;
    BF16 = 30, "BF16", 1, 2;
    TQ1_0 = 34, "TQ1_0", 256, 54;
    TQ2_0 = 35, "TQ2_0", 256, 66;
    MXFP4 = 39, "MXFP4", 32, 17;
    NVFP4 = 40, "NVFP4", 64, 36;
    Q1_0 = 41, "Q1_0", 128, 18;
    Q2_0 = 42, "Q2_0", 64, 18;
    TQ2_0_g128 = 42, "TQ2_0_g128", 128, 34;
    PQ2_0 = 142, "PQ2_0", 128, 34;
    PTQ1_0 = 143, "PTQ1_0", 128, 28;
}

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
