//! The cases: a rank alone, beside frames in which the others have got everywhere already. What ranks do at the same time is tested
//! where there are several devices.

use super::exchange::Exchange;
use super::{
    ARRIVED, BF16, BLOCKS, BROADCAST, Collective, EPOCHS, F16, F32, FLAGS, GATHER, KIND, MAX, NEXT, ONE_SHOT, RESIDUAL,
    SCATTER, SIGNALS, STAGING, TWO_SHOT, frame_words, place,
};
use crate::cases::{Bench, Failure, Listed, NamedSizes, Outcome, Plain, Rng, Shape, close, same};
use half::{bf16, f16};
use warpsmith_device::DeviceAddress;

/// The elements of a rank as words, and what they are in f64.
fn elements(rng: &mut Rng, len: usize, kind: u32) -> (Vec<u16>, Vec<f64>) {
    let values = rng.floats(len);
    let halves = |v: &f32| match kind {
        F32 => vec![v.to_bits() as u16, (v.to_bits() >> 16) as u16],
        F16 => vec![f16::from_f32(*v).to_bits()],
        _ => vec![bf16::from_f32(*v).to_bits()],
    };
    let bits: Vec<u16> = values.iter().flat_map(halves).collect();
    let exact = decoded(&bits, kind);
    (bits, exact)
}

fn decoded(bits: &[u16], kind: u32) -> Vec<f64> {
    match kind {
        F32 => {
            let value = |p: &[u16]| f32::from_bits(u32::from(p[0]) | u32::from(p[1]) << 16);
            bits.chunks_exact(2).map(|p| value(p).into()).collect()
        }
        F16 => bits.iter().map(|b| f16::from_bits(*b).into()).collect(),
        _ => bits.iter().map(|b| bf16::from_bits(*b).into()).collect(),
    }
}

fn words(halves: &[u16]) -> Vec<u32> {
    halves.chunks(2).map(|p| u32::from(p[0]) | u32::from(p.get(1).copied().unwrap_or(0)) << 16).collect()
}

/// How far a sum of `ranks` elements of this kind may be off, as a share of the sum of their sizes.
fn bound(kind: u32, ranks: usize) -> f64 {
    let rounded = match kind {
        F32 => 0.0,
        F16 => 1.0 / 2048.0,
        _ => 1.0 / 256.0,
    };
    rounded + ranks as f64 * 6e-8
}

const MODES: [u32; 11] = [
    ONE_SHOT,
    TWO_SHOT,
    ONE_SHOT | MAX,
    TWO_SHOT | MAX,
    SCATTER,
    GATHER,
    BROADCAST,
    ONE_SHOT | RESIDUAL,
    TWO_SHOT | RESIDUAL,
    ONE_SHOT | NEXT,
    TWO_SHOT | NEXT,
];

/// Collectives of one rank among others.
pub struct Collectives;

/// What is given to a rank, and what it should have at the end.
struct RankCase {
    ranks: usize,
    rank: usize,
    root: usize,
    /// Elements of a column.
    len: usize,
    columns: usize,
    /// Words from a column to the next.
    stride: usize,
    slice: usize,
    capacity: usize,
    epoch: u32,
    flags: u32,
    bits: Vec<Vec<u16>>,
    exact: Vec<Vec<f64>>,
}

impl RankCase {
    fn new(shape: &Shape<'_>, rng: &mut Rng) -> Result<RankCase, Failure> {
        let [ranks, rank, len, kind, mode] = shape.sizes(["ranks", "rank", "len", "kind", "mode"])?;
        if rank >= ranks {
            return Err(Failure::Launch(format!("there is no rank {rank} of {ranks}")));
        }
        let flags = MODES[mode % MODES.len()] | kind as u32;
        // Slices of whole words.
        let whole = matches!(flags & !(KIND | MAX), SCATTER | GATHER);
        let several = flags == GATHER | F32 || flags & NEXT != 0;
        let len = if whole && !several { len.next_multiple_of(2 * ranks) } else { len };
        let words = if kind as u32 == F32 { len } else { len.div_ceil(2) };
        // Of several columns nothing between them is read or written.
        let (columns, stride) = if several { (3, words + 5) } else { (1, words) };
        let all = len + (columns - 1) * stride;
        let (bits, exact): (Vec<_>, Vec<_>) = (0..ranks).map(|_| elements(rng, all, kind as u32)).unzip();
        let (slice, root) = (words.div_ceil(ranks), rng.within(0, ranks - 1));
        // Also where epochs wrap around.
        let epoch = [1, 2, 0, 7][rng.within(0, 3)];
        let capacity = all.max(words) + 3;
        Ok(RankCase { ranks, rank, root, len, columns, stride, slice, capacity, epoch, flags, bits, exact })
    }

    fn of_word(&self) -> usize {
        if self.flags & KIND == F32 { 1 } else { 2 }
    }

    /// Whose slice an element is in; nobody's between columns.
    fn owner(&self, i: usize) -> Option<usize> {
        let place = i % (self.stride * self.of_word());
        (place < self.len).then(|| place / (self.slice * self.of_word()))
    }

