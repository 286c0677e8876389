//! Against the golden vectors of ggml's own decoders (`tests/vectors`).

use super::*;
use crate::format::{
    self as device,
    decode::{Decode, QUADS},
    record::UNIT,
};
use std::path::Path;

const ROWS: usize = 4;
const COLS: usize = 512;

fn vector(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn floats(name: &str) -> Vec<f32> {
    vector(name).chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn golden(format: Format) -> String {
    match format {
        Format::Q1_0 => "Q1_0_g128".into(),
        f => f.name().into(),
    }
}

fn with_vectors() -> impl Iterator<Item = Format> {
    // NVFP4 with a scale for each row has those of NVFP4, and a test of its own.
    Format::ALL.into_iter().filter(|f| !matches!(f, Format::F32 | Format::NVFP4_SCALED))
}

/// The sign of zero is not part of the formats.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a == 0.0 && b == 0.0)
}

#[test]
fn decodes_the_golden_vectors_bit_for_bit() {
    for format in with_vectors() {
        let name = golden(format);
        let got = format.decode(&vector(&format!("{name}.q")), ROWS, COLS).unwrap();
        let want = floats(&format!("{name}.f32"));
        assert_eq!(got.len(), want.len());
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            assert!(same(*g, *w), "{format} element {i}: {g:?} for {w:?}");
        }
    }
}

#[test]
fn f32_decodes_as_it_stands() {
    let want = [0.5f32, -0.0, f32::MIN_POSITIVE / 4.0, f32::MAX, 1.0, -3.25];
    let bytes: Vec<u8> = want.iter().flat_map(|v| v.to_le_bytes()).collect();
    let got = Format::F32.decode(&bytes, 2, 3).unwrap();
    assert_eq!(got.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), want.map(f32::to_bits));
    // A unit of 32 weights a row, the rest of it zero.
    let records = Format::F32.repack(&bytes, 2, 3).unwrap();
    assert_eq!(records.len(), 2 * 8);
    assert_eq!(records[0].0, [want[0].to_bits(), want[1].to_bits(), want[2].to_bits(), 0]);
    assert_eq!(records[8].0, [want[3].to_bits(), want[4].to_bits(), want[5].to_bits(), 0]);
    assert!(records[1..8].iter().chain(&records[9..]).all(|v| v.0 == [0; 4]));
}

/// A record's weights by the kernels' own functions, and those by way of the vector that units share.
fn weights_of<F: Decode>(record: &[U32x4], layout: &Record, cols: usize) -> Vec<f32> {
    let mut all = vec![];
    for u in 0..layout.units {
        // SAFETY: on the host, loads are checked.
        let (codes, scales) = unsafe { (F::codes(record, layout, u), F::scales(record, layout, u)) };
        let words = F::SPEC.short_words();
        for q in 0..QUADS {
            let quad = F::quad(&codes, q);
            if words > 0 {
                let at = 4 * layout.short + layout.word(u, words);
                let mut shared = record[at / 4].0;
                shared.rotate_left(at % 4);
                // SAFETY: as above.
                let shared = unsafe { F::codes_of(record, layout, u, shared) };
                let run = layout.lanes() * F::SPEC.together();
                if (u / run + 1) * run <= layout.units {
                    assert_eq!(F::quad(&shared, q), quad, "unit {u}");
                }
            }
            let half = q * F::SCALES / QUADS;
            all.extend(quad.map(|c| match (F::SCALED, F::SHIFTED) {
                (false, _) => c,
                (true, false) => c * scales.scale[half],
                (true, true) => c.mul_add(scales.scale[half], scales.shift[half]),
            }));
        }
    }
    assert!(all[cols..].iter().all(|w| *w == 0.0));
    all.truncate(cols);
    all
}

fn by_record(format: Format, record: &[U32x4], cols: usize) -> Vec<f32> {
    let layout = format.record(cols).unwrap();
    assert_eq!(record.len(), layout.vectors);
    macro_rules! by_decoder {
        (() $($F:ident $stored:tt)*) => { match format.layout() {
            $(Layout::$F => weights_of::<device::$F>(record, &layout, cols),)*
        } };
    }
    crate::formats!(stored by_decoder ())
}

