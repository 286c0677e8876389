//! What is done of a benchmark: launches, or work that waits for its own end, on fresh buffers, and what that gave.

use std::cell::RefCell;
use std::rc::Rc;

use warpsmith_host::device::{AnyKernel, Launcher};
use warpsmith_host::{Capture, Error, Stream};

use crate::output::{Output, verdict};

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
        verdict(&outputs).map(|()| outputs).map_err(|wrong| Box::new(Wrong(wrong)) as Failed)
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
