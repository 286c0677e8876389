//! Opening a GGUF file.

use super::ambiguous;
use super::cursor::Cursor;
use super::source::{MadeTensor, Source, TensorData};
use super::types::{AMBIGUOUS_TYPE_ID, TensorType, note_on};
use super::value::{Raw, Value, ValueType};
use super::{Array, GgufError, GgufWriter};
use std::ops::Range;
use std::path::Path;

/// Longest key, as in the GGUF specification.
const KEY_LENGTH: u64 = 65535;
/// Longest tensor name: ggml keeps names in 64 bytes with a terminator.
const NAME_LENGTH: u64 = 63;
/// Least bytes of a key-value pair: length, one byte of name, type, one byte of value.
const LEAST_KEY_BYTES: u64 = 8 + 1 + 4 + 1;
/// Least bytes of a tensor entry: length, one byte of name, dimension count, one dimension, type, offset.
const LEAST_TENSOR_BYTES: u64 = 8 + 1 + 4 + 8 + 4 + 8;

/// Bytes of the header that are read at first; more where it is longer.
const HEADER: u64 = 1 << 20;
/// Bytes of the header that are read at most. The largest vocabularies take some 20 MB.
const LARGEST_HEADER: u64 = 256 << 20;

struct Key {
    name: String,
    offset: u64,
    value: Raw,
}

/// Name, type, shape and place of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: TensorType,
    /// Dimensions as stored: the contiguous axis first.
    pub dims: Vec<u64>,
    /// Where its bytes start, from the start of the file.
    pub offset: u64,
    /// How many bytes it takes.
    pub bytes: u64,
    /// Where its entry starts, from the start of the file.
    pub entry: u64,
}

impl TensorInfo {
    /// Elements in a row (the contiguous axis).
    pub fn cols(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Number of rows: the product of all other dimensions.
    pub fn rows(&self) -> u64 {
        self.dims.iter().skip(1).product()
    }
}

/// A tensor with its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Name, type, shape.
    pub info: &'a TensorInfo,
    /// Its bytes, in the type's block layout.
    pub data: TensorData<'a>,
}

/// An open GGUF file. See the module's documentation.
pub struct Gguf {
    source: Source,
    /// What was read of a file: all metadata.
    start: Vec<u8>,
    header: Header,
}

/// What the header says.
struct Header {
    version: u32,
    alignment: u64,
    data_offset: u64,
    /// Where it ends.
    end: usize,
    keys: Vec<Key>,
    key_order: Vec<u32>,
    tensors: Vec<TensorInfo>,
    tensor_order: Vec<u32>,
}

impl std::fmt::Debug for Gguf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gguf")
            .field("path", &self.path())
            .field("version", &self.version())
            .field("bytes", &self.source.len())
            .field("keys", &self.header.keys.len())
            .field("tensors", &self.header.tensors.len())
            .finish()
    }
}

impl Gguf {
    /// Opens and checks a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, GgufError> {
        let path = path.as_ref();
        let io = |source| GgufError::Io { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(io)?;
        let meta = file.metadata().map_err(io)?;
        if meta.is_dir() {
            return Err(io(std::io::Error::from(std::io::ErrorKind::IsADirectory)));
        }
        // What is no file, such as a pipe, has no length.
        let len = if meta.is_file() { meta.len() } else { 0 };
        let source = Source::File { file, len, path: path.to_owned() };
        let mut start = Vec::new();
        let mut wanted = HEADER.min(len);
        let header = loop {
            let known = start.len();
            start.resize(usize::try_from(wanted).unwrap_or(usize::MAX), 0);
            source.read(known as u64, &mut start[known..], || "the header".into())?;
            let mut cursor = Cursor::new(&start, len);
            match Header::read(&mut cursor) {
                Err(_) if cursor.is_short() && wanted < LARGEST_HEADER => wanted = (2 * wanted).min(len),
                Err(_) if cursor.is_short() => return Err(GgufError::HeaderSize { most: LARGEST_HEADER }),
                header => break header?,
            }
        };
        start.truncate(header.end);
        start.shrink_to_fit();
        Self::checked(source, start, header)
    }

