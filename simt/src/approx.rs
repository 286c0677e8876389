//! What the machine computes for PTX's approximate functions.

/// An approximate function of PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Approximation {
    /// The instruction.
    pub function: &'static str,
    /// The error that the PTX ISA allows.
    pub bound: &'static str,
    /// What the machine computes.
    pub computed: &'static str,
}

const ROUNDED: &str = "correctly rounded";
const ONCE: &str = "computed in f64 and rounded once to nearest";

const fn entry(function: &'static str, bound: &'static str, computed: &'static str) -> Approximation {
    Approximation { function, bound, computed }
}

/// The approximate functions, with the bounds of the PTX ISA 9.x. The machine's results lie within them, but are not the
/// bits of any one GPU; `.ftz` forms flush subnormal operands and results on top.
pub fn approximations() -> &'static [Approximation] {
    const TABLE: &[Approximation] = &[
        entry("rcp.approx.f32", "1 ulp", ROUNDED),
        entry("div.approx.f32", "2 ulp for |b| in [2^-126, 2^126]; 0 or NaN beyond", ROUNDED),
        entry("div.full.f32", "2 ulp", ROUNDED),
        entry("sqrt.approx.f32", "relative 2^-23", ROUNDED),
        entry("rsqrt.approx.f32", "relative 2^-22.9", ONCE),
        entry("sin.approx.f32", "absolute 2^-20.5 in [-2pi, 2pi], 2^-14.7 in [-100pi, 100pi]", ONCE),
        entry("cos.approx.f32", "absolute 2^-20.5 in [-2pi, 2pi], 2^-14.7 in [-100pi, 100pi]", ONCE),
        entry("lg2.approx.f32", "absolute 2^-22 in (0.5, 2), relative 2^-22 elsewhere", ONCE),
        entry("ex2.approx.f32", "2 ulp", ONCE),
        entry("tanh.approx.f32", "relative 2^-11", ONCE),
        entry("ex2.approx.f16, .f16x2", "relative 2^-9.9", ONCE),
        entry("ex2.approx.ftz.bf16, .bf16x2", "relative 2^-7", ONCE),
        entry("tanh.approx.f16, .f16x2", "absolute 2^-10.987", ONCE),
        entry("tanh.approx.bf16, .bf16x2", "absolute 2^-8", ONCE),
        entry("rcp.approx.ftz.f64", "none stated: upper 32 bits in, upper 32 bits out", "cut to the upper 32 bits"),
        entry("rsqrt.approx.f64", "none stated", "the quotient of two rounded operations"),
    ];
    TABLE
}
