//! A captured graph: record once, replay often. The graph owns what it refers to, so dropping a buffer is safe.
//!
//! `cargo run --release --example 02_graph`

use warpsmith::{Device, Error, kernels::elementwise::ResidualAdd};

fn main() -> Result<(), Error> {
    let device = Device::open(0)?;
    println!("engine: {}", device.engine());
    let stream = device.stream()?;

    let n = 1000;
    let one = stream.upload(&vec![1.0f32; n])?;
    let mut total = stream.zeros::<f32>(n)?;
    let mut next = stream.zeros::<f32>(n)?;

    // next = total + one; total = next
    let graph = stream.capture(|scope| {
        scope.launch(ResidualAdd { x: &total, residual: &one, y: &mut next, n: n as u32 })?;
        scope.copy(&next, &mut total)
    })?;
    println!("graph of {} nodes: {} launches, {} copies", graph.nodes(), graph.launches(), graph.copies());

    // Nothing ran yet: recording is not running. And `one` may go, because the graph keeps its memory.
    assert_eq!(stream.read(&total)?, vec![0.0; n]);
    drop(one);
    for _ in 0..100 {
        graph.launch(&stream)?;
    }
    assert_eq!(stream.read(&total)?, vec![100.0; n]);
    println!("100 replays: every element is 100\nPASS");
    Ok(())
}
