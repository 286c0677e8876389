#![allow(clippy::unwrap_used)] // helpers of tests are not seen as tests

use super::*;

fn body(n: u32) -> String {
    format!(".visible .entry k{n}(\n)\n{{\n\t.loc\t1 {n} 1\n\tret;\n\t.loc\t1 {n} 2\n}}\n")
}

/// Two kernels, cut as the builder cuts them.
fn text(sm: u32) -> Text {
    let head = format!(".version 7.4\n.target sm_{sm}\n");
    let bare = |n: u32| body(n).lines().filter(|l| !l.contains(".loc")).map(|l| format!("{l}\n")).collect::<String>();
    let (first, second) = (head.len() + bare(1).len(), head.len() + bare(1).len() + bare(2).len());
    let piece = |bytes, lines, module: Option<usize>| Piece { bytes, lines, modules: module.map(|m| [m].into()) };
    Text {
        sm,
        bare: head.clone() + &bare(1) + &bare(2),
        places: ["1 1 2", "1 1 1", "1 2 1", "1 2 2"].map(|place| format!("\t.loc\t{place}")).to_vec(),
        directives: vec![(5, 1), (6, 0), (10, 2), (11, 3)],
        modules: vec![vec!["k1".to_owned()], vec!["k2".to_owned()]],
        pieces: vec![
            piece(0..head.len(), 0..2, None),
            piece(head.len()..first, 2..7, Some(0)),
            piece(first..second, 7..12, Some(1)),
        ],
    }
}

#[test]
fn what_is_written_is_what_is_read() {
    [Effort::Fast, Effort::Small].into_iter().for_each(what_is_read);
}

fn what_is_read(effort: Effort) {
    let pack = Pack::read(write(&[text(75), text(80)], &[], effort, &[]).unwrap().leak()).unwrap();
    assert_eq!(pack.images().iter().map(|image| image.sm).collect::<Vec<_>>(), [75, 80]);
    for image in pack.images() {
        let head = format!(".version 7.4\n.target sm_{}\n", image.sm);
        let lines = |module| pack.text(image, module, true).unwrap();
        assert_eq!(lines(None), head.clone() + &body(1) + &body(2));
        assert_eq!((lines(Some(0)), lines(Some(1))), (head.clone() + &body(1), head + &body(2)));
        assert_eq!(pack.text(image, None, false).unwrap(), text(image.sm).bare);
        let mut spelled_out = Vec::new();
        text(image.sm).spell_out(&mut spelled_out).unwrap();
        assert_eq!(lines(None).into_bytes(), spelled_out);
        assert_eq!(pack.text(image, Some(1), false).unwrap(), text(image.sm).module(1));
    }
}

/// Machine code for two targets, both made of the second text.
fn machine() -> Vec<Machine> {
    let of = |target: &str| Machine {
        target: target.to_owned(),
        sm: 80,
        cubins: ["k1", "k2"].map(|kernel| format!("\x7fELF {kernel} {target}").into_bytes()).to_vec(),
    };
    vec![of("sm_80"), of("sm_90a")]
}

#[test]
fn machine_code_is_beside_the_text_that_it_was_made_of() {
    let pack = Pack::read(write(&[text(75), text(80)], &machine(), Effort::Fast, &[]).unwrap().leak()).unwrap();
    let found: Vec<_> = pack.cubins().iter().map(|cubins| (cubins.target.as_str(), cubins.sm)).collect();
    assert_eq!(found, [("sm_80", 80), ("sm_90a", 80)]);
    for cubins in pack.cubins() {
        for (module, kernel) in ["k1", "k2"].into_iter().enumerate() {
            let want = format!("\x7fELF {kernel} {}", cubins.target);
            assert_eq!(pack.cubin(cubins, module).unwrap(), want.as_bytes());
        }
        assert!(pack.cubin(cubins, 2).unwrap_err().to_string().contains("has no module 2"));
    }
    // Texts are as without it, and a pack without it says nothing of it.
    let bare = Pack::read(write(&[text(75), text(80)], &[], Effort::Fast, &[]).unwrap().leak()).unwrap();
    let whole = |pack: &Pack| pack.text(&pack.images()[1], None, true).unwrap();
    assert_eq!(whole(&pack), whole(&bare));
    assert!(bare.cubins().is_empty());
}