    /// Checks a file that is in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, GgufError> {
        let header = Header::read(&mut Cursor::new(&bytes, bytes.len() as u64))?;
        Self::checked(Source::Memory(bytes), Vec::new(), header)
    }

    /// What a file with these keys and tensors would be. The tensors' offsets are set here.
    pub(crate) fn made(
        path: &Path,
        keys: &GgufWriter,
        tensors: Vec<(TensorInfo, Box<dyn MadeTensor>)>,
    ) -> Result<Self, GgufError> {
        let start = keys.to_bytes();
        let mut header = Header::read(&mut Cursor::new(&start, start.len() as u64))?;
        let (mut len, mut made) = (header.data_offset, Vec::new());
        for (mut info, tensor) in tensors {
            info.offset = len;
            let end = len.checked_add(info.bytes).and_then(|end| end.checked_next_multiple_of(header.alignment));
            let Some(end) = end else {
                return Err(GgufError::Shape { tensor: info.name, offset: 0, dims: info.dims });
            };
            made.push((len, tensor));
            header.tensors.push(info);
            len = end;
        }
        header.tensor_order = order(&header.tensors, |t| &t.name);
        if let Some((_, second)) = repeated(&header.tensors, &header.tensor_order, |t| &t.name) {
            return Err(GgufError::DuplicateTensor { tensor: second.name.clone(), offset: second.entry });
        }
        Ok(Gguf { source: Source::Made { tensors: made, len, path: path.to_owned() }, start, header })
    }

    fn checked(source: Source, start: Vec<u8>, mut header: Header) -> Result<Self, GgufError> {
        let Header { tensors, data_offset, alignment, .. } = &mut header;
        ambiguous::resolve(tensors, &source, *data_offset, *alignment)?;
        place(tensors, *data_offset, *alignment, source.len())?;
        Ok(Gguf { source, start, header })
    }

    /// The bytes with the metadata.
    fn metadata(&self) -> &[u8] {
        match &self.source {
            Source::File { .. } | Source::Made { .. } => &self.start,
            Source::Memory(bytes) => bytes,
        }
    }

    /// The file or folder that was opened, if it was one.
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::File { path, .. } | Source::Made { path, .. } => Some(path),
            Source::Memory(_) => None,
        }
    }

    /// 2 or 3.
    pub fn version(&self) -> u32 {
        self.header.version
    }

    /// `general.alignment`, or 32.
    pub fn alignment(&self) -> u64 {
        self.header.alignment
    }

    /// Where tensor data starts, from the start of the file.
    pub fn data_offset(&self) -> u64 {
        self.header.data_offset
    }

    /// All keys with their values, in the order of the file.
    pub fn keys(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.header.keys.iter().filter_map(|k| Some((k.name.as_str(), k.value.read(self.metadata())?)))
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.header.tensors
    }

    /// A tensor by its exact name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let info = find(&self.header.tensors, &self.header.tensor_order, name, |t| &t.name)?;
        // Both were checked against the length of the file when it was opened.
        let len = usize::try_from(info.bytes).ok()?;
        Some(Tensor { info, data: TensorData::new(&self.source, &info.name, info.offset, len) })
    }

    /// A value by its exact key.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        find(&self.header.keys, &self.header.key_order, key, |k| &k.name)?.value.read(self.metadata())
    }

    /// An unsigned integer, stored in any integer type, if the key is there.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.typed(key, "an unsigned integer", |v| v.as_u64())
    }

    /// An unsigned integer below 2^32, if the key is there.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.typed(key, "an unsigned integer below 2^32", |v| v.as_u64()?.try_into().ok())
    }

    /// A float (f32, or f64 rounded to f32), if the key is there.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.typed(key, "a float", |v| match *v {
            Value::F32(x) => Some(x),
            Value::F64(x) => Some(x as f32),
            _ => None,
        })
    }

    /// A boolean, if the key is there.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "a bool", |v| match *v {
            Value::Bool(x) => Some(x),
            _ => None,
        })
    }

    /// A string, if the key is there.
    pub fn str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.typed(key, "a string", |v| v.as_str())
    }

    /// An array, if the key is there.
    pub fn array(&self, key: &str) -> Result<Option<Array<'_>>, GgufError> {
        self.typed(key, "an array", |v| match *v {
            Value::Array(a) => Some(a),
            _ => None,
        })
    }

    /// As [`Gguf::u32`], but the key must be there.
    pub fn require_u32(&self, key: &str) -> Result<u32, GgufError> {
        self.u32(key)?.ok_or_else(|| missing(key))
    }

    /// As [`Gguf::f32`], but the key must be there.
    pub fn require_f32(&self, key: &str) -> Result<f32, GgufError> {
        self.f32(key)?.ok_or_else(|| missing(key))
    }

    /// As [`Gguf::str`], but the key must be there.
    pub fn require_str(&self, key: &str) -> Result<&str, GgufError> {
        self.str(key)?.ok_or_else(|| missing(key))
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&Value<'a>) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match read(&value) {
            Some(v) => Ok(Some(v)),
            None => Err(GgufError::KeyType { key: key.to_owned(), expected, actual: value.describe() }),
        }
    }
}

