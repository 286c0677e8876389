//! Loops whose turns are written out before any code generator sees them.

/// `for i in 0..N`, a turn behind the other: each with an index that is a constant.
///
/// ```
/// use warpsmith_device::static_for;
///
/// let (words, mut sum) = ([1u32, 2, 3, 4], 0);
/// static_for!(i in 0..4 => {
///     sum += words[i] << i;
/// });
/// assert_eq!(sum, 1 + (2 << 1) + (3 << 2) + (4 << 3));
/// ```
///
/// `N` is a constant, also a generic one, of at most eight. rustc's own generator unrolls a plain loop of constant length, and
/// arrays that it indexes stay in registers. rust-cuda's does not where the body is long, and the arrays then lie in local memory:
/// this is for such bodies. `break` and `continue` mean a loop around it.
#[macro_export]
macro_rules! static_for {
    ($i:ident in 0..$n:expr => $body:block) => {{
        const { assert!($n <= 8, "at most eight turns are written out") };
        $crate::static_for!(@ $i $n, $body, 0 1 2 3 4 5 6 7);
    }};
    (@ $i:ident $n:expr, $body:block, $($turn:literal)*) => {
        // A turn that is not there indexes behind arrays, and nobody reads what the last one writes: rustc sees both.
        $(
            #[allow(unconditional_panic, arithmetic_overflow, unused_assignments)]
            {
                if $turn < const { $n } {
                    let $i: usize = $turn;
                    $body
                }
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    fn turns<const N: usize>() -> Vec<usize> {
        let mut seen = Vec::new();
        static_for!(i in 0..N => {
            seen.push(i);
        });
        seen
    }

    #[test]
    fn every_turn_comes_once_and_in_order() {
        assert_eq!(turns::<0>(), [0; 0]);
        assert_eq!(turns::<1>(), [0]);
        assert_eq!(turns::<5>(), [0, 1, 2, 3, 4]);
        assert_eq!(turns::<8>(), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
