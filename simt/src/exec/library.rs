//! Functions that the driver provides to kernels: `vprintf`, `malloc`, `free`, `__assertfail`.
//!
//! Kernels that can reach one of them run serially (see `launch`): the order of what they print and of their
//! allocations is that of the blocks.

use super::format::{Argument, Directive, pieces, render};
use super::lanes::lanes_of;
use super::layout::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
use super::space::place_of;
use super::warp::Warp;
use super::{Cx, Flow, Op, Site};
use crate::fault::{FaultKind, Place, Reason};
use crate::program::{Call, Library, Slot};

/// The longest string that `vprintf` reads.
const LONGEST: usize = 1 << 20;

impl Warp {
    /// Lanes call a function of the driver's. Results go to where the call wants them.
    pub(super) fn library(&mut self, cx: &mut Cx, op: &Op, which: Library, call: &Call, lanes: u32) -> Flow {
        let Some(services) = cx.services.clone() else {
            let lane = lanes.trailing_zeros() & 31;
            return cx.raise(op, FaultKind::IllegalInstruction, lane, None, Some(Reason::NoLibrary));
        };
        for lane in lanes_of(lanes) {
            let result = match which {
                Library::Assert => {
                    let reason = self.assertion(cx, &call.args, lane);
                    return cx.raise(op, FaultKind::AssertFailed, lane as u32, None, Some(reason));
                }
                Library::Malloc => {
                    let address = services.allocate(self.argument(cx, &call.args, 0, lane));
                    cx.memory = services.memory.snapshot();
                    address
                }
                Library::Free => {
                    let address = self.argument(cx, &call.args, 0, lane);
                    if address != 0 && !services.release(address) {
                        let reason = Some(Reason::Free { address });
                        return cx.raise(op, FaultKind::HeapMisuse, lane as u32, Some(address), reason);
                    }
                    cx.memory = services.memory.snapshot();
                    // Cached places may be those of what is gone.
                    cx.sites.fill(Site::EMPTY);
                    cx.observe(|o, _| o.allocations_changed());
                    0
                }
                Library::Printf => match self.printf(cx, &call.args, lane) {
                    Ok((text, arguments)) => {
                        services.print(&text);
                        arguments
                    }
                    Err(address) => {
                        let reason = Some(Reason::Printf { address });
                        return cx.raise(op, FaultKind::OutOfBounds, lane as u32, Some(address), reason);
                    }
                },
            };
            if let Some(slot) = call.returns.first() {
                self.set_local(cx, *slot, lane, result);
                let at = cx.local_base + slot.at;
                cx.observe(|o, cx| o.local_written(cx, at, slot.size, lane));
            }
        }
        cx.progress += 1;
        Flow::Next
    }

    fn local_word(&self, cx: &Cx, at: u32, lane: usize) -> u32 {
        self.local.get(((cx.local_base + at) / 4) as usize).map_or(0, |r| r.0[lane])
    }

    fn argument(&self, cx: &Cx, args: &[Slot], i: usize, lane: usize) -> u64 {
        args.get(i).map_or(0, |s| {
            let high = if s.size > 4 { u64::from(self.local_word(cx, s.at + 4, lane)) << 32 } else { 0 };
            u64::from(self.local_word(cx, s.at, lane)) | high
        })
    }

    fn set_local(&mut self, cx: &Cx, slot: Slot, lane: usize, value: u64) {
        for word in 0..slot.size.div_ceil(4).min(2) {
            if let Some(row) = self.local.get_mut(((cx.local_base + slot.at) / 4 + word) as usize) {
                row.0[lane] = (value >> (32 * word)) as u32;
            }
        }
    }

    /// A byte at a generic address of a lane.
    fn byte(&self, cx: &Cx, address: u64, lane: usize) -> Option<u8> {
        match place_of(address) {
            Place::Global => {
                let entry = crate::memory::lookup(&cx.memory, address)?;
                // SAFETY: the offset is inside the allocation, which the snapshot keeps alive.
                Some(unsafe { entry.host().add((address - entry.base) as usize).read() } ^ entry.key as u8)
            }
            Place::Shared => {
                let at = address - SHARED_WINDOW;
                // SAFETY: the offset is inside the block's shared memory.
                (at < u64::from(cx.shared_bytes)).then(|| unsafe { cx.shared.add(at as usize).read() })
            }
            Place::Local => {
                let at = address - LOCAL_WINDOW;
                let row = self.local.get((at / 4) as usize).filter(|_| at < u64::from(cx.local_top))?;
                Some((row.0[lane] >> (8 * (at % 4))) as u8)
            }
            Place::Param => {
                let at = address - PARAM_WINDOW;
                // SAFETY: the offset is inside the kernel's parameters.
                (at < u64::from(cx.param_bytes)).then(|| unsafe { cx.params.add(at as usize).read() })
            }
        }
    }

    /// Bytes up to a zero; the address that cannot be read if that fails.
    fn string(&self, cx: &Cx, address: u64, lane: usize) -> Result<Vec<u8>, u64> {
        let mut text = Vec::new();
        while text.len() < LONGEST {
            let at = address.wrapping_add(text.len() as u64);
            match self.byte(cx, at, lane).ok_or(at)? {
                0 => break,
                byte => text.push(byte),
            }
        }
        Ok(text)
    }

    /// What one lane prints, and what `vprintf` returns.
    fn printf(&self, cx: &Cx, args: &[Slot], lane: usize) -> Result<(Vec<u8>, u64), u64> {
        let (format, mut at) = (self.argument(cx, args, 0, lane), self.argument(cx, args, 1, lane));
        if format == 0 {
            return Ok((Vec::new(), u64::from(u32::MAX)));
        }
        let format = self.string(cx, format, lane)?;
        let mut out = Vec::new();
        let mut count = 0;
        // Arguments stand one behind the other, each aligned to its size.
        let mut next = |bytes: u64| -> Result<u64, u64> {
            at = at.next_multiple_of(bytes);
            let mut value = 0;
            for i in 0..bytes {
                let byte = self.byte(cx, at + i, lane).ok_or(at + i)?;
                value |= u64::from(byte) << (8 * i);
            }
            at += bytes;
            Ok(value)
        };
        for piece in pieces(&format) {
            let mut spec = match piece {
                Directive::Text(text) => {
                    out.extend_from_slice(text);
                    continue;
                }
                Directive::Spec(spec) => spec,
            };
            if spec.star_width {
                let width = next(4)? as i32;
                spec.left |= width < 0;
                spec.width = width.unsigned_abs().min(1 << 16) as usize;
                count += 1;
            }
            if spec.star_precision {
                let precision = next(4)? as i32;
                spec.precision = usize::try_from(precision).ok();
                count += 1;
            }
            let value = next(spec.bytes())?;
            let argument = match spec.conversion {
                b's' if value == 0 => Argument::Text(b"(null)".to_vec()),
                b's' => Argument::Text(self.string(cx, value, lane)?),
                _ => Argument::Bits(value),
            };
            render(&spec, &argument, &mut out);
            count += 1;
        }
        Ok((out, count))
    }

    /// The text of a failed assertion: `__assertfail(message, file, line, function, character size)`.
    fn assertion(&self, cx: &Cx, args: &[Slot], lane: usize) -> Reason {
        let text = |i: usize| match self.string(cx, self.argument(cx, args, i, lane), lane) {
            Ok(text) => String::from_utf8_lossy(&text[..text.len().min(256)]).into_owned(),
            Err(_) => "?".to_string(),
        };
        let line = self.argument(cx, args, 2, lane);
        Reason::Assertion { condition: text(0), file: text(1), line, function: text(3) }
    }
}
