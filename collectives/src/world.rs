//! Ranks as processes: who this one is, by the variables of whoever started it, and how they exchange a few bytes.
//!
//! There is no launcher here: `torchrun`, `mpirun` (Open MPI) and `srun` start the processes.
//!
//! They meet at rank 0. Each of the others greets it with who it is, what it has come for, and what it brings; when all have come, rank 0
//! tells all of them the same bytes, or why they cannot be a group. Numbers are little-endian u32:
//!
//! | | |
//! |---|---|
//! | greeting | 8 bytes [`GREETING`]; rank; number of ranks; purpose; length; that many bytes |
//! | answer | 0 or, where it is a refusal, 1; length; that many bytes, of a refusal its text |

use crate::Error;
use crate::nccl::UniqueId;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A process among others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    /// Which one, from 0 on.
    pub rank: u32,
    /// How many there are.
    pub ranks: u32,
    /// Which one of its machine: the ordinal of its device, as a rule.
    pub local_rank: u32,
    /// Where rank 0 is met: host and port.
    pub address: String,
}

/// The names of rank, number of ranks and rank on the machine.
const LAUNCHERS: [[&str; 3]; 3] = [
    ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
    ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
];

/// Sent first, so that a stranger is told apart.
const GREETING: [u8; 8] = *b"wsmith02";
/// How long a port of the rendezvous may be somebody else's.
const HELD: Duration = Duration::from_secs(3);
/// Bytes that a rank brings, or is told, at most.
const MOST: u32 = 1 << 20;

impl World {
    /// Where ranks on this machine can meet: a port that nobody has at the moment. On Linux it is one of a loopback address that
    /// hardly anybody else uses, so that nobody takes it before they do.
    ///
    /// # Errors
    ///
    /// If the system has no port.
    pub fn free_address() -> std::io::Result<String> {
        static GIVEN: AtomicU32 = AtomicU32::new(0);
        let number = std::process::id().wrapping_mul(0x9E37_79B1) ^ GIVEN.fetch_add(1, Ordering::Relaxed);
        let [_, a, b, c] = number.to_be_bytes();
        let host = match cfg!(target_os = "linux") {
            true => Ipv4Addr::new(127, a | 1, b, c.clamp(1, 254)),
            false => Ipv4Addr::LOCALHOST,
        };
        Ok(TcpListener::bind((host, 0))?.local_addr()?.to_string())
    }

    /// By the variables of `torchrun`, Open MPI or Slurm, the first of them whose rank is set; alone, if none is.
    ///
    /// Rank 0 is met at `WARPSMITH_RENDEZVOUS` (host and port); else at `MASTER_ADDR`, which is `SLURM_LAUNCH_NODE_IPADDR` or this
    /// machine where it is not set, and the port after `MASTER_PORT` (29500), which `torchrun` uses itself.
    ///
    /// # Errors
    /// A variable that is missing or makes no sense.
    pub fn from_environment() -> Result<World, Error> {
        World::by(|name| std::env::var(name).ok())
    }