#[test]
fn records_hold_the_golden_weights_bit_for_bit() {
    for format in with_vectors() {
        let name = golden(format);
        let bytes = vector(&format!("{name}.q"));
        let want = floats(&format!("{name}.f32"));
        let records = format.repack(&bytes, ROWS, COLS).unwrap();
        let vectors = format.row_vectors(COLS).unwrap();
        for (r, record) in records.chunks_exact(vectors).enumerate() {
            for (c, got) in by_record(format, record, COLS).into_iter().enumerate() {
                let want = want[r * COLS + c];
                assert!(same(got, want), "{format} [{r}, {c}]: {got:?} for {want:?}");
            }
        }
    }
}

#[test]
fn records_of_any_width_hold_the_weights() {
    let mut rng = crate::cases::Rng(11);
    for format in Format::ALL {
        let elems = format.block_elems();
        let blocks = match format {
            f if f.is_dense() => vec![1, 5, 31, 32, 33, 127, 1000, 1056],
            _ => vec![1, 2, 3, 5, 8, 9, 17, 31, 33, 40],
        };
        for cols in blocks.into_iter().map(|b| b * elems).filter(|c| *c <= 8192) {
            let t = crate::cases::Tensor::random(&mut rng, format, 2, cols);
            let (records, want) =
                (format.repack(&t.bytes, 2, cols).unwrap(), format.decode(&t.bytes, 2, cols).unwrap());
            for (r, record) in records.chunks_exact(format.row_vectors(cols).unwrap()).enumerate() {
                let got = by_record(format, record, cols);
                assert!(got.iter().zip(&want[r * cols..]).all(|(g, w)| same(*g, *w)), "{format} {cols}");
            }
        }
    }
}

#[test]
fn rows_may_be_packed_a_few_at_a_time() {
    let bytes = vector("Q4_K.q");
    let all = Format::Q4_K.repack(&bytes, ROWS, COLS).unwrap();
    let vectors = Format::Q4_K.row_vectors(COLS).unwrap();
    let mut part = vec![U32x4([7; 4]); vectors];
    Format::Q4_K.repack_into(&bytes[2 * 288..3 * 288], 1, COLS, &mut part).unwrap();
    assert_eq!(part, all[2 * vectors..3 * vectors]);
}

#[test]
fn rows_are_multiplied_as_they_decode() {
    let mut rng = crate::cases::Rng(7);
    for format in Format::ALL {
        let cols = 512usize.next_multiple_of(format.block_elems());
        let t = crate::cases::Tensor::random(&mut rng, format, 3, cols);
        let x: Vec<f64> = rng.floats(cols).into_iter().map(f64::from).collect();
        let weights = format.decode(&t.bytes, 3, cols).unwrap();
        let want: Vec<f64> =
            weights.chunks(cols).map(|row| row.iter().zip(&x).map(|(w, x)| f64::from(*w) * x).sum()).collect();
        assert_eq!(format.multiply(&t.bytes, &x), want, "{format}");
    }
    assert_eq!(Format::F32.multiply(&[], &[]), []);
}

#[test]
fn records_are_hardly_larger_than_files() {
    // At 4096 columns; base-3 digits become codes of two bits, scales of six bits take a byte.
    for format in Format::ALL {
        let (stored, record) = (format.row_bytes(4096).unwrap(), 16 * format.row_vectors(4096).unwrap());
        let most = match format {
            Format::TQ1_0 | Format::PTQ1_0 => 1.23,
            Format::Q3_K => 1.04,
            Format::Q4_K => 1.03,
            Format::Q5_K => 1.024,
            Format::IQ4_XS => 1.015,
            // A number for the row; what has one for a unit or a block has it for each half of a unit.
            Format::NVFP4 => 1.007,
            Format::IQ1_S => 1.12,
            _ => 1.0,
        };
        assert!(record as f64 <= most * stored as f64, "{format}: {record} for {stored}");
    }
    assert_eq!(UNIT, 32);
}

