//! Code of a launch's own, in which its values are constants.
//!
//! A launch that a graph repeats has the same values each time. Compiled with them, its kernel has neither the branches that they decide
//! against nor the instructions that compute with them: less code that a multiprocessor has to fetch, and fewer registers. What is
//! computed has the same bits ([`with_constants`]).

use warpsmith_device::launch::Start;
use warpsmith_device::{Access, AnyKernel, ArgMeta, ArgSink};
use warpsmith_ptx::ast::Space;
use warpsmith_ptx::outline::{is_constant, outline};
use warpsmith_ptx::{KnownBytes, with_constants};

/// The values of a launch: its scalars and structs, without what [varies](warpsmith_device::Element::VARIES).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Constants {
    pieces: Vec<Piece>,
}

/// Bytes that follow one another in an argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Piece {
    argument: usize,
    offset: usize,
    bytes: Vec<u8>,
}

impl Constants {
    /// Those of a launch; none of a cooperative one, which is made by how many of its blocks a device holds: that is known of the code
    /// for all launches.
    #[must_use]
    pub fn of(kernel: &dyn AnyKernel) -> Constants {
        if kernel.geometry().start == Start::Cooperative {
            return Constants::default();
        }
        #[derive(Default)]
        struct Values {
            given: usize,
            pieces: Vec<Piece>,
        }
        impl ArgSink for Values {
            fn buffer(&mut self, _: &'static ArgMeta, _: u64, _: u64, _: Access) {
                self.given += 1;
            }
            fn scalar(&mut self, arg: &'static ArgMeta, bytes: &[u8]) {
                let (argument, mut before) = (self.given, None);
                self.given += 1;
                for (offset, byte) in bytes.iter().enumerate().filter(|(at, _)| !arg.varies_at(*at)) {
                    match self.pieces.last_mut().filter(|_| offset > 0 && before == Some(offset - 1)) {
                        Some(piece) => piece.bytes.push(*byte),
                        None => self.pieces.push(Piece { argument, offset, bytes: vec![*byte] }),
                    }
                    before = Some(offset);
                }
            }
        }
        let mut values = Values::default();
        kernel.args(&mut values);
        Constants { pieces: values.pieces }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The PTX of a module with these constants in its one kernel; `None` where [`with_constants`] cannot put any in, and where its code may be
    /// there only once, as a variable in global memory that may be written, or another kernel, would be there twice.
    #[must_use]
    pub fn in_text(&self, text: &str, kernel: &str) -> Option<String> {
        if self.is_empty() || !stands_alone(text, kernel) {
            return None;
        }
        let constants = self.pieces.iter().map(|Piece { argument, offset, bytes }| KnownBytes {
            argument: *argument,
            offset: *offset,
            bytes,
        });
        let constants: Vec<KnownBytes<'_>> = constants.collect();
        Some(with_constants(text, kernel, &constants)).filter(|known| known != text)
    }
}

/// Whether a module is a kernel and what any number of copies of it may have.
fn stands_alone(text: &str, kernel: &str) -> bool {
    let outline = outline(text);
    let mut entries = outline.functions.iter().filter(|f| f.is_entry);
    let keeps_nothing = outline.variables.iter().all(|v| v.space != Space::Global || is_constant(v.name));
    keeps_nothing && entries.all(|entry| entry.name == kernel)
}
