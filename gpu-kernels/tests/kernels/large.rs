//! Products in sizes far beyond those of their cases, odd ones among them: some entry points, each with one of the formats that it has,
//! drawn with fixed seeds.

use crate::machine::{Gpu, Rng};
use gpu_kernels::cases::{Product, Subject};
use gpu_kernels::format::Format;

/// `n` products of those that are wanted, with a format each.
fn drawn(seed: u64, n: usize, wanted: impl Fn(Product) -> bool) -> Vec<(Format, Product)> {
    let all = Format::ALL.into_iter().flat_map(|format| Product::of(format).into_iter().map(move |p| (format, p)));
    let mut all: Vec<(Format, Product)> = all.filter(|(_, product)| wanted(*product)).collect();
    let mut rng = Rng(seed);
    let mut some = Vec::new();
    while some.len() < n && !all.is_empty() {
        let (format, product) = all[rng.within(0, all.len() - 1)];
        some.push((format, product));
        all.retain(|(_, other)| *other != product);
    }
    some
}

/// Runs some in a shape, with the columns of weights that their formats have whole blocks of.
#[track_caller]
fn agree((seed, n): (u64, usize), wanted: impl Fn(Product) -> bool, [rows, cols, columns]: [usize; 3]) {
    let mut gpu = Gpu::new();
    for (format, product) in drawn(seed, n, wanted) {
        let cols = cols.next_multiple_of(format.block_elems());
        let shape = format!("rows={rows},cols={cols},columns={columns}");
        let case = Subject::Gemv { format, product }.parse(&shape).unwrap();
        case.run(&mut gpu).unwrap_or_else(|e| panic!("{case}: {e}"));
    }
}

/// Whether it has one column alone.
fn of_one(product: Product) -> bool {
    use Product::*;
    matches!(product, Naive | FourRows | Gemv | GemvSwiglu)
}

#[test]
fn rows_one_more_than_whole_blocks_of_all_sizes() {
    agree((41, 1), of_one, [4097, 32, 1]);
    agree((42, 1), |p| !of_one(p) && !p.is_many(), [4097, 32, 2]);
    agree((43, 1), Product::is_many, [4097, 32, 5]);
}

#[test]
fn rows_of_16384_columns() {
    agree((44, 2), of_one, [3, 16384, 1]);
    agree((45, 3), |p| !of_one(p) && !p.is_many(), [3, 16384, 2]);
    agree((46, 2), Product::is_many, [33, 16384, 13]);
}

/// As many columns as there may be, and one less; one more is refused ([`super::gemv`]).
#[test]
fn columns_up_to_the_most() {
    let several = |p: Product| matches!(p, Product::Gemm | Product::GemmSwiglu) || p.is_many();
    agree((47, 1), several, [3, 96, 1024]);
    agree((48, 2), several, [37, 96, 1023]);
}
