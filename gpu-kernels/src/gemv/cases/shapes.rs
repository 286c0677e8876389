//! The shapes that products are checked with.

use super::{Product, in_turn};
use crate::cases::Rng;
use crate::format::Format;
use crate::gemv::{ACTIVATED, ADD, BIAS, CLAMPED, ERF, GELU, NEXT, NORM, QuantFormat};

/// Shapes of a product: `[rows, cols, columns, flags]`, and of a quantized one also the number of the format that it quantizes to.
pub(super) fn product_shapes(format: Format, product: Product) -> Vec<Vec<usize>> {
    let block = format.block_elems();
    let cols = |n: usize| n.div_ceil(block) * block;
    let quant_format = product.quant_format(format);
    let in_planes = quant_format.is_some_and(QuantFormat::is_planes);
    let (flags, columns) = (|i| flags(product, i), |i| columns(product, in_planes, i));
    let mut all: Vec<Vec<usize>> = Vec::new();
    // The longest rows of many columns take longest, and all layouts go through them alike: formats have them in turn. So it is with
    // what tiles of f16 do once a format's weights are f16, and with what two f16 for each activation do.
    let turn = (format as usize).is_multiple_of(3);
    let split = matches!(product, Product::Split | Product::GemmSplit);
    let few_tiles = !turn && (split || matches!(product, Product::GemmHalf | Product::GemmHalfSwiglu));
    let takes = |width: usize| match width {
        _ if turn || in_planes || !(product.is_many() || split) => true,
        _ if few_tiles => (64..1000).contains(&width),
        _ => width < 2000,
    };
    for (i, width) in widths(product, in_planes).iter().enumerate().filter(|(_, width)| takes(**width)) {
        // Few rows, and rows that do not fill a block.
        all.push(vec![[3, 1, 5][i % 3], cols(*width), columns(i), flags(i)]);
    }
    if product == Product::FourRows {
        // Several blocks of threads, also of short rows; more columns than are staged at a time.
        all.extend([vec![37, 1024, 1, 0], vec![1030, 32, 1, 0], vec![6, 4353, 1, 0]]);
    } else if product.is_many() {
        // Several blocks of threads, the last of which has few rows.
        all.push(vec![131, cols(256), columns(1), flags(1)]);
        all.push(vec![if product.swiglu() { 70 } else { 256 }, cols(64), columns(2), flags(2)]);
    } else if quant_format.is_some() && product.swiglu() {
        // Several blocks of threads.
        all.push(vec![37, cols(256), 1, flags(2)]);
    } else if quant_format.is_some_and(|c| !c.is_planes()) {
        all.push(vec![37, cols(512), 1, flags(5)]);
    } else if quant_format.is_some() {
        all.extend([vec![32, 512, 1, 0], vec![33, 256, 1, flags(5)], vec![70, 4096, 1, flags(1)]]);
    }
    if turn && matches!(product, Product::GemmHalf | Product::GemmHalfSwiglu | Product::GemmSplit) {
        // Small blocks, as there are enough of them: the last of few rows, and of few columns.
        let (n, rows) = (format as usize, if product.swiglu() { 805 } else { 1605 });
        let columns = if product == Product::GemmSplit { [40, 33, 64][n % 3] } else { [70, 128, 97][n % 3] };
        all.push(vec![rows, cols([1, 160, 96, 224][n % 4]), columns, flags(n)]);
    }
    // Of rows that are too long for wide blocks several blocks have a part of what shares a scale.
    let long = quant_format.is_some_and(QuantFormat::is_planes) && !product.swiglu() && !product.is_many();
    if quant_format.is_some() {
        // Outputs of whole blocks, of one group and of several, the last of which may be of fewer.
        let rows = [32, 128, 160, 288, 384];
        let n = quant_format.map_or(0, |c| c as usize) + usize::from(product.swiglu());
        let some = |i: usize| if product.is_many() { columns(i) } else { 1 + i % 2 };
        let shapes = if few_tiles && product.is_many() { 1 } else { 4 };
        all.extend((0..shapes).map(|i| vec![rows[(n + i) % 5], cols(96), some(n + i), flags(n + i)]));
        for (i, shape) in all.iter_mut().enumerate() {
            shape.push(in_turn(n + i, shape[0]));
        }
        if long {
            // Not the last: whoever runs some cases alone takes small ones.
            let to = [QuantFormat::PlanesI16, QuantFormat::PlanesQ2I8];
            all.splice(1..1, to.map(|to| vec![256, cols(8320), 2, flags(4), to as usize]));
        }
    }
    if product == Product::Gemv {
        // More than a block of long rows, of short rows.
        all.push(vec![37, cols(1024), 1, flags(1)]);
        all.push(vec![if block > 32 { 70 } else { 515 }, cols(32), 1, flags(5)]);
        let mut rng = Rng(4 + format as u64);
        all.extend((0..2).map(|i| vec![rng.within(1, 20), cols(rng.within(1, 3000)), 1, flags(i + 3)]));
    }
    if product == Product::Gemm && format == Format::Q4_0 {
        all.push(vec![2, 64, 64, flags(1)]);
    }
    all
}

