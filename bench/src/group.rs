//! What is measured: groups of variants that do the same work.

use warpsmith_host::Stream;

use crate::harness::Bench;
use crate::run::{Failed, Run, Work};

/// Benchmarks of one group, which do the same work.
pub struct Group<'a> {
    /// Such as `gemv/q4_0/8b-qkv`.
    pub id: String,
    /// By name, with what each does at least.
    pub variants: Vec<(String, Work)>,
    /// Rows, of which a part may be counted; none: all is run.
    pub rows: Option<usize>,
    /// What says which counts are the same: groups that differ in rows alone have one key.
    pub key: String,
    /// Makes, for that many rows, the variants with these numbers, which rise. The others are not run, and what it takes to make them
    /// is better left undone.
    #[allow(clippy::type_complexity)] // it is used once
    pub setup: Box<dyn Fn(&Bench, usize, &[usize]) -> Result<Vec<Run>, Failed> + 'a>,
}

/// Those with these numbers, of runs that were made at once as little is to be made of each.
#[must_use]
pub fn numbered(all: Vec<Run>, wanted: &[usize]) -> Vec<Run> {
    all.into_iter().enumerate().filter(|(number, _)| wanted.contains(number)).map(|(_, run)| run).collect()
}

/// A group whose variants are named one by one.
pub struct Variants<'a> {
    pub(crate) bench: &'a Bench,
    pub(crate) id: String,
    pub(crate) work: Work,
    #[allow(clippy::type_complexity)] // it is used once
    pub(crate) all: Vec<(String, Box<dyn Fn(&Stream) -> Result<Run, Failed> + 'a>)>,
}

impl<'a> Variants<'a> {
    /// Adds a variant, which `setup` makes on fresh buffers.
    #[must_use]
    pub fn variant(
        mut self,
        name: impl Into<String>,
        setup: impl Fn(&Stream) -> Result<Run, Failed> + 'a,
    ) -> Variants<'a> {
        self.all.push((name.into(), Box::new(setup)));
        self
    }

    /// Compares and measures them, as the command line says.
    pub fn measure(self) {
        let Variants { bench, id, work, all } = self;
        let (variants, setups): (Vec<_>, Vec<_>) = all.into_iter().map(|(name, setup)| ((name, work), setup)).unzip();
        bench.measure(&Group {
            key: id.clone(),
            id,
            variants,
            rows: None,
            setup: Box::new(move |bench, _, wanted| {
                wanted.iter().filter_map(|v| setups.get(*v)).map(|setup| setup(&bench.stream)).collect()
            }),
        });
    }
}
