//! The candidate that an argmax carries: a value and where it stood.

/// A value and its index, ordered so that any order of merging gives the same winner.
///
/// The larger value wins; of equal values (−0 equals +0) the lower index; a NaN loses against any
/// number, −∞ included; of NaNs the lower index.
///
/// ```
/// # use warpsmith_device::argmax::Best;
/// let best = [3.0, f32::NAN, 7.0, 7.0]
///     .iter()
///     .enumerate()
///     .fold(Best::NONE, |best, (i, &value)| best.merge(Best { value, index: i as u32 }));
/// assert_eq!(best.index, 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// The value.
    pub value: f32,
    /// Where it stood.
    pub index: u32,
}

impl Best {
    /// What loses against every candidate.
    pub const NONE: Best = Best { value: f32::NAN, index: u32::MAX };

    /// The better of two.
    #[inline(always)]
    pub fn merge(self, other: Best) -> Best {
        let wins = if other.value == self.value || (other.value.is_nan() && self.value.is_nan()) {
            other.index < self.index
        } else {
            other.value > self.value || self.value.is_nan()
        };
        if wins { other } else { self }
    }
}

#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
// SAFETY: the two words are the two fields.
unsafe impl crate::warp::Shuffle for Best {
    const WIDE: bool = true;
    #[inline(always)]
    fn low(self) -> u32 {
        self.value.to_bits()
    }
    #[inline(always)]
    fn high(self) -> u32 {
        self.index
    }
    #[inline(always)]
    fn join(low: u32, high: u32) -> Best {
        Best { value: f32::from_bits(low), index: high }
    }
}

#[cfg(any(target_arch = "nvptx64", doc, rust_analyzer))]
impl crate::shared::SharedElement for Best {
    #[inline(always)]
    unsafe fn load(address: u32) -> Best {
        // SAFETY: the caller's promise; handles are aligned to 16, and `Best` is 8 bytes.
        let crate::U32x2([value, index]) = unsafe { crate::U32x2::load(address) };
        Best { value: f32::from_bits(value), index }
    }
    #[inline(always)]
    unsafe fn store(address: u32, v: Best) {
        // SAFETY: the caller's promise; handles are aligned to 16, and `Best` is 8 bytes.
        unsafe { crate::U32x2::store(address, crate::U32x2([v.value.to_bits(), v.index])) }
    }
}

#[cfg(test)]
mod tests {
    use super::Best;

    const VALUES: [f32; 9] = [f32::NAN, f32::NEG_INFINITY, -1.0, -0.0, 0.0, 1.0, f32::MAX, f32::INFINITY, f32::MIN];

    /// The rule in other words: by number (a NaN below all), then by lower index.
    fn better(a: Best, b: Best) -> bool {
        let key = |v: f32| if v.is_nan() { (0, 0.0) } else { (1, v) };
        match key(a.value).partial_cmp(&key(b.value)) {
            Some(std::cmp::Ordering::Greater) => true,
            Some(std::cmp::Ordering::Less) => false,
            _ => a.index < b.index,
        }
    }

    #[test]
    fn merging_is_commutative_associative_and_follows_the_rule() {
        let all: Vec<Best> =
            VALUES.iter().flat_map(|&value| [0, 1, u32::MAX].map(|index| Best { value, index })).collect();
        let bits = |b: Best| (if b.value.is_nan() { 0 } else { b.value.to_bits() }, b.index);
        for &a in &all {
            for &b in &all {
                let expected = if better(a, b) { a } else { b };
                // Equal value and index: -0 and +0 stand for the same candidate.
                if a.index != b.index {
                    assert_eq!(bits(a.merge(b)), bits(expected), "{a:?} {b:?}");
                    assert_eq!(bits(a.merge(b)), bits(b.merge(a)), "{a:?} {b:?}");
                }
                for &c in &all {
                    let (l, r) = (a.merge(b).merge(c), a.merge(b.merge(c)));
                    assert_eq!(l.index, r.index, "{a:?} {b:?} {c:?}");
                }
            }
            assert_eq!(bits(Best::NONE.merge(a)).1, a.index);
        }
    }
}
