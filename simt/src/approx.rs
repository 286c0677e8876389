//! What the machine computes for PTX's approximate functions.

/// An approximate instruction of PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Approximation {
    /// The instruction, e.g. `ex2.approx.ftz.f32`.
    pub instruction: &'static str,
    /// The largest error that the PTX ISA allows.
    pub bound: &'static str,
    /// What the machine computes.
    pub computed: &'static str,
}

/// The edition of the PTX ISA that the bounds are taken from.
pub const BOUNDS_FROM: &str = "PTX ISA 9.1";

const ROUNDED: &str = "correctly rounded";
const ONCE: &str = "computed in f64 and rounded once to nearest";
const CUT: &str = "computed in f64, upper 32 bits kept";

const DIVIDED: &str = "2 ulp for |b| in [2^-126, 2^126]; 0, or NaN for an infinite a, for larger |b|";
const TRIGONOMETRIC: &str = "absolute 2^-20.5 in [-2pi, 2pi], 2^-14.7 in [-100pi, 100pi], none beyond";
const LOGARITHM: &str = "absolute 2^-22 in (0.5, 2), relative 2^-22 elsewhere";
const UPPER: &str = "none stated: upper 32 bits in, upper 32 bits out";

const fn entry(instruction: &'static str, bound: &'static str, computed: &'static str) -> Approximation {
    Approximation { instruction, bound, computed }
}

/// Sections 9.7.3.8 to 9.7.3.22 and 9.7.4.9 to 9.7.4.10 of the ISA.
const TABLE: &[Approximation] = &[
    entry("rcp.approx.f32", "1 ulp", ROUNDED),
    entry("rcp.approx.ftz.f32", "1 ulp", ROUNDED),
    entry("div.approx.f32", DIVIDED, ROUNDED),
    entry("div.approx.ftz.f32", DIVIDED, ROUNDED),
    entry("div.full.f32", "2 ulp", ROUNDED),
    entry("div.full.ftz.f32", "2 ulp", ROUNDED),
    entry("sqrt.approx.f32", "relative 2^-23", ROUNDED),
    entry("sqrt.approx.ftz.f32", "relative 2^-23", ROUNDED),
    entry("rsqrt.approx.f32", "relative 2^-22.9", ONCE),
    entry("rsqrt.approx.ftz.f32", "relative 2^-22.9", ONCE),
    entry("sin.approx.f32", TRIGONOMETRIC, ONCE),
    entry("sin.approx.ftz.f32", TRIGONOMETRIC, ONCE),
    entry("cos.approx.f32", TRIGONOMETRIC, ONCE),
    entry("cos.approx.ftz.f32", TRIGONOMETRIC, ONCE),
    entry("lg2.approx.f32", LOGARITHM, ONCE),
    entry("lg2.approx.ftz.f32", LOGARITHM, ONCE),
    entry("ex2.approx.f32", "2 ulp", ONCE),
    entry("ex2.approx.ftz.f32", "2 ulp", ONCE),
    entry("tanh.approx.f32", "relative 2^-11", ONCE),
    entry("ex2.approx.f16", "relative 2^-9.9", ONCE),
    entry("ex2.approx.f16x2", "relative 2^-9.9", ONCE),
    entry("ex2.approx.ftz.bf16", "relative 2^-7", ONCE),
    entry("ex2.approx.ftz.bf16x2", "relative 2^-7", ONCE),
    entry("tanh.approx.f16", "absolute 2^-10.987", ONCE),
    entry("tanh.approx.f16x2", "absolute 2^-10.987", ONCE),
    entry("tanh.approx.bf16", "absolute 2^-8", ONCE),
    entry("tanh.approx.bf16x2", "absolute 2^-8", ONCE),
    entry("rcp.approx.ftz.f64", UPPER, CUT),
    entry("rsqrt.approx.ftz.f64", UPPER, CUT),
    entry("rsqrt.approx.f64", "none stated", "the quotient of two rounded operations"),
];

/// The approximate instructions, with the bounds of [`BOUNDS_FROM`]. The machine's results lie within them, but are not the
/// bits of any one GPU; `.ftz` forms flush subnormal operands and results on top.
pub fn approximations() -> &'static [Approximation] {
    TABLE
}

/// A set of them, by place in the table.
pub(crate) type Set = u64;

/// The set of one instruction; empty if it is none of them.
pub(crate) fn one(opcode: &str, kind: &str, ftz: bool, ty: &str) -> Set {
    let ftz = if ftz { ".ftz" } else { "" };
    let name = format!("{opcode}.{kind}{ftz}.{ty}");
    TABLE.iter().position(|a| a.instruction == name).map_or(0, |at| 1 << at)
}

/// What is in a set.
pub(crate) fn members(set: Set) -> impl Iterator<Item = &'static Approximation> {
    TABLE.iter().enumerate().filter(move |(at, _)| set >> at & 1 != 0).map(|(_, a)| a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_a_bit_for_each() {
        assert!(TABLE.len() <= Set::BITS as usize);
        let set = one("ex2", "approx", true, "f32") | one("rcp", "approx", false, "f32");
        let names: Vec<&str> = members(set).map(|a| a.instruction).collect();
        assert_eq!(names, ["rcp.approx.f32", "ex2.approx.ftz.f32"]);
        assert_eq!(one("ex2", "approx", false, "f64"), 0);
    }
}