impl Header {
    /// Reads and checks it, but for where the tensors lie.
    fn read(c: &mut Cursor<'_>) -> Result<Header, GgufError> {
        let file = c.all();
        if !file.starts_with(b"GGUF") {
            return Err(GgufError::Magic { found: file.iter().take(4).copied().collect() });
        }
        c.skip(4, || "the magic".into())?;
        let version = c.u32(|| "the version".into())?;
        if version & 0xffff == 0 {
            return Err(GgufError::BigEndian { field: version });
        }
        if !(2..=3).contains(&version) {
            return Err(GgufError::Version { version });
        }
        let tensor_count = c.count(LEAST_TENSOR_BYTES, || "the number of tensors".into())?;
        let key_count = c.count(LEAST_KEY_BYTES, || "the number of keys".into())?;

        // Grown as they are read: a count that lies costs an error, not memory.
        let mut keys = Vec::new();
        for index in 0..key_count {
            keys.push(read_key(c, index)?);
        }
        let key_order = order(&keys, |k| &k.name);
        if let Some((_, second)) = repeated(&keys, &key_order, |k| &k.name) {
            return Err(GgufError::DuplicateKey { key: second.name.clone(), offset: second.offset });
        }
        let alignment = alignment(file, &keys, &key_order)?;

        let mut tensors = Vec::new();
        for index in 0..tensor_count {
            tensors.push(read_tensor(c, index)?);
        }
        let tensor_order = order(&tensors, |t| &t.name);
        if let Some((_, second)) = repeated(&tensors, &tensor_order, |t| &t.name) {
            return Err(GgufError::DuplicateTensor { tensor: second.name.clone(), offset: second.entry });
        }
        // The position is below 2^63 and the alignment below 2^32: no overflow.
        let (end, data_offset) = (c.position(), c.offset().next_multiple_of(alignment));
        Ok(Header { version, alignment, data_offset, end, keys, key_order, tensors, tensor_order })
    }
}

fn missing(key: &str) -> GgufError {
    GgufError::MissingKey { key: key.to_owned() }
}

/// Indices sorted by name, the file's order among equals.
fn order<T>(items: &[T], name: impl Fn(&T) -> &str) -> Vec<u32> {
    // A count is at most the file's bytes / 14; beyond 2^32 entries (60 GB of header) the rest would be
    // unreachable by name, which shows as a missing key or tensor.
    let mut order: Vec<u32> = (0..items.len()).map_while(|i| u32::try_from(i).ok()).collect();
    order.sort_by(|&a, &b| name(&items[a as usize]).cmp(name(&items[b as usize])));
    order
}

fn repeated<'a, T>(items: &'a [T], order: &[u32], name: impl Fn(&T) -> &str) -> Option<(&'a T, &'a T)> {
    order.windows(2).map(|w| (&items[w[0] as usize], &items[w[1] as usize])).find(|(a, b)| name(a) == name(b))
}

fn find<'a, T>(items: &'a [T], order: &[u32], wanted: &str, name: impl Fn(&T) -> &str) -> Option<&'a T> {
    let at = order.binary_search_by(|&i| name(&items[i as usize]).cmp(wanted)).ok()?;
    items.get(*order.get(at)? as usize)
}