    /// Sum or largest of an element, and the sum of its sizes.
    fn reduced(&self, i: usize) -> (f64, f64) {
        let all = || self.exact.iter().map(|x| x[i]);
        let max = self.flags & MAX != 0;
        let sum = if max { all().fold(f64::NEG_INFINITY, f64::max) } else { all().sum() };
        (sum, all().map(f64::abs).sum())
    }

    /// The frame of a rank that has staged its elements, reduced its slice and got everywhere.
    fn frame(&self, rank: usize) -> Vec<u32> {
        let mut frame = vec![0; frame_words(self.ranks as u32, self.capacity as u32) as usize];
        for block in 0..BLOCKS {
            frame[EPOCHS + block as usize] = self.epoch.wrapping_sub(1);
            for (phase, other) in (0..2).flat_map(|p| (0..self.ranks as u32).map(move |r| (p, r))) {
                frame[SIGNALS + place(phase, block, other)] = self.epoch;
            }
        }
        if rank == self.rank {
            return frame;
        }
        let mut halves = self.bits[rank].clone();
        if self.flags & TWO_SHOT == TWO_SHOT {
            let each = halves.len() / self.exact[0].len();
            for i in (0..self.exact[0].len()).filter(|&i| self.owner(i) == Some(rank)) {
                let sum = self.reduced(i).0 as f32;
                match self.flags & KIND {
                    F32 => {
                        halves[each * i] = sum.to_bits() as u16;
                        halves[each * i + 1] = (sum.to_bits() >> 16) as u16;
                    }
                    F16 => halves[i] = f16::from_f32(sum).to_bits(),
                    _ => halves[i] = bf16::from_f32(sum).to_bits(),
                }
            }
        }
        let at = STAGING + (self.epoch & 1) as usize * self.capacity;
        let staged = words(&halves);
        frame[at..at + staged.len()].copy_from_slice(&staged);
        frame
    }

    /// What comes out in place, with how far it may be off.
    fn want(&self) -> Vec<(f64, f64)> {
        let (kind, mode) = (self.flags & KIND, self.flags & !(KIND | MAX | RESIDUAL | NEXT));
        let sum = |i| {
            let (sum, size) = self.reduced(i);
            (sum, if self.flags & MAX != 0 { 0.0 } else { size * bound(kind, self.ranks) })
        };
        let own = &self.exact[self.rank];
        (0..own.len())
            .map(|i| match mode {
                SCATTER if self.owner(i) != Some(self.rank) => (own[i], 0.0),
                GATHER => (self.owner(i).map_or(own[i], |rank| self.exact[rank][i]), 0.0),
                BROADCAST => (self.exact[self.root][i], 0.0),
                _ => sum(i),
            })
            .collect()
    }
}

impl RankCase {
    /// The residual stream with the sum, and what prepares the norm behind it.
    fn prepared(&self, (x, scaled, sums): (&[f64], &[f32], &[f32]), stream: &[f32], weight: &[f32]) -> Outcome {
        let want = self.want();
        let mut squares = vec![(0.0, 0.0); self.columns];
        for i in 0..x.len() {
            let place = i % self.stride;
            if self.owner(i).is_none() {
                // Between columns nothing is written.
                same(&[x[i].to_bits()], &[self.exact[self.rank][i].to_bits()])?;
                same(&[scaled[i].is_nan()], &[true])?;
                continue;
            }
            let y = want[i].0 + f64::from(stream[i]);
            let bound = want[i].1 + 6e-8 * y.abs();
            let w = f64::from(weight[place]);
            close(&[x[i] as f32], &[y], |_| bound)?;
            close(&scaled[i..=i], &[y * w], |_| bound * w.abs() + 1.2e-7 * (y * w).abs())?;
            let (sum, off) = &mut squares[i / self.stride];
            (*sum, *off) = (*sum + y * y, *off + 2.0 * y.abs() * bound);
        }
        for (parts, (sum, off)) in sums.chunks_exact(BLOCKS as usize).zip(squares) {
            let all: f64 = parts.iter().map(|part| f64::from(*part)).sum();
            close(&[all as f32], &[sum], |_| off + 1e-5 * sum)?;
        }
        Ok(())
    }
}

impl Plain for Collectives {
    const SIZES: NamedSizes = &[("ranks", 4), ("rank", 1), ("len", 4096), ("kind", 0), ("mode", 0)];

