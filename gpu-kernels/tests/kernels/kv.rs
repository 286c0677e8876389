use crate::machine::{Gpu, Rng};
use gpu_kernels::kv::{self, KvStore, KvStoreF32};
use gpu_kernels::state::Column;
use half::f16;
use warpsmith_device::Launcher;

#[test]
fn one_position_of_every_head_is_written() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(50));
    for (kv_heads, head_dim, capacity) in [(2, 64, 16), (1, 2, 3), (3, 80, 5), (8, 128, 4), (2, 256, 3)] {
        let n = kv_heads * head_dim;
        // OX-14: the last position, the one past it, and one that would wrap.
        for position in [0, 1, capacity - 1, capacity, capacity + 1, u32::MAX as usize] {
            let (mut k, v) = (rng.floats(n), rng.floats(n));
            k[0] = 70000.0;
            k[1] = -65520.0;
            if n > 4 {
                k[3] = 1.0 + 1.0 / 2048.0; // A tie: to even.
                k[4] = 3e-8; // Half of the smallest subnormal, and a little: rounds up to it.
            }
            let mut want_k = rng.floats(n * capacity).iter().map(|v| f16::from_f32(*v).to_f32()).collect::<Vec<_>>();
            let mut want_v = want_k.clone();
            let before: Vec<f16> = want_k.iter().map(|v| f16::from_f32(*v)).collect();
            let (mut k16, mut v16) = (gpu.upload(&before), gpu.upload(&before));
            let (mut k32, mut v32) = (gpu.upload(&want_k), gpu.upload(&want_v));
            let (mut want_k32, mut want_v32) = (want_k.clone(), want_v.clone());
            let (dk, dv, columns) = (gpu.upload(&k), gpu.upload(&v), gpu.upload(&[Column::at(9, position as u32)]));
            let (heads, dim, cap) = (kv_heads as u32, head_dim as u32, capacity as u32);
            gpu.launch(KvStore {
                k: &dk,
                v: &dv,
                k_cache: &mut k16,
                v_cache: &mut v16,
                columns: &columns,
                kv_heads: heads,
                head_dim: dim,
                capacity: cap,
            })
            .unwrap();
            gpu.launch(KvStoreF32 {
                k: &dk,
                v: &dv,
                k_cache: &mut k32,
                v_cache: &mut v32,
                columns: &columns,
                kv_heads: heads,
                head_dim: dim,
                capacity: cap,
            })
            .unwrap();
            kv::reference(&k, &mut want_k, position, kv_heads, capacity, true);
            kv::reference(&v, &mut want_v, position, kv_heads, capacity, true);
            kv::reference(&k, &mut want_k32, position, kv_heads, capacity, false);
            kv::reference(&v, &mut want_v32, position, kv_heads, capacity, false);
            let widen = |b: Vec<f16>| b.iter().map(|v| v.to_f32()).collect::<Vec<_>>();
            assert_eq!(widen(gpu.read(&k16)), want_k);
            assert_eq!(widen(gpu.read(&v16)), want_v);
            assert_eq!(gpu.read(&k32), want_k32);
            assert_eq!(gpu.read(&v32), want_v32);
        }
    }
}
