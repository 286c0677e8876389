#![allow(clippy::unwrap_used)] // helpers of tests are not seen as tests

use super::*;

#[test]
fn lines_that_do_not_add_up_are_refused() {
    let read = |bytes: &[u8]| Lines::read(bytes).is_some();
    assert!(read(&[0]) && read(&[1, 1, b'x', 1, 0, 0]));
    for bad in [&[][..], &[1], &[1, 2, b'x'], &[1, 1, 0xFF], &[0, 9], &[0, 1, 0], &[0x80; 12]] {
        assert!(!read(bad), "{bad:?}");
    }
    let lines = Lines::read(&[1, 1, b'x', 1, 1, 0, 1, 0, 9]).unwrap();
    let merged = |nth| {
        let mut out = String::new();
        lines.merge(&mut out, "a\nb\n", nth).map(|()| out)
    };
    assert_eq!(merged(0).as_deref(), Some("a\nx\nb\n"));
    assert_eq!((merged(1), merged(2)), (None, None), "no such place, no such piece");
}
