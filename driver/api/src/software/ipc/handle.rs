//! What is inside `CUipcMemHandle` and `CUipcEventHandle`.

use crate::types::IpcHandle;

/// What a handle is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Memory = 1,
    Event = 2,
}

/// The 64 bytes, as numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle {
    pub kind: Kind,
    /// The process that made it, and the number that it has the file open by.
    pub process: u32,
    pub file: u32,
    /// No two have the same: numbers of processes and files come again.
    pub id: u128,
}

/// Handles of another driver, or of none, do not begin so.
const MAGIC: [u8; 8] = *b"wsmithIP";

impl Handle {
    pub fn bytes(self) -> IpcHandle {
        let fields = MAGIC
            .into_iter()
            .chain((self.kind as u32).to_le_bytes())
            .chain(self.process.to_le_bytes())
            .chain(self.file.to_le_bytes())
            .chain(self.id.to_le_bytes());
        let mut reserved = [0; 64];
        reserved.iter_mut().zip(fields).for_each(|(to, from)| *to = from as _);
        IpcHandle { reserved }
    }

    /// The handle of a kind; `None` for bytes that are no such handle.
    pub fn of(bytes: &IpcHandle, kind: Kind) -> Option<Handle> {
        let bytes = bytes.reserved.map(|byte| byte as u8);
        let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        if bytes[..8] != MAGIC || word(8)? != kind as u32 || bytes[36..].iter().any(|byte| *byte != 0) {
            return None;
        }
        let id = u128::from_le_bytes(bytes.get(20..36)?.try_into().ok()?);
        Some(Handle { kind, process: word(12)?, file: word(16)?, id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_read_as_they_were_written_and_others_are_refused() {
        let handle = Handle { kind: Kind::Event, process: u32::MAX - 2, file: 0x8001_02ff, id: !7 << 3 };
        let bytes = handle.bytes();
        assert_eq!(Handle::of(&bytes, Kind::Event), Some(handle));
        assert_eq!(Handle::of(&bytes, Kind::Memory), None);
        assert_eq!(Handle::of(&IpcHandle { reserved: [0; 64] }, Kind::Event), None);
        for (at, differs) in [(0, true), (11, true), (36, true), (63, true), (30, false)] {
            let mut other = bytes;
            other.reserved[at] ^= 1;
            assert_eq!(Handle::of(&other, Kind::Event).is_none(), differs, "byte {at}");
        }
    }
}