/// Columns of weights, of those that a format has whole blocks of.
///
/// One element or block; fewer units than lanes; no power of two; full runs of lanes, and rests; more than is staged
/// at a time, which is 4096 columns of one and 1024 of eight.
fn widths(product: Product, in_planes: bool) -> &'static [usize] {
    match product {
        Product::Naive | Product::FourRows => &[1, 37, 320, 1056],
        Product::Gemv => &[1, 37, 96, 320, 1056, 2144, 4352],
        // A block; several; a run of blocks, and rests; two runs.
        Product::Int8 | Product::Int16 if in_planes => &[1, 320, 1056, 4096, 4352, 8320],
        // A block; several; runs of two and four units a lane, and rests.
        Product::Int8 | Product::Int16 => &[1, 320, 1056, 4352],
        // One group, of which one unit has a part; several; a run of one in each warp, and of two.
        Product::Half => &[1, 37, 320, 1056, 2144],
        Product::HalfSwiglu | Product::GemmHalfSwiglu => &[96, 1056],
        Product::GemmHalf => &[1, 320, 1056, 2144],
        // The same code with other columns.
        Product::Split => &[37, 1056],
        Product::GemmSplit => &[320, 1056],
        Product::GemvSwiglu | Product::Int8Swiglu | Product::Int16Swiglu => &[96, 1056],
        // In planes: one class; all of them; a run, and rests; runs of several groups a class.
        Product::GemmInt8 | Product::GemmInt16 if in_planes => &[1, 320, 1056, 4352, 8320],
        // Fewer units than classes of them; all classes, and one of two; two units each, and three.
        Product::GemmInt8 | Product::GemmInt16 => &[1, 320, 1056, 2144],
        Product::GemmInt8Swiglu | Product::GemmInt16Swiglu => &[96, 1056],
        Product::Gemm => &[37, 320, 1056],
        Product::GemmSwiglu => &[96],
    }
}

/// Flags change from shape to shape.
fn flags(product: Product, i: usize) -> usize {
    let flags: u32 = match product {
        Product::Naive | Product::FourRows => 0,
        _ if product.swiglu() => [NORM | NEXT | BIAS, GELU, ADD | NORM | CLAMPED, NEXT | GELU, CLAMPED | BIAS][i % 5],
        _ => [
            ACTIVATED | ERF,
            ADD | NORM | NEXT | BIAS,
            ADD | ACTIVATED,
            NORM | BIAS | ACTIVATED | GELU,
            NEXT,
            ADD | NEXT,
        ][i % 6],
    };
    flags as usize
}

/// So do columns of activations.
fn columns(product: Product, in_planes: bool, i: usize) -> usize {
    match product {
        Product::Gemm | Product::GemmSwiglu => [3, 9, 2, 8][i % 4],
        Product::Int8 | Product::Int16 => [1, 3, 2][i % 3],
        Product::Int8Swiglu | Product::Int16Swiglu => [2, 1][i % 2],
        // Of a tile, of several, of several blocks.
        Product::Half => [1, 9, 2, 33, 20][i % 5],
        Product::HalfSwiglu => [2, 1, 17][i % 3],
        Product::GemmHalf | Product::GemmHalfSwiglu => [130, 193, 129][i % 3],
        Product::Split => [5, 17, 1][i % 3],
        Product::GemmSplit => [65, 97][i % 2],
        // Parts of tiles, and of several blocks; all of a block.
        Product::GemmInt8 | Product::GemmInt16 if in_planes => [12, 17, 64, 16, 33, 13][i % 6],
        Product::GemmInt8 | Product::GemmInt16 => [12, 4, 33, 16, 8, 5][i % 6],
        Product::GemmInt8Swiglu | Product::GemmInt16Swiglu => [13, 12, 40][i % 3],
        _ => 1,
    }
}
