// Included by every crate here.
#[allow(unused_imports)]
use core::arch::{asm, nvptx::*};
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    unsafe { trap() }
}
