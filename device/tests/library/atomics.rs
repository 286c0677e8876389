//! Sums of 16-bit floats and of vectors by atomics.

use super::{
    all_device::atomics::NarrowAtomics,
    gpu::{Gpu, noise},
};
use half::{bf16, f16};
use warpsmith_device::{
    F32x2, F32x4,
    packed::{Bf16x2, F16x2},
};

#[test]
fn narrow_sums_lose_nothing_and_leave_their_neighbours() {
    let blocks = 3usize;
    // Whole numbers whose sums every type holds, and ones that a large start rounds away.
    let small: Vec<f32> = noise(7).take(64 * blocks).map(|v| (v % 3) as f32 - 1.0).collect();
    for (x, large) in [(small, (10.0, 20.0)), (vec![1.0f32; 64 * blocks], (2048.0, 256.0))] {
        let sum = |part: &[f32]| part.iter().sum::<f32>();
        let after = |start: f32, added: f32| if x[0] == 1.0 && start > 100.0 { start } else { start + added };
        // The vector access is for sm_100 and later.
        for gpu in Gpu::all().into_iter().chain([Gpu::new(120)]) {
            let (h, b) = (large.0, large.1);
            let mut halves = gpu.upload(&[F16x2::from_f32(h, -h); 4]);
            let mut brains = gpu.upload(&[Bf16x2::from_f32(-b, b); 4]);
            let mut half = gpu.upload(&[f16::from_f32(h); 5]);
            let mut brain = gpu.upload(&[bf16::from_f32(b); 5]);
            let mut twos = gpu.upload(&[F32x2([0.5; 2]); 3]);
            let mut fours = gpu.upload(&[F32x4([0.25; 4]); 3]);
            let mut old = gpu.alloc::<u32>(x.len());
            let launch = NarrowAtomics {
                halves: &mut halves,
                brains: &mut brains,
                half: &mut half,
                brain: &mut brain,
                twos: &mut twos,
                fours: &mut fours,
                x: &gpu.upload(&x),
                old: &mut old,
            };
            gpu.check(launch, [blocks as u32, 1, 1]);
            let (total, n) = (sum(&x), x.len() as f32);
            let (halves, brains, half, brain) = (halves.read(), brains.read(), half.read(), brain.read());
            assert_eq!(halves[0].to_f32(), (after(h, total), -after(h, total)));
            assert_eq!(brains[0].to_f32(), (-after(b, total), after(b, total)));
            assert_eq!((half[0].to_f32(), half[1].to_f32()), (h, after(h, total)));
            assert_eq!((brain[0].to_f32(), brain[1].to_f32()), (b, after(b, total)));
            for (i, part) in x.chunks(64).enumerate() {
                let s = sum(part);
                assert_eq!((halves[1 + i].to_f32(), brains[1 + i].to_f32()), ((s, -s), (-s, s)));
                assert_eq!((half[2 + i].to_f32(), brain[2 + i].to_f32()), (s, s));
            }
            assert_eq!(bytemuck::cast_slice::<_, f32>(&twos.read()), [0.5, 0.5, 0.5 + total, 0.5 + n, 0.5, 0.5]);
            let mut wanted = [0.25f32; 12];
            wanted[4..8].iter_mut().zip([n, total, 2.0 * n, -total]).for_each(|(w, v)| *w += v);
            assert_eq!(bytemuck::cast_slice::<_, f32>(&fours.read()), wanted);
            // What the threads found, in some order, are the sums on the way: each once more than the step to it.
            let mut found: Vec<f32> = old.read().iter().map(|&v| F16x2::from_bits(v).low().to_f32()).collect();
            assert!(found.contains(&h), "nobody was the first");
            found.push(after(h, total));
            found.sort_by(f32::total_cmp);
            assert!(found.windows(2).all(|w| w[1] - w[0] <= 1.0), "{found:?}");
        }
    }
}
