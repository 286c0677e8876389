use crate::gemv::golden;
use crate::machine::{Gpu, Rng, vector};
use gpu_kernels::state::Column;
use gpu_kernels::{
    embed::{self, Decoded, Dequantize, Embed, MAX_ROWS},
    format::Format,
};
use half::f16;
use warpsmith_device::DeviceSlice;

fn rows_of(gpu: &mut Gpu, format: Format, bytes: &[u8], (vocab, cols): (usize, usize), table: &[f32], tokens: &[u32]) {
    let records = gpu.upload(&format.repack(bytes, vocab, cols).unwrap());
    let columns: Vec<Column> = tokens.iter().map(|t| Column::at(*t, 77)).collect();
    let columns = gpu.upload(&columns);
    let stride = cols.next_multiple_of(4);
    let mut y = gpu.poisoned::<f32>(tokens.len() * stride);
    let (vocab, cols32) = (vocab as u32, cols as u32);
    let embed = Embed {
        format,
        table: &records,
        columns: &columns,
        chosen: DeviceSlice::empty(),
        y: &mut y,
        next: None,
        quantized: None,
        vocab,
        cols: cols32,
        stride: stride as u32,
    };
    embed.launch(gpu).unwrap();
    let got = gpu.read(&y);
    for (token, got) in tokens.iter().zip(got.chunks_exact(stride)) {
        let want = embed::reference(table, *token as usize, cols);
        for (c, (g, w)) in got.iter().zip(&want).enumerate() {
            // Bit for bit, but for the sign of zero; all NaN past the vocabulary.
            assert!(g == w || (g.is_nan() && w.is_nan()), "{format} token {token} [{c}]: {g} for {w}");
        }
    }
}

#[test]
fn rows_are_the_golden_weights_bit_for_bit() {
    for mut gpu in Gpu::all() {
        for format in Format::ALL {
            let Some(name) = golden(format) else { continue };
            let bytes = vector(&format!("{name}.q"), |[b]| b);
            let table = vector(&format!("{name}.f32"), f32::from_le_bytes);
            // FE-27: the token past the last one, and one that wraps when it is multiplied; it also names a choice that is not there.
            rows_of(&mut gpu, format, &bytes, (4, 512), &table, &[0, 1, 2, 3, 4, u32::MAX]);
        }
        let table = Rng(30).floats(3 * 37);
        let bytes: Vec<u8> = table.iter().flat_map(|v| v.to_le_bytes()).collect();
        rows_of(&mut gpu, Format::F32, &bytes, (3, 37), &table, &[0, 2, 3]);
    }
}

#[test]
fn fe_27_the_last_row_of_a_table_of_more_than_2_31_weights() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(32));
    let (format, vocab, cols) = (Format::Q1_0, 16_400usize, 131_072usize);
    assert!(vocab * cols > 1 << 31);
    let mut row = Vec::new();
    for _ in 0..cols / 128 {
        row.extend(half::f16::from_f32(rng.unit()).to_le_bytes());
        row.extend((0..16).map(|_| rng.next() as u8));
    }
    let record = format.repack(&row, 1, cols).unwrap();
    let vectors = format.tensor_vectors(vocab, cols).unwrap();
    let mut table = gpu.poisoned(vectors);
    gpu.write(&mut table, vectors - record.len(), &record);
    let (columns, mut y) = (gpu.upload(&[Column::at(vocab as u32 - 1, 0)]), gpu.poisoned::<f32>(cols));
    let (vocab, cols32) = (vocab as u32, cols as u32);
    let embed = Embed {
        format,
        table: &table,
        columns: &columns,
        chosen: DeviceSlice::empty(),
        y: &mut y,
        next: None,
        quantized: None,
        vocab,
        cols: cols32,
        stride: cols32,
    };
    embed.launch(&mut gpu).unwrap();
    assert_eq!(gpu.read(&y), format.decode(&row, 1, cols).unwrap());
}

