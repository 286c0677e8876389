//! Operations between ranks, on bytes in host memory. Every rank sends first and receives then, in the order of the ranks.

use super::frame::Call;
use super::links::Links;
use crate::{Error, Kind, Operation, Reduce};
use std::ops::Range;
use std::time::Instant;
use warpsmith_device::{bf16, f16};

/// Does the operation with the elements of this rank; nothing, where the group has ended. A failure ends it.
pub fn exchange(links: &Links, call: Call, bytes: &mut [u8]) {
    if links.ended() {
        return;
    }
    if let Err(error) = operate(links, call, bytes) {
        links.fail(error);
    }
}

fn operate(links: &Links, call: Call, bytes: &mut [u8]) -> Result<(), Error> {
    let (rank, ranks, head, start) = (links.rank(), links.ranks(), call.head(), Instant::now());
    let slice = bytes.len() / ranks as usize;
    let slice_of = |rank: u32| rank as usize * slice..(rank as usize + 1) * slice;
    let receive = |from: u32, expected: usize| {
        let got = links.receive(from, head, start, call.timeout)?;
        let differs = || Error::Differs {
            rank,
            other: from,
            own: format!("{expected} bytes of {head}"),
            theirs: format!("{} bytes", got.len()),
        };
        if got.len() == expected { Ok(got) } else { Err(differs()) }
    };
    let others = || (0..ranks).filter(|other| *other != rank);
    match call.operation {
        Operation::AllReduce(reduce) => {
            others().try_for_each(|other| links.send(other, head, bytes))?;
            combine(links, (call.kind, reduce), bytes, receive)
        }
        Operation::ReduceScatter(reduce) => {
            others().try_for_each(|other| links.send(other, head, &bytes[slice_of(other)]))?;
            combine(links, (call.kind, reduce), &mut bytes[slice_of(rank)], receive)
        }
        Operation::AllGather => {
            others().try_for_each(|other| links.send(other, head, &bytes[slice_of(rank)]))?;
            others().try_for_each(|other| place(bytes, slice_of(other), receive(other, slice)?))
        }
        Operation::Broadcast { root } if root == rank => others().try_for_each(|other| links.send(other, head, bytes)),
        Operation::Broadcast { root: from } | Operation::Receive { from } => {
            let all = 0..bytes.len();
            place(bytes, all.clone(), receive(from, all.len())?)
        }
        Operation::Send { to } => links.send(to, head, bytes),
    }
}

fn place(bytes: &mut [u8], range: Range<usize>, got: Vec<u8>) -> Result<(), Error> {
    bytes[range].copy_from_slice(&got);
    Ok(())
}

/// Reduces the elements of all ranks in their order, in f32, and rounds once.
fn combine(
    links: &Links,
    (kind, reduce): (Kind, Reduce),
    own: &mut [u8],
    receive: impl Fn(u32, usize) -> Result<Vec<u8>, Error>,
) -> Result<(), Error> {
    let mut sums: Vec<f32> = Vec::new();
    for rank in 0..links.ranks() {
        let numbers = match rank == links.rank() {
            true => numbers(own, kind),
            false => numbers(&receive(rank, own.len())?, kind),
        };
        if rank == 0 {
            sums = numbers;
            continue;
        }
        for (sum, x) in sums.iter_mut().zip(numbers) {
            *sum = match reduce {
                Reduce::Sum => *sum + x,
                Reduce::Max if x > *sum => x,
                Reduce::Max => *sum,
            };
        }
    }
    write(&sums, kind, own);
    Ok(())
}

fn numbers(bytes: &[u8], kind: Kind) -> Vec<f32> {
    let half = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
    match kind {
        Kind::F32 => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        Kind::F16 => bytes.chunks_exact(2).map(|b| f32::from(f16::from_bits(half(b)))).collect(),
        Kind::Bf16 => bytes.chunks_exact(2).map(|b| f32::from(bf16::from_bits(half(b)))).collect(),
    }
}

fn write(numbers: &[f32], kind: Kind, to: &mut [u8]) {
    match kind {
        Kind::F32 => to.chunks_exact_mut(4).zip(numbers).for_each(|(b, x)| b.copy_from_slice(&x.to_le_bytes())),
        Kind::F16 => {
            let of = |x: &f32| f16::from_f32(*x).to_bits().to_le_bytes();
            to.chunks_exact_mut(2).zip(numbers).for_each(|(b, x)| b.copy_from_slice(&of(x)));
        }
        Kind::Bf16 => {
            let of = |x: &f32| bf16::from_f32(*x).to_bits().to_le_bytes();
            to.chunks_exact_mut(2).zip(numbers).for_each(|(b, x)| b.copy_from_slice(&of(x)));
        }
    }
}
