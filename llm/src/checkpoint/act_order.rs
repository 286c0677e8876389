//! Matrices whose columns are in another order than the checkpoint's, so that groups of columns are runs (GPTQ's act-order), and what that asks of
//! others.
//!
//! Columns of a down are rows of gate and up, between which everything is of each element alone: where these change places as the columns do,
//! nothing else changes. In front of other matrices activations are gathered in the order of their columns. Where neither is done, columns
//! stay where they are, and weights become F16.

use super::CheckpointError;
use super::rows::Rows;
use super::tensors::Parts;
use crate::gguf::TensorType;
use std::ops::Range;
use std::sync::Arc;

/// What a layer's tensor is called in GGUF and in the checkpoint, and what it is made of.
pub(super) type Named = (&'static str, String, Parts);

/// Matrices whose columns are rows, or elements, of others.
const DOWNS: [(&str, &[&str]); 3] = [
    ("ffn_down.weight", &["ffn_up.weight", "ffn_gate.weight", "ffn_up.bias", "ffn_gate.bias"]),
    ("ffn_down_exps.weight", &["ffn_up_exps.weight", "ffn_gate_exps.weight", "ffn_up_exps.bias", "ffn_gate_exps.bias"]),
    ("ffn_down_shexp.weight", &["ffn_up_shexp.weight", "ffn_gate_shexp.weight"]),
];

/// Matrices in front of which activations are gathered.
const GATHERED: [&str; 14] = [
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "attn_qkv.weight",
    "attn_output.weight",
    "ffn_gate.weight",
    "ffn_up.weight",
    "ffn_down.weight",
    "ffn_gate_shexp.weight",
    "ffn_up_shexp.weight",
    "ffn_down_shexp.weight",
    "ssm_in.weight",
    "ssm_out.weight",
    "output.weight",
];

/// Decides for the tensors of a layer, or for one that is of none, what becomes of columns in another order.
pub(super) fn settle(tensors: &mut [Named]) {
    for (_, _, parts) in tensors.iter_mut() {
        let kind = parts.rows.first().map(|rows| rows.kind());
        if parts.rows.iter().any(|rows| Some(rows.kind()) != kind) {
            parts.rows.iter_mut().for_each(|rows| rows.widen());
        }
    }
    let folded = DOWNS.map(|(down, producers)| if fold(tensors, down, producers) { down } else { "" });
    for (name, _, parts) in tensors.iter_mut().filter(|(name, ..)| !folded.contains(name)) {
        match &mut parts.rows[..] {
            [rows] if GATHERED.contains(name) => parts.columns = rows.columns().cloned(),
            all if all.iter().any(|rows| rows.columns().is_some()) => all.iter_mut().for_each(|rows| rows.widen()),
            _ => {}
        }
    }
}

/// Puts the rows of those that give what `down` reads into the order of its columns, if all have such rows.
fn fold(tensors: &mut [Named], down: &str, producers: &[&str]) -> bool {
    let Some((.., parts)) = tensors.iter().find(|(name, ..)| *name == down) else { return false };
    let orders: Vec<Option<Arc<[u32]>>> = parts.rows.iter().map(|rows| rows.columns().cloned()).collect();
    let width = parts.rows.first().map_or(0, |rows| rows.size()[1]);
    let mut given: Vec<&mut Parts> =
        tensors.iter_mut().filter(|(name, ..)| producers.contains(name)).map(|(.., parts)| parts).collect();
    let fits = |parts: &&mut Parts| {
        let mut heights = parts.rows.iter().map(|rows| rows.size()[0]);
        let whole = heights.all(|height| height.checked_rem(width) == Some(0));
        parts.order.is_none() && parts.rows.len() == orders.len() && whole
    };
    if given.is_empty() || !given.iter().all(fits) {
        return false;
    }
    for parts in &mut given {
        let rows = std::mem::take(&mut parts.rows).into_iter().zip(&orders);
        parts.rows = rows
            .map(|(rows, order)| match order {
                Some(order) => Box::new(InOrder { rows, order: order.clone() }) as Box<dyn Rows>,
                None => rows,
            })
            .collect();
    }
    true
}

/// Rows in another order, in each part of as many as that has.
struct InOrder {
    rows: Box<dyn Rows>,
    order: Arc<[u32]>,
}

impl Rows for InOrder {
    fn kind(&self) -> TensorType {
        self.rows.kind()
    }

    fn size(&self) -> [usize; 2] {
        self.rows.size()
    }

    fn read(&self, rows: Range<usize>, to: &mut [u8]) -> Result<(), CheckpointError> {
        let Some(bytes) = to.len().checked_div(rows.len()) else { return Ok(()) };
        let width = self.order.len();
        for (row, to) in rows.zip(to.chunks_exact_mut(bytes)) {
            let from = row / width * width + self.order[row % width] as usize;
            self.rows.read(from..from + 1, to)?;
        }
        Ok(())
    }

    fn columns(&self) -> Option<&Arc<[u32]>> {
        self.rows.columns()
    }

    fn widen(&mut self) {
        self.rows.widen();
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::Constant;
    use super::*;

    /// A matrix of one row whose columns are in this order, until it is widened.
    struct Ordered(Option<Arc<[u32]>>, usize);

    impl Rows for Ordered {
        fn kind(&self) -> TensorType {
            if self.0.is_some() { TensorType::Q4_0 } else { TensorType::F16 }
        }

        fn size(&self) -> [usize; 2] {
            [1, self.1]
        }

        fn read(&self, _: Range<usize>, _: &mut [u8]) -> Result<(), CheckpointError> {
            Ok(())
        }

        fn columns(&self) -> Option<&Arc<[u32]>> {
            self.0.as_ref()
        }

        fn widen(&mut self) {
            self.0 = None;
        }
    }

    fn ordered(order: &[u32]) -> Box<dyn Rows> {
        Box::new(Ordered(Some(order.into()), order.len()))
    }

    fn named(name: &'static str, rows: Vec<Box<dyn Rows>>) -> Named {
        (name, name.to_owned(), Parts { rows, order: None, dims: Vec::new(), columns: None })
    }

    fn numbers(n: usize) -> Box<dyn Rows> {
        Box::new(Constant((0..n).map(|i| i as f32).collect()))
    }

    fn read(rows: &dyn Rows) -> Vec<f32> {
        let mut bytes = vec![0; 4 * rows.size()[0]];
        rows.read(0..rows.size()[0], &mut bytes).unwrap();
        bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    #[test]
    fn columns_of_downs_are_rows_of_gates_and_ups() {
        let (down, up) = (ordered(&[2, 0, 1]), numbers(6));
        let mut layer = [
            named("ffn_up.weight", vec![up]),
            named("ffn_up.bias", vec![numbers(3)]),
            named("ffn_down.weight", vec![down]),
        ];
        settle(&mut layer);
        // Gates and ups in one matrix.
        assert_eq!(read(&*layer[0].2.rows[0]), [2., 0., 1., 5., 3., 4.]);
        assert_eq!(read(&*layer[1].2.rows[0]), [2., 0., 1.]);
        assert!(layer[2].2.columns.is_none() && layer[2].2.rows[0].kind() == TensorType::Q4_0);

        // Each expert in its own order.
        let downs = vec![ordered(&[1, 0]), ordered(&[0, 1])];
        let mut layer = [
            named("ffn_down_exps.weight", downs),
            named("ffn_gate_exps.weight", vec![numbers(2), numbers(2)]),
            named("ffn_up_exps.weight", vec![numbers(2), numbers(2)]),
        ];
        settle(&mut layer);
        assert_eq!([0, 1].map(|i| read(&*layer[2].2.rows[i])), [[1., 0.], [0., 1.]]);
        assert_eq!([0, 1].map(|i| read(&*layer[1].2.rows[i])), [[1., 0.], [0., 1.]]);
        assert_eq!(layer[0].2.rows[1].kind(), TensorType::Q4_0);
    }

    #[test]
    fn what_is_neither_folded_nor_gathered_becomes_f16() {
        let mut all = [
            named("attn_q.weight", vec![ordered(&[1, 0])]),
            named("token_embd.weight", vec![ordered(&[1, 0])]),
            named("ffn_gate_exps.weight", vec![ordered(&[1, 0]), ordered(&[0, 1])]),
            // Of rows that are no columns of it.
            named("ffn_down.weight", vec![ordered(&[1, 0])]),
            named("ffn_up.weight", vec![numbers(3)]),
            // Experts of two types.
            named("ffn_down_exps.weight", vec![ordered(&[1, 0]), Box::new(Ordered(None, 2))]),
        ];
        settle(&mut all);
        let told = |i: usize| all[i].2.columns.as_deref().map(<[u32]>::to_vec);
        assert_eq!([0, 1, 2, 3, 5].map(told), [Some(vec![1, 0]), None, None, Some(vec![1, 0]), None]);
        for (i, place) in [(1, 0), (2, 0), (2, 1), (5, 0), (5, 1)] {
            assert_eq!(all[i].2.rows[place].kind(), TensorType::F16, "{}", all[i].0);
        }
        assert_eq!(read(&*all[4].2.rows[0]), [0., 1., 2.]);
    }
}
