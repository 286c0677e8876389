//! Metadata values: borrowed from the file, arrays read on demand.

use super::cursor::{array, at};
use std::ops::Range;

/// The type of a metadata value, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    /// The type with this id.
    pub fn from_id(id: u32) -> Option<Self> {
        use ValueType::*;
        [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64].get(usize::try_from(id).ok()?).copied()
    }

    /// The id as stored in files.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// Bytes of one value; `None` for strings and arrays.
    pub fn size(self) -> Option<u64> {
        use ValueType::*;
        match self {
            U8 | I8 | Bool => Some(1),
            U16 | I16 => Some(2),
            U32 | I32 | F32 => Some(4),
            U64 | I64 | F64 => Some(8),
            String | Array => None,
        }
    }

    /// Lower-case name for messages.
    pub fn name(self) -> &'static str {
        use ValueType::*;
        match self {
            U8 => "u8",
            I8 => "i8",
            U16 => "u16",
            I16 => "i16",
            U32 => "u32",
            I32 => "i32",
            F32 => "f32",
            Bool => "bool",
            String => "string",
            Array => "array",
            U64 => "u64",
            I64 => "i64",
            F64 => "f64",
        }
    }
}

/// A metadata value; strings and arrays borrow the file.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(&'a str),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl<'a> Value<'a> {
    /// The stored type.
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::String(_) => ValueType::String,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// The value as an unsigned integer, from any integer type that holds one.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::U8(v) => Some(v.into()),
            Value::U16(v) => Some(v.into()),
            Value::U32(v) => Some(v.into()),
            Value::U64(v) => Some(v),
            Value::I8(v) => v.try_into().ok(),
            Value::I16(v) => v.try_into().ok(),
            Value::I32(v) => v.try_into().ok(),
            Value::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }

    /// The value as text.
    pub fn as_str(&self) -> Option<&'a str> {
        match *self {
            Value::String(s) => Some(s),
            _ => None,
        }
    }

    /// Type, and value where it is short, for messages.
    pub fn describe(&self) -> String {
        match self {
            Value::Array(a) => format!("an array of {} {}", a.len(), a.element_type().name()),
            Value::String(s) => format!("the string {:?}", s.chars().take(40).collect::<String>()),
            Value::Bool(v) => format!("the bool {v}"),
            Value::F32(v) => format!("the f32 {v}"),
            Value::F64(v) => format!("the f64 {v}"),
            Value::I8(v) => format!("the i8 {v}"),
            Value::I16(v) => format!("the i16 {v}"),
            Value::I32(v) => format!("the i32 {v}"),
            Value::I64(v) => format!("the i64 {v}"),
            other => format!("the {} {}", other.value_type().name(), other.as_u64().unwrap_or(0)),
        }
    }
}

/// An array value. Its elements stay in the file and are decoded while iterating.
#[derive(Clone, Copy, PartialEq)]
pub struct Array<'a> {
    element: ValueType,
    count: usize,
    bytes: &'a [u8],
}

impl std::fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}; {}]", self.element.name(), self.count)
    }
}

impl<'a> Array<'a> {
    /// Type of the elements, never [`ValueType::Array`].
    pub fn element_type(&self) -> ValueType {
        self.element
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The elements in order.
    pub fn iter(&self) -> ArrayIter<'a> {
        ArrayIter { element: self.element, left: self.count, bytes: self.bytes }
    }
}

/// Iterator over the elements of an [`Array`].
#[derive(Clone, Debug)]
pub struct ArrayIter<'a> {
    element: ValueType,
    left: usize,
    bytes: &'a [u8],
}

impl<'a> Iterator for ArrayIter<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        let size = match self.element.size() {
            Some(n) => usize::try_from(n).ok()?,
            None => 8usize.checked_add(usize::try_from(u64::from_le_bytes(array(self.bytes, 0)?)).ok()?)?,
        };
        let (here, rest) = self.bytes.split_at_checked(size)?;
        self.bytes = rest;
        scalar(self.element, here)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}

/// Decodes one scalar or string from exactly its bytes (a string with its length in front).
fn scalar(t: ValueType, b: &[u8]) -> Option<Value<'_>> {
    Some(match t {
        ValueType::U8 => Value::U8(*b.first()?),
        ValueType::I8 => Value::I8(i8::from_le_bytes(array(b, 0)?)),
        ValueType::U16 => Value::U16(u16::from_le_bytes(array(b, 0)?)),
        ValueType::I16 => Value::I16(i16::from_le_bytes(array(b, 0)?)),
        ValueType::U32 => Value::U32(u32::from_le_bytes(array(b, 0)?)),
        ValueType::I32 => Value::I32(i32::from_le_bytes(array(b, 0)?)),
        ValueType::F32 => Value::F32(f32::from_le_bytes(array(b, 0)?)),
        ValueType::Bool => Value::Bool(*b.first()? != 0),
        ValueType::U64 => Value::U64(u64::from_le_bytes(array(b, 0)?)),
        ValueType::I64 => Value::I64(i64::from_le_bytes(array(b, 0)?)),
        ValueType::F64 => Value::F64(f64::from_le_bytes(array(b, 0)?)),
        ValueType::String => Value::String(std::str::from_utf8(b.get(8..)?).ok()?),
        ValueType::Array => return None,
    })
}

/// Where a value lies in the file; checked when the file was opened.
#[derive(Clone, Debug)]
pub(super) enum Raw {
    Plain(ValueType, Range<usize>),
    Array { element: ValueType, count: usize, bytes: Range<usize> },
}

impl Raw {
    /// The value, borrowed from the file's bytes.
    pub(super) fn read<'a>(&self, file: &'a [u8]) -> Option<Value<'a>> {
        match self {
            Raw::Plain(t, range) => scalar(*t, at(file, range)?),
            Raw::Array { element, count, bytes } => {
                Some(Value::Array(Array { element: *element, count: *count, bytes: at(file, bytes)? }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsigned_integer_is_read_from_every_integer_type_that_holds_one() {
        let sevens = [
            Value::U8(7),
            Value::I8(7),
            Value::U16(7),
            Value::I16(7),
            Value::U32(7),
            Value::I32(7),
            Value::U64(7),
            Value::I64(7),
        ];
        assert!(sevens.iter().all(|seven| seven.as_u64() == Some(7)));
        let others = [
            Value::I8(-7),
            Value::I16(-7),
            Value::I32(-7),
            Value::I64(-7),
            Value::F32(7.0),
            Value::F64(7.0),
            Value::Bool(true),
            Value::String("7"),
        ];
        assert!(others.iter().all(|other| other.as_u64().is_none()));
    }

    #[test]
    fn the_elements_that_are_left_are_within_what_the_hint_says() {
        let mut iter = Array { element: ValueType::U16, count: 3, bytes: &[1, 0, 2, 0, 3, 0] }.iter();
        for left in (0..=3).rev() {
            let (least, most) = iter.size_hint();
            assert!(least <= left && most == Some(left), "{least} to {most:?}, not {left}");
            assert_eq!(iter.next().is_some(), left > 0);
        }
    }
}