#[test]
fn ids_and_names() {
    for format in Format::ALL {
        match format.type_id() {
            42 => assert!(matches!(format, Format::Q2_0 | Format::TQ2_0_G128)),
            id => assert_eq!(Format::from_type_id(id).unwrap(), format),
        }
    }
    for format in Format::ALL {
        assert_eq!(format.name().to_lowercase().parse(), Ok(format));
    }
    let unknown = "Q9_0".parse::<Format>().unwrap_err().to_string();
    assert!(unknown.starts_with("no weight format is called `Q9_0`") && unknown.contains("Q4_0 (2)"), "{unknown}");
    for id in [42, 4, 43, 77] {
        let text = Format::from_type_id(id).unwrap_err().to_string();
        assert!(text.contains(&format!("type {id} ")) && text.contains("Q4_0 (2)"), "{text}");
    }
}

#[test]
fn wrong_shapes_and_lengths_are_refused() {
    use FormatError as E;
    assert!(matches!(Format::Q4_0.row_bytes(48), Err(E::Columns { cols: 48, elems: 32, .. })));
    assert!(matches!(Format::Q4_0.row_bytes(0), Err(E::Columns { .. })));
    let bytes = vector("Q4_0.q");
    assert!(matches!(Format::Q4_0.decode(&bytes[1..], ROWS, COLS), Err(E::Bytes { expected: 1152, actual: 1151, .. })));
    // The same bytes are not taken for another format of another size.
    assert!(matches!(Format::Q8_0.repack(&bytes, ROWS, COLS), Err(E::Bytes { .. })));
    assert!(matches!(Format::F32.tensor_bytes(usize::MAX, 4), Err(E::TooLarge { .. })));
    assert!(matches!(Format::Q1_0.tensor_vectors(usize::MAX / 8, 128), Err(E::TooLarge { .. })));
    assert!(matches!(Format::Q1_0.row_vectors(usize::MAX / 128 * 128), Err(E::TooLarge { .. })));
    let mut records = vec![U32x4([0; 4]); 3];
    assert!(matches!(Format::Q4_0.repack_into(&bytes, ROWS, COLS, &mut records), Err(E::Records { actual: 3, .. })));
}

#[test]
fn a_scale_that_is_not_finite_names_its_block() {
    for format in with_vectors() {
        for &at in format.scale_offsets() {
            for bad in [0x7C00u16, 0xFC00, 0x7E01] {
                let mut bytes = vector(&format!("{}.q", golden(format)));
                let in_row = COLS / format.block_elems();
                let block = 2 * in_row + 1;
                bytes[block * format.block_bytes() + at..][..2].copy_from_slice(&bad.to_le_bytes());
                let e = format.repack(&bytes, ROWS, COLS).unwrap_err();
                let FormatError::NotFinite { block: b, row, first, .. } = &e else { panic!("{e}") };
                assert_eq!((*b, *row, *first), (block, 2, format.block_elems()));
                assert!(e.to_string().contains(&format!("block {block} (row 2")), "{e}");
            }
        }
    }
    for (format, bad) in [(Format::F16, 0x7E00u16), (Format::BF16, 0x7F80)] {
        let mut bytes = vector(&format!("{format}.q"));
        bytes[1026..1028].copy_from_slice(&bad.to_le_bytes());
        assert!(matches!(
            format.validate(&bytes, ROWS, COLS),
            Err(FormatError::NotFinite { row: 1, first: 1, end: 2, .. })
        ));
    }
    let mut bytes = vector("MXFP4.q");
    bytes[17 * 16 + 17] = 255;
    assert!(matches!(
        Format::MXFP4.validate(&bytes, ROWS, COLS),
        Err(FormatError::NotFinite { row: 1, first: 32, end: 64, .. })
    ));
}