fn read_key(c: &mut Cursor<'_>, index: u64) -> Result<Key, GgufError> {
    let offset = c.offset();
    let name = c.name(KEY_LENGTH, || format!("key {index}"))?.to_owned();
    let type_offset = c.offset();
    let id = c.u32(|| format!("the type of key `{name}`"))?;
    let value_type =
        |id, offset| ValueType::from_id(id).ok_or_else(|| GgufError::ValueType { key: name.clone(), id, offset });
    let kind = value_type(id, type_offset)?;
    let value = match kind {
        ValueType::String => {
            let (range, _) = c.text(|| format!("the string of key `{name}`"))?;
            Raw::Plain(kind, range.start - 8..range.end)
        }
        ValueType::Array => {
            let element_offset = c.offset();
            let element = value_type(c.u32(|| format!("the element type of key `{name}`"))?, element_offset)?;
            if element == ValueType::Array {
                return Err(GgufError::NestedArray { key: name, offset: element_offset });
            }
            let what = || format!("the array of key `{name}`");
            let count = c.count(element.size().unwrap_or(8), what)?;
            let start = c.position();
            let bytes = match element.size() {
                // No overflow: `count` was checked to fit into what is left.
                Some(size) => c.skip(count * size, what)?,
                None => {
                    for i in 0..count {
                        c.text(|| format!("string {i} of key `{name}`"))?;
                    }
                    start..c.position()
                }
            };
            if element == ValueType::Bool {
                check_bools(c.all(), bytes.clone(), &name)?;
            }
            // `count` is at most the length of the file, which is a slice.
            Raw::Array { element, count: count as usize, bytes }
        }
        _ => {
            let range = c.skip(kind.size().unwrap_or(1), || format!("the value of key `{name}`"))?;
            if kind == ValueType::Bool {
                check_bools(c.all(), range.clone(), &name)?;
            }
            Raw::Plain(kind, range)
        }
    };
    Ok(Key { name, offset, value })
}

fn check_bools(file: &[u8], range: Range<usize>, key: &str) -> Result<(), GgufError> {
    for at in range {
        if file[at] > 1 {
            return Err(GgufError::Bool { key: key.to_owned(), offset: at as u64, value: file[at] });
        }
    }
    Ok(())
}

fn alignment(file: &[u8], keys: &[Key], key_order: &[u32]) -> Result<u64, GgufError> {
    let key = "general.alignment";
    match find(keys, key_order, key, |k| &k.name).and_then(|k| k.value.read(file)) {
        None => Ok(32),
        Some(Value::U32(value)) if value.is_power_of_two() => Ok(value.into()),
        Some(Value::U32(value)) => Err(GgufError::Alignment { value }),
        Some(other) => Err(GgufError::KeyType { key: key.to_owned(), expected: "a u32", actual: other.describe() }),
    }
}

/// Reads an entry; `offset` is still the data offset, `place` makes it absolute.
fn read_tensor(c: &mut Cursor<'_>, index: u64) -> Result<TensorInfo, GgufError> {
    let entry = c.offset();
    let name = c.name(NAME_LENGTH, || format!("tensor {index}"))?.to_owned();
    let offset = c.offset();
    let count = c.u32(|| format!("the dimension count of tensor `{name}`"))?;
    if !(1..=4).contains(&count) {
        return Err(GgufError::Dimensions { tensor: name, offset, count });
    }
    let shape_offset = c.offset();
    let mut dims = Vec::with_capacity(4);
    for _ in 0..count {
        dims.push(c.u64(|| format!("the shape of tensor `{name}`"))?);
    }
    let type_offset = c.offset();
    let id = c.u32(|| format!("the type of tensor `{name}`"))?;
    // For now the reading with the smallest blocks; `ambiguous::resolve` decides.
    let kind = if id == AMBIGUOUS_TYPE_ID { Some(TensorType::Q2_0) } else { TensorType::from_id(id) };
    let Some(kind) = kind else {
        return Err(GgufError::UnknownType { tensor: name, offset: type_offset, id, note: note_on(id) });
    };
    // ggml counts elements in i64.
    let elements =
        dims.iter().try_fold(1u64, |product, &d| product.checked_mul(d)).filter(|&n| n > 0 && n <= i64::MAX as u64);
    let Some(elements) = elements else {
        return Err(GgufError::Shape { tensor: name, offset: shape_offset, dims });
    };
    if !dims[0].is_multiple_of(kind.block_elements()) {
        return Err(GgufError::RowLength {
            tensor: name,
            row: dims[0],
            block: kind.block_elements(),
            type_name: kind.name(),
        });
    }
    let Some(bytes) = kind.bytes_for(elements) else {
        return Err(GgufError::Shape { tensor: name, offset: shape_offset, dims });
    };
    let start = c.u64(|| format!("the offset of tensor `{name}`"))?;
    Ok(TensorInfo { name, kind, dims, offset: start, bytes, entry })
}

