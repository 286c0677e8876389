//! The formats of `printf`, as C defines them.

/// A conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spec {
    pub left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    pub width: usize,
    pub star_width: bool,
    pub precision: Option<usize>,
    pub star_precision: bool,
    /// `hh` 1, `h` 2, none 4, `l` and longer 8 bytes.
    size: u8,
    pub conversion: u8,
}

impl Spec {
    /// Bytes of its argument.
    pub(super) fn bytes(&self) -> u64 {
        match self.conversion {
            b'd' | b'i' | b'u' | b'o' | b'x' | b'X' if self.size == 8 => 8,
            b'd' | b'i' | b'u' | b'o' | b'x' | b'X' | b'c' => 4,
            _ => 8,
        }
    }
}

/// A part of a format.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Directive<'a> {
    Text(&'a [u8]),
    Spec(Spec),
}

/// What a conversion is applied to.
pub(super) enum Argument {
    Bits(u64),
    Text(Vec<u8>),
}

/// Takes a format apart. What is no conversion is text.
pub(super) fn pieces(format: &[u8]) -> Vec<Directive<'_>> {
    let mut found = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < format.len() {
        if format[at] != b'%' {
            at += 1;
            continue;
        }
        if at > start {
            found.push(Directive::Text(&format[start..at]));
        }
        match spec(&format[at + 1..]) {
            Some((spec, length)) => {
                found.push(Directive::Spec(spec));
                at += 1 + length;
            }
            None if format.get(at + 1) == Some(&b'%') => {
                found.push(Directive::Text(b"%"));
                at += 2;
            }
            None => {
                found.push(Directive::Text(b"%"));
                at += 1;
            }
        }
        start = at;
    }
    if start < format.len() {
        found.push(Directive::Text(&format[start..]));
    }
    found
}

/// A conversion behind its `%`, and its length.
fn spec(text: &[u8]) -> Option<(Spec, usize)> {
    let mut spec = Spec { size: 4, ..Spec::default() };
    let mut at = 0;
    let number = |at: &mut usize| {
        let mut n = 0usize;
        while let Some(digit) = text.get(*at).filter(|d| d.is_ascii_digit()) {
            n = (n * 10 + usize::from(digit - b'0')).min(1 << 16);
            *at += 1;
        }
        n
    };
    loop {
        match text.get(at)? {
            b'-' => spec.left = true,
            b'+' => spec.plus = true,
            b' ' => spec.space = true,
            b'#' => spec.alternate = true,
            b'0' => spec.zero = true,
            _ => break,
        }
        at += 1;
    }
    if text.get(at) == Some(&b'*') {
        spec.star_width = true;
        at += 1;
    } else {
        spec.width = number(&mut at);
    }
    if text.get(at) == Some(&b'.') {
        at += 1;
        if text.get(at) == Some(&b'*') {
            spec.star_precision = true;
            at += 1;
        } else {
            spec.precision = Some(number(&mut at));
        }
    }
    loop {
        match text.get(at)? {
            b'h' => spec.size = if spec.size == 2 { 1 } else { 2 },
            b'l' | b'j' | b'z' | b't' | b'q' | b'L' => spec.size = 8,
            _ => break,
        }
        at += 1;
    }
    spec.conversion = *text.get(at)?;
    let known = b"diuoxXcspfFeEgGaA".contains(&spec.conversion);
    known.then_some((spec, at + 1))
}

/// Appends one converted argument.
pub(super) fn render(spec: &Spec, argument: &Argument, out: &mut Vec<u8>) {
    let bits = match argument {
        Argument::Bits(bits) => *bits,
        Argument::Text(text) => {
            let end = spec.precision.map_or(text.len(), |p| p.min(text.len()));
            return pad(spec, b"", &text[..end], false, out);
        }
    };
    match spec.conversion {
        b'c' => pad(spec, b"", &[bits as u8], false, out),
        b'p' if bits == 0 => pad(spec, b"", b"(nil)", false, out),
        b'p' => pad(spec, b"0x", format!("{bits:x}").as_bytes(), false, out),
        b'd' | b'i' => {
            let value = match spec.size {
                1 => i64::from(bits as i8),
                2 => i64::from(bits as i16),
                8 => bits as i64,
                _ => i64::from(bits as i32),
            };
            integer(spec, sign(spec, value < 0), value.unsigned_abs().to_string(), out);
        }
        b'u' | b'o' | b'x' | b'X' => {
            let value = match spec.size {
                1 => bits & 0xff,
                2 => bits & 0xffff,
                8 => bits,
                _ => bits & 0xffff_ffff,
            };
            let (prefix, digits) = match spec.conversion {
                b'x' => ("0x", format!("{value:x}")),
                b'X' => ("0X", format!("{value:X}")),
                b'o' => ("", format!("{value:o}")),
                _ => ("", value.to_string()),
            };
            let digits =
                if spec.alternate && spec.conversion == b'o' && value != 0 { format!("0{digits}") } else { digits };
            let prefix = if spec.alternate && value != 0 { prefix } else { "" };
            integer(spec, prefix, digits, out);
        }
        _ => float(spec, f64::from_bits(bits), out),
    }
}

