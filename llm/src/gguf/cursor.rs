//! A bounds-checked cursor over the start of a file; it never allocates more than an error message.

use super::GgufError;
use std::ops::Range;

/// The `N` bytes at `offset`, if they are there.
pub(super) fn array<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

/// A range of the file.
pub(super) fn at<'a>(file: &'a [u8], range: &Range<usize>) -> Option<&'a [u8]> {
    file.get(range.clone())
}

pub(super) struct Cursor<'a> {
    /// What was read of the file so far.
    bytes: &'a [u8],
    /// Bytes of the whole file.
    file: u64,
    position: usize,
    /// Something was asked for that the file has, beyond `bytes`.
    short: bool,
}

impl<'a> Cursor<'a> {
    /// Over `bytes`, with which a file of `file` bytes starts.
    pub(super) fn new(bytes: &'a [u8], file: u64) -> Self {
        Cursor { bytes, file, position: 0, short: false }
    }

    /// Whether it failed for want of bytes that the file has: with more of them read, it may succeed.
    pub(super) fn is_short(&self) -> bool {
        self.short
    }

    pub(super) fn all(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn offset(&self) -> u64 {
        self.position as u64
    }

    pub(super) fn left(&self) -> u64 {
        self.file.saturating_sub(self.position as u64)
    }

    /// The next `count` bytes; `what` names them in the error.
    pub(super) fn take(&mut self, count: u64, what: impl Fn() -> String) -> Result<&'a [u8], GgufError> {
        let range = self.skip(count, what)?;
        Ok(&self.bytes[range])
    }

    /// As `take`, but gives the range in the file.
    pub(super) fn skip(&mut self, count: u64, what: impl Fn() -> String) -> Result<Range<usize>, GgufError> {
        if count > self.left() {
            return Err(GgufError::Truncated {
                what: what(),
                offset: self.offset(),
                needed: count,
                available: self.left(),
            });
        }
        if count > (self.bytes.len() - self.position) as u64 {
            self.short = true;
            let available = (self.bytes.len() - self.position) as u64;
            return Err(GgufError::Truncated { what: what(), offset: self.offset(), needed: count, available });
        }
        let start = self.position;
        // `count` is at most what is left of a slice, so it fits usize and the sum cannot overflow.
        self.position = start + count as usize;
        Ok(start..self.position)
    }

    pub(super) fn u32(&mut self, what: impl Fn() -> String) -> Result<u32, GgufError> {
        let bytes = self.take(4, what)?;
        Ok(bytes.iter().rev().fold(0, |value, &b| value << 8 | u32::from(b)))
    }

    pub(super) fn u64(&mut self, what: impl Fn() -> String) -> Result<u64, GgufError> {
        let bytes = self.take(8, what)?;
        Ok(bytes.iter().rev().fold(0, |value, &b| value << 8 | u64::from(b)))
    }

    /// A count of entries that take at least `least` bytes each.
    pub(super) fn count(&mut self, least: u64, what: impl Fn() -> String) -> Result<u64, GgufError> {
        let offset = self.offset();
        let count = self.u64(&what)?;
        let most = self.left() / least;
        if count > most {
            return Err(GgufError::Count { what: what(), offset, count, available: self.left(), most });
        }
        Ok(count)
    }

    /// A string with its length in front: the range of its bytes (without the length) and the text.
    pub(super) fn text(&mut self, what: impl Fn() -> String) -> Result<(Range<usize>, &'a str), GgufError> {
        let length = self.u64(|| format!("the length of {}", what()))?;
        let offset = self.offset();
        let range = self.skip(length, &what)?;
        match std::str::from_utf8(&self.bytes[range.clone()]) {
            Ok(text) => Ok((range, text)),
            Err(_) => Err(GgufError::Text { what: what(), offset }),
        }
    }

    /// A key or tensor name.
    pub(super) fn name(&mut self, most: u64, what: impl Fn() -> String) -> Result<&'a str, GgufError> {
        let offset = self.offset();
        let length = self.u64(|| format!("the name length of {}", what()))?;
        if length == 0 || length > most {
            return Err(GgufError::NameLength { what: what(), offset, length, most });
        }
        let start = self.offset();
        let bytes = self.take(length, || format!("the name of {}", what()))?;
        match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Ok(text),
            _ => Err(GgufError::Text { what: format!("the name of {}", what()), offset: start }),
        }
    }
}