/// Checks alignment, bounds, overlap and order, and makes the offsets absolute.
fn place(tensors: &mut [TensorInfo], data: u64, alignment: u64, file: u64) -> Result<(), GgufError> {
    for t in tensors.iter() {
        if !t.offset.is_multiple_of(alignment) {
            return Err(GgufError::Misaligned { tensor: t.name.clone(), start: t.offset, alignment });
        }
        let end = data.checked_add(t.offset).and_then(|s| s.checked_add(t.bytes));
        if end.is_none_or(|end| end > file) {
            return Err(GgufError::OutsideFile { tensor: t.name.clone(), start: t.offset, bytes: t.bytes, data, file });
        }
    }
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_by_key(|t| t.offset);
    for pair in by_offset.windows(2) {
        let end = pair[0].offset + pair[0].bytes;
        if end > pair[1].offset {
            return Err(GgufError::Overlap {
                first: pair[0].name.clone(),
                second: pair[1].name.clone(),
                end,
                start: pair[1].offset,
            });
        }
    }
    let mut expected = 0;
    for t in tensors.iter_mut() {
        if t.offset != expected {
            return Err(GgufError::Gap { tensor: t.name.clone(), start: t.offset, expected, alignment });
        }
        // Within the file, which is a slice, and the alignment is below 2^32: no overflow.
        expected = (t.offset + t.bytes).next_multiple_of(alignment);
        t.offset += data;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(tensors: u64, keys: u64) -> Vec<u8> {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend([tensors, keys].iter().flat_map(|n| n.to_le_bytes()));
        bytes
    }

    fn name(name: u8) -> Vec<u8> {
        [&1u64.to_le_bytes()[..], &[name]].concat()
    }

    /// A count is refused if and only if what is left of the file has no room for so many of the smallest entries.
    #[test]
    fn as_many_entries_are_read_as_the_file_has_room_for_and_no_more() {
        let mut bytes = header(0, 3);
        for key in *b"abc" {
            // A value of u8, whose type is 0.
            bytes.extend([name(key), vec![0, 0, 0, 0, 7]].concat());
        }
        assert_eq!(Gguf::from_bytes(bytes.clone()).unwrap().keys().count(), 3);
        bytes.pop();
        let refused = Gguf::from_bytes(bytes).unwrap_err();
        assert!(matches!(refused, GgufError::Count { count: 3, most: 2, .. }), "{refused}");

        let mut bytes = header(1, 0);
        // One dimension of one element of i8, whose type is 24, at offset 0.
        bytes.extend(
            [name(b't'), vec![1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat(),
        );
        // The number of keys, of eight bytes, lies between the number of tensors and this entry.
        let (none, one) = (bytes.len() - 9, bytes.len() - 8);
        let refused = Gguf::from_bytes(bytes[..none].to_vec()).unwrap_err();
        assert!(matches!(refused, GgufError::Count { count: 1, most: 0, .. }), "{refused}");
        let refused = Gguf::from_bytes(bytes[..one].to_vec()).unwrap_err();
        assert!(matches!(refused, GgufError::Truncated { .. }), "{refused}");
        bytes.resize(bytes.len().next_multiple_of(32) + 1, 0);
        assert_eq!(Gguf::from_bytes(bytes).unwrap().tensors().len(), 1);
    }
}
