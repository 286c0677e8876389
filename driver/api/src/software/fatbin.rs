//! Fat binaries: what `nvcc` and `fatbinary` put PTX and machine code for several architectures into. An entry is as it is,
//! or compressed: a zstd frame or an LZ4 block.
//!
//! NVIDIA documents no layout. This is the one of CUDA 13.5's `fatbinary`, read from files for which `cuobjdump` says what they
//! hold; numbers are little-endian:
//!
//! | container | |
//! |---|---|
//! | 0 | magic |
//! | 4, 6 | version, size of this header (u16 each) |
//! | 8 | bytes of the entries behind it (u64) |
//!
//! | entry | |
//! |---|---|
//! | 0, 2 | kind (1 PTX, 2 machine code, 256 a group), version (u16 each) |
//! | 4, 8 | size of this header (u32), bytes of the payload behind it, padding included (u64) |
//! | 16, 20 | bytes of the compressed payload, or 0 (u32); where in the header the options are, or 0 (u32) |
//! | 24, 26, 28 | minor and major version (u16 each), architecture (u32) |
//! | 40, 56 | flags (u64: 0x8000 zstd, 0x2000 LZ4), bytes of the payload when it is not compressed (u64) |
//!
//! A group (`fatbinary -concat`) has one payload for several entries, whose headers stand in the group's own from byte 72 on,
//! as many as byte 64 says (u32); the size of their header is where in the payload they start. Such a header ends behind its
//! options: offset and length at 64 and 68 (u32 each), their text, and a zero byte, padded to 8 bytes.

use std::collections::HashMap;
use std::io::Read;

use ruzstd::decoding::StreamingDecoder;

use super::report::report;
use crate::codes::{Code, Res};

pub(crate) const MAGIC: [u8; 4] = [0x50, 0xed, 0x55, 0xba];
/// Of the structure that `nvcc` puts into programs, which points to a container.
pub(crate) const WRAPPER: [u8; 4] = [0xb1, 0x43, 0x62, 0x46];

const HEADER: usize = 16;
const ENTRY: usize = 64;
/// Behind this many bytes a group has its entries.
const GROUP: usize = ENTRY + 8;

const PTX: u16 = 1;
const CUBIN: u16 = 2;
const CONCATENATED: u16 = 256;

const ZSTD: u64 = 0x8000;
const LZ4: u64 = 0x2000;

/// The largest container: no compiler's output comes near.
const MOST: usize = 1 << 30;
/// What all entries of a container may be together when they are not compressed.
const MOST_UNPACKED: u64 = 512 << 20;
/// LZ4 makes no more of a byte.
const LZ4_RATIO: u64 = 255;

/// What is wrong with a container.
type Checked<T> = Result<T, String>;

/// One image in a container.
struct Entry {
    kind: u16,
    sm: u32,
    /// Which payload it is in, and where.
    payload: usize,
    part: Option<(u64, u64)>,
}

/// Bytes as they stand in the container.
struct Payload<'a> {
    bytes: &'a [u8],
    flags: u64,
    unpacked: u64,
}

struct Container<'a> {
    entries: Vec<Entry>,
    payloads: Vec<Payload<'a>>,
}

/// The bytes of a container by its first bytes.
pub(crate) fn size(header: [u8; HEADER]) -> Res<usize> {
    let behind = u64_at(&header, 8).unwrap_or(u64::MAX);
    let size = u64::from(u16_at(&header, 6).unwrap_or(0)).checked_add(behind);
    match size.and_then(|n| usize::try_from(n).ok()).filter(|n| *n <= MOST) {
        Some(size) => Ok(size),
        None => Err(invalid(&format!("its header says that it has {behind} bytes"))),
    }
}

/// The container at the beginning of some bytes, if there are any.
pub(crate) fn first(bytes: &[u8]) -> Res<Option<&[u8]>> {
    let Some(header) = array(bytes, 0).filter(|_| bytes.starts_with(&MAGIC)) else { return Ok(None) };
    match bytes.get(..size(header)?) {
        Some(container) => Ok(Some(container)),
        None => Err(invalid("it is shorter than its header says")),
    }
}

/// What a container has for a device.
pub(crate) enum Contents {
    /// PTX of the newest architecture that is not newer than the device.
    Ptx(String),
    /// Machine code alone: that of the newest such architecture, else of any.
    Machine(Vec<u8>),
}

/// The PTX of a container that a device runs: of the newest architecture that is not newer than the device.
pub(crate) fn ptx(bytes: &[u8], sm: u32) -> Res<String> {
    let container = Container::read(bytes).map_err(|why| invalid(&why))?;
    container.ptx(sm, &mut Unpacked::default()).map_err(|why| invalid(&why))?.ok_or_else(|| container.refuse(sm))
}

