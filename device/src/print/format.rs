//! Rust's format strings as C's.
// Evaluated while a kernel is compiled: a panic there is the compile error.
#![allow(clippy::panic)]

use super::Kind;

/// The text being written.
struct Writer<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Writer<N> {
    const fn push(&mut self, byte: u8) {
        assert!(self.at < N, "gpu_println!: the text is too long");
        self.bytes[self.at] = byte;
        self.at += 1;
    }
}

/// The format that `vprintf` takes for these arguments, ended by a zero. All arguments are 64 bits wide.
pub(super) const fn c_format<const N: usize>(text: &str, newline: bool, kinds: &[Kind]) -> [u8; N] {
    let text = text.as_bytes();
    let mut out = Writer { bytes: [0; N], at: 0 };
    let (mut i, mut next) = (0, 0);
    while i < text.len() {
        let doubled = i + 1 < text.len() && text[i + 1] == text[i];
        match text[i] {
            0 => panic!("gpu_println!: a zero byte ends the text of a GPU"),
            b'%' => {
                out.push(b'%');
                out.push(b'%');
                i += 1;
            }
            b'{' | b'}' if doubled => {
                out.push(text[i]);
                i += 2;
            }
            b'{' => {
                assert!(next < kinds.len(), "gpu_println!: there are more `{{}}` than arguments");
                i = placeholder(text, i + 1, kinds[next], &mut out);
                next += 1;
            }
            b'}' => panic!("gpu_println!: an unmatched `}}`; write `}}}}` for the character"),
            byte => {
                out.push(byte);
                i += 1;
            }
        }
    }
    assert!(next == kinds.len(), "gpu_println!: there are more arguments than `{{}}`");
    if newline {
        out.push(b'\n');
    }
    out.push(0);
    out.bytes
}

/// Translates what follows `{`; gives the place after `}`.
const fn placeholder<const N: usize>(text: &[u8], mut i: usize, kind: Kind, out: &mut Writer<N>) -> usize {
    out.push(b'%');
    if i < text.len() && text[i] == b':' {
        i += 1;
        // Rust wants the flags in this order; `>` is what C does.
        while i < text.len() && matches!(text[i], b'<' | b'>' | b'+' | b'#' | b'0') {
            match text[i] {
                b'<' => out.push(b'-'),
                b'>' => {}
                flag => out.push(flag),
            }
            i += 1;
        }
        while i < text.len() && (text[i].is_ascii_digit() || text[i] == b'.') {
            assert!(
                text[i] != b'.' || matches!(kind, Kind::Float | Kind::Text),
                "gpu_println!: a precision is for floats and texts"
            );
            out.push(text[i]);
            i += 1;
        }
    }
    assert!(i < text.len(), "gpu_println!: a `{{` without its `}}`");
    let letter = if text[i] == b'}' { b'?' } else { text[i] };
    let precise = out.at > 0 && has_precision(out);
    match (kind, letter) {
        (Kind::Signed, b'?') => long(out, b'd'),
        (Kind::Unsigned, b'?') => long(out, b'u'),
        (Kind::Signed | Kind::Unsigned, b'x' | b'X' | b'o') => long(out, letter),
        (Kind::Float, b'?') => out.push(if precise { b'f' } else { b'g' }),
        (Kind::Float, b'e' | b'E') => out.push(letter),
        (Kind::Pointer, b'p' | b'?') => out.push(b'p'),
        (Kind::Text, b'?') => out.push(b's'),
        _ => panic!(
            "gpu_println!: `{{}}` of this kind is not known, or not for this argument; arguments are named by their order, \
             as `{{}}`, `{{:?}}`, `{{:x}}` (integers), `{{:.3}}`, `{{:e}}` (floats) or `{{:p}}` (pointers)"
        ),
    }
    if text[i] != b'}' {
        i += 1;
    }
    assert!(i < text.len() && text[i] == b'}', "gpu_println!: a `{{` without its `}}`");
    i + 1
}

const fn long<const N: usize>(out: &mut Writer<N>, letter: u8) {
    out.push(b'l');
    out.push(b'l');
    out.push(letter);
}

/// Whether the placeholder being written has a precision.
const fn has_precision<const N: usize>(out: &Writer<N>) -> bool {
    let mut i = out.at;
    while i > 0 && out.bytes[i - 1] != b'%' {
        i -= 1;
        if out.bytes[i] == b'.' {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{Kind::*, *};

    fn text(format: &str, newline: bool, kinds: &[Kind]) -> String {
        let bytes: [u8; 128] = c_format(format, newline, kinds);
        let end = bytes.iter().position(|&b| b == 0).unwrap();
        String::from_utf8(bytes[..end].to_vec()).unwrap()
    }

    #[test]
    fn formats_are_translated() {
        assert_eq!(text("plain", true, &[]), "plain\n");
        assert_eq!(text("100 % of {{}}", false, &[]), "100 %% of {}");
        assert_eq!(text("{} {} {}", false, &[Signed, Unsigned, Float]), "%lld %llu %g");
        assert_eq!(text("{:?}{:5}{:<5}|", false, &[Signed, Unsigned, Unsigned]), "%lld%5llu%-5llu|");
        assert_eq!(text("{:x} {:#010X} {:o}", false, &[Signed, Unsigned, Unsigned]), "%llx %#010llX %llo");
        assert_eq!(text("{:.3} {:+8.2} {:e} {:.2e}", false, &[Float; 4]), "%.3f %+8.2f %e %.2e");
        assert_eq!(text("{} {:p} {:>6}", false, &[Pointer, Pointer, Text]), "%p %p %6s");
    }

    #[test]
    fn mistakes_are_named() {
        for (format, kinds, part) in [
            ("{}", &[][..], "more `{}` than arguments"),
            ("x", &[Signed], "more arguments than"),
            ("{:x}", &[Float], "not for this argument"),
            ("{:.3}", &[Signed], "precision is for floats"),
            ("{name}", &[Signed], "named by their order"),
            ("{", &[Signed], "without its `}`"),
            ("}", &[], "unmatched `}`"),
            ("a\0b", &[], "zero byte"),
        ] {
            let error = std::panic::catch_unwind(|| text(format, false, kinds)).unwrap_err();
            let error = error.downcast_ref::<&str>().map(|s| s.to_string()).or(error.downcast_ref::<String>().cloned());
            assert!(error.as_ref().unwrap().contains(part), "{format}: {error:?}");
        }
    }
}
