//! Faults that other decoders have shipped because a GPU's driver hands out the addresses of freed memory again, as the software
//! driver does under a guard. Alone in its process: the same sizes in the same order then get the same addresses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/device.rs"]
mod device;

use std::sync::{Mutex, PoisonError};

use device::*;
use warpsmith_driver_api::software;
use warpsmith_host::decode::{DecodeError, Mode, SequenceOptions, Session};

/// The tests take turns, each in the mode.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn ox_2_a_model_at_the_addresses_of_a_dropped_one_is_another_model() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let _reuse = software::reuse_addresses();
    let [a, b, _] = trio();
    let want = fresh(&b, 0..3);
    // That freed addresses come again, and to memory of the same size.
    let probe = || device().alloc::<u8>(100_000).unwrap().address();
    assert!(!device().is_software() || probe() == probe());
    for mode in [Mode::Eager, Mode::Graph] {
        let mut s = sequence(&load(&a), mode);
        feed(&mut s, 1);
        let snapshot = s.snapshot().unwrap();
        drop(s);
        // The same sizes in the same order.
        let mut s = sequence(&load(&b), mode);
        assert!(matches!(s.restore(&snapshot), Err(DecodeError::Snapshot { .. })), "{mode:?}");
        let got: Vec<_> = (0..3).map(|p| feed(&mut s, token(p, 96))).collect();
        assert_eq!(got, want, "{mode:?}");
    }
    // The same file loaded twice is two models as well.
    let (x, y) = (load(&b), load(&b));
    let s = sequence(&x, Mode::Eager);
    let snapshot = s.snapshot().unwrap();
    assert!(matches!(sequence(&y, Mode::Eager).restore(&snapshot), Err(DecodeError::Snapshot { .. })));
    sequence(&x, Mode::Eager).restore(&snapshot).unwrap();
}

/// Tables of positions, caches and models that come and go, each where another was, under decoders that go on.
#[test]
fn graphs_go_on_while_what_they_use_comes_and_goes_at_the_same_addresses() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let _reuse = software::reuse_addresses();
    let [a, b, _] = trio();
    let files = [&a, &b];
    let want = files.map(|f| fresh(f, 0..8));
    let models = files.map(load);
    for round in 0..2 {
        for (model, want) in models.iter().zip(&want) {
            let o = SequenceOptions { capacity: Some(2), ..Default::default() };
            let mut s = Session::new(model, o).unwrap();
            for (p, want) in want.iter().enumerate() {
                // The old cache and the old tables are freed; those of the next size, and of the next session, follow them.
                s.set_capacity([2, 2, 5, 5, 5, 3 * round + 6, 9, 9][p].max(p + 1)).unwrap();
                assert_eq!(&feed(&mut s, token(p, 96)), want, "round {round} position {p}");
            }
        }
    }
}
