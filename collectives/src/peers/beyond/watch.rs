//! Who sees to it that kernels of this rank do not wait for ranks that never come. It sleeps as long as all are there.

use super::links::{Duty, PeerLinks};
use crate::Error;
use crate::peers::seat::Seat;
use std::time::{Duration, Instant};
use warpsmith_runtime::Stream;

/// Between two looks.
const PAUSE: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(50));
/// For how long a message of a rank whose process has gone may still be on its way to be noticed. That it is waited for is not written anywhere.
const UNNOTICED: Duration = Duration::from_secs(1);

/// Watches until the links say that it is over.
pub fn watch(seat: &Seat, links: &PeerLinks, beside: &Stream, timeout: Duration) {
    let (mut pause, mut last) = (Duration::ZERO, Last { flags: Vec::new(), since: Instant::now() });
    while let Some(duty) = links.duty(pause) {
        pause = (pause * 2).clamp(PAUSE.0, PAUSE.1);
        let done = match duty {
            Duty::Release => seat.release(beside),
            Duty::Look { gone, left, overdue } => seat.flags(beside).map(|flags| {
                last.note(&flags);
                look(seat, links, (&gone, &left, overdue), (&last, timeout));
            }),
        };
        // Of a device that is lost whoever waits for its work is told.
        if done.is_err() {
            pause = PAUSE.1;
        }
    }
}

/// Flags, and since when they are so.
struct Last {
    flags: Vec<u32>,
    since: Instant,
}

impl Last {
    fn note(&mut self, flags: &[u32]) {
        if self.flags != flags {
            *self = Last { flags: flags.to_vec(), since: Instant::now() };
        }
    }
}

/// Ends the group where somebody is waited for who is away.
fn look(
    seat: &Seat,
    links: &PeerLinks,
    (gone, left, overdue): (&[u32], &[u32], bool),
    (last, timeout): (&Last, Duration),
) {
    let (meetings, messages) = (seat.absent_at_meetings(&last.flags), seat.absent_with_messages(&last.flags));
    let still = last.since.elapsed();
    // What a rank did before it went is in the flags: a meeting that it is not at, it never comes to.
    let lost = |away: &[u32], patience| {
        let lacks = |rank: &&u32| meetings.contains(rank) || still > patience && messages.contains(rank);
        away.iter().find(lacks).copied()
    };
    if let Some(rank) = lost(gone, UNNOTICED) {
        links.lose(rank, false);
    } else if let Some(rank) = lost(left, timeout) {
        links.lose(rank, true);
    } else if overdue && !meetings.is_empty() | !messages.is_empty() {
        let missing = seat.absent(&last.flags);
        links.fail(Error::Missing { rank: seat.rank, missing, waited: timeout });
    }
}
