use crate::machine::{Gpu, Rng, assert_close, vector};
use gpu_kernels::rope::{self, QkNormRope, Rope, Rotation, rope_tables};
use gpu_kernels::state::Column;
use warpsmith_device::Launcher;

#[test]
fn golden_vectors() {
    let mut gpu = Gpu::new();
    let x = vector("rope.x.f32", f32::from_le_bytes);
    let tables = rope_tables(4096, 64, 10000.0, None, 1.0);
    let (cos, sin) = (gpu.upload(&tables.cos), gpu.upload(&tables.sin));
    for (neox, name) in [(1, "rope.neox.f64"), (0, "rope.norm.f64")] {
        let want = vector(name, f64::from_le_bytes);
        for (i, position) in [0u32, 1, 7, 100, 4095].into_iter().enumerate() {
            let range = i * 128..(i + 1) * 128;
            let (mut qk, columns) = (gpu.upload(&x[range.clone()]), gpu.upload(&[Column::at(5, position)]));
            gpu.launch(Rope {
                qk: &mut qk,
                cos: &cos,
                sin: &sin,
                columns: &columns,
                stride: 128,
                heads: 2,
                head_dim: 64,
                n_rot: 64,
                neox,
                context: 4096,
            })
            .unwrap();
            assert_close(&format!("{name} position {position}"), &gpu.read(&qk), &want[range], |_| 1e-6);
        }
    }
}

#[test]
fn heads_of_every_shape_with_and_without_norm() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(60));
    for (q_heads, k_heads, head_dim, n_rot) in
        [(4, 2, 64, 64), (1, 1, 2, 2), (5, 1, 128, 64), (3, 3, 80, 80), (2, 1, 96, 20), (9, 3, 256, 256), (1, 0, 6, 0)]
    {
        for neox in [false, true] {
            let (context, position, eps) = (33, rng.within(0, 32), 1e-6);
            let factors: Vec<f32> = (0..n_rot / 2).map(|_| 1.0 + rng.unit().abs() * 7.0).collect();
            let (base, linear) = (1e6, 2.0);
            let r = Rotation { head_dim, n_rot, neox, base, factors: Some(&factors), linear, yarn: None };
            let tables = rope_tables(context, n_rot, base, Some(&factors), linear);
            let x: Vec<f32> = rng.floats((q_heads + k_heads) * head_dim).iter().map(|v| v * 3.0).collect();
            let (wq, wk) = (rng.floats(head_dim), rng.floats(head_dim));
            let (cos, sin) = (gpu.upload(&tables.cos), gpu.upload(&tables.sin));
            let (dq, dk, columns) = (gpu.upload(&wq), gpu.upload(&wk), gpu.upload(&[Column::at(0, position as u32)]));
            let (q, k) = x.split_at(q_heads * head_dim);

            let mut qk = gpu.upload(&x);
            gpu.launch(QkNormRope {
                qk: &mut qk,
                q_weight: &dq,
                k_weight: &dk,
                cos: &cos,
                sin: &sin,
                columns: &columns,
                stride: x.len() as u32,
                q_heads: q_heads as u32,
                k_heads: k_heads as u32,
                head_dim: head_dim as u32,
                n_rot: n_rot as u32,
                neox: u32::from(neox),
                context: context as u32,
                eps,
            })
            .unwrap();
            let mut want = rope::reference(q, position, Some((&wq, eps)), &r);
            want.extend(rope::reference(k, position, Some((&wk, eps)), &r));
            assert_close(&format!("norm and rope, head_dim {head_dim}"), &gpu.read(&qk), &want, |_| 2e-6);

            let mut qk = gpu.upload(&x);
            gpu.launch(Rope {
                qk: &mut qk,
                cos: &cos,
                sin: &sin,
                columns: &columns,
                stride: x.len() as u32,
                heads: (q_heads + k_heads) as u32,
                head_dim: head_dim as u32,
                n_rot: n_rot as u32,
                neox: u32::from(neox),
                context: context as u32,
            })
            .unwrap();
            let want = rope::reference(&x, position, None, &r);
            assert_close(&format!("rope, head_dim {head_dim}"), &gpu.read(&qk), &want, |_| 2e-6);
        }
    }
}

#[test]
fn a_position_past_the_tables_changes_nothing() {
    let mut gpu = Gpu::new();
    let tables = rope_tables(4, 8, 10000.0, None, 1.0);
    let (cos, sin) = (gpu.upload(&tables.cos), gpu.upload(&tables.sin));
    let x = Rng(61).floats(16);
    for position in [4, 5, u32::MAX] {
        let (mut qk, columns) = (gpu.upload(&x), gpu.upload(&[Column::at(0, position)]));
        gpu.launch(Rope {
            qk: &mut qk,
            cos: &cos,
            sin: &sin,
            columns: &columns,
            stride: 16,
            heads: 2,
            head_dim: 8,
            n_rot: 8,
            neox: 1,
            context: 4,
        })
        .unwrap();
        assert_eq!(gpu.read(&qk), x);
    }
}
