//! What is measured: groups of variants that do the same work.

use std::cell::RefCell;
use std::rc::Rc;

use warpsmith_host::device::{AnyKernel, Launcher};
use warpsmith_host::{Capture, Error, Stream};

use crate::harness::Bench;
use crate::output::Output;

/// Any error.
pub type Failed = Box<dyn std::error::Error>;

/// What one benchmark has to move and do at least.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Weights, cache entries or elements: the denominator of instructions.
    pub elements: u64,
    /// Bytes that any implementation has to move between memory and chip.
    pub floor_bytes: u64,
}

/// What takes the launches of a benchmark.
pub enum On<'a, 'b> {
    /// A stream, which runs them.
    Stream(&'a Stream),
    /// A capture, which records them.
    Capture(&'a mut Capture<'b>),
}

impl Launcher for On<'_, '_> {
    type Error = Error;
    unsafe fn launch_any(&mut self, kernel: &dyn AnyKernel) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                On::Stream(stream) => Launcher::launch_any(stream, kernel),
                On::Capture(capture) => Launcher::launch_any(*capture, kernel),
            }
        }
    }
}

/// Launches on what it is given; the number says which of the rotated buffers it takes.
pub type Launches = Box<dyn FnMut(&mut On<'_, '_>, usize) -> Result<(), Error>>;

/// Reads what one launch on fresh buffers gave, and compares it.
pub type Outputs = Box<dyn FnMut(&Stream) -> Result<Vec<Output>, Failed>>;

/// How a variant runs.
pub(crate) enum How {
    /// Launches, which can be captured.
    Launches(Launches),
    /// Work that waits for its own end: on a GPU it is timed by the clock of the host.
    Whole(Box<dyn FnMut() -> Result<(), Failed>>),
    /// On a GPU alone: nanoseconds of one of what is measured.
    Timed(Box<dyn FnMut() -> Result<f64, Error>>),
}

/// A variant on fresh buffers.
pub struct Run {
    pub(crate) how: How,
    pub(crate) outputs: Option<Outputs>,
}

impl Run {
    /// Launches with buffers, and the outputs that those hold after the first launch. The number that `launch` is given says
    /// which of several buffers it may take in turns, so that a cache stays cold.
    pub fn launches<B: 'static>(
        buffers: B,
        mut launch: impl FnMut(&mut B, &mut On<'_, '_>, usize) -> Result<(), Error> + 'static,
        mut outputs: impl FnMut(&mut B, &Stream) -> Result<Vec<Output>, Failed> + 'static,
    ) -> Run {
        let buffers = Rc::new(RefCell::new(buffers));
        let same = Rc::clone(&buffers);
        Run {
            how: How::Launches(Box::new(move |on, i| launch(&mut buffers.borrow_mut(), on, i))),
            outputs: Some(Box::new(move |stream| outputs(&mut same.borrow_mut(), stream))),
        }
    }

    /// Work that waits for its own end, and what it gave the first time.
    pub fn whole<S: 'static>(
        state: S,
        mut work: impl FnMut(&mut S) -> Result<(), Failed> + 'static,
        mut outputs: impl FnMut(&mut S, &Stream) -> Result<Vec<Output>, Failed> + 'static,
    ) -> Run {
        let state = Rc::new(RefCell::new(state));
        let same = Rc::clone(&state);
        Run {
            how: How::Whole(Box::new(move || work(&mut state.borrow_mut()))),
            outputs: Some(Box::new(move |stream| outputs(&mut same.borrow_mut(), stream))),
        }
    }

    /// A time that is measured by its own way, on a GPU alone, of something that has no outputs, such as an empty launch.
    pub fn timed(time: impl FnMut() -> Result<f64, Error> + 'static) -> Run {
        Run { how: How::Timed(Box::new(time)), outputs: None }
    }

    /// Does it once and compares what it gave.
    pub(crate) fn first(&mut self, stream: &Stream) -> Result<Vec<Output>, Failed> {
        match &mut self.how {
            How::Launches(launch) => launch(&mut On::Stream(stream), 0)?,
            How::Whole(work) => work()?,
            How::Timed(_) => return Ok(Vec::new()),
        }
        stream.synchronize()?;
        self.read(stream)
    }

    /// What the first time gave.
    pub(crate) fn read(&mut self, stream: &Stream) -> Result<Vec<Output>, Failed> {
        let Some(outputs) = &mut self.outputs else { return Ok(Vec::new()) };
        let outputs = outputs(stream)?;
        crate::output::verdict(&outputs).map(|()| outputs).map_err(|wrong| Box::new(Wrong(wrong)) as Failed)
    }
}

/// The outputs are not those of the reference.
#[derive(Debug)]
pub struct Wrong(pub String);

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

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
    /// Makes the variants, in their order, for that many rows.
    #[allow(clippy::type_complexity)] // it is used once
    pub setup: Box<dyn Fn(&Bench, usize) -> Result<Vec<Run>, Failed> + 'a>,
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
            setup: Box::new(move |bench, _| setups.iter().map(|setup| setup(&bench.stream)).collect()),
        });
    }
}
