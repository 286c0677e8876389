//! The kernels one after another, as a decode step chains them.

use crate::machine::{Gpu, Rng, assert_close};
use gpu_kernels::state::Column;
use gpu_kernels::{
    attention::{self, AttnDecodeF32, Heads},
    kv::{self, KvStoreF32},
    rope::{self, QkNormRope, Rotation, rope_tables},
};
use warpsmith_device::Launcher;

/// FE-15: attention right after the store sees the new position, for as many positions as there are.
#[test]
fn attention_sees_what_was_just_stored() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(80));
    let heads = Heads { q_heads: 4, kv_heads: 2, head_dim: 64, capacity: 12 };
    let Heads { q_heads, kv_heads, head_dim, capacity } = heads;
    let (dim, nq, nk) = (head_dim as usize, (q_heads * head_dim) as usize, (kv_heads * head_dim) as usize);
    let tables = rope_tables(12, dim, 1e6, None, 1.0);
    let rotation =
        Rotation { head_dim: dim, n_rot: dim, neox: true, base: 1e6, factors: None, linear: 1.0, yarn: None };
    let (cos, sin) = (gpu.upload(&tables.cos), gpu.upload(&tables.sin));
    let (wq, wk) = (rng.floats(dim), rng.floats(dim));
    let (dwq, dwk) = (gpu.upload(&wq), gpu.upload(&wk));
    // The caches stay poisoned with NaN past the length: reading on would show.
    let mut k_cache = gpu.poisoned::<f32>(nk * capacity as usize);
    let mut v_cache = gpu.poisoned::<f32>(nk * capacity as usize);
    let (mut want_k, mut want_v) = (vec![0.0; nk * capacity as usize], vec![0.0; nk * capacity as usize]);

    for position in 0..capacity {
        let qkv = rng.floats(nq + 2 * nk);
        let columns = gpu.upload(&[Column::at(1, position)]);
        let mut buffer = gpu.upload(&qkv);
        gpu.launch(QkNormRope {
            qk: buffer.get_mut(..nq + nk).unwrap(),
            q_weight: &dwq,
            k_weight: &dwk,
            cos: &cos,
            sin: &sin,
            columns: &columns,
            stride: (nq + nk) as u32,
            q_heads,
            k_heads: kv_heads,
            head_dim,
            n_rot: head_dim,
            neox: 1,
            context: capacity,
            eps: 1e-6,
        })
        .unwrap();
        gpu.launch(KvStoreF32 {
            k: &buffer[nq..nq + nk],
            v: &buffer[nq + nk..],
            k_cache: &mut k_cache,
            v_cache: &mut v_cache,
            columns: &columns,
            kv_heads,
            head_dim,
            capacity,
        })
        .unwrap();
        let mut y = gpu.poisoned::<f32>(nq);
        gpu.launch(AttnDecodeF32 {
            q: &buffer[..nq],
            k_cache: &k_cache,
            v_cache: &v_cache,
            y: &mut y,
            columns: &columns,
            q_heads,
            kv_heads,
            head_dim,
            capacity,
        })
        .unwrap();

        let position = position as usize;
        let single = |v: Vec<f64>| v.into_iter().map(|v| v as f32).collect::<Vec<_>>();
        let q = single(rope::reference(&qkv[..nq], position, Some((&wq, 1e-6)), &rotation));
        let k = single(rope::reference(&qkv[nq..nq + nk], position, Some((&wk, 1e-6)), &rotation));
        kv::reference(&k, &mut want_k, position, kv_heads as usize, capacity as usize, false);
        kv::reference(&qkv[nq + nk..], &mut want_v, position, kv_heads as usize, capacity as usize, false);
        let want = attention::reference(&q, &want_k, &want_v, position + 1, heads);
        assert_close(&format!("position {position}"), &gpu.read(&y), &want, |_| 1e-5);
    }
}