/// What a container has for a device.
pub(crate) fn contents(bytes: &[u8], sm: u32) -> Res<Contents> {
    let container = Container::read(bytes).map_err(|why| invalid(&why))?;
    let mut unpacked = Unpacked::default();
    if let Some(text) = container.ptx(sm, &mut unpacked).map_err(|why| invalid(&why))? {
        return Ok(Contents::Ptx(text));
    }
    let code = container.entries.iter().filter(|e| e.kind == CUBIN);
    let code = code.max_by_key(|e| (e.sm <= sm, e.sm)).ok_or_else(|| container.refuse(sm))?;
    let image = container.part(code, &mut unpacked).map_err(|why| invalid(&why))?;
    Ok(Contents::Machine(image.to_vec()))
}

fn invalid(why: &str) -> Code {
    report(format!("the image is a fat binary, and {why}"));
    Code::INVALID_IMAGE
}

/// Whether PTX with features of an architecture or a family is for this one; the header's number does not tell.
fn runs_on(text: &str, sm: u32) -> bool {
    let target = text.lines().find_map(|l| l.trim().strip_prefix(".target")).unwrap_or_default();
    let Some(name) = target.trim().strip_prefix("sm_") else { return true };
    let digits = name.bytes().take_while(u8::is_ascii_digit).count();
    let of: u32 = name.get(..digits).and_then(|d| d.parse().ok()).unwrap_or(0);
    match name.as_bytes().get(digits) {
        Some(b'a') => of == sm,
        Some(b'f') => of / 10 == sm / 10,
        _ => true,
    }
}

/// What payloads are when they are not compressed, and how much more they may be.
struct Unpacked {
    payloads: HashMap<usize, Vec<u8>>,
    budget: u64,
}

impl Default for Unpacked {
    fn default() -> Unpacked {
        Unpacked { payloads: HashMap::new(), budget: MOST_UNPACKED }
    }
}

impl<'a> Container<'a> {
    /// The PTX that a device runs, if there is any.
    fn ptx(&self, sm: u32, unpacked: &mut Unpacked) -> Checked<Option<String>> {
        let mut fitting: Vec<&Entry> = self.entries.iter().filter(|e| e.kind == PTX && e.sm <= sm).collect();
        fitting.sort_by_key(|e| std::cmp::Reverse(e.sm));
        for entry in fitting {
            let text = self.part(entry, unpacked)?.split(|b| *b == 0).next().unwrap_or_default();
            let text = std::str::from_utf8(text).map_err(|_| "its PTX is no text".to_owned())?;
            if runs_on(text, sm) {
                return Ok(Some(text.to_owned()));
            }
        }
        Ok(None)
    }

    /// Says why the device runs nothing of it.
    fn refuse(&self, sm: u32) -> Code {
        report(format!("the image is a fat binary with {}: {}", self.contents(), self.remedy(sm)));
        Code::NO_BINARY_FOR_GPU
    }

