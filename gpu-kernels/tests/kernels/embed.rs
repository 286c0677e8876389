use crate::gemv::golden;
use crate::machine::{Gpu, Rng, vector};
use gpu_kernels::state::Column;
use gpu_kernels::{
    embed::{self, Embed},
    format::Format,
};

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
        y: &mut y,
        next: None,
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
            // FE-27: the token past the last one, and one that wraps when it is multiplied.
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
    let embed =
        Embed { format, table: &table, columns: &columns, y: &mut y, next: None, vocab, cols: cols32, stride: cols32 };
    embed.launch(&mut gpu).unwrap();
    assert_eq!(gpu.read(&y), format.decode(&row, 1, cols).unwrap());
}
