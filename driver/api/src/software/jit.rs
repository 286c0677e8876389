//! Options of the compiler and the linker (`CUjit_option`): logs, and limits for the compiled code.

use std::ffi::{c_char, c_void};
use std::time::Instant;

use warpsmith_arch::{MAX_THREADS, REGISTERS, WARP};
use warpsmith_simt::ptx::Tuning;

use crate::arg::Out;
use crate::codes::{Code, Res};

const MAX_REGISTERS: i32 = 0;
const THREADS_PER_BLOCK: i32 = 1;
const WALL_TIME: i32 = 2;
const INFO_LOG: i32 = 3;
const INFO_LOG_SIZE: i32 = 4;
const ERROR_LOG: i32 = 5;
const ERROR_LOG_SIZE: i32 = 6;
const MIN_BLOCKS: i32 = 31;
const MAX_THREADS_PER_BLOCK: i32 = 32;
const OVERRIDE: i32 = 33;

/// A log: the buffer, its size, and where to answer how much was written.
#[derive(Clone, Copy)]
struct Log {
    buffer: Out<c_char>,
    size: usize,
    written: Option<(Out<*mut c_void>, usize)>,
}

/// The options of one call. Those that mean nothing to an interpreter (optimisation, debug information, caches) are let be.
pub(crate) struct Options {
    info: Log,
    errors: Log,
    pub tuning: Tuning,
    /// Where the time that was taken belongs.
    time: Option<(Out<*mut c_void>, usize)>,
}

// SAFETY: the buffers are the caller's, good as long as what was made with the options, from whichever thread uses it.
unsafe impl Send for Options {}

impl Options {
    pub fn none() -> Options {
        let log = Log { buffer: Out::null(), size: 0, written: None };
        Options { info: log, errors: log, tuning: Tuning::default(), time: None }
    }

    pub fn read(count: u32, options: Out<i32>, values: Out<*mut c_void>) -> Res<Options> {
        let mut found = Options::none();
        for at in 0..count as usize {
            let option = options.input().at(at)?;
            let value = values.input().at(at)?;
            // A number stands in the place of a pointer; options of 32 bits leave the upper half undefined.
            let number = value.addr() as u32;
            let limit = Some(number).filter(|n| *n > 0);
            match option {
                MAX_REGISTERS => found.tuning.max_registers = limit,
                THREADS_PER_BLOCK => {
                    let threads = number.clamp(1, MAX_THREADS);
                    found.tuning.max_registers = Some(REGISTERS / threads.next_multiple_of(WARP) / 8 * 8);
                    values.set_at(at, std::ptr::without_provenance_mut(threads as usize))?;
                }
                MAX_THREADS_PER_BLOCK => found.tuning.max_threads = limit.map(|n| n.min(MAX_THREADS)),
                MIN_BLOCKS => found.tuning.min_blocks = limit,
                OVERRIDE => found.tuning.overrides = number != 0,
                WALL_TIME => found.time = Some((values, at)),
                // SAFETY: the option's value is the caller's buffer of the size that the other option gives.
                INFO_LOG => found.info.buffer = unsafe { crate::arg::Raw::wrap(value.cast::<c_char>()) },
                // SAFETY: as above.
                ERROR_LOG => found.errors.buffer = unsafe { crate::arg::Raw::wrap(value.cast::<c_char>()) },
                INFO_LOG_SIZE => (found.info.size, found.info.written) = (number as usize, Some((values, at))),
                ERROR_LOG_SIZE => (found.errors.size, found.errors.written) = (number as usize, Some((values, at))),
                _ if option < 0 => return Err(Code::INVALID_VALUE),
                _ => {}
            }
        }
        Ok(found)
    }

    pub fn info(&self, text: &str) {
        self.info.write(text);
    }

    pub fn error(&self, text: &str) {
        self.errors.write(text);
    }

    /// Answers the milliseconds since `start`, if they were asked for.
    pub fn took(&self, start: Instant) {
        if let Some((values, at)) = self.time {
            let milliseconds = start.elapsed().as_secs_f32() * 1e3;
            let value = std::ptr::without_provenance_mut(milliseconds.to_bits() as usize);
            // The place has been read from: it is not null.
            let _ = values.set_at(at, value);
        }
    }
}

impl Log {
    fn write(self, text: &str) {
        if self.buffer.is_null() || self.size == 0 {
            return;
        }
        // The buffer is not null and not empty: nothing is left that could be refused.
        let _ = self.buffer.set_text(text, self.size);
        if let Some((values, at)) = self.written {
            let length = text.len().min(self.size - 1) + 1;
            let _ = values.set_at(at, std::ptr::without_provenance_mut(length));
        }
    }
}