    fn read(bytes: &'a [u8]) -> Checked<Container<'a>> {
        let cut = || "it is shorter than its header says".to_owned();
        let header = usize::from(u16_at(bytes, 6).ok_or_else(cut)?);
        let behind = usize::try_from(u64_at(bytes, 8).ok_or_else(cut)?).map_err(|_| cut())?;
        if header < HEADER {
            return Err(format!("its header has {header} bytes"));
        }
        let end = header.checked_add(behind).ok_or_else(cut)?;
        let mut rest = bytes.get(header..end).ok_or_else(cut)?;
        let mut found = Container { entries: Vec::new(), payloads: Vec::new() };
        while rest.len() >= ENTRY {
            let size = u32_at(rest, 4).ok_or_else(cut)? as usize;
            let padded = usize::try_from(u64_at(rest, 8).ok_or_else(cut)?).map_err(|_| cut())?;
            let end = size.checked_add(padded).filter(|_| size >= ENTRY).ok_or_else(cut)?;
            let (head, payload) = (rest.get(..size).ok_or_else(cut)?, rest.get(size..end).ok_or_else(cut)?);
            found.entry(head, payload)?;
            rest = rest.get(end..).ok_or_else(cut)?;
        }
        Ok(found)
    }

    fn entry(&mut self, head: &[u8], bytes: &'a [u8]) -> Checked<()> {
        let field = |at| u32_at(head, at).ok_or("an entry's header is cut");
        let kind = u16_at(head, 0).unwrap_or(0);
        let packed = field(16)? as usize;
        let bytes = match packed {
            0 => bytes,
            n => bytes.get(..n).ok_or("a compressed entry is longer than its place")?,
        };
        let payload = self.payloads.len();
        self.payloads.push(Payload {
            bytes,
            flags: u64_at(head, 40).unwrap_or(0),
            unpacked: u64_at(head, 56).unwrap_or(0),
        });
        if kind != CONCATENATED {
            self.entries.push(Entry { kind, sm: field(28)?, payload, part: None });
            return Ok(());
        }
        let mut rest = head.get(GROUP..).ok_or("a group's header is cut")?;
        for _ in 0..field(ENTRY)? {
            let cut = "a group has fewer entries than it says";
            let sm = u32_at(rest, 28).ok_or(cut)?;
            let part = Some((u32_at(rest, 4).ok_or(cut)?.into(), u64_at(rest, 8).ok_or(cut)?));
            self.entries.push(Entry { kind: u16_at(rest, 0).ok_or(cut)?, sm, payload, part });
            let options = match u32_at(rest, 20).ok_or(cut)? {
                0 => 0,
                _ => 8 + (u32_at(rest, ENTRY + 4).ok_or(cut)? as usize).saturating_add(1).next_multiple_of(8),
            };
            rest = rest.get(ENTRY + options..).ok_or(cut)?;
        }
        Ok(())
    }

    /// An entry's bytes. What payloads are when they are not compressed is kept, and counted against the budget.
    fn part<'u>(&self, entry: &Entry, unpacked: &'u mut Unpacked) -> Checked<&'u [u8]> {
        let Unpacked { payloads, budget } = unpacked;
        let bytes = match payloads.entry(entry.payload) {
            std::collections::hash_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                let payload = self.payloads.get(entry.payload).ok_or("an entry has no payload")?;
                let bytes = payload.unpack(*budget)?;
                *budget = budget.saturating_sub(bytes.len() as u64);
                place.insert(bytes)
            }
        };
        let part = match entry.part {
            None => Some(bytes.as_slice()),
            Some((from, length)) => usize::try_from(from)
                .ok()
                .zip(usize::try_from(length).ok())
                .and_then(|(from, n)| bytes.get(from..from.checked_add(n)?)),
        };
        Ok(part.ok_or("an entry of a group lies outside it")?)
    }

    /// What is in it, in words.
    fn contents(&self) -> String {
        let of = |entry: &Entry| match entry.kind {
            PTX => format!("PTX for sm_{}", entry.sm),
            CUBIN => format!("machine code for sm_{}", entry.sm),
            kind => format!("an entry of kind {kind} for sm_{}", entry.sm),
        };
        let mut all: Vec<String> = self.entries.iter().take(8).map(of).collect();
        if self.entries.len() > all.len() {
            all.push("more".to_owned());
        }
        if all.is_empty() { "nothing in it".to_owned() } else { all.join(", ") }
    }

    fn remedy(&self, sm: u32) -> String {
        let newer = self.entries.iter().any(|e| e.kind == PTX);
        let why = if newer { format!("none of its PTX is for sm_{sm}") } else { "it holds no PTX".to_owned() };
        format!("{why}, and the software driver runs PTX; compile with `-gencode arch=compute_{sm},code=compute_{sm}`")
    }
}

