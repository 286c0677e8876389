//! The metadata line in the PTX: JSON inside an assembler template.

/// A JSON string in ASCII: safe within a one-line PTX comment.
pub fn string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for unit in text.encode_utf16() {
        match unit {
            0x22 => out.push_str("\\\""),
            0x5c => out.push_str("\\\\"),
            0x20..=0x7e => out.push(unit as u8 as char),
            _ => out.push_str(&format!("\\u{unit:04x}")),
        }
    }
    out.push('"');
    out
}

/// The same text inside an assembler template, where braces name operands.
pub fn escape_braces(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_outside_ascii_print_is_escaped() {
        assert_eq!(string("a\"b\\c"), r#""a\"b\\c""#);
        assert_eq!(string("x\ny\tz"), r#""x\u000ay\u0009z""#);
        assert_eq!(string("Σ 😀"), r#""\u03a3 \ud83d\ude00""#);
        assert_eq!(string("100%"), r#""100%""#);
    }

    #[test]
    fn braces_double() {
        assert_eq!(escape_braces("{a}{{"), "{{a}}{{{{");
    }
}
