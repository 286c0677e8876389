//! Registers and labels, counted from those before.
//!
//! A compiler numbers virtual registers throughout a kernel, so that the same instructions have other names wherever they stand, and a
//! compressor finds little that repeats. In the relative form a register says how far it is from the one of its class that was defined
//! last, and a label how far from the last one: `%r812` becomes `%r+1` or `%r-3`. What is first on a line counts as defined. It takes a
//! bit more than a third off a pack.

/// The number that was named last, by class.
#[derive(Default)]
struct Last<'a> {
    classes: Vec<(&'a [u8], i64)>,
    /// Whether a register of this line was named.
    defined: bool,
}

impl<'a> Last<'a> {
    fn of(&mut self, class: &'a [u8]) -> &mut i64 {
        let at = self.classes.iter().position(|(known, _)| *known == class).unwrap_or_else(|| {
            self.classes.push((class, 0));
            self.classes.len() - 1
        });
        &mut self.classes[at].1
    }

    /// What `class` counts from, after which it counts from `number` where that is defined here.
    fn replace(&mut self, class: &'a [u8], number: impl FnOnce(i64) -> i64) -> i64 {
        let defines = class == LABEL || !std::mem::replace(&mut self.defined, true);
        let last = self.of(class);
        let (from, number) = (*last, number(*last));
        if defines {
            *last = number;
        }
        from
    }
}

/// All labels are of one class, whatever function they are in.
const LABEL: &[u8] = b"$L__BB";
/// More digits do not get into the relative form.
const DIGITS: usize = 9;

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// What stands before a number at the start of `text`, and its class.
fn name(text: &[u8]) -> Option<(&[u8], &[u8])> {
    if text.first() == Some(&b'%') {
        let letters = text.iter().skip(1).take_while(|byte| byte.is_ascii_lowercase()).count();
        let name = text.get(..=letters).filter(|_| letters > 0)?;
        return Some((name, name));
    }
    let function = digits(text.strip_prefix(LABEL)?);
    let name = text.get(..=LABEL.len() + function).filter(|name| function > 0 && name.ends_with(b"_"))?;
    Some((name, LABEL))
}

/// The text up to what may be a name, and the rest.
fn plain(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|byte| matches!(byte, b'%' | b'$' | b'\n')).unwrap_or(text.len()))
}

/// A number without a sign that the relative form has, and its digits.
fn number(text: &[u8]) -> Option<(i64, usize)> {
    let count = digits(text);
    let number = text.get(..count).filter(|n| count == 1 || count <= DIGITS && n.first() != Some(&b'0'))?;
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, count))
}

/// The text with another form of what stands behind each name: `behind` gets the name's class and what follows, writes, and says how many
/// bytes of that it took.
fn rewritten<'a>(
    text: &'a [u8],
    mut behind: impl FnMut(&'a [u8], &'a [u8], &mut Last<'a>, &mut Vec<u8>) -> Option<usize>,
) -> Option<Vec<u8>> {
    let (mut rest, mut out, mut last) = (text, Vec::with_capacity(text.len()), Last::default());
    while !rest.is_empty() {
        let (before, at) = plain(rest);
        out.extend_from_slice(before);
        rest = at;
        if let Some((name, class)) = name(rest) {
            out.extend_from_slice(name);
            rest = rest.get(name.len()..)?;
            let taken = behind(class, rest, &mut last, &mut out)?;
            rest = rest.get(taken..)?;
        } else if let Some((byte, behind)) = rest.split_first() {
            out.push(*byte);
            last.defined &= *byte != b'\n';
            rest = behind;
        }
    }
    Some(out)
}

/// The relative form. `None` if the text has what looks like it, and would not come back.
pub(super) fn relative(text: &str) -> Option<Vec<u8>> {
    rewritten(text.as_bytes(), |class, rest, last, out| match (rest.first(), number(rest)) {
        (Some(b'+' | b'-'), _) => None,
        (_, Some((number, count))) => {
            let from = last.replace(class, |_| number);
            out.extend_from_slice(format!("{:+}", number - from).as_bytes());
            Some(count)
        }
        _ => Some(0),
    })
}

