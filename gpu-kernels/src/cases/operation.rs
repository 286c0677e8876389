//! What the file of a kernel says of it, beside formula, reference and contract.

use super::bench::Bench;
use super::compare::Outcome;
use super::data::Rng;
use warpsmith_device::{Kernel, KernelMeta};

/// An operation: kernels that compute one formula, the shapes that they have to get right, and how a result is compared.
///
/// It is implemented beside the kernels, for a type of no other use, and [the list](crate::list) has a line for it. Tests,
/// `warpsmith check`, `warpsmith compare`, `warpsmith budget` and the benchmarks take from there what they are to run.
pub trait Operation {
    /// What tells the kernels apart: the format of the weights, the type of the cache; `()` where there is nothing to choose.
    type Variant: Copy;

    /// The kernels that are its own. Every kernel of the crate is listed by one operation.
    fn kernels() -> Vec<Listed>;

    /// What is run.
    fn variants() -> Vec<Self::Variant>;

    /// Names of the kernels that a variant launches: its own, and those of other operations that it needs or is compared with.
    fn launches(_: Self::Variant) -> Vec<&'static str> {
        Self::kernels().iter().map(|k| k.meta.name).collect()
    }

    /// The sizes that make up a shape, and those of a layer of a small model.
    fn sizes(variant: Self::Variant) -> NamedSizes;

    /// The shapes that it has to get right: at the edges of its tiles, odd, long, and at random.
    fn shapes(variant: Self::Variant) -> Vec<Vec<usize>>;

    /// Runs it and compares with the reference. The generator is seeded by the shape.
    ///
    /// # Errors
    /// A launch that failed, or the first element that is too far from its reference.
    fn run<B: Bench>(variant: Self::Variant, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome;
}

/// An operation of one variant: its file says what is its own, and the [`Operation`] follows from that.
pub trait Plain {
    /// The sizes that make up a shape, and those of a layer of a small model.
    const SIZES: NamedSizes;

    /// As for [`Operation::kernels`].
    fn kernels() -> Vec<Listed>;

    /// As for [`Operation::shapes`].
    fn shapes() -> Vec<Vec<usize>>;

    /// As for [`Operation::run`].
    ///
    /// # Errors
    /// A launch that failed, or the first element that is too far from its reference.
    fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome;
}

impl<T: Plain> Operation for T {
    type Variant = ();

    fn kernels() -> Vec<Listed> {
        <T as Plain>::kernels()
    }

    fn variants() -> Vec<()> {
        vec![()]
    }

    fn sizes((): ()) -> NamedSizes {
        T::SIZES
    }

    fn shapes((): ()) -> Vec<Vec<usize>> {
        <T as Plain>::shapes()
    }

    fn run<B: Bench>((): (), shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        <T as Plain>::run(shape, bench, rng)
    }
}

/// Names of sizes, each with a number.
pub type NamedSizes = &'static [(&'static str, usize)];

/// A shape: a number for each size.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// What it is a shape of.
    pub(crate) operation: &'static str,
    pub(crate) names: NamedSizes,
    pub(crate) values: &'a [usize],
}

impl<'a> Shape<'a> {
    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, usize)> + use<'a> {
        self.names.iter().zip(self.values).map(|(s, n)| (s.0, *n))
    }

    /// The size of a name.
    ///
    /// # Errors
    /// A name that the shape has no size of.
    pub fn size(&self, name: &str) -> Result<usize, UnknownSize> {
        let size = self.iter().find(|s| s.0 == name).map(|s| s.1);
        size.ok_or_else(|| UnknownSize::new(self.operation, name, self.names))
    }

    /// The sizes of several names.
    ///
    /// # Errors
    /// A name that the shape has no size of.
    pub fn sizes<const N: usize>(&self, names: [&str; N]) -> Result<[usize; N], UnknownSize> {
        let mut sizes = [0; N];
        for (size, name) in sizes.iter_mut().zip(names) {
            *size = self.size(name)?;
        }
        Ok(sizes)
    }
}