/// A matrix decoded by the device to f32 and f16, against `table`; the places between the rows stay as they are.
fn decoded(gpu: &mut Gpu, format: Format, bytes: &[u8], (rows, cols): (usize, usize), table: &[f32]) {
    let weights = gpu.upload(&format.repack(bytes, rows, cols).unwrap());
    let stride = cols.next_multiple_of(4) + 4;
    let len = (rows - 1) * stride + cols;
    let (mut y, mut half) = (gpu.poisoned::<f32>(len), gpu.poisoned::<f16>(len));
    for y in [Decoded::F32(&mut y), Decoded::F16(&mut half)] {
        let (rows, cols, stride) = (rows as u32, cols as u32, stride as u32);
        Dequantize { format, weights: &weights, y, rows, cols, stride }.launch(gpu).unwrap();
    }
    let (y, half) = (gpu.read(&y), gpu.read(&half));
    for (i, (y, half)) in y.iter().zip(&half).enumerate() {
        let (row, col) = (i / stride, i % stride);
        if col < cols {
            let want = table[row * cols + col];
            assert!(*y == want, "{format} [{row}, {col}]: {y} for {want}");
            assert!(*half == f16::from_f32(want), "{format} [{row}, {col}]: {half} as f16 for {want}");
        } else {
            assert!(y.is_nan() && half.is_nan(), "{format}: written between the rows at [{row}, {col}]");
        }
    }
}

#[test]
fn matrices_decode_to_f32_and_f16() {
    for mut gpu in Gpu::all() {
        for format in Format::ALL {
            let Some(name) = golden(format) else { continue };
            let bytes = vector(&format!("{name}.q"), |[b]| b);
            let table = vector(&format!("{name}.f32"), f32::from_le_bytes);
            decoded(&mut gpu, format, &bytes, (4, 512), &table);
        }
        let table = Rng(33).floats(3 * 37);
        let bytes: Vec<u8> = table.iter().flat_map(|v| v.to_le_bytes()).collect();
        decoded(&mut gpu, Format::F32, &bytes, (3, 37), &table);
    }
}

/// More rows than a grid has blocks in y take several launches.
#[test]
fn a_matrix_of_more_rows_than_a_grid_decodes() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(34));
    let (rows, cols) = (MAX_ROWS as usize + 5, 32);
    let bytes: Vec<u8> = (0..rows * cols).flat_map(|_| f16::from_f32(rng.unit()).to_le_bytes()).collect();
    let weights = gpu.upload(&Format::F16.repack(&bytes, rows, cols).unwrap());
    // A stride that puts the second launch at an odd multiple of 8 bytes.
    let mut y = gpu.poisoned::<f16>(rows * 36);
    let (n, target) = (rows as u32, Decoded::F16(&mut y));
    let launch = Dequantize { format: Format::F16, weights: &weights, y: target, rows: n, cols: 32, stride: 36 };
    launch.launch(&mut gpu).unwrap();
    for (row, (got, want)) in gpu.read(&y).chunks_exact(36).zip(bytes.chunks_exact(64)).enumerate() {
        assert_eq!(bytemuck::cast_slice::<f16, u8>(&got[..32]), want, "row {row}");
        assert!(got[32..].iter().all(|v| v.is_nan()), "written behind row {row}");
    }
    // Too little memory is an error that names it, wherever it runs out.
    let mut short = gpu.poisoned::<f32>(rows * cols - 1);
    let y = Decoded::F32(&mut short);
    let launch = Dequantize { format: Format::F16, weights: &weights, y, rows: rows as u32, cols: 32, stride: 32 };
    assert!(launch.launch(&mut gpu).unwrap_err().to_string().contains("`y`"));
    let mut y = gpu.poisoned::<f32>(rows * cols);
    let (weights, y) = (&weights[1..], Decoded::F32(&mut y));
    let launch = Dequantize { format: Format::F16, weights, y, rows: rows as u32, cols: 32, stride: 32 };
    assert!(launch.launch(&mut gpu).unwrap_err().to_string().contains("`table`"));
}