    /// The same by a table of variables.
    ///
    /// # Errors
    /// As for [`World::from_environment`].
    pub fn by(variable: impl Fn(&str) -> Option<String>) -> Result<World, Error> {
        let number = |name: &'static str, expected| {
            let value = variable(name);
            let parsed = value.as_deref().and_then(|v| v.trim().parse::<u32>().ok());
            let value = value.unwrap_or_else(|| "(unset)".to_owned());
            parsed.ok_or(Error::Variable { variable: name, value, expected })
        };
        let (mut rank, mut ranks, mut local_rank) = (0, 1, 0);
        if let Some([of_rank, of_ranks, of_local]) = LAUNCHERS.iter().find(|names| variable(names[0]).is_some()) {
            rank = number(of_rank, "a rank, from 0 on")?;
            ranks = number(of_ranks, "a number of ranks")?;
            local_rank = number(of_local, "a rank on its machine, from 0 on")?;
            if rank >= ranks {
                let value = rank.to_string();
                return Err(Error::Variable { variable: of_rank, value, expected: "a rank below their number" });
            }
        }
        let address = match variable("WARPSMITH_RENDEZVOUS") {
            Some(address) => address,
            None => {
                let host = variable("MASTER_ADDR").or_else(|| variable("SLURM_LAUNCH_NODE_IPADDR"));
                let port = match variable("MASTER_PORT") {
                    Some(_) => number("MASTER_PORT", "a port below 65535")?,
                    None => 29500,
                };
                if port >= 65535 {
                    let value = port.to_string();
                    return Err(Error::Variable { variable: "MASTER_PORT", value, expected: "a port below 65535" });
                }
                format!("{}:{}", host.as_deref().unwrap_or("127.0.0.1"), port + 1)
            }
        };
        Ok(World { rank, ranks, local_rank, address })
    }

    pub(crate) fn failed(&self, reason: impl std::fmt::Display) -> Error {
        Error::Rendezvous { address: self.address.clone(), reason: reason.to_string() }
    }

    /// Rank 0 gives its `id` to all others, which get it from there when all have come.
    ///
    /// # Errors
    /// [`Error::Missing`] with the ranks that did not come in time; an address that cannot be used; ranks that cannot be a group.
    pub fn share(&self, id: impl FnOnce() -> Result<UniqueId, Error>, timeout: Duration) -> Result<UniqueId, Error> {
        let told = self.meet(Purpose::Nccl, &[], |_| Ok(id()?.0.to_vec()), timeout)?;
        let id = told.try_into().map_err(|_| self.failed("rank 0 told something else than an id"))?;
        Ok(UniqueId(id))
    }

    /// All ranks meet for a purpose. Each brings some bytes; rank 0 makes of them what all of them are told.
    pub(crate) fn meet(
        &self,
        purpose: Purpose,
        mine: &[u8],
        told: impl FnOnce(&[Brought]) -> Result<Vec<u8>, Error>,
        timeout: Duration,
    ) -> Result<Vec<u8>, Error> {
        Ok(self.meet_and_stay(purpose, mine, told, timeout)?.0)
    }

    /// The same, and the connections by which they met: of rank 0 those with all others, in their order; of others the one with rank 0.
    pub(crate) fn meet_and_stay(
        &self,
        purpose: Purpose,
        mine: &[u8],
        told: impl FnOnce(&[Brought]) -> Result<Vec<u8>, Error>,
        timeout: Duration,
    ) -> Result<(Vec<u8>, Vec<TcpStream>), Error> {
        if self.rank >= self.ranks {
            return Err(Error::NoRank { what: "to be", rank: self.rank, ranks: self.ranks });
        }
        if self.rank != 0 {
            return self.ask(purpose, mine, timeout).map(|(told, stream)| (told, vec![stream]));
        }
        let mut guests = Vec::new();
        let told = match self.gather(purpose, timeout, &mut guests) {
            Ok(()) => {
                guests.sort_by_key(|guest| guest.rank);
                let brought: Vec<Brought> = guests.iter_mut().map(|guest| std::mem::take(&mut guest.brought)).collect();
                told(&brought)
            }
            Err(error) => Err(error),
        };
        let (refused, bytes) = match &told {
            Ok(bytes) => (0, bytes.clone()),
            Err(error) => (1, error.to_string().into_bytes()),
        };
        for guest in &mut guests {
            let sent = send(&mut guest.stream, refused, &bytes);
            if let (Err(error), Ok(_)) = (sent, &told) {
                return Err(self.failed(format!("rank {} has gone: {error}", guest.rank)));
            }
        }
        Ok((told?, guests.into_iter().map(|guest| guest.stream).collect()))
    }

    /// The port where rank 0 is met.
    pub(crate) fn port(&self) -> Option<u16> {
        self.address.rsplit_once(':')?.1.parse().ok()
    }

    /// Listens where the others come to. Who has the port gets this long to give it back: a group before this one, or a connection that
    /// the system gave its number.
    fn listen(&self, patience: Duration) -> Result<TcpListener, Error> {
        let start = Instant::now();
        loop {
            // The name may be another one than this machine calls itself.
            let named = TcpListener::bind(&self.address);
            let bound = named.or_else(|error| match self.port() {
                Some(port) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
                None => Err(error),
            });
            match bound {
                Err(error) if error.kind() == ErrorKind::AddrInUse && start.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                bound => return bound.map_err(|error| self.failed(error)),
            }
        }
    }

    /// Waits until all others have come.
    fn gather(&self, purpose: Purpose, timeout: Duration, guests: &mut Vec<Guest>) -> Result<(), Error> {
        if self.ranks == 1 {
            return Ok(());
        }
        let start = Instant::now();
        let listener = self.listen(timeout.min(HELD))?;
        listener.set_nonblocking(true).map_err(|error| self.failed(error))?;
        while guests.len() + 1 < self.ranks as usize {
            match listener.accept() {
                // Who does not speak, or is none of ours, keeps nobody from coming.
                Ok((stream, _)) => {
                    if let Ok(guest) = welcome(stream) {
                        let problem = self.problem(purpose, &guest, guests);
                        guests.push(guest);
                        problem.map_or(Ok(()), |problem| Err(self.failed(problem)))?;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let waited = start.elapsed();
                    if waited > timeout {
                        let here = |rank: &u32| guests.iter().all(|guest| guest.rank != *rank);
                        return Err(Error::Missing {
                            rank: 0,
                            missing: (1..self.ranks).filter(here).collect(),
                            waited,
                        });
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(())
    }

    /// Why a rank cannot be of this group.
    fn problem(&self, purpose: Purpose, guest: &Guest, before: &[Guest]) -> Option<String> {
        let (rank, ranks) = (guest.rank, self.ranks);
        if guest.ranks != ranks {
            return Some(format!("rank {rank} says that there are {} ranks, rank 0 {ranks}", guest.ranks));
        }
        if rank == 0 || rank >= ranks || before.iter().any(|other| other.rank == rank) {
            return Some(format!("there are two ranks {rank}"));
        }
        let theirs = Purpose::ALL.iter().find(|p| **p as u32 == guest.purpose).map_or("something else", |p| p.name());
        let differs = guest.purpose != purpose as u32;
        differs.then(|| format!("rank {rank} has come for {theirs}, rank 0 for {}", purpose.name()))
    }

    fn ask(&self, purpose: Purpose, mine: &[u8], timeout: Duration) -> Result<(Vec<u8>, TcpStream), Error> {
        let start = Instant::now();
        loop {
            let found = self.address.to_socket_addrs().map_err(|error| self.failed(error))?.next();
            let address = found.ok_or_else(|| self.failed("no such host"))?;
            let left = timeout.saturating_sub(start.elapsed()).max(Duration::from_millis(100));
            let asked = TcpStream::connect_timeout(&address, Duration::from_secs(1)).and_then(|mut stream| {
                // Rank 0 may wait for others as long; then it says who they are.
                stream.set_read_timeout(Some(left + Duration::from_secs(2)))?;
                stream.write_all(&GREETING)?;
                for number in [self.rank, self.ranks, purpose as u32] {
                    stream.write_all(&number.to_le_bytes())?;
                }
                stream.write_all(&(mine.len() as u32).to_le_bytes())?;
                stream.write_all(mine)?;
                Ok((number(&mut stream)?, bytes(&mut stream)?, stream))
            });
            match asked {
                Ok((0, told, stream)) => return Ok((told, stream)),
                Ok((_, reason, _)) => return Err(self.failed(String::from_utf8_lossy(&reason))),
                Err(_) => {}
            }
            let waited = start.elapsed();
            if waited > timeout {
                return Err(Error::Missing { rank: self.rank, missing: vec![0], waited });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl FromStr for World {
    type Err = Error;

    /// A process among others that is told so: `RANK/RANKS@HOST:PORT`. Its rank on the machine is its rank.
    fn from_str(place: &str) -> Result<World, Error> {
        let parts = || {
            let (ranks, address) = place.split_once('@')?;
            let (rank, ranks) = ranks.split_once('/')?;
            let (rank, ranks) = (rank.parse::<u32>().ok()?, ranks.parse::<u32>().ok()?);
            let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty())?.1;
            port.parse::<u16>().ok().filter(|_| rank < ranks)?;
            Some(World { rank, ranks, local_rank: rank, address: address.to_owned() })
        };
        parts().ok_or_else(|| Error::Place { place: place.to_owned() })
    }
}

/// What ranks meet for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The unique id of NCCL.
    Nccl = 1,
    /// Each other's addresses.
    Sockets = 2,
    /// What rank 0 tells the others.
    Control = 3,
    /// Each other's addresses, and then each other's memory.
    Peers = 4,
}

impl Purpose {
    const ALL: [Purpose; 4] = [Purpose::Nccl, Purpose::Sockets, Purpose::Control, Purpose::Peers];

    fn name(self) -> &'static str {
        match self {
            Purpose::Nccl => "NCCL",
            Purpose::Sockets => "sockets",
            Purpose::Control => "what rank 0 tells",
            Purpose::Peers => "peer memory",
        }
    }
}

/// What a rank but the first has brought, and from where.
#[derive(Clone, Debug)]
pub(crate) struct Brought {
    pub from: IpAddr,
    pub bytes: Vec<u8>,
}

impl Default for Brought {
    fn default() -> Brought {
        Brought { from: IpAddr::V4(Ipv4Addr::UNSPECIFIED), bytes: Vec::new() }
    }
}

/// A rank that waits for an answer.
struct Guest {
    stream: TcpStream,
    rank: u32,
    ranks: u32,
    purpose: u32,
    brought: Brought,
}

fn number(stream: &mut TcpStream) -> std::io::Result<u32> {
    let mut word = [0; 4];
    stream.read_exact(&mut word)?;
    Ok(u32::from_le_bytes(word))
}

fn bytes(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let len = number(stream)?;
    if len > MOST {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; len as usize];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn send(stream: &mut TcpStream, refused: u32, bytes: &[u8]) -> std::io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(&refused.to_le_bytes())?;
    stream.write_all(&(bytes.len() as u32).to_le_bytes())?;
    stream.write_all(bytes)
}

/// Hears who a process is and what it brings.
fn welcome(mut stream: TcpStream) -> std::io::Result<Guest> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut greeting = [0u8; 8];
    stream.read_exact(&mut greeting)?;
    if greeting != GREETING {
        return Err(ErrorKind::InvalidData.into());
    }
    let (rank, ranks, purpose) = (number(&mut stream)?, number(&mut stream)?, number(&mut stream)?);
    let brought = Brought { from: stream.peer_addr()?.ip(), bytes: bytes(&mut stream)? };
    Ok(Guest { stream, rank, ranks, purpose, brought })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_somebody_has_for_a_moment_is_waited_for() {
        let address = World::free_address().unwrap();
        let world = World { rank: 0, ranks: 2, local_rank: 0, address: address.clone() };
        let holder = TcpListener::bind(&address).unwrap();
        let (start, patience) = (Instant::now(), Duration::from_millis(50));
        let error = world.listen(patience).unwrap_err().to_string();
        assert!(start.elapsed() >= patience && error.contains(&address) && error.contains("in use"), "{error}");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| world.listen(Duration::from_secs(60)));
            std::thread::sleep(patience);
            assert!(!waits.is_finished());
            drop(holder);
            assert_eq!(waits.join().unwrap().unwrap().local_addr().unwrap().to_string(), address);
        });
    }
}
