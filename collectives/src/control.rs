//! What rank 0 tells all others, in order: what to do next, where it alone knows, as it alone hears the clients of a server. It goes over TCP
//! beside the devices' exchange, so that those who have nothing to do wait without a time limit and without keeping a device busy.
//!
//! A message is its length, a little-endian u32, and so many bytes; [`END`] in place of a length says that there is nothing more to do. A
//! connection that closes without it is a rank that has gone: rank 0 hears of it at once, by a thread for each of the others, and ends by
//! closing its own what the others wait for.

use crate::world::{Brought, Purpose};
use crate::{Error, World};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// In place of a length: the end.
const END: u32 = u32::MAX;
/// Bytes of a message, at most.
const MOST: usize = 1 << 28;
/// For how long rank 0 waits for the others to leave, once it has told them to.
const LEAVING: Duration = Duration::from_secs(10);

/// A process's end of what rank 0 tells.
pub enum Control {
    /// That of rank 0.
    Lead(Lead),
    /// That of each of the others.
    Follow(Follow),
}

/// Rank 0's. Dropping it without [`end`](Lead::end) tells the others that rank 0 has gone.
pub struct Lead {
    streams: Vec<TcpStream>,
    watched: Arc<Watched>,
    watchers: Vec<JoinHandle<()>>,
}

/// That of another rank.
pub struct Follow {
    rank: u32,
    stream: TcpStream,
}

type Alarm = Box<dyn FnOnce() + Send>;

/// What threads that watch the connections know.
#[derive(Default)]
struct Watched(Mutex<Liveness>);

#[derive(Default)]
struct Liveness {
    /// The first rank that has gone, and what is known of it.
    lost: Option<(u32, String)>,
    alarm: Option<Alarm>,
    /// They may go.
    over: bool,
}

impl Watched {
    fn with<T>(&self, of: impl FnOnce(&mut Liveness) -> T) -> T {
        of(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn lose(&self, rank: u32, reason: String) {
        let alarm = self.with(|state| {
            if state.over || state.lost.is_some() {
                return None;
            }
            state.lost = Some((rank, reason));
            state.alarm.take()
        });
        if let Some(alarm) = alarm {
            alarm();
        }
    }

    fn check(&self) -> Result<(), Error> {
        match self.with(|state| state.lost.clone()) {
            Some((lost, reason)) => Err(Error::Lost { rank: 0, lost, reason }),
            None => Ok(()),
        }
    }
}

impl Control {
    /// Joins the others of `world`, who all make the call. `same` is what they have to have in common, such as their options; of the numbers
    /// that they give all get the least, such as the room that all of them have.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] where one of them has something else in common, or is none of them, and [`Error::Missing`] with those that did
    /// not come in time.
    pub fn join(world: &World, same: &str, number: u64, timeout: Duration) -> Result<(Control, u64), Error> {
        let mine = [&number.to_le_bytes()[..], same.as_bytes()].concat();
        let least = |brought: &[Brought]| {
            let mut least = number;
            for (rank, brought) in (1..).zip(brought) {
                let (number, theirs) = numbered(&brought.bytes)
                    .ok_or_else(|| world.failed(format!("rank {rank} brings something else")))?;
                if theirs != same.as_bytes() {
                    let theirs = String::from_utf8_lossy(theirs);
                    return Err(world.failed(format!("rank {rank} has {theirs}, rank 0 {same}")));
                }
                least = least.min(number);
            }
            Ok(least.to_le_bytes().to_vec())
        };
        let (told, streams) = world.meet_and_stay(Purpose::Control, &mine, least, timeout)?;
        let (least, _) = numbered(&told).ok_or_else(|| world.failed("rank 0 told no number"))?;
        for stream in &streams {
            stream.set_read_timeout(None).map_err(|error| world.failed(error))?;
            stream.set_write_timeout(Some(timeout)).map_err(|error| world.failed(error))?;
            // What is told is short, and to be heard at once.
            stream.set_nodelay(true).map_err(|error| world.failed(error))?;
        }
        if world.rank == 0 {
            return Ok((Control::Lead(Lead::of(streams).map_err(|error| world.failed(error))?), least));
        }
        let stream = streams.into_iter().next().ok_or_else(|| world.failed("rank 0 is not there"))?;
        Ok((Control::Follow(Follow { rank: world.rank, stream }), least))
    }
}

fn numbered(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), rest))
}