#[test]
fn machine_code_of_no_text_is_not_written() {
    let refused = |change: fn(&mut Machine)| {
        let mut machine = machine();
        change(&mut machine[1]);
        write(&[text(75), text(80)], &machine, Effort::Fast, &[]).unwrap_err().to_string()
    };
    for text in [refused(|code| code.sm = 90), refused(|code| drop(code.cubins.pop()))] {
        assert!(text.contains("machine code for sm_90a does not fit"), "{text}");
    }
}

#[test]
fn what_an_earlier_pack_has_is_taken_over() {
    let texts = [text(75), text(80)];
    let first = write(&texts, &machine(), Effort::Fast, &[]).unwrap();
    assert_eq!(write(&texts, &machine(), Effort::Fast, &first).unwrap(), first);
    // Something that says whose it is.
    let marked = |pack: &[u8]| {
        let (mut index, data) = super::read::unpacked_index(pack).unwrap();
        let mut data = data.to_vec();
        for frame in &mut index.frames {
            let (from, to) = (frame.at, frame.at + frame.bytes);
            frame.at = data.len();
            let own = [&data[from..to], b"mark"].concat();
            frame.bytes = own.len();
            frame.memo = frame.memo.map(|memo| memo.of(&own));
            data.extend(own);
        }
        super::write::file(&index, &data, Effort::Fast).unwrap()
    };
    let marks = |pack: &[u8]| pack.windows(4).filter(|bytes| bytes == b"mark").count();
    let changed = Text { bare: texts[1].bare.replace("k2(", "k2 ("), ..text(80) };
    let all = super::read::unpacked_index(&first).unwrap().0.frames.len();
    let with = |earlier: &[u8]| write(&[text(75), text(80)], &machine(), Effort::Fast, earlier).unwrap();
    assert_eq!(marks(&with(&marked(&first))), all);
    let one = write(&[text(75), changed], &machine(), Effort::Fast, &marked(&first)).unwrap();
    assert_eq!(marks(&one), all - 1);
    assert_eq!(marks(&write(&texts, &machine(), Effort::Small, &marked(&first)).unwrap()), 0);
    // Damaged or cut, it is no help, and does no harm.
    let earlier = marked(&first);
    for at in 0..earlier.len() {
        let mut damaged = earlier.clone();
        damaged[at] ^= 0x10;
        for earlier in [&damaged, &earlier[..at]] {
            let pack = with(earlier);
            let (index, data) = super::read::unpacked_index(&pack).unwrap();
            let wanted = super::read::unpacked_index(&first).unwrap();
            for (frame, want) in index.frames.iter().zip(&wanted.0.frames) {
                let bytes = &data[frame.at..frame.at + frame.bytes];
                let original = &wanted.1[want.at..want.at + want.bytes];
                assert!(bytes == original || bytes == [original, b"mark"].concat(), "byte {at}");
            }
        }
    }
}

#[test]
fn a_directive_of_no_place_is_not_written() {
    let of = |place| Text { directives: vec![(5, place)], ..text(80) };
    assert!(write(&[of(3)], &[], Effort::Fast, &[]).is_ok());
    assert!(write(&[of(4)], &[], Effort::Fast, &[]).unwrap_err().to_string().contains("of no place"));
}

#[test]
fn every_byte_that_differs_is_noticed() {
    [Effort::Fast, Effort::Small].into_iter().for_each(differences_are_noticed);
}

fn differences_are_noticed(effort: Effort) {
    let whole = write(&[text(75), text(80)], &machine(), effort, &[]).unwrap();
    let everything = |bytes: Vec<u8>| -> Result<Vec<Vec<u8>>, PackError> {
        let pack = Pack::read(bytes.leak())?;
        let texts = pack.images().iter().map(|image| pack.text(image, None, true).map(String::into_bytes));
        let cubins = pack.cubins().iter().flat_map(|cubins| [0, 1].map(|module| pack.cubin(cubins, module)));
        texts.chain(cubins).collect()
    };
    let want = everything(whole.clone()).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        // A bit of a frame's head that says nothing of the content may differ.
        assert!(everything(damaged).is_err_and(|e| matches!(e, PackError::Damaged(_))) || at >= 20, "byte {at}");
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        assert!(everything(damaged).map_or(true, |texts| texts == want), "byte {at}");
        assert!(everything(whole[..at].to_vec()).is_err(), "{at} bytes");
    }
}

