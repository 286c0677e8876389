//! Guesses of what follows, for steps that verify them.

/// Most tokens that are looked up, and fewest.
const LOOKED_UP: [usize; 2] = [4, 2];

/// Up to `most` tokens that followed the last place in the text at which the tokens stood with which it ends: texts repeat names, phrases and
/// code. Longer runs are looked up first; none, where no run stood there before.
///
/// The method: Saxena, *Prompt Lookup Decoding* (2023).
pub fn by_lookup(tokens: &[u32], most: usize) -> &[u32] {
    let [longest, shortest] = LOOKED_UP;
    for length in (shortest..=longest.min(tokens.len() / 2)).rev() {
        let (text, end) = tokens.split_at(tokens.len() - length);
        // The run may overlap with the end, but is not the end.
        let before = &tokens[..tokens.len() - 1];
        let Some(place) = before.windows(length).rposition(|run| run == end) else { continue };
        debug_assert!(place < text.len() || length > text.len() - place);
        let follows = &tokens[place + length..];
        return &follows[..most.min(follows.len())];
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_the_last_time_is_guessed() {
        assert_eq!(by_lookup(&[1, 2, 3, 9, 1, 2], 8), [3, 9, 1, 2]);
        assert_eq!(by_lookup(&[1, 2, 3, 9, 1, 2], 1), [3]);
        // The last place, and the longest run.
        assert_eq!(by_lookup(&[1, 2, 3, 1, 2, 4, 7, 1, 2], 1), [4]);
        assert_eq!(by_lookup(&[8, 1, 2, 3, 1, 2, 4, 8, 1, 2], 1), [3]);
        // What repeats goes on.
        assert_eq!(by_lookup(&[5, 6, 5, 6, 5, 6], 3), [5, 6]);
        assert_eq!(by_lookup(&[7, 7, 7, 7], 3), [7]);
        for nothing in [&[][..], &[1], &[1, 1], &[1, 2, 3, 4], &[1, 2, 9, 2]] {
            assert!(by_lookup(nothing, 4).is_empty(), "{nothing:?}");
        }
        assert!(by_lookup(&[1, 2, 3, 1, 2], 0).is_empty());
    }
}
