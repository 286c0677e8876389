//! What goes over a connection: a head that says which operation it belongs to, and bytes. A rank that leaves says why instead.

use crate::{Kind, Operation, Reduce};
use std::io::{ErrorKind, Read};
use std::time::Duration;

/// Bytes of a head.
pub const HEAD: usize = 16;
/// The operation of a rank that leaves: its bytes are the ranks that it has lost, and a text.
const FAREWELL: u8 = 255;
/// Bytes of a frame at most: more is none of ours.
const MOST: u64 = 1 << 32;

/// An operation on so many elements.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub operation: Operation,
    pub kind: Kind,
    pub len: usize,
    pub timeout: Duration,
}

/// What one rank says of an operation, and another has to say as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    operation: u8,
    detail: u8,
    kind: u8,
    root: u32,
    /// Elements.
    len: u64,
}

/// What has come.
pub enum Frame {
    /// The bytes of an operation.
    Bytes(Head, Vec<u8>),
    /// The rank leaves, as it has lost others, or for a reason of its own.
    Farewell(Vec<u32>, String),
}

impl Call {
    /// What this rank and the one that it exchanges bytes with say of it.
    pub fn head(&self) -> Head {
        let of = |reduce| u8::from(reduce == Reduce::Max);
        let (operation, detail, root) = match self.operation {
            Operation::AllReduce(reduce) => (1, of(reduce), 0),
            Operation::ReduceScatter(reduce) => (2, of(reduce), 0),
            Operation::AllGather => (3, 0, 0),
            Operation::Broadcast { root } => (4, 0, root),
            Operation::Send { .. } | Operation::Receive { .. } => (5, 0, 0),
        };
        let kind = match self.kind {
            Kind::F32 => 0,
            Kind::F16 => 1,
            Kind::Bf16 => 2,
        };
        Head { operation, detail, kind, root, len: self.len as u64 }
    }
}

impl std::fmt::Display for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sum, kind) = (["sum", "max"], ["f32", "f16", "bf16"]);
        let of = |names: &[&'static str], i: u8| names.get(usize::from(i)).copied().unwrap_or("unknown");
        match self.operation {
            1 => write!(f, "all-reduce ({})", of(&sum, self.detail)),
            2 => write!(f, "reduce-scatter ({})", of(&sum, self.detail)),
            3 => write!(f, "all-gather"),
            4 => write!(f, "broadcast from rank {}", self.root),
            5 => write!(f, "a message"),
            _ => write!(f, "an unknown operation"),
        }?;
        write!(f, " of {} {}", self.len, of(&kind, self.kind))
    }
}

impl Head {
    /// The head of a frame of so many bytes.
    pub fn bytes(self, payload: usize) -> [u8; HEAD + 8] {
        let mut bytes = [0; HEAD + 8];
        (bytes[0], bytes[1], bytes[2]) = (self.operation, self.detail, self.kind);
        bytes[4..8].copy_from_slice(&self.root.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..].copy_from_slice(&(payload as u64).to_le_bytes());
        bytes
    }
}

/// A farewell as it is sent.
pub fn farewell(lost: &[u32], reason: &str) -> Vec<u8> {
    let head = Head { operation: FAREWELL, detail: 0, kind: 0, root: lost.len() as u32, len: 0 };
    let mut bytes = head.bytes(4 * lost.len() + reason.len()).to_vec();
    lost.iter().for_each(|rank| bytes.extend(rank.to_le_bytes()));
    bytes.extend(reason.as_bytes());
    bytes
}

/// The next frame of a connection.
pub fn read(from: &mut impl Read) -> std::io::Result<Frame> {
    let mut head = [0u8; HEAD + 8];
    from.read_exact(&mut head)?;
    let [operation, detail, kind, _, r0, r1, r2, r3, rest @ ..] = head;
    let (len, payload) = rest.split_at(8);
    let long = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
    let head = Head { operation, detail, kind, root: u32::from_le_bytes([r0, r1, r2, r3]), len: long(len) };
    let payload = long(payload);
    if payload > MOST {
        return Err(ErrorKind::InvalidData.into());
    }
    // As it comes, not as it is announced.
    let mut bytes = Vec::new();
    from.take(payload).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != payload {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    if operation != FAREWELL {
        return Ok(Frame::Bytes(head, bytes));
    }
    let (lost, reason) = bytes.split_at(bytes.len().min(4 * head.root as usize));
    let lost = lost.chunks_exact(4).map(|b| long(b) as u32).collect();
    Ok(Frame::Farewell(lost, String::from_utf8_lossy(reason).into_owned()))
}