#[test]
fn a_pack_holds_what_its_index_says() {
    let pack = write(&[text(75), text(80)], &[], Effort::Fast, &[]).unwrap();
    assert_eq!(pack[..8], MAGIC);
    let word = |at: usize| u32::from_le_bytes(pack[at..at + 4].try_into().unwrap()) as usize;
    let unpacked = |frame: &[u8], raw: usize| {
        let mut content = Vec::with_capacity(raw);
        ruzstd::decoding::FrameDecoder::new().decode_all_to_vec(frame, &mut content).unwrap();
        content
    };
    let json = unpacked(&pack[20..20 + word(8)], word(12));
    assert_eq!(crc32fast::hash(&json) as usize, word(16));
    let index: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(index["images"][1]["modules"], serde_json::json!([["k1"], ["k2"]]));
    // What is common, and each of two kernels; then the lines of all, and sites of calls.
    assert_eq!(index["frames"].as_array().unwrap().len(), 5);
    let frame = |nth: usize| {
        let number = |key: &str| index["frames"][nth][key].as_u64().unwrap() as usize;
        let at = 20 + word(8) + number("at");
        let content = unpacked(&pack[at..at + number("bytes")], number("raw"));
        assert_eq!(crc32fast::hash(&content) as usize, number("crc"));
        content
    };
    assert_eq!(String::from_utf8(frame(0)).unwrap(), ".version 7.4\n.target sm_75\n.version 7.4\n.target sm_80\n");
    let bare = body(2).replace("\t.loc\t1 2 1\n", "").replace("\t.loc\t1 2 2\n", "");
    assert_eq!(String::from_utf8(frame(2)).unwrap(), bare.repeat(2));
    // Two places, and in each of the two pieces two directives, behind three lines and one more, of the first place and the next.
    let records = [2, 3, 1, 0, 2].repeat(2);
    let lines = [&[2, 0, 1, 2, 1, 0, 0, 1, 2, 2, 0][..], &records].concat();
    let number = |key: &str| index["lines"][2][key].as_u64().unwrap() as usize;
    assert_eq!((number("frame"), number("bytes")), (3, lines.len()));
    assert_eq!(frame(3)[number("at")..], lines);
}

/// Lines of kernels that are too many for one frame are in several.
#[test]
fn lines_are_in_as_many_frames_as_they_need() {
    let directives = [1, 2].map(|n| format!("\t.loc\t1 {n} 1 {}", "x".repeat(5 << 20)));
    let long = |sm| Text { places: directives.to_vec(), directives: vec![(5, 0), (10, 1)], ..text(sm) };
    let pack = Pack::read(write(&[long(75), long(80)], &[], Effort::Small, &[]).unwrap().leak()).unwrap();
    // What is common, and both kernels; and no sites of calls.
    assert_eq!(pack.frames(), 2 + 2 + 1);
    let image = &pack.images()[1];
    for (module, directive) in directives.iter().enumerate() {
        let text = pack.text(image, Some(module), true).unwrap();
        assert_eq!(text.lines().filter(|l| *l == directive).count(), 1, "{module}");
    }
    let all = pack.text(image, None, true).unwrap();
    assert!(directives.iter().all(|d| all.contains(d.as_str())));
}

#[test]
fn numbers_have_as_many_bytes_as_they_need() {
    let of = |value| {
        let mut out = Vec::new();
        write_number(&mut out, value);
        out
    };
    assert_eq!((of(0), of(127), of(128), of(300)), (vec![0], vec![127], vec![128, 1], vec![172, 2]));
}

#[test]
fn lines_that_do_not_add_up_are_refused() {
    let read = |bytes: &[u8]| super::lines::Lines::read(bytes, &["a", "b"]);
    assert!(read(&[0]).is_some() && read(&[1, 2, 1, b'x', 1, 0, 0]).is_some());
    for bad in [
        &[][..],
        &[1],
        &[1, 2, 2, b'x'],
        &[1, 2, 1, 0xFF],
        &[1, 3],
        // A call of no site, and calls behind the first.
        &[1, 1, 0, 2],
        &[1, 1, 1, 0],
        &[1, 0, 1, 1, 1, 1],
        &[0, 9],
        &[0, 1, 0],
        // Before the first place.
        &[0, 1, 0, 1],
        &[0x80; 12],
    ] {
        assert!(read(bad).is_none(), "{bad:?}");
    }
    let lines = read(&[1, 2, 1, b'x', 1, 1, 0, 1, 0, 18]).unwrap();
    let merged = |nth| {
        let mut out = String::new();
        lines.merge(&mut out, "a\nb\n", nth).map(|()| out)
    };
    assert_eq!(merged(0).as_deref(), Some("a\nx\nb\n"));
    assert_eq!((merged(1), merged(2)), (None, None), "no such place, no such piece");
}