/// A weight is a value times the scale of its sixteen times that of its row, the last two rounded to an f32, as the tools that write such
/// checkpoints have it.
#[test]
fn a_row_of_nvfp4_may_have_a_scale_of_its_own() {
    let (plain, want) = (vector("NVFP4.q"), floats("NVFP4.f32"));
    let scaled = |scale: &dyn Fn(usize) -> f32| -> Vec<u8> {
        let blocks = plain.chunks_exact(36).enumerate();
        blocks.flat_map(|(i, block)| block.iter().copied().chain(scale(i).to_le_bytes())).collect()
    };
    let rows = [0.3f32, 1.0, -7.5e-4, 3.0e5];
    let bytes = scaled(&|block| rows[block / 8]);
    let got = Format::NVFP4_SCALED.decode(&bytes, ROWS, COLS).unwrap();
    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
        let exact = f64::from(*want) * f64::from(rows[i / COLS]);
        assert!((f64::from(*got) - exact).abs() <= exact.abs() * 2f64.powi(-23), "{i}: {got} for {exact}");
    }
    let records = Format::NVFP4_SCALED.repack(&bytes, ROWS, COLS).unwrap();
    let vectors = Format::NVFP4_SCALED.row_vectors(COLS).unwrap();
    for (r, record) in records.chunks_exact(vectors).enumerate() {
        let of_record = by_record(Format::NVFP4_SCALED, record, COLS);
        assert!(of_record.iter().zip(&got[r * COLS..]).all(|(a, b)| same(*a, *b)), "row {r}");
    }
    // Another scale somewhere in a row; none that is a number; one that is too large for a record.
    let refused = |scale: &dyn Fn(usize) -> f32| Format::NVFP4_SCALED.repack(&scaled(scale), ROWS, COLS).unwrap_err();
    let e = refused(&|block| if block == 13 { 2.0 } else { 1.0 });
    assert!(matches!(e, FormatError::RowScale { block: 13, row: 1, expected: 1.0, value: 2.0, .. }), "{e}");
    for bad in [f32::NAN, f32::NEG_INFINITY, 1e38] {
        assert!(matches!(refused(&|_| bad), FormatError::NotFinite { block: 0, .. }), "{bad}");
    }
}

#[test]
fn codes_and_scales_of_eight_bits_that_are_no_numbers_are_refused() {
    let refused = |format: Format, at: usize, bytes: &[u8]| {
        let mut all = vector(&format!("{format}.q"));
        let block = 3 * format.block_bytes();
        all[block + at..][..bytes.len()].copy_from_slice(bytes);
        let e = format.repack(&all, ROWS, COLS);
        assert!(matches!(e, Err(FormatError::NotFinite { block: 3, .. })), "{format} {at} {bytes:?}: {e:?}");
    };
    for code in [0x7F, 0xFF] {
        refused(Format::F8_E4M3, 77, &[code]);
    }
    for code in [0x7C, 0x7D, 0x7F, 0xFC, 0xFF] {
        refused(Format::F8_E5M2, 127, &[code]);
    }
    for format in [Format::F8_E4M3, Format::F8_E5M2] {
        refused(format, 128, &f32::INFINITY.to_le_bytes());
        refused(format, 128, &f32::NAN.to_le_bytes());
    }
    // A record has 256 times as much.
    refused(Format::F8_E4M3, 128, &2e36f32.to_le_bytes());
    // A minus, which some read as one and some do not.
    for scale in [0x7F, 0xFF, 0x80, 0xB8] {
        (0..4).for_each(|s| refused(Format::NVFP4, s, &[scale]));
    }
    // The f16 that lies in four words.
    let mut bytes = vector("IQ1_M.q");
    (0..4).for_each(|j| bytes[5 * 56 + 49 + 2 * j] = [0x10, 0, 0xC0, 0x70][j]);
    let e = Format::IQ1_M.repack(&bytes, ROWS, COLS).unwrap_err();
    assert!(matches!(e, FormatError::NotFinite { block: 5, row: 2, first: 256, end: 512, .. }), "{e}");
}

#[test]
fn every_f16_scale_is_found() {
    // A format with a scale that validation does not know would let a NaN through: blocks of ones everywhere must decode
    // to numbers once the known scales are.
    for format in Format::ALL.into_iter().filter(|f| !f.scale_offsets().is_empty()) {
        let mut block = vec![0xFF; format.block_bytes()];
        for &at in format.scale_offsets() {
            block[at..at + 2].copy_from_slice(&[0, 0x3C]);
        }
        assert!(format.decode(&block, 1, format.block_elems()).unwrap().iter().all(|w| w.is_finite()), "{format}");
    }
}
