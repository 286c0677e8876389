//! Parts of a whole, such as rows of a tensor.

use std::ops::Range;

/// Parts of a whole, in the order in which they lie one behind the other in what they become.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pieces(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    /// Elements of those before it.
    at: usize,
    /// Where it lies in the whole.
    from: Range<usize>,
}

impl Pieces {
    /// These parts; those that follow one another are one.
    pub fn of(ranges: impl IntoIterator<Item = Range<usize>>) -> Pieces {
        let mut all: Vec<Piece> = Vec::new();
        for from in ranges.into_iter().filter(|range| !range.is_empty()) {
            match all.last_mut() {
                Some(last) if last.from.end == from.start => last.from.end = from.end,
                last => {
                    let at = last.map_or(0, |last| last.at + last.from.len());
                    all.push(Piece { at, from });
                }
            }
        }
        Pieces(all)
    }

    /// One part.
    pub fn one(range: Range<usize>) -> Pieces {
        Pieces::of(std::iter::once(range))
    }

    /// Where they lie in the whole.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.0.iter().map(|piece| piece.from.clone())
    }

    /// Their elements.
    pub fn len(&self) -> usize {
        self.0.last().map_or(0, |last| last.at + last.from.len())
    }

    /// The end of the last in the whole.
    pub fn end(&self) -> usize {
        self.0.iter().map(|piece| piece.from.end).max().unwrap_or(0)
    }

    /// Where elements of what they become lie in the whole.
    pub fn part(&self, part: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        let first = self.0.partition_point(|piece| piece.at + piece.from.len() <= part.start);
        let met = self.0.iter().skip(first).take_while(move |piece| piece.at < part.end);
        met.map(move |Piece { at, from }| {
            let before = part.start.saturating_sub(*at);
            from.start + before..from.start + (part.end - at).min(from.len())
        })
    }

    /// Parts of what they become.
    pub fn inner(&self, inner: &Pieces) -> Pieces {
        Pieces::of(inner.ranges().flat_map(|range| self.part(range)))
    }

    /// The same of a whole in which each element is so many.
    pub fn times(&self, each: usize) -> Pieces {
        Pieces::of(self.ranges().map(|range| range.start * each..range.end * each))
    }

    /// The same behind so many elements.
    pub fn behind(&self, before: usize) -> Pieces {
        Pieces::of(self.ranges().map(|range| range.start + before..range.end + before))
    }

    /// These, and then others.
    pub fn and(&self, others: &Pieces) -> Pieces {
        Pieces::of(self.ranges().chain(others.ranges()))
    }

    /// What they become of a whole of these values; without those that it lacks.
    pub fn gather<T: Copy>(&self, whole: &[T]) -> Vec<T> {
        self.ranges().flat_map(|range| whole.get(range).unwrap_or_default()).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_parts_are_those_of_the_whole() {
        let whole: Vec<usize> = (0..60).collect();
        let outer = Pieces::of([3..7, 7..9, 20..20, 30..41, 12..14]);
        assert_eq!(outer.ranges().collect::<Vec<_>>(), [3..9, 30..41, 12..14]);
        assert_eq!((outer.len(), outer.end()), (19, 41));
        let held = outer.gather(&whole);
        for start in 0..=held.len() {
            for end in start..=held.len() {
                let part = Pieces::of(outer.part(start..end));
                assert_eq!(part.gather(&whole), held[start..end], "{start}..{end}");
            }
        }
        let inner = Pieces::of([15..19, 1..8, 5..6]);
        assert_eq!(outer.inner(&inner).gather(&whole), inner.gather(&held));
        let each: Vec<usize> = outer.times(3).gather(&(0..180).collect::<Vec<_>>());
        assert_eq!(each, held.iter().flat_map(|i| 3 * i..3 * i + 3).collect::<Vec<_>>());
        assert_eq!(outer.behind(2).gather(&whole), held.iter().map(|i| i + 2).collect::<Vec<_>>());
        assert_eq!(outer.and(&inner).len(), outer.len() + inner.len());
    }
}
