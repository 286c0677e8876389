//! Products that the table is made for: those of the dense models of Qwen3.

use warpsmith_host::model::ModelShape;

/// Names such as `8b-down`, rows of weights, columns.
pub fn all() -> Vec<(String, u64, u64)> {
    let products = ModelShape::QWEN3.iter().flat_map(|m| m.products().map(|p| (m.name, p)));
    products.map(|(m, p)| (format!("{m}-{}", p.part), p.weight_rows() as u64, p.cols as u64)).collect()
}
