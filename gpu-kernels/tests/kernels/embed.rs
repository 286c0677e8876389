use crate::machine::{Gpu, Rng, vector};
use gpu_kernels::state::Column;
use gpu_kernels::{
    embed::{self, Embed},
    format::Format,
};

fn rows_of(gpu: &mut Gpu, format: Format, bytes: &[u8], vocab: usize, cols: usize, tokens: &[u32]) {
    let planes = format.repack(bytes, vocab, cols).unwrap();
    let table = format.decode(bytes, vocab, cols).unwrap();
    let (codes, scales) = (gpu.upload(&planes.codes), gpu.upload(&planes.scales));
    for token in tokens {
        let columns = gpu.upload(&[Column::at(*token, 77)]);
        let mut y = gpu.poisoned::<f32>(cols);
        let (vocab, cols32) = (vocab as u32, cols as u32);
        Embed { format, codes: &codes, scales: &scales, y: &mut y, columns: &columns, vocab, cols: cols32 }
            .launch(gpu)
            .unwrap();
        let (got, want) = (gpu.read(&y), embed::reference(&table, *token as usize, cols));
        for (c, (g, w)) in got.iter().zip(&want).enumerate() {
            // Bit for bit, but for the sign of zero; all NaN past the vocabulary.
            assert!(g == w || (g.is_nan() && w.is_nan()), "{format} token {token} [{c}]: {g} for {w}");
        }
    }
}

#[test]
fn rows_are_the_decoded_weights() {
    let mut gpu = Gpu::new();
    for (format, name) in
        [(Format::F16, "F16"), (Format::Q8_0, "Q8_0"), (Format::Q4_0, "Q4_0"), (Format::Q1_0, "Q1_0_g128")]
    {
        let bytes = vector(&format!("{name}.q"), |[b]| b);
        // FE-27: the token past the last one, and one that wraps when it is multiplied.
        rows_of(&mut gpu, format, &bytes, 4, 512, &[0, 1, 2, 3, 4, u32::MAX]);
    }
    let floats: Vec<u8> = Rng(30).floats(3 * 37).iter().flat_map(|v| v.to_le_bytes()).collect();
    rows_of(&mut gpu, Format::F32, &floats, 3, 37, &[0, 2, 3]);
}

#[test]
fn rows_with_odd_numbers_of_blocks() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(31));
    for format in [Format::Q8_0, Format::Q4_0, Format::Q1_0] {
        for blocks in [1, 3, 33, 65] {
            let mut bytes = Vec::new();
            for _ in 0..5 * blocks {
                bytes.extend(half::f16::from_f32(rng.unit()).to_le_bytes());
                bytes.extend((2..format.block_bytes()).map(|_| rng.next() as u8));
            }
            rows_of(&mut gpu, format, &bytes, 5, blocks * format.block_elems(), &[0, 4, 5]);
        }
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
    let (sizes, planes) = (format.plane_sizes(vocab, cols).unwrap(), format.repack(&row, 1, cols).unwrap());
    let (mut codes, mut scales) = (gpu.poisoned(sizes.codes), gpu.poisoned(sizes.scales));
    gpu.write(&mut codes, sizes.codes - planes.codes.len(), &planes.codes);
    gpu.write(&mut scales, sizes.scales - planes.scales.len(), &planes.scales);
    let (columns, mut y) = (gpu.upload(&[Column::at(vocab as u32 - 1, 0)]), gpu.poisoned::<f32>(cols));
    let (vocab, cols32) = (vocab as u32, cols as u32);
    let embed = Embed { format, codes: &codes, scales: &scales, y: &mut y, columns: &columns, vocab, cols: cols32 };
    embed.launch(&mut gpu).unwrap();
    assert_eq!(gpu.read(&y), format.decode(&row, 1, cols).unwrap());
}