/// A size was asked for that an operation does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} has no size `{name}`: its sizes are {}", known.join(", "))]
pub struct UnknownSize {
    /// The operation.
    pub operation: &'static str,
    /// The name that was asked for.
    pub name: String,
    /// The names that it has.
    pub known: Vec<&'static str>,
}

impl UnknownSize {
    pub(crate) fn new(operation: &'static str, name: &str, sizes: NamedSizes) -> UnknownSize {
        UnknownSize { operation, name: name.to_owned(), known: sizes.iter().map(|s| s.0).collect() }
    }
}

/// A kernel, and where its cost is measured.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// What `#[kernel]` says of it.
    pub meta: &'static KernelMeta,
    /// By the benchmarks whose names begin with this word, as `gemv` of `gemv/q4_0/8b-qkv`.
    pub benchmark: Measured,
    /// By `warpsmith budget`, which holds it to the limits of a family of this name.
    pub budget: Measured,
    /// Bytes of local memory that a thread may use, and why; none for all others.
    pub local_memory: Option<(u32, &'static str)>,
}

/// Whether a cost is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measured {
    /// Under this name.
    By(&'static str),
    /// Not, for this reason.
    Not(&'static str),
}

impl Listed {
    /// A kernel that uses no local memory.
    #[must_use]
    pub fn new<K: Kernel>(benchmark: Measured, budget: Measured) -> Listed {
        Listed { meta: K::META, benchmark, budget, local_memory: None }
    }

    /// With the local memory that ptxas needs on sm_90 for a kernel of this name, if `spilled` has it.
    pub fn spilling(mut self, spilled: &[(&str, u32)], why: &'static str) -> Self {
        let bytes = spilled.iter().find(|(name, _)| *name == self.meta.name).map(|(_, bytes)| *bytes);
        self.local_memory = bytes.map(|bytes| (bytes, why));
        self
    }

    /// A kernel of little work for each byte, which is held to the bytes of a step of many columns.
    #[must_use]
    pub fn by_bytes<K: Kernel>() -> Listed {
        Listed::new::<K>(Measured::Not(why::SMALL), Measured::By(BYTES))
    }

    /// A kernel that is measured by nothing, for one reason.
    #[must_use]
    pub fn unmeasured<K: Kernel>(why: &'static str) -> Listed {
        Listed::new::<K>(Measured::Not(why), Measured::Not(why))
    }
}

/// What `warpsmith budget` calls kernels that it holds to their bytes alone.
pub const BYTES: &str = "bytes";

/// Why some kernels are not measured.
pub mod why {
    /// Kernels of little work.
    pub const SMALL: &str = "some KiB in all: a launch costs more than its work";
    /// Kernels of little work, beside a whole step.
    pub const ONCE: &str = "once a token, over the logits alone";
    /// What few models want.
    pub const RARE: &str = "for few models, in one form for every shape: no bound is set";
    /// First variants and others, to be read and compared.
    pub const VARIANT: &str = "variants beside others, which no decoder launches";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Failure;

    #[test]
    fn a_size_that_a_shape_does_not_have_is_an_error_with_those_that_it_has() {
        let shape = Shape { operation: "RmsNorm", names: &[("rows", 1), ("cols", 1024)], values: &[2, 0] };
        assert_eq!(shape.sizes(["cols", "rows"]), Ok([0, 2]));
        let unknown = UnknownSize { operation: "RmsNorm", name: "columns".into(), known: vec!["rows", "cols"] };
        assert_eq!(shape.size("columns"), Err(unknown.clone()));
        assert_eq!(shape.sizes(["rows", "columns"]), Err(unknown.clone()));
        let failure = Failure::from(unknown);
        assert_eq!(failure.to_string(), "RmsNorm has no size `columns`: its sizes are rows, cols");
    }
}
