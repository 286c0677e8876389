//! A typed launch: buffers go in by name, and a launch that breaks its contract is an error on the host.
//!
//! `cargo run --release --example 01_typed_launch`

use warpsmith::{Device, Error, kernels::norm::RmsNorm};

fn main() -> Result<(), Error> {
    let device = Device::open(0)?;
    println!("engine: {}", device.engine());
    let stream = device.stream()?;

    let (rows, cols) = (2usize, 8u32);
    let x = stream.upload(&(0..16).map(|i| i as f32 - 8.0).collect::<Vec<_>>())?;
    let w = stream.upload(&[1.0f32; 8])?;
    let mut y = stream.zeros::<f32>(rows * cols as usize)?;
    stream.launch(RmsNorm { x: &x, w: &w, y: &mut y, cols, eps: 1e-6 })?;

    // Every row of the result has a mean square of 1.
    let y_host = stream.read(&y)?;
    for row in y_host.chunks(cols as usize) {
        let mean_square = row.iter().map(|v| v * v).sum::<f32>() / row.len() as f32;
        assert!((mean_square - 1.0).abs() < 1e-5);
        println!("row with mean square {mean_square:.6}");
    }

    // Four weights for eight columns: nothing is launched, and the error names the argument.
    let refused = stream.launch(RmsNorm { x: &x, w: &w[..4], y: &mut y, cols, eps: 1e-6 });
    assert!(matches!(refused, Err(Error::Contract(_))), "expected a contract error, got {refused:?}");
    println!("refused: {}", refused.err().map(|e| e.to_string()).unwrap_or_default());
    println!("PASS");
    Ok(())
}