    fn kernels() -> Vec<Listed> {
        vec![Listed::by_bytes::<Collective<'_>>()]
    }

    fn shapes() -> Vec<Vec<usize>> {
        let mut shapes = Vec::new();
        for (i, len) in [1, 2, 7, 255, 4099, 5000].into_iter().enumerate() {
            for mode in 0..MODES.len() {
                let ranks = [1, 2, 3, 4, 8, 16][(i + mode) % 6];
                let kind = if MODES[mode] & (RESIDUAL | NEXT) != 0 { 0 } else { (i + mode) % 3 };
                shapes.push(vec![ranks, (5 * i + mode) % ranks, len, kind, mode]);
            }
        }
        shapes
    }

    fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        let given = RankCase::new(shape, rng)?;
        let (all, next) = (given.exact[0].len(), given.flags & NEXT != 0);
        let stream = rng.floats(all);
        let (mut x, mut residual) = (bench.upload(&given.bits[given.rank])?, bench.upload(&stream)?);
        let weight = rng.floats(if next { given.len } else { 0 });
        let next_weight = bench.upload(&weight)?;
        let mut scaled = bench.upload(&vec![f32::NAN; if next { all } else { 0 }])?;
        let mut sums = bench.output::<f32>(if next { given.columns * BLOCKS as usize } else { 0 })?;
        let frames = (0..given.ranks).map(|r| bench.upload(&given.frame(r))).collect::<Result<Vec<_>, String>>()?;
        let addresses: Vec<DeviceAddress> = frames.iter().map(|f| f.address()).collect();
        let table = bench.upload(&addresses)?;
        let launch = Collective {
            x: &mut x,
            residual: &mut residual,
            next_weight: &next_weight,
            scaled: &mut scaled,
            sums: &mut sums,
            frames: &table,
            len: given.len as u32,
            columns: given.columns as u32,
            stride: given.stride as u32,
            slice: given.slice as u32,
            capacity: given.capacity as u32,
            rank: given.rank as u32,
            ranks: given.ranks as u32,
            root: given.root as u32,
            flags: given.flags,
        };
        // SAFETY: the frames are as large as their capacity asks for.
        unsafe { bench.launch_unchecked(launch) }?;
        let (got, added, own) = (bench.read(&x)?, bench.read(&residual)?, bench.read(&frames[given.rank])?);
        let epochs = &own[EPOCHS..EPOCHS + BLOCKS as usize];
        same(epochs, &[given.epoch; BLOCKS as usize])?;
        let (want, kind) = (given.want(), given.flags & KIND);
        if given.flags & RESIDUAL != 0 {
            same(&got, &given.bits[given.rank])?;
            let sums: Vec<f64> = want.iter().zip(&stream).map(|(w, r)| w.0 + f64::from(*r)).collect();
            return close(&added, &sums, |i| want[i].1 + 6e-8 * sums[i].abs());
        }
        same(&added, &stream)?;
        if next {
            let (scaled, sums) = (bench.read(&scaled)?, bench.read(&sums)?);
            return given.prepared((&decoded(&got, kind), &scaled, &sums), &stream, &weight);
        }
        let got: Vec<f32> = decoded(&got, kind).iter().map(|v| *v as f32).collect();
        let exact: Vec<f64> = want.iter().map(|w| w.0).collect();
        close(&got, &exact, |i| want[i].1)
    }
}

/// Messages to and from a rank.
pub struct Exchanges;

impl Plain for Exchanges {
    const SIZES: NamedSizes = &[("halves", 4096), ("receive", 0)];

    fn kernels() -> Vec<Listed> {
        vec![Listed::by_bytes::<Exchange<'_>>()]
    }

    fn shapes() -> Vec<Vec<usize>> {
        [1, 2, 33, 4099, 8200].into_iter().flat_map(|n| [0, 1].map(|receive| vec![n, receive])).collect()
    }

    fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        let [halves, receive] = shape.sizes(["halves", "receive"])?;
        let message = elements(rng, halves, BF16).0;
        let (ranks, rank, peer, capacity) = (3u32, 2u32, 0u32, halves.div_ceil(2) + 1);
        let size = frame_words(ranks, capacity as u32) as usize;
        let mut contents = [vec![0u32; size], vec![0; size]];
        let mailbox = |of: u32| STAGING + (2 + of as usize) * capacity;
        let staged = words(&message);
        let mut held = message.clone();
        if receive == 1 {
            // The peer has sent its first one.
            contents[0][mailbox(rank)..mailbox(rank) + staged.len()].copy_from_slice(&staged);
            (0..BLOCKS).for_each(|block| contents[1][FLAGS + place(ARRIVED, block, peer)] = 1);
            held = vec![0xffff; halves];
        }
        let (theirs, mine, mut x) = (bench.upload(&contents[0])?, bench.upload(&contents[1])?, bench.upload(&held)?);
        let table = bench.upload(&[theirs.address(), theirs.address(), mine.address()])?;
        let launch = Exchange {
            x: &mut x,
            frames: &table,
            halves: halves as u32,
            capacity: capacity as u32,
            rank,
            peer,
            ranks,
            receive: receive as u32,
        };
        // SAFETY: the frames are as large as their capacity asks for.
        unsafe { bench.launch_unchecked(launch) }?;
        same(&bench.read(&x)?, &message)?;
        let (theirs, mine) = (bench.read(&theirs)?, bench.read(&mine)?);
        let told: Vec<u32> = (0..BLOCKS).map(|b| theirs[FLAGS + place(receive as u32, b, rank)]).collect();
        same(&told, &[1; BLOCKS as usize])?;
        if receive == 1 { Ok(()) } else { same(&mine[mailbox(peer)..mailbox(peer) + staged.len()], &staged) }
    }
}
