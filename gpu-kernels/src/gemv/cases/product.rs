//! The entry points of products, by format.

use crate::format::{Format, Layout};
use crate::gemv::four_rows::GemvF16V3;
use crate::gemv::naive::{GemvF32V1, GemvQ80V1};
use crate::gemv::{Activations, QuantFormat, QuantizedProduct};
use warpsmith_device::{Kernel, KernelMeta};

/// An entry point of a product, and whether it takes gates and ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Product {
    /// The first variant, one column.
    Naive,
    /// The variant with four rows a group of lanes, one column.
    FourRows,
    /// One column.
    Gemv,
    /// One column, with gates and ups.
    GemvSwiglu,
    /// With activations of 8 bits.
    Int8,
    /// Activations of 8 bits, with gates and ups.
    Int8Swiglu,
    /// With activations of 16 bits.
    Int16,
    /// Activations of 16 bits, with gates and ups.
    Int16Swiglu,
    /// With activations in f16.
    Half,
    /// Activations in f16, with gates and ups.
    HalfSwiglu,
    /// With many columns of activations of 8 bits.
    GemmInt8,
    /// Many columns of activations of 8 bits, with gates and ups.
    GemmInt8Swiglu,
    /// With many columns of activations of 16 bits.
    GemmInt16,
    /// Many columns of activations of 16 bits, with gates and ups.
    GemmInt16Swiglu,
    /// With many columns of activations in f16.
    GemmHalf,
    /// Many columns of activations in f16, with gates and ups.
    GemmHalfSwiglu,
    /// Several columns.
    Gemm,
    /// Several columns, with gates and ups.
    GemmSwiglu,
    /// With two f16 for each activation.
    Split,
    /// With many columns of two f16 for each activation.
    GemmSplit,
}

impl Product {
    /// The products that a format has.
    pub fn of(format: Format) -> Vec<Product> {
        let mut all = vec![Product::Gemv, Product::GemvSwiglu, Product::Gemm, Product::GemmSwiglu];
        if matches!(format, Format::F32 | Format::Q8_0) {
            all.insert(0, Product::Naive);
        }
        if format == Format::F16 {
            all.push(Product::FourRows);
        }
        let quantized = [
            Product::Int8,
            Product::Int16,
            Product::Int8Swiglu,
            Product::Int16Swiglu,
            Product::Half,
            Product::HalfSwiglu,
            Product::Split,
        ];
        all.extend(quantized.into_iter().filter(|p| p.quant_format(format).is_some()));
        let many = [
            Product::GemmInt8,
            Product::GemmInt16,
            Product::GemmInt8Swiglu,
            Product::GemmInt16Swiglu,
            Product::GemmHalf,
            Product::GemmHalfSwiglu,
            Product::GemmSplit,
        ];
        let exists = |p: &Product| p.quantized(format).is_some_and(|q| q.kernel_of_many().is_some());
        all.extend(many.into_iter().filter(exists));
        all
    }

    /// What weights are multiplied with.
    fn activations(self) -> Activations {
        match self {
            Product::Int8 | Product::Int8Swiglu | Product::GemmInt8 | Product::GemmInt8Swiglu => Activations::Int8,
            Product::Int16 | Product::Int16Swiglu | Product::GemmInt16 | Product::GemmInt16Swiglu => Activations::Int16,
            Product::Half | Product::HalfSwiglu | Product::GemmHalf | Product::GemmHalfSwiglu => Activations::F16,
            Product::Split | Product::GemmSplit => Activations::F16x2,
            _ => Activations::F32,
        }
    }

    /// Whether they are quantized.
    pub fn is_quantized(self) -> bool {
        self.activations() != Activations::F32
    }

    /// The format with that of the activations that it reads.
    pub(super) fn quantized(self, format: Format) -> Option<QuantizedProduct> {
        QuantizedProduct::of(format, self.activations())
    }

    /// The format of the quantized activations that it reads.
    pub fn quant_format(self, format: Format) -> Option<QuantFormat> {
        self.quantized(format).map(QuantizedProduct::quant_format)
    }

    /// Whether it takes gates and ups.
    pub fn swiglu(self) -> bool {
        use Product::{GemmHalfSwiglu, GemmInt8Swiglu, GemmInt16Swiglu, GemmSwiglu};
        use Product::{GemvSwiglu, HalfSwiglu, Int8Swiglu, Int16Swiglu};
        let one = matches!(self, GemvSwiglu | Int8Swiglu | Int16Swiglu | HalfSwiglu);
        one || matches!(self, GemmSwiglu | GemmInt8Swiglu | GemmInt16Swiglu | GemmHalfSwiglu)
    }

    /// Whether it takes many columns of quantized activations.
    pub fn is_many(self) -> bool {
        use Product::{GemmHalf, GemmHalfSwiglu, GemmInt8, GemmInt8Swiglu, GemmInt16, GemmInt16Swiglu, GemmSplit};
        matches!(self, GemmInt8 | GemmInt8Swiglu | GemmInt16 | GemmInt16Swiglu | GemmHalf | GemmHalfSwiglu | GemmSplit)
    }

    /// Whether it has several columns a block, and takes one of several matrices for each tile of them.
    pub(super) fn takes_group(self) -> bool {
        self.is_many() || matches!(self, Product::Gemm | Product::GemmSwiglu)
    }

    /// The entry point.
    pub fn meta(self, format: Format) -> &'static KernelMeta {
        match (self, format) {
            (Product::Naive, Format::F32) => GemvF32V1::META,
            (Product::Naive, _) => GemvQ80V1::META,
            (Product::FourRows, _) => GemvF16V3::META,
            (Product::Gemm | Product::GemmSwiglu, _) => gemm(format.layout()),
            (..) => match self.quantized(format) {
                Some(product) => {
                    product.kernel_of_many().filter(|_| self.is_many()).unwrap_or_else(|| product.kernel())
                }
                None => gemv(format.layout()),
            },
        }
    }

    /// The entry point's name.
    pub fn kernel(self, format: Format) -> String {
        self.meta(format).name.to_owned()
    }
}

macro_rules! by_layout {
    (() $($F:ident {
        $blocks:literal: $gemv:ident $Gemv:ident $s1:ident, $gemm:ident $Gemm:ident $s2:ident
    } $formats:tt)*) => {
        /// The product of one column of f32 with weights of a layout.
        #[must_use]
        pub fn gemv(layout: Layout) -> &'static KernelMeta {
            match layout { $(Layout::$F => crate::gemv::$Gemv::META,)* }
        }

        /// The product of several columns with weights of a layout.
        #[must_use]
        pub fn gemm(layout: Layout) -> &'static KernelMeta {
            match layout { $(Layout::$F => crate::gemv::$Gemm::META,)* }
        }
    };
}
crate::formats! { product by_layout () }
