//! Which heads of delta nets each of several devices has: key heads with the heads of values that have them, or, of a key head that
//! several devices have, equal parts of these.

use super::{Config, DeltaNets, Pieces};
use gpu_kernels::delta::KERNEL;
use std::ops::Range;

/// The heads of one of the devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeltaHeads {
    /// Those of queries, and of keys.
    keys: Range<usize>,
    /// Those of values, in the order that gives each its key head by [`DeltaHeads::together`].
    values: Pieces,
    /// So many of them side by side have one key head.
    together: usize,
    /// Of the model.
    all_keys: usize,
    all_values: usize,
    dim: usize,
}

impl DeltaHeads {
    /// Those of device `rank` of `ranks`.
    ///
    /// # Errors
    /// Why there are no equal parts for so many.
    pub fn of(net: &DeltaNets, rank: usize, ranks: usize) -> Result<DeltaHeads, String> {
        let DeltaNets { key_heads, value_heads, together, dim, .. } = *net;
        // Heads of values with the first to the last key head, as often as it takes.
        let (turn, turns) = (key_heads * together, value_heads / (key_heads * together).max(1));
        let heads = |keys: Range<usize>, values: Pieces, together| DeltaHeads {
            keys,
            values,
            together,
            all_keys: key_heads,
            all_values: value_heads,
            dim,
        };
        if key_heads.is_multiple_of(ranks) {
            let each = key_heads / ranks;
            let keys = rank * each..(rank + 1) * each;
            let of_turn = |i: usize| i * turn + keys.start * together..i * turn + keys.end * together;
            let values = Pieces::of((0..turns).map(of_turn));
            return Ok(heads(keys, values, together));
        }
        if !ranks.is_multiple_of(key_heads) {
            return Err(format!(
                "{key_heads} key heads of delta nets and {ranks} devices: neither is a multiple of the other"
            ));
        }
        let parts = ranks / key_heads;
        let (key, part) = (rank / parts, rank % parts);
        let first = |turn_number: usize| turn_number * turn + key * together;
        if turns.is_multiple_of(parts) {
            let each = turns / parts;
            let of_turn = |i: usize| first(i)..first(i) + together;
            return Ok(heads(key..key + 1, Pieces::of((part * each..(part + 1) * each).map(of_turn)), together));
        }
        if together.is_multiple_of(parts) {
            let each = together / parts;
            let of_turn = |i: usize| first(i) + part * each..first(i) + (part + 1) * each;
            return Ok(heads(key..key + 1, Pieces::of((0..turns).map(of_turn)), each));
        }
        Err(format!(
            "{} heads of values that have a key head of delta nets are no multiple of the {parts} devices that have it",
            net.group()
        ))
    }

    /// The numbers of a model that has no other heads.
    pub fn net(&self, of: &DeltaNets) -> DeltaNets {
        let (key_heads, value_heads) = (self.keys.len(), self.values.len());
        DeltaNets { key_heads, value_heads, together: self.together, ..of.clone() }
    }

    /// Heads of values.
    pub fn value_heads(&self) -> &Pieces {
        &self.values
    }

    /// Elements of all queries, and of all keys.
    pub fn keys(&self) -> Pieces {
        Pieces::one(self.keys.clone()).times(self.dim)
    }

    /// Elements of all values.
    pub fn values(&self) -> Pieces {
        self.values.times(self.dim)
    }

    /// What is convolved: queries, keys and values.
    pub fn channels(&self) -> Pieces {
        let (keys, all) = (self.keys(), self.all_keys * self.dim);
        keys.and(&keys.behind(all)).and(&self.values().behind(2 * all))
    }

    /// Elements of the states of so many layers: of each the last inputs of the convolution, and a matrix for each head of values, as
    /// [`Net::layer_len`](gpu_kernels::delta::Net::layer_len) has them.
    pub fn states(&self, layers: usize) -> Pieces {
        let all_channels = (2 * self.all_keys + self.all_values) * self.dim;
        let (channels, inputs) = (self.channels(), KERNEL as usize - 1);
        let matrices = self.values.times(self.dim * self.dim).behind(inputs * all_channels);
        let layer = inputs * all_channels + self.all_values * self.dim * self.dim;
        let of_layer = |number: usize| {
            let of_inputs = (0..inputs).flat_map(|i| channels.behind(i * all_channels).ranges().collect::<Vec<_>>());
            Pieces::of(of_inputs.chain(matrices.ranges())).behind(number * layer).ranges().collect::<Vec<_>>()
        };
        Pieces::of((0..layers).flat_map(of_layer))
    }
}

impl Config {
    /// Heads of its delta nets that device `rank` of `ranks` has, which can have equal parts; `None` without delta nets.
    pub(crate) fn delta_heads(&self, rank: usize, ranks: usize) -> Option<DeltaHeads> {
        self.delta.as_ref().and_then(|net| DeltaHeads::of(net, rank, ranks).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Recurrent;
    use gpu_kernels::delta::Net;

    fn net([key_heads, value_heads, together]: [usize; 3]) -> DeltaNets {
        DeltaNets { key_heads, value_heads, together, dim: 32, layers: Recurrent::AllBut(4) }
    }

    fn of_kernels(net: &DeltaNets) -> Net {
        let [key_heads, value_heads, dim, together] =
            [net.key_heads, net.value_heads, net.dim, net.together].map(|n| n as u32);
        Net { layer: 0, key_heads, value_heads, dim, eps: 1e-6, together }
    }

    /// Every head of values is on one device, as many on each, and has there the key head that it has in the model.
    #[test]
    fn heads_of_values_keep_their_key_heads() {
        for (of, ranks) in [
            ([16, 48, 1], 2),
            ([16, 48, 1], 4),
            ([16, 48, 1], 16),
            ([16, 32, 2], 8),
            ([2, 8, 1], 4),
            ([2, 8, 1], 8),
            ([2, 8, 4], 4),
            ([2, 8, 4], 8),
            ([1, 4, 1], 4),
            ([4, 4, 1], 4),
        ] {
            let all = net(of);
            let mut met = Vec::new();
            for rank in 0..ranks {
                let heads = DeltaHeads::of(&all, rank, ranks).unwrap();
                let own = heads.net(&all);
                assert_eq!((own.value_heads, heads.states(3).len()), (of[1] / ranks, 3 * of_kernels(&own).layer_len()));
                assert_eq!(heads.channels().len(), own.channels());
                for (here, head) in heads.values.ranges().flatten().enumerate() {
                    let key = of_kernels(&own).key_head(here as u32) as usize + heads.keys.start;
                    assert_eq!(key, of_kernels(&all).key_head(head as u32) as usize, "{of:?}, {rank} of {ranks}");
                    met.push(head);
                }
            }
            met.sort_unstable();
            assert_eq!(met, (0..of[1]).collect::<Vec<_>>(), "{of:?}, {ranks}");
        }
        for (of, ranks) in [([3, 6, 1], 2), ([4, 8, 2], 3), ([2, 6, 1], 4), ([2, 6, 3], 4)] {
            assert!(DeltaHeads::of(&net(of), 0, ranks).is_err(), "{of:?}, {ranks}");
        }
    }
}