fn sign(spec: &Spec, negative: bool) -> &'static str {
    match (negative, spec.plus, spec.space) {
        (true, ..) => "-",
        (_, true, _) => "+",
        (_, _, true) => " ",
        _ => "",
    }
}

fn integer(spec: &Spec, prefix: &str, digits: String, out: &mut Vec<u8>) {
    let digits = match spec.precision {
        Some(0) if digits == "0" => String::new(),
        Some(p) => format!("{digits:0>p$}"),
        None => digits,
    };
    // A precision turns the flag `0` off.
    pad(spec, prefix.as_bytes(), digits.as_bytes(), spec.precision.is_none(), out);
}

/// Writes prefix and body in the field's width.
fn pad(spec: &Spec, prefix: &[u8], body: &[u8], zeros: bool, out: &mut Vec<u8>) {
    let room = spec.width.saturating_sub(prefix.len() + body.len());
    let zeros = zeros && spec.zero && !spec.left;
    if !spec.left && !zeros {
        out.resize(out.len() + room, b' ');
    }
    out.extend_from_slice(prefix);
    if zeros {
        out.resize(out.len() + room, b'0');
    }
    out.extend_from_slice(body);
    if spec.left {
        out.resize(out.len() + room, b' ');
    }
}

fn float(spec: &Spec, x: f64, out: &mut Vec<u8>) {
    let upper = spec.conversion.is_ascii_uppercase();
    let prefix = sign(spec, x.is_sign_negative());
    let x = x.abs();
    if !x.is_finite() {
        let body = if x.is_nan() { "nan" } else { "inf" };
        let body = if upper { body.to_uppercase() } else { body.to_string() };
        return pad(spec, prefix.as_bytes(), body.as_bytes(), false, out);
    }
    let precision = spec.precision.unwrap_or(6);
    let mut prefix = prefix.to_string();
    let body = match spec.conversion.to_ascii_lowercase() {
        b'f' => fixed(x, precision, spec.alternate),
        b'e' => scientific(x, precision, spec.alternate),
        b'a' => {
            prefix += "0x";
            hexadecimal(x, spec.precision, spec.alternate)
        }
        _ => general(x, precision.max(1), spec.alternate),
    };
    let body = if upper { body.to_uppercase() } else { body };
    let prefix = if upper { prefix.to_uppercase() } else { prefix };
    pad(spec, prefix.as_bytes(), body.as_bytes(), true, out);
}

fn fixed(x: f64, precision: usize, point: bool) -> String {
    let text = format!("{x:.precision$}");
    if point && precision == 0 { text + "." } else { text }
}

/// Digits and decimal exponent, as `%e` rounds them.
fn rounded(x: f64, precision: usize) -> (String, i32) {
    let text = format!("{x:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (digits.to_string(), exponent.parse().unwrap_or(0))
}

fn scientific(x: f64, precision: usize, point: bool) -> String {
    let (digits, exponent) = rounded(x, precision);
    let dot = if point && precision == 0 { "." } else { "" };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}{dot}e{sign}{:02}", exponent.unsigned_abs())
}

