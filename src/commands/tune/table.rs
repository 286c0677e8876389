//! The table as source text.

use std::fmt::Write;

use warpsmith_host::gpu_kernels::gemv::{Activations, Tuned};

/// Where rows are from, as [`Provenance`](warpsmith_host::gpu_kernels::gemv::Provenance) has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub sm: u32,
    pub by: String,
    pub gpu: String,
    pub with: String,
}

/// Where the table is in a checkout.
pub const PATH: &str = "gpu-kernels/src/gemv/tuned.rs";

/// All of [`PATH`], as rustfmt leaves it.
pub fn source(origins: &[Origin], rows: &[Tuned]) -> String {
    // A format has the name of f16 too.
    let (of_f16, import) = match rows.iter().any(|row| row.fastest == Activations::F16) {
        true => ("Activations::F16", "self, "),
        false => ("F16", ""),
    };
    let mut text = format!(
        "\
//! The fastest activations, by architecture, format and size. Written by `warpsmith tune --write`; not to be edited.

use super::Activations::{{{import}Int8, Int16}};
use super::{{Provenance, Tuned}};
use crate::format::Format::*;

/// Where the rows of each architecture are from.
#[rustfmt::skip]
pub static PROVENANCE: &[Provenance] = &[
"
    );
    // Writing to a String cannot fail.
    for o in origins {
        let _ =
            writeln!(text, "    Provenance {{ sm: {}, by: {:?}, gpu: {:?}, with: {:?} }},", o.sm, o.by, o.gpu, o.with);
    }
    text += "];\n\n/// What was found.\n#[rustfmt::skip]\npub static TUNED: &[Tuned] = &[\n";
    for t in rows {
        let from = if t.from == u64::MAX { "u64::MAX".to_owned() } else { grouped(t.from) };
        let name = |a: Activations| if a == Activations::F16 { of_f16.to_owned() } else { format!("{a:?}") };
        let _ = writeln!(
            text,
            "    Tuned {{ sm: {}, format: {:?}, allowed: {}, fastest: {}, from: {from} }},",
            t.sm,
            t.format,
            name(t.allowed),
            name(t.fastest)
        );
    }
    text + "];\n"
}

/// `1_048_576`
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith_host::gpu_kernels::format::Format;

    #[test]
    fn rows_are_rust() {
        let origin = Origin { sm: 90, by: "model".into(), gpu: "NVIDIA H200".into(), with: "ptxas 13.5".into() };
        let (allowed, fastest) = (Activations::Int8, Activations::Int16);
        let rows =
            [1_048_576, 1000, u64::MAX].map(|from| Tuned { sm: 90, format: Format::Q1_0, allowed, fastest, from });
        let text = source(&[origin], &rows);
        assert!(
            text.contains(r#"Provenance { sm: 90, by: "model", gpu: "NVIDIA H200", with: "ptxas 13.5" },"#),
            "{text}"
        );
        assert!(
            text.contains("Tuned { sm: 90, format: Q1_0, allowed: Int8, fastest: Int16, from: 1_048_576 },"),
            "{text}"
        );
        assert!(text.contains("from: 1_000 }") && text.contains("from: u64::MAX }"), "{text}");
    }

    #[test]
    fn the_table_in_the_source_is_as_it_is_written() {
        use warpsmith_host::gpu_kernels::gemv::{PROVENANCE, TUNED};
        let text = |s: &str| s.to_owned();
        let origins =
            PROVENANCE.iter().map(|p| Origin { sm: p.sm, by: text(p.by), gpu: text(p.gpu), with: text(p.with) });
        let written = source(&origins.collect::<Vec<_>>(), TUNED);
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(PATH);
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            written,
            "{PATH} was edited: `warpsmith tune --write` writes it"
        );
    }
}
