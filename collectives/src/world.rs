//! Ranks as processes: who this one is, by the variables of whoever started it, and how they exchange a few bytes.
//!
//! There is no launcher here: `torchrun`, `mpirun` (Open MPI) and `srun` start the processes.

use crate::Error;
use crate::nccl::UniqueId;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
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
const GREETING: [u8; 8] = *b"wsmith01";

impl World {
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

    fn failed(&self, reason: impl std::fmt::Display) -> Error {
        Error::Rendezvous { address: self.address.clone(), reason: reason.to_string() }
    }

    /// Rank 0 gives its `id` to all others, which get it from there.
    ///
    /// # Errors
    /// [`Error::Missing`] with the ranks that did not come in time; an address that cannot be used; a process that is none of these ranks.
    pub fn share(&self, id: impl FnOnce() -> Result<UniqueId, Error>, timeout: Duration) -> Result<UniqueId, Error> {
        if self.rank != 0 {
            return self.ask(timeout);
        }
        let id = id()?;
        if self.ranks > 1 {
            self.serve(&id, timeout)?;
        }
        Ok(id)
    }

    fn serve(&self, id: &UniqueId, timeout: Duration) -> Result<(), Error> {
        let start = Instant::now();
        let port = self.address.rsplit_once(':').map_or("", |(_, port)| port);
        // The name may be another one than this machine calls itself.
        let listener = TcpListener::bind(&self.address).or_else(|_| TcpListener::bind(format!("0.0.0.0:{port}")));
        let listener = listener.map_err(|error| self.failed(error))?;
        listener.set_nonblocking(true).map_err(|error| self.failed(error))?;
        let mut here = vec![false; self.ranks as usize];
        here[0] = true;
        while here.iter().any(|here| !here) {
            match listener.accept() {
                Ok((stream, _)) => {
                    // Who does not speak, or is none of ours, keeps nobody from coming.
                    if let Ok(rank) = answer(stream, self.ranks, id) {
                        let Some(known) = here.get_mut(rank as usize) else { continue };
                        if std::mem::replace(known, true) {
                            return Err(self.failed(format!("there are two ranks {rank}")));
                        }
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let waited = start.elapsed();
                    if waited > timeout {
                        let missing = (0..self.ranks).filter(|rank| !here[*rank as usize]).collect();
                        return Err(Error::Missing { rank: 0, missing, waited });
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(())
    }

    fn ask(&self, timeout: Duration) -> Result<UniqueId, Error> {
        let start = Instant::now();
        loop {
            let found = self.address.to_socket_addrs().map_err(|error| self.failed(error))?.next();
            let address = found.ok_or_else(|| self.failed("no such host"))?;
            let asked = TcpStream::connect_timeout(&address, Duration::from_secs(1)).and_then(|mut stream| {
                stream.set_read_timeout(Some(Duration::from_secs(10)))?;
                stream.write_all(&GREETING)?;
                stream.write_all(&self.rank.to_le_bytes())?;
                stream.write_all(&self.ranks.to_le_bytes())?;
                let mut id = UniqueId::default();
                stream.read_exact(&mut id.0)?;
                Ok(id)
            });
            if let Ok(id) = asked {
                return Ok(id);
            }
            let waited = start.elapsed();
            if waited > timeout {
                return Err(Error::Missing { rank: self.rank, missing: vec![0], waited });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Gives the id to a process that says which of the ranks it is.
fn answer(mut stream: TcpStream, ranks: u32, id: &UniqueId) -> std::io::Result<u32> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut greeting = [0u8; 16];
    stream.read_exact(&mut greeting)?;
    let word = |at: usize| u32::from_le_bytes([greeting[at], greeting[at + 1], greeting[at + 2], greeting[at + 3]]);
    let (rank, of) = (word(8), word(12));
    if greeting[..8] != GREETING || of != ranks || rank >= ranks {
        return Err(ErrorKind::InvalidData.into());
    }
    stream.write_all(&id.0)?;
    Ok(rank)
}
