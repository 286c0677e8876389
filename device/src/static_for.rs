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
    // Loops in loops would otherwise be written out 64 times, and more, to be thrown away.
    ($i:ident in 0..1 => $body:block) => { $crate::static_for!(@ $i, $body, 0) };
    ($i:ident in 0..2 => $body:block) => { $crate::static_for!(@ $i, $body, 0 1) };
    ($i:ident in 0..3 => $body:block) => { $crate::static_for!(@ $i, $body, 0 1 2) };
    ($i:ident in 0..4 => $body:block) => { $crate::static_for!(@ $i, $body, 0 1 2 3) };
    ($i:ident in 0..5 => $body:block) => { $crate::static_for!(@ $i, $body, 0 1 2 3 4) };
    ($i:ident in 0..6 => $body:block) => { $crate::static_for!(@ $i, $body, 0 1 2 3 4 5) };
    ($i:ident in 0..7 => $body:block) => { $crate::static_for!(@ $i, $body, 0 1 2 3 4 5 6) };
    ($i:ident in 0..8 => $body:block) => { $crate::static_for!(@ $i, $body, 0 1 2 3 4 5 6 7) };
    ($i:ident in 0..$n:expr => $body:block) => {{
        // One constant a loop: an incremental compilation looks at all types of a function again for each.
        let turns: usize = const {
            assert!($n <= 8, "at most eight turns are written out");
            $n
        };
        // A turn that is not there indexes behind arrays: rustc sees that.
        #[allow(unconditional_panic, arithmetic_overflow)]
        {
            $crate::static_for!(@ $i, { if $i < turns $body }, 0 1 2 3 4 5 6 7);
        }
    }};
    (@ $i:ident, $body:block, $($turn:literal)*) => {{
        $(
            // Nobody reads what the last turn writes for a next one.
            #[allow(unused_assignments)]
            {
                let $i: usize = $turn;
                $body
            }
        )*
    }};
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

    #[test]
    fn literals_have_as_many_turns_as_they_say() {
        let mut seen = vec![Vec::new(); 10];
        static_for!(i in 0..0 => { seen[0].push(i); });
        static_for!(i in 0..1 => { seen[1].push(i); });
        static_for!(i in 0..2 => { seen[2].push(i); });
        static_for!(i in 0..3 => { seen[3].push(i); });
        static_for!(i in 0..4 => { seen[4].push(i); });
        static_for!(i in 0..5 => { seen[5].push(i); });
        static_for!(i in 0..6 => { seen[6].push(i); });
        static_for!(i in 0..7 => { seen[7].push(i); });
        static_for!(i in 0..8 => { seen[8].push(i); });
        static_for!(i in 0..2 => { static_for!(j in 0..3 => { seen[9].push(3 * i + j); }); });
        for (turns, seen) in seen.into_iter().enumerate() {
            assert_eq!(seen, (0..if turns == 9 { 6 } else { turns }).collect::<Vec<_>>());
        }
    }
}
