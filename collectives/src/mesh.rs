//! How ranks of several processes are connected with each other: each listens at a port of its own, rank 0 tells all of them the addresses, and each connects with those before
//! it. A number that rank 0 draws tells strangers apart.

use crate::world::{Brought, Purpose};
use crate::{Error, World};
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Who connects: the group's number, and a rank.
type Ticket = [u8; 20];

/// A number that nobody else has.
fn drawn() -> [u8; 16] {
    let one = |seed: u32| RandomState::new().hash_one(seed).to_le_bytes();
    let mut number = [0; 16];
    number[..8].copy_from_slice(&one(0));
    number[8..].copy_from_slice(&one(1));
    number
}

fn ticket(group: &[u8], rank: u32) -> Ticket {
    let mut ticket = [0; 20];
    ticket[..16].copy_from_slice(group);
    ticket[16..].copy_from_slice(&rank.to_le_bytes());
    ticket
}

/// Connections of this rank with all others, who have come for the same, by their numbers; none with itself.
pub fn connect(world: &World, purpose: Purpose, timeout: Duration) -> Result<Vec<Option<TcpStream>>, Error> {
    let start = Instant::now();
    // Where rank 0 is met, as the others are told of a rank beside it.
    let host = loopback(world).unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    let listener = beside(world, || TcpListener::bind((host, 0))).map_err(|error| world.failed(error))?;
    let port = listener.local_addr().map_err(|error| world.failed(error))?.port();
    let table = |brought: &[Brought]| {
        let group = drawn();
        let first = format!("{port}\n");
        let text =
            brought.iter().fold(first, |text, b| text + &format!("{} {}\n", b.from, String::from_utf8_lossy(&b.bytes)));
        Ok([&group[..], text.as_bytes()].concat())
    };
    let told = world.meet(purpose, port.to_string().as_bytes(), table, timeout)?;
    let (group, text) =
        told.split_at_checked(16).ok_or_else(|| world.failed("rank 0 told something else than addresses"))?;
    let addresses = addresses(world, &String::from_utf8_lossy(text))?;
    let mut streams: Vec<Option<TcpStream>> = addresses.iter().map(|_| None).collect();
    for (other, address) in (0..world.rank).zip(&addresses) {
        let left = timeout.saturating_sub(start.elapsed()).max(Duration::from_millis(100));
        let stream = TcpStream::connect_timeout(address, left).and_then(|mut stream| {
            stream.write_all(&ticket(group, world.rank))?;
            Ok(stream)
        });
        let failed = |error| world.failed(format!("rank {other} at {address}: {error}"));
        streams[other as usize] = Some(stream.map_err(failed)?);
    }
    accept(world, &listener, group, (start, timeout), &mut streams)?;
    Ok(streams)
}

/// A listener of this rank alone. The system may hand out the very port where rank 0 is met, before rank 0 listens there: it would find
/// its port taken, and a rank that has it would greet itself.
fn beside(world: &World, mut bind: impl FnMut() -> std::io::Result<TcpListener>) -> std::io::Result<TcpListener> {
    let met = world.port();
    let first = bind()?;
    if Some(first.local_addr()?.port()) != met {
        return Ok(first);
    }
    // While the first is held, another port comes.
    let second = bind();
    drop(first);
    second
}

/// Whether rank 0 is met at an address that only this machine has.
fn loopback(world: &World) -> Option<IpAddr> {
    let mut found = world.address.to_socket_addrs().into_iter().flatten();
    found.next().map(|address| address.ip()).filter(IpAddr::is_loopback)
}

/// Where the ranks are, as rank 0 told: of the first the port, of the others addresses as rank 0 sees them.
fn addresses(world: &World, text: &str) -> Result<Vec<SocketAddr>, Error> {
    let wrong = || world.failed(format!("rank 0 told no addresses: {text:?}"));
    let met = world.address.to_socket_addrs().map_err(|error| world.failed(error))?.next().ok_or_else(wrong)?;
    let mut all = Vec::new();
    for (rank, line) in text.lines().enumerate() {
        let (ip, port) = match line.split_once(' ') {
            Some((ip, port)) => (ip.parse::<IpAddr>().map_err(|_| wrong())?, port),
            None => (met.ip(), line),
        };
        // Beside rank 0: seen from elsewhere it is where that is.
        let ip = if rank > 0 && ip.is_loopback() { met.ip() } else { ip };
        all.push(SocketAddr::new(ip, port.parse().map_err(|_| wrong())?));
    }
    if all.len() == world.ranks as usize { Ok(all) } else { Err(wrong()) }
}

/// Waits for the ranks behind this one.
fn accept(
    world: &World,
    listener: &TcpListener,
    group: &[u8],
    (start, timeout): (Instant, Duration),
    streams: &mut [Option<TcpStream>],
) -> Result<(), Error> {
    listener.set_nonblocking(true).map_err(|error| world.failed(error))?;
    let behind = world.rank as usize + 1;
    while streams.iter().skip(behind).any(Option::is_none) {
        match listener.accept() {
            Ok((stream, _)) => {
                // Strangers are none of ours.
                if let Ok((rank, stream)) = checked(stream, group)
                    && let Some(place) = streams.get_mut(rank as usize).filter(|_| rank as usize >= behind)
                {
                    *place = Some(stream);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let waited = start.elapsed();
                if waited > timeout {
                    let absent = |rank: &u32| streams[*rank as usize].is_none();
                    let missing = (behind as u32..world.ranks).filter(absent).collect();
                    return Err(Error::Missing { rank: world.rank, missing, waited });
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return Err(world.failed(error)),
        }
    }
    Ok(())
}

/// A rank by its ticket.
fn checked(mut stream: TcpStream, group: &[u8]) -> std::io::Result<(u32, TcpStream)> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut shown: Ticket = [0; 20];
    stream.read_exact(&mut shown)?;
    let rank = u32::from_le_bytes([shown[16], shown[17], shown[18], shown[19]]);
    if shown[..16] == *group { Ok((rank, stream)) } else { Err(ErrorKind::InvalidData.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_does_not_listen_where_rank_0_is_met() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = taken.local_addr().unwrap();
        let world = World { rank: 1, ranks: 2, local_rank: 1, address: address.to_string() };
        let mut first = Some(taken);
        let own = beside(&world, || match first.take() {
            Some(taken) => Ok(taken),
            None => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)),
        });
        assert_ne!(own.unwrap().local_addr().unwrap(), address);
        // It is free for rank 0 then.
        TcpListener::bind(address).unwrap();
        // Another port is taken as it comes.
        let mut calls = 0;
        let one = || {
            calls += 1;
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        };
        beside(&World { address: "127.0.0.1:1".to_owned(), ..world }, one).unwrap();
        assert_eq!(calls, 1);
    }
}