/// The text of a relative form. `None` if it is of none.
pub(super) fn absolute(relative: &[u8]) -> Option<Vec<u8>> {
    rewritten(relative, |class, rest, last, out| {
        let Some((sign @ (b'+' | b'-'), distance)) = rest.split_first() else { return Some(0) };
        let (distance, count) = number(distance)?;
        let distance = if *sign == b'-' { -distance } else { distance };
        let from = last.replace(class, |from| from + distance);
        let number = u32::try_from(from + distance).ok()?;
        out.extend_from_slice(number.to_string().as_bytes());
        Some(1 + count)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // helpers of tests are not seen as tests

    use super::*;

    fn comes_back(text: &str) -> String {
        let form = relative(text).unwrap();
        assert_eq!(absolute(&form).as_deref(), Some(text.as_bytes()), "{}", String::from_utf8_lossy(&form));
        String::from_utf8(form).unwrap()
    }

    #[test]
    fn the_same_instructions_have_the_same_form_wherever_they_stand() {
        let text = |r: u32, p: u32, l: u32| {
            let (a, b, c) = (r + 1, r + 2, r - 7);
            format!(
                "\tadd.s32 \t%r{a}, %r{r}, %r{c};\n\tsetp.eq.s32 \t%p{p}, %r{a}, 0;\n\t@%p{p} bra \t$L__BB3_{l};\n\tmov.b32 \t%r{b}, {{%rs1, %rs2}};\n"
            )
        };
        let forms = [(10, 1, 4), (812, 95, 33)].map(|(r, p, l)| {
            // A line before says where it begins.
            comes_back(&format!("\tmov.u32 \t%r{r}, %tid.x;\n@%p{} bra \t$L__BB3_{};\n{}", p - 1, l - 1, text(r, p, l)))
        });
        let behind = forms.each_ref().map(|form| form.splitn(3, '\n').nth(2).unwrap().to_owned());
        assert_eq!(behind[0], behind[1]);
        let first = behind[0].lines().next().unwrap();
        assert_eq!(first, "\tadd.s32 \t%r+1, %r-1, %r-8;");
        assert!(behind[0].contains("@%p+0 bra \t$L__BB3_+1;"), "{}", behind[0]);
    }

    #[test]
    fn what_is_no_number_of_a_register_stays() {
        for text in [
            "",
            "%",
            "$",
            "%r",
            "%tid.x",
            "%r007, %r0, %r1234567890, %r123456789",
            "$L__BB_1 $L__BB1_ $L__BB1 $str$7",
            "// 100%\n%é7 %R7 %r1é",
        ] {
            comes_back(text);
        }
        assert_eq!(comes_back("%r007 %r1234567890 %R7"), "%r007 %r1234567890 %R7");
        for text in ["%r+1", "a %rd-7", "$L__BB0_+1", "%r-"] {
            assert_eq!(relative(text), None, "{text}");
        }
    }

    #[test]
    fn what_no_writer_makes_is_refused() {
        for form in ["%r-1", "%r+", "%r+x", "%r+1234567890", "%r+01", "$L__BB0_-3"] {
            assert_eq!(absolute(form.as_bytes()), None, "{form}");
        }
        let most = "%r+999999999\n".repeat(5);
        assert_eq!(absolute(most.as_bytes()), None);
    }

    #[test]
    fn any_text_comes_back_or_is_not_taken() {
        const PARTS: [&str; 16] =
            ["%r", "%rd", "%p", "$L__BB", "_", "0", "7", "19", "4294967295", "+", "-", "\n", ", ", "%", "$", "é"];
        let mut state = 7u64;
        let mut taken = 0;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(PARTS[(state >> 60) as usize]);
            }
            if let Some(form) = relative(&text) {
                taken += 1;
                assert_eq!(absolute(&form).as_deref(), Some(text.as_bytes()), "{text:?}");
            }
        }
        assert!((2_000..20_000).contains(&taken), "{taken}");
    }
}
