//! What a launch publishes, to an observer that only counts.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::any::Any;

use common::{Rig, module_text};
use warpsmith_simt::machine::note::{Note, Role};
use warpsmith_simt::machine::{Cx, Op};
use warpsmith_simt::observer::{Interest, Launching, Observer};
use warpsmith_simt::{Launch, Start};

#[derive(Default)]
struct Counting {
    kernel: String,
    blocks: Vec<(u64, bool)>,
    accesses: u32,
    lanes: u32,
    opened: Vec<(u32, u32)>,
    exited: u32,
}

impl Observer for Counting {
    fn interest(&self) -> Interest {
        Interest { accesses: true, ..Interest::default() }
    }
    fn block_rests(&mut self, block: u64, done: bool) {
        self.blocks.push((block, done));
    }
    unsafe fn before(&mut self, cx: &mut Cx, _: &Op, _: u32, note: &Note, watched: bool) {
        if watched && matches!(note.role, Role::Access(_)) {
            self.accesses += 1;
            self.lanes += cx.active.count_ones();
        }
    }
    fn exited(&mut self, _: u32, lanes: u32) {
        self.exited += lanes.count_ones();
    }
    fn barrier_opened(&mut self, barrier: u32, warps: u32) {
        self.opened.push((barrier, warps));
    }
}

#[test]
fn an_observer_sees_accesses_barriers_and_exits_of_each_block() {
    let text = module_text(
        ".param .u64 p",
        ".reg .b64 %rd<3>; .reg .b32 %r<3>; .reg .pred %q; .shared .align 4 .b8 s[256];
         ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x;
         setp.ge.u32 %q, %r1, 40;
         @%q bra ON;
         mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2; st.global.u32 [%rd2], %r1;
         ON: bar.sync 3; ret;",
    );
    let rig = Rig::new(&text);
    let p = rig.alloc(4 * 64);
    let launch = Launch::new([2, 1, 1], [64, 1, 1]);
    let watch = |launching: &Launching<'_>| -> Box<dyn Observer> {
        Box::new(Counting { kernel: launching.kernel.to_owned(), ..Counting::default() })
    };
    let params = p.to_le_bytes();
    let start = Start { watch: Some(&watch), ..Start::new("k", &launch, &params) };
    let ended = rig.machine.run(&rig.instance, start);
    assert!(ended.fault.is_none());
    let observer: Box<dyn Any> = ended.observer.unwrap();
    let seen = observer.downcast::<Counting>().unwrap();
    assert_eq!(seen.kernel, "k");
    assert_eq!(seen.blocks, [(0, true), (1, true)]);
    // The parameter by both warps of both blocks, and the stores: 32 and 8 lanes.
    assert_eq!((seen.accesses, seen.lanes), (8, 2 * (64 + 40)));
    assert_eq!(seen.opened, [(3, 0b11), (3, 0b11)]);
    assert_eq!(seen.exited, 128);
    assert_eq!(ended.counters.blocks, 2);
}
