//! What ranks of one group tell each other over their connections: a kind, a rank and a length, little-endian u32, and so many bytes of text.

use std::io::{ErrorKind, Read};

/// Bytes of a text at most.
const MOST: u32 = 1 << 16;
/// No rank.
const NONE: u32 = u32::MAX;

/// What is told.
pub enum Word {
    /// Here is the frame of this rank, and how its group is made.
    Frame(String),
    /// The frames of all others are open here; or that of one cannot be opened, and why.
    Opened(Option<(u32, String)>),
    /// The group has ended here, as a rank was lost, or for a reason of this rank's.
    Farewell(Option<u32>, String),
    /// Nothing of this rank uses memory of the others any more.
    Bye,
}

impl Word {
    /// As it is sent.
    pub fn bytes(&self) -> Vec<u8> {
        let (kind, rank, text) = match self {
            Word::Frame(text) => (1u32, NONE, text.as_str()),
            Word::Opened(None) => (2, NONE, ""),
            Word::Opened(Some((rank, reason))) => (2, *rank, reason.as_str()),
            Word::Farewell(lost, reason) => (3, lost.unwrap_or(NONE), reason.as_str()),
            Word::Bye => (4, NONE, ""),
        };
        let text = &text.as_bytes()[..text.len().min(MOST as usize)];
        let head = [kind, rank, text.len() as u32].map(u32::to_le_bytes).concat();
        [&head, text].concat()
    }
}

/// The next one of a connection.
pub fn read(from: &mut impl Read) -> std::io::Result<Word> {
    let mut number = || {
        let mut word = [0; 4];
        from.read_exact(&mut word)?;
        std::io::Result::Ok(u32::from_le_bytes(word))
    };
    let (kind, rank, len) = (number()?, number()?, number()?);
    if len > MOST {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; len as usize];
    from.read_exact(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let rank = (rank != NONE).then_some(rank);
    match kind {
        1 => Ok(Word::Frame(text)),
        2 => Ok(Word::Opened(rank.map(|rank| (rank, text)))),
        3 => Ok(Word::Farewell(rank, text)),
        4 => Ok(Word::Bye),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}