impl Lead {
    fn of(streams: Vec<TcpStream>) -> std::io::Result<Lead> {
        let mut lead = Lead { streams: Vec::new(), watched: Arc::default(), watchers: Vec::new() };
        for (rank, stream) in (1..).zip(streams) {
            let (mut own, watched) = (stream.try_clone()?, lead.watched.clone());
            lead.streams.push(stream);
            let watch = move || {
                // They say nothing: whatever comes is their end.
                let reason = match own.read(&mut [0]) {
                    Ok(0) => "it closed its connection".to_owned(),
                    Ok(_) => "it says something, which it should not".to_owned(),
                    Err(error) => error.to_string(),
                };
                watched.lose(rank, reason);
            };
            lead.watchers.push(std::thread::Builder::new().name(format!("rank {rank}")).spawn(watch)?);
        }
        Ok(lead)
    }

    /// Has `alarm` called when a rank goes, from another thread, or now if one has gone.
    pub fn on_loss(&self, alarm: impl FnOnce() + Send + 'static) {
        let alarm: Alarm = Box::new(alarm);
        let now = self.watched.with(|state| match state.lost {
            Some(_) => Some(alarm),
            None => {
                state.alarm = Some(alarm);
                None
            }
        });
        if let Some(alarm) = now {
            alarm();
        }
    }

    /// Whether all are there.
    ///
    /// # Errors
    /// [`Error::Lost`] with the first that has gone.
    pub fn check(&self) -> Result<(), Error> {
        self.watched.check()
    }

    /// Tells all others.
    ///
    /// # Errors
    /// [`Error::Lost`] where one has gone, or takes nothing, and [`Error::TooMuch`].
    pub fn tell(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let len = u32::try_from(bytes.len()).ok().filter(|len| *len as usize <= MOST);
        let len = len.ok_or(Error::TooMuch { len: bytes.len(), most: MOST })?;
        self.send(&[&len.to_le_bytes()[..], bytes].concat())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.watched.check()?;
        for (rank, stream) in (1..).zip(&mut self.streams) {
            if let Err(error) = stream.write_all(bytes) {
                self.watched.lose(rank, error.to_string());
                break;
            }
        }
        self.watched.check()
    }

    /// Tells all others that this is all, and waits until they have left, for some seconds at most.
    ///
    /// # Errors
    /// [`Error::Lost`] where one has gone before.
    pub fn end(mut self) -> Result<(), Error> {
        self.check()?;
        // From here on who goes may.
        self.watched.with(|state| state.over = true);
        for stream in &mut self.streams {
            let _ = stream.write_all(&END.to_le_bytes()).and_then(|()| stream.shutdown(Shutdown::Write));
        }
        let start = Instant::now();
        while start.elapsed() < LEAVING && !self.watchers.iter().all(JoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.watched.with(|state| state.over = true);
        for stream in &self.streams {
            // The watchers have handles of their own.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Follow {
    /// Waits for what rank 0 tells next; `None`: that was all.
    ///
    /// # Errors
    /// [`Error::Lost`] where rank 0 has gone without a word.
    pub fn hear(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.read().map_err(|error| {
            let reason = match error.kind() {
                std::io::ErrorKind::UnexpectedEof => "it closed its connection".to_owned(),
                _ => error.to_string(),
            };
            Error::Lost { rank: self.rank, lost: 0, reason }
        })
    }

    fn read(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let mut word = [0; 4];
        self.stream.read_exact(&mut word)?;
        let len = u32::from_le_bytes(word);
        if len == END {
            return Ok(None);
        }
        if len as usize > MOST {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; len as usize];
        self.stream.read_exact(&mut bytes)?;
        Ok(Some(bytes))
    }
}
