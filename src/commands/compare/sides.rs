//! A case on a driver's device, and what a case reads on either side.

use std::any::TypeId;

use half::f16;
use warpsmith_device::{AnyKernel, Element, Launcher};
use warpsmith_host::gpu_kernels::cases::Bench;
use warpsmith_host::{Buffer, Stream};

/// A device behind the CUDA driver API.
pub struct Driver<'a> {
    pub stream: &'a Stream,
}

impl Launcher for Driver<'_> {
    type Error = String;
    unsafe fn launch_any(&mut self, kernel: &dyn AnyKernel) -> Result<(), String> {
        // SAFETY: the caller's promise.
        unsafe { Launcher::launch_any(&mut self.stream, kernel) }.map_err(|e| e.to_string())?;
        self.stream.synchronize().map_err(|e| e.to_string())
    }
}

impl Bench for Driver<'_> {
    type Buffer<T: Element> = Buffer<T>;
    fn upload<T: Element>(&mut self, data: &[T]) -> Result<Buffer<T>, String> {
        self.stream.upload(data).map_err(|e| e.to_string())
    }
    fn output<T: Element>(&mut self, len: usize) -> Result<Buffer<T>, String> {
        self.upload(&poison::<T>(len))
    }
    fn read<T: Element>(&mut self, buffer: &Buffer<T>) -> Result<Vec<T>, String> {
        self.stream.read(buffer).map_err(|e| e.to_string())
    }
}

/// Bytes that are NaN as floats, the same on both sides: what a kernel leaves unwritten must not differ.
fn poison<T: Element>(len: usize) -> Vec<T> {
    let one: T = bytemuck::pod_read_unaligned(&vec![0xff; size_of::<T>()]);
    vec![one; len]
}

/// How elements are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ElementType {
    F32,
    F16,
    /// Bit for bit, in words of so many bytes.
    Plain(usize),
}

/// What a case read from a buffer.
pub struct Read {
    kind: ElementType,
    bytes: Vec<u8>,
}

impl Read {
    /// An output as a benchmark writes it: the type of its elements, and bytes as hexadecimal digits.
    pub fn parse(value: &serde_json::Value) -> Result<Read, String> {
        let kind = match value["kind"].as_str().unwrap_or_default() {
            "f32" => ElementType::F32,
            "f16" => ElementType::F16,
            "words of 8 bits" => ElementType::Plain(1),
            "words of 16 bits" => ElementType::Plain(2),
            "words of 32 bits" => ElementType::Plain(4),
            "words of 64 bits" => ElementType::Plain(8),
            other => return Err(format!("outputs of an unknown type `{other}`")),
        };
        let digits = value["bytes"].as_str().unwrap_or_default().as_bytes();
        let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|p| u8::from_str_radix(p, 16).ok());
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        bytes.map(|bytes| Read { kind, bytes }).ok_or_else(|| "outputs that are no hexadecimal digits".to_owned())
    }
}

/// A bench that keeps everything that was read.
pub struct Recorder<B> {
    pub inner: B,
    pub reads: Vec<Read>,
}

impl<B> Recorder<B> {
    pub fn new(inner: B) -> Self {
        Self { inner, reads: Vec::new() }
    }
}

impl<B: Launcher> Launcher for Recorder<B> {
    type Error = B::Error;
    unsafe fn launch_any(&mut self, kernel: &dyn AnyKernel) -> Result<(), B::Error> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.launch_any(kernel) }
    }
}

impl<B: Bench> Bench for Recorder<B> {
    type Buffer<T: Element> = B::Buffer<T>;
    fn upload<T: Element>(&mut self, data: &[T]) -> Result<B::Buffer<T>, String> {
        self.inner.upload(data)
    }
    fn output<T: Element>(&mut self, len: usize) -> Result<B::Buffer<T>, String> {
        self.inner.upload(&poison::<T>(len))
    }
    fn read<T: Element>(&mut self, buffer: &B::Buffer<T>) -> Result<Vec<T>, String> {
        let values = self.inner.read(buffer)?;
        let id = TypeId::of::<T>();
        let kind = match () {
            () if id == TypeId::of::<f32>() => ElementType::F32,
            () if id == TypeId::of::<f16>() => ElementType::F16,
            () => ElementType::Plain(size_of::<T>().max(1)),
        };
        self.reads.push(Read { kind, bytes: bytemuck::cast_slice(&values).to_vec() });
        Ok(values)
    }
}

