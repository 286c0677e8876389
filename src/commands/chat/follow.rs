//! What a process does whose first talks: it feeds what that feeds, and knows as that does when a reply ends.

use warpsmith_host::collectives::Follow;

use super::speaker::Speaker;
use crate::cli::ChatArgs;
use crate::failure::{Failure, Kind};

/// What all processes have to have in common, so that their replies end alike; options of decoders are compared by these.
pub fn common(args: &ChatArgs, capacity: usize) -> String {
    format!("{} tokens of a reply in a context of {capacity}, {:?}", args.count, args.sampling)
}

/// A turn, as the first tells it: the tokens of the conversation, little-endian.
pub fn told(tokens: &[u32]) -> Vec<u8> {
    tokens.iter().flat_map(|token| token.to_le_bytes()).collect()
}

/// The tokens of a turn.
fn heard(told: &[u8]) -> Vec<u32> {
    told.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// Does every turn that the first does, until it has no more.
pub fn follow(mut rank: Follow, speaker: &mut Speaker<'_>) -> Result<(), Failure> {
    while let Some(told) = rank.hear()? {
        match speaker.turn(&heard(&told)) {
            // The first has the same, and says whether it goes on.
            Err(failure) if failure.is(Kind::Input) => eprintln!("error: {failure}"),
            Err(failure) => return Err(failure),
            Ok(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_heard() {
        for tokens in [&[][..], &[7], &[0, u32::MAX, 0x0102_0304]] {
            assert_eq!(heard(&told(tokens)), tokens);
        }
    }
}