impl Payload<'_> {
    /// The bytes as they were before they were compressed, at most `limit` of them.
    fn unpack(&self, limit: u64) -> Checked<Vec<u8>> {
        let too_large = || format!("an entry says that it unpacks to {} bytes", self.unpacked);
        if self.flags & (ZSTD | LZ4) == 0 {
            return if self.bytes.len() as u64 <= limit { Ok(self.bytes.to_vec()) } else { Err(too_large()) };
        }
        if self.unpacked > limit {
            return Err(too_large());
        }
        let bytes = if self.flags & ZSTD != 0 { self.unpack_zstd()? } else { self.unpack_lz4()? };
        if bytes.len() as u64 == self.unpacked {
            Ok(bytes)
        } else {
            Err("a compressed entry has another length".into())
        }
    }

    fn unpack_zstd(&self) -> Checked<Vec<u8>> {
        let damaged = |error: &dyn std::fmt::Display| format!("a zstd frame in it is damaged: {error}");
        // A frame of one segment has a window of its whole length, and that is at least a KiB.
        let window = self.unpacked.max(1 << 10);
        let frame = StreamingDecoder::new_with_max_window_size(self.bytes, window).map_err(|e| damaged(&e))?;
        let mut bytes = Vec::new();
        // One byte more shows a frame that is longer than was said.
        frame.take(self.unpacked.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| damaged(&e))?;
        Ok(bytes)
    }

    fn unpack_lz4(&self) -> Checked<Vec<u8>> {
        if self.unpacked > (self.bytes.len() as u64).saturating_mul(LZ4_RATIO) {
            return Err(format!("{} bytes of LZ4 cannot be {} bytes", self.bytes.len(), self.unpacked));
        }
        let mut bytes = vec![0; usize::try_from(self.unpacked).unwrap_or(0)];
        let length = lz4_flex::block::decompress_into(self.bytes, &mut bytes)
            .map_err(|error| format!("an LZ4 block in it is damaged: {error}"))?;
        bytes.truncate(length);
        Ok(bytes)
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NONE: &[u8] = include_bytes!("../../tests/data/fatbin/none.fatbin");
    const SIZE: &[u8] = include_bytes!("../../tests/data/fatbin/size.fatbin");
    const SPEED: &[u8] = include_bytes!("../../tests/data/fatbin/speed.fatbin");
    const GROUP: &[u8] = include_bytes!("../../tests/data/fatbin/group.fatbin");
    const SPECIFIC: &[u8] = include_bytes!("../../tests/data/fatbin/specific.fatbin");

    /// The `.target` of the text that is chosen.
    fn target(bytes: &[u8], sm: u32) -> Res<String> {
        let text = ptx(bytes, sm)?;
        Ok(text.lines().find_map(|l| l.strip_prefix(".target ")).unwrap_or_default().to_owned())
    }

    #[test]
    fn the_newest_that_the_device_runs_is_chosen() {
        for bytes in [NONE, SIZE, SPEED, GROUP] {
            for (sm, chosen) in [(75, "sm_75"), (80, "sm_80"), (86, "sm_80"), (90, "sm_90"), (100, "sm_90")] {
                assert_eq!(target(bytes, sm).as_deref(), Ok(chosen), "for sm_{sm}");
            }
            assert_eq!(ptx(bytes, 70), Err(Code::NO_BINARY_FOR_GPU));
        }
        // sm_90a runs on an sm_90 and on nothing newer.
        assert_eq!(target(SPECIFIC, 90).as_deref(), Ok("sm_90a"));
        assert_eq!(target(SPECIFIC, 100).as_deref(), Ok("sm_80"));
    }

    #[test]
    fn every_entry_is_the_text_that_cuobjdump_prints() {
        // The compiled text is the same, however it is packed; NONE has it as it stands.
        let plain = ptx(NONE, 80).unwrap_or_default();
        assert!(NONE.windows(plain.len()).any(|w| w == plain.as_bytes()) && plain.contains(".entry twice"));
        for bytes in [SIZE, SPEED] {
            assert_eq!(ptx(bytes, 80), Ok(plain.clone()));
        }
    }

    /// The first entry's header, with a field changed.
    fn with(bytes: &[u8], at: usize, value: &[u8]) -> Vec<u8> {
        let mut changed = bytes.to_vec();
        changed[HEADER + at..HEADER + at + value.len()].copy_from_slice(value);
        changed
    }

    #[test]
    fn sizes_that_lie_are_errors_before_anything_is_allocated() {
        for bytes in [SIZE, SPEED, GROUP] {
            for lie in [u64::MAX, 1 << 40, MOST_UNPACKED + 1, 1 << 27, 3] {
                assert_eq!(ptx(&with(bytes, 56, &lie.to_le_bytes()), 75), Err(Code::INVALID_IMAGE), "{lie}");
            }
            assert_eq!(ptx(&with(bytes, 16, &u32::MAX.to_le_bytes()), 75), Err(Code::INVALID_IMAGE));
            assert_eq!(ptx(&with(bytes, 4, &0u32.to_le_bytes()), 75), Err(Code::INVALID_IMAGE));
            assert_eq!(ptx(&with(bytes, 8, &u64::MAX.to_le_bytes()), 75), Err(Code::INVALID_IMAGE));
            for cut in [0, 3, 8, 16, 40, 80, bytes.len() - 1] {
                assert_eq!(ptx(&bytes[..cut], 90), Err(Code::INVALID_IMAGE), "cut at {cut}");
            }
        }
        assert_eq!(ptx(&with(GROUP, ENTRY, &u32::MAX.to_le_bytes()), 75), Err(Code::INVALID_IMAGE));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn whatever_stands_in_a_container_is_text_or_an_error(
            which in 0..5usize,
            changes in proptest::collection::vec((0..4000usize, any::<u8>()), 0..12),
            cut in proptest::option::of(0..12_000usize),
            sm in 70..130u32,
        ) {
            let sample = [NONE, SIZE, SPEED, GROUP, SPECIFIC][which];
            let mut bytes = sample.to_vec();
            for (at, value) in changes {
                // Headers stand early: half of the changes are there.
                let at = if at % 2 == 0 { at % 0x180 } else { at };
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes.truncate(cut.unwrap_or(usize::MAX));
            prop_assert!(matches!(ptx(&bytes, sm), Ok(_) | Err(Code::INVALID_IMAGE | Code::NO_BINARY_FOR_GPU)));
        }
    }
}
