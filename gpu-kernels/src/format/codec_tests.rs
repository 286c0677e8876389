//! Against the golden vectors of ggml's own decoders (`tests/vectors`).

use super::*;
use crate::format::Block;
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

const WITH_VECTORS: [Format; 4] = [Format::F16, Format::Q8_0, Format::Q4_0, Format::Q1_0];

#[test]
fn decodes_the_golden_vectors_bit_for_bit() {
    for format in WITH_VECTORS {
        let name = golden(format);
        let got = format.decode(&vector(&format!("{name}.q")), ROWS, COLS).unwrap();
        let want = floats(&format!("{name}.f32"));
        assert_eq!(got.len(), want.len());
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            // The sign of zero is not part of the formats.
            let same = g.to_bits() == w.to_bits() || (*g == 0.0 && *w == 0.0);
            assert!(same, "{format} element {i}: {g:?} for {w:?}");
        }
    }
}

#[test]
fn f32_decodes_as_it_stands() {
    let want = [0.5f32, -0.0, f32::MIN_POSITIVE / 4.0, f32::MAX, 1.0, -3.25];
    let bytes: Vec<u8> = want.iter().flat_map(|v| v.to_le_bytes()).collect();
    let got = Format::F32.decode(&bytes, 2, 3).unwrap();
    assert_eq!(got.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), want.map(f32::to_bits));
    let planes = Format::F32.repack(&bytes, 2, 3).unwrap();
    assert_eq!(planes.codes[0].0, [want[0].to_bits(), want[1].to_bits(), want[2].to_bits(), 0]);
    assert_eq!(planes.codes[1].0, [want[3].to_bits(), want[4].to_bits(), want[5].to_bits(), 0]);
    assert!(planes.scales.is_empty());
}

/// Reads a plane back by the rule of the layout and by the kernels' own functions.
fn element_of<F: Block>(planes: &Planes, sizes: PlaneSizes, cols: usize, r: usize, c: usize) -> f32 {
    let words = cols / F::ELEMS * F::WORDS;
    let at = word_position(c / F::ELEMS * F::WORDS + F::place_of(c % F::ELEMS), words);
    let row = &planes.codes[r * sizes.row_vectors..];
    let d = planes.scales[r * sizes.row_scales + c / F::ELEMS].to_f32();
    d * F::code(row[at / 4].0[at % 4], c % F::ELEMS)
}

/// The row's product with x, taken word by word as the kernels take it.
fn dot_of<F: Block>(planes: &Planes, sizes: PlaneSizes, x: &[f32], r: usize, by_parts: bool) -> f64 {
    let words = x.len() / F::ELEMS * F::WORDS;
    let row = &planes.codes[r * sizes.row_vectors..];
    let mut sum = 0.0;
    for w in 0..words {
        let at = word_position(w, words);
        let word = row[at / 4].0[at % 4];
        let block = w / F::WORDS;
        let x4 = |i: usize| x[block * F::ELEMS + i..][..4].try_into().unwrap();
        let d = f64::from(planes.scales[r * sizes.row_scales + block].to_f32());
        if by_parts {
            for part in 0..F::PARTS {
                sum += d * f64::from(F::dot_part(word, w % F::WORDS, part, x4));
            }
        } else {
            sum += d * f64::from(F::dot(word, w % F::WORDS, w % 32, x4));
        }
    }
    sum
}

fn planes_hold_the_weights<F: Block>(format: Format) {
    let name = golden(format);
    let bytes = vector(&format!("{name}.q"));
    let (want, x) = (floats(&format!("{name}.f32")), floats(&format!("{name}.x.f32")));
    let doubles = |n: &str| -> Vec<f64> {
        vector(&format!("{name}.{n}")).chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
    };
    let (y, yabs) = (doubles("y.f64"), doubles("yabs.f64"));
    let planes = format.repack(&bytes, ROWS, COLS).unwrap();
    let sizes = format.plane_sizes(ROWS, COLS).unwrap();
    assert_eq!((planes.codes.len(), planes.scales.len()), (sizes.codes, sizes.scales));
    for r in 0..ROWS {
        for c in 0..COLS {
            let (got, want) = (element_of::<F>(&planes, sizes, COLS, r, c), want[r * COLS + c]);
            assert!(got == want, "{format} [{r}, {c}]: {got} for {want}");
        }
        for by_parts in [false, true] {
            let got = dot_of::<F>(&planes, sizes, &x, r, by_parts);
            assert!((got - y[r]).abs() <= 1e-5 * yabs[r], "{format} row {r}: {got} for {}", y[r]);
        }
    }
}

#[test]
fn planes_hold_the_golden_weights() {
    planes_hold_the_weights::<Q8_0>(Format::Q8_0);
    planes_hold_the_weights::<Q4_0>(Format::Q4_0);
    planes_hold_the_weights::<Q1_0>(Format::Q1_0);
}

#[test]
fn odd_numbers_of_blocks_keep_rows_at_16_bytes() {
    // OX-16: 2 * n_blocks need not be a multiple of 16 as stored; in the planes every row is.
    for format in [Format::Q8_0, Format::Q4_0, Format::Q1_0] {
        for blocks in [1, 3, 4, 7, 8] {
            let sizes = format.plane_sizes(3, blocks * format.block_elems()).unwrap();
            assert_eq!(sizes.row_scales % 8, 0);
            assert_eq!(sizes.scales, 3 * sizes.row_scales);
            assert_eq!(sizes.codes, 3 * sizes.row_vectors);
        }
    }
}

#[test]
fn ids_and_names() {
    for format in Format::ALL {
        assert_eq!(Format::from_type_id(format.type_id()).unwrap(), format);
    }
    let text = Format::from_type_id(42).unwrap_err().to_string();
    assert!(text.contains("42") && text.contains("Q4_0 (2)"), "{text}");
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
    assert!(matches!(Format::Q1_0.plane_sizes(usize::MAX / 8, 128), Err(E::TooLarge { .. })));
    let mut codes = vec![U32x4([0; 4]); 3];
    assert!(matches!(
        Format::Q4_0.repack_into(&bytes, ROWS, COLS, &mut codes, &mut []),
        Err(E::Plane { plane: "codes", .. })
    ));
}

#[test]
fn a_scale_that_is_not_finite_names_its_block() {
    for (format, name) in [(Format::Q8_0, "Q8_0.q"), (Format::Q4_0, "Q4_0.q"), (Format::Q1_0, "Q1_0_g128.q")] {
        for bad in [0x7C00u16, 0xFC00, 0x7E01] {
            let mut bytes = vector(name);
            let in_row = COLS / format.block_elems();
            let block = 2 * in_row + 1;
            bytes[block * format.block_bytes()..][..2].copy_from_slice(&bad.to_le_bytes());
            let e = format.repack(&bytes, ROWS, COLS).unwrap_err();
            let FormatError::NotFinite { block: b, row, first, .. } = &e else { panic!("{e}") };
            assert_eq!((*b, *row, *first), (block, 2, format.block_elems()));
            assert!(e.to_string().contains(&format!("block {block} (row 2")), "{e}");
        }
    }
    let mut bytes = vector("F16.q");
    bytes[1026..1028].copy_from_slice(&0x7E00u16.to_le_bytes());
    assert!(matches!(
        Format::F16.validate(&bytes, ROWS, COLS),
        Err(FormatError::NotFinite { row: 1, first: 1, end: 2, .. })
    ));
}
