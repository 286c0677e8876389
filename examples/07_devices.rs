//! Several devices add up a buffer of each: ranks as threads, over peer memory.
//!
//! `WARPSMITH_DEVICES=4 cargo run --release --example 07_devices`: the software driver has one device unless it is told otherwise.

use warpsmith::collectives::{Collective, Collectives, Error, PeerOptions, Peers, Reduce};
use warpsmith::{Device, builtin_image};

fn main() -> Result<(), Error> {
    let devices = (0..Device::count()?).map(Device::open).collect::<Result<Vec<_>, _>>()?;
    let group = Peers::group(&devices, builtin_image(), PeerOptions::default())?;
    println!("engine: {}", devices[0].engine());

    let rank = |rank: &Peers| -> Result<Vec<f32>, Error> {
        let stream = rank.device().stream()?;
        let mut x = stream.upload(&[rank.rank() as f32 + 1.0; 1000])?;
        rank.all_reduce(&stream, &mut x, Reduce::Sum)?;
        // Waits, and says who is missing if that takes too long.
        rank.synchronize(&stream)?;
        Ok(stream.read(&x)?)
    };
    // A thread for each.
    let sums = std::thread::scope(|scope| {
        let threads: Vec<_> = group.iter().map(|peer| scope.spawn(move || rank(peer))).collect();
        threads.into_iter().flat_map(|thread| thread.join()).collect::<Result<Vec<_>, _>>()
    })?;

    let n = devices.len() as f32;
    assert!(sums.iter().flatten().all(|sum| *sum == n * (n + 1.0) / 2.0));
    println!("{} ranks have the sum of all: PASS", sums.len());
    Ok(())
}