/// How far the outputs of two runs are from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distance {
    pub elements: u64,
    /// Those whose bits differ.
    pub differ: u64,
    /// Largest distance of two floats, in units in the last place.
    pub ulp: u64,
    /// Something differs that no rounding explains: an integer, a NaN, or what was read at all.
    pub unlike: bool,
}

impl Distance {
    /// Of everything that two runs of a case read.
    pub fn between(a: &[Read], b: &[Read]) -> Distance {
        let mut sum = Distance { unlike: a.len() != b.len(), ..Distance::default() };
        for (a, b) in a.iter().zip(b) {
            sum.add_reads(a, b);
        }
        sum
    }

    fn add_reads(&mut self, a: &Read, b: &Read) {
        if a.kind != b.kind || a.bytes.len() != b.bytes.len() {
            self.unlike = true;
            return;
        }
        let size = match a.kind {
            ElementType::F32 => 4,
            ElementType::F16 => 2,
            ElementType::Plain(size) => size,
        };
        for (x, y) in a.bytes.chunks_exact(size).zip(b.bytes.chunks_exact(size)) {
            self.elements += 1;
            if x == y {
                continue;
            }
            self.differ += 1;
            match (rank(a.kind, x), rank(a.kind, y)) {
                (Some(x), Some(y)) => self.ulp = self.ulp.max(x.abs_diff(y)),
                _ => self.unlike = true,
            }
        }
    }

    /// Both together.
    pub fn and(self, other: Distance) -> Distance {
        Distance {
            elements: self.elements + other.elements,
            differ: self.differ + other.differ,
            ulp: self.ulp.max(other.ulp),
            unlike: self.unlike || other.unlike,
        }
    }
}

/// The place of a float among all floats of its type, both zeros at 0; `None` for NaN and for what is no float.
fn rank(kind: ElementType, bytes: &[u8]) -> Option<i64> {
    let (magnitude, negative, infinity) = match (kind, bytes) {
        (ElementType::F32, &[a, b, c, d]) => {
            let bits = u32::from_le_bytes([a, b, c, d]);
            (i64::from(bits & 0x7fff_ffff), bits >> 31 == 1, 0x7f80_0000)
        }
        (ElementType::F16, &[a, b]) => {
            let bits = u16::from_le_bytes([a, b]);
            (i64::from(bits & 0x7fff), bits >> 15 == 1, 0x7c00)
        }
        _ => return None,
    };
    (magnitude <= infinity).then_some(if negative { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Vec<Read> {
        vec![Read { kind: ElementType::F32, bytes: bytemuck::cast_slice(values).to_vec() }]
    }

    #[test]
    fn floats_are_apart_by_the_floats_between_them() {
        let next = f32::from_bits(1.0f32.to_bits() + 3);
        let d = Distance::between(&floats(&[1.0, 2.0]), &floats(&[next, 2.0]));
        assert_eq!(d, Distance { elements: 2, differ: 1, ulp: 3, unlike: false });
        // Across zero: one denormal on either side of it, and the two zeros are equal but differ in their bits.
        let tiny = f32::from_bits(1);
        assert_eq!(Distance::between(&floats(&[tiny]), &floats(&[-tiny])).ulp, 2);
        assert_eq!(
            Distance::between(&floats(&[0.0]), &floats(&[-0.0])),
            Distance { elements: 1, differ: 1, ulp: 0, unlike: false }
        );
    }

    #[test]
    fn a_nan_an_integer_and_a_missing_read_are_no_rounding() {
        assert!(Distance::between(&floats(&[f32::NAN]), &floats(&[1.0])).unlike);
        assert!(!Distance::between(&floats(&[f32::NAN]), &floats(&[f32::NAN])).unlike, "the same bits");
        let plain = |v: u32| vec![Read { kind: ElementType::Plain(4), bytes: v.to_le_bytes().to_vec() }];
        assert!(Distance::between(&plain(7), &plain(8)).unlike);
        assert!(Distance::between(&floats(&[1.0]), &[]).unlike);
    }
}