fn general(x: f64, precision: usize, keep: bool) -> String {
    let exponent = if x == 0.0 { 0 } else { rounded(x, precision - 1).1 };
    let plain = exponent >= -4 && i64::from(exponent) < precision as i64;
    let text = if plain {
        fixed(x, (precision as i64 - 1 - i64::from(exponent)).max(0) as usize, keep)
    } else {
        scientific(x, precision - 1, keep)
    };
    if keep || !text.contains('.') {
        return text;
    }
    let (digits, tail) = text.split_at(text.find('e').unwrap_or(text.len()));
    format!("{}{tail}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// `%a`: a hexadecimal fraction and a binary exponent.
fn hexadecimal(x: f64, precision: Option<usize>, point: bool) -> String {
    let bits = x.to_bits();
    let field = (bits >> 52) as i32;
    let mut fraction = bits & 0xf_ffff_ffff_ffff;
    let (mut lead, exponent) = match (field, fraction) {
        (0, 0) => (0, 0),
        (0, _) => (0, -1022),
        _ => (1u64, field - 1023),
    };
    let mut digits = 13;
    match precision {
        Some(p) if p < 13 => {
            // Rounded to nearest even at the last digit that stays.
            let cut = 4 * (13 - p) as u32;
            let all = lead << 52 | fraction;
            let (kept, rest, half) = (all >> cut, all & ((1 << cut) - 1), 1u64 << (cut - 1));
            let kept = kept + u64::from(rest > half || (rest == half && kept & 1 == 1));
            lead = kept >> (4 * p);
            fraction = kept & ((1 << (4 * p)) - 1);
            digits = p;
        }
        Some(_) => {}
        None => {
            while digits > 0 && fraction & 15 == 0 {
                fraction >>= 4;
                digits -= 1;
            }
        }
    }
    let mut body = if digits == 0 { String::new() } else { format!("{fraction:0digits$x}") };
    if let Some(p) = precision.filter(|&p| p > 13) {
        body += &"0".repeat(p - 13);
    }
    let dot = if body.is_empty() && !point { "" } else { "." };
    format!("{lead}{dot}{body}p{exponent:+}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(format: &str, bits: u64) -> String {
        let mut out = Vec::new();
        for piece in pieces(format.as_bytes()) {
            match piece {
                Directive::Text(text) => out.extend_from_slice(text),
                Directive::Spec(spec) => render(&spec, &Argument::Bits(bits), &mut out),
            }
        }
        String::from_utf8(out).unwrap()
    }

    /// Expected texts are those of glibc's `printf` (coreutils `printf` and Python's `%`).
    #[test]
    fn integers_as_in_c() {
        for (format, bits, want) in [
            ("%d", 0xffff_ffff, "-1"),
            ("%u", 0xffff_ffff, "4294967295"),
            ("[%5d]", 42, "[   42]"),
            ("[%-5d]", 42, "[42   ]"),
            ("[%05d]", 42u64, "[00042]"),
            ("[%+d]", 42, "[+42]"),
            ("[% d]", 42, "[ 42]"),
            ("[%.4d]", 42, "[0042]"),
            ("[%8.4d]", (-42i32) as u32 as u64, "[   -0042]"),
            ("[%08.4d]", 42, "[    0042]"),
            ("[%.0d]", 0, "[]"),
            ("%#x", 255, "0xff"),
            ("%#X", 255, "0XFF"),
            ("%#o", 8, "010"),
            ("%08x", 0xbeef, "0000beef"),
            ("%lld", 0x8000_0000_0000_0000, "-9223372036854775808"),
            ("%lu", u64::MAX, "18446744073709551615"),
            ("%zu", 7, "7"),
            ("%hhd", 0x1ff, "-1"),
            ("%hu", 0x1_0005, "5"),
            ("%c", 65, "A"),
            ("[%3c]", 65, "[  A]"),
            ("%p", 0x1234, "0x1234"),
            ("%p", 0, "(nil)"),
            ("100%%", 0, "100%"),
            ("%y", 0, "%y"),
        ] {
            assert_eq!(one(format, bits), want, "{format}");
        }
    }

    #[test]
    fn floats_as_in_c() {
        for (format, x, want) in [
            ("%f", 1.5, "1.500000"),
            ("%.2f", -2.675, "-2.67"),
            ("%8.3f", 3.25519, "   3.255"),
            ("%-8.1f|", 2.0, "2.0     |"),
            ("%08.2f", -1.5, "-0001.50"),
            ("%.0f", 2.5, "2"),
            ("%#.0f", 2.0, "2."),
            ("%e", 12345.678, "1.234568e+04"),
            ("%.0e", 1e-5, "1e-05"),
            ("%E", 1e300, "1.000000E+300"),
            ("%g", 0.0001, "0.0001"),
            ("%g", 0.00001, "1e-05"),
            ("%g", 1e6, "1e+06"),
            ("%g", 123456.0, "123456"),
            ("%g", 100000.5, "100000"),
            ("%#g", 1.0, "1.00000"),
            ("%.3g", 1234.0, "1.23e+03"),
            ("%g", 0.0, "0"),
            ("%a", 1.0, "0x1p+0"),
            ("%a", -0.75, "-0x1.8p-1"),
            ("%.2a", 1.999, "0x2.00p+0"),
            ("%f", f64::INFINITY, "inf"),
            ("%5F", f64::NEG_INFINITY, " -INF"),
            ("%f", f64::NAN, "nan"),
            ("%+.1e", 1.0, "+1.0e+00"),
        ] {
            assert_eq!(one(format, x.to_bits()), want, "{format}");
        }
    }
}
