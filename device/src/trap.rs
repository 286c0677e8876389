//! Stopping a kernel that has gone wrong.
//!
//! A trap ends the whole grid and makes the context unusable; the host sees a launch failure. The
//! software driver reports kernel, block, thread and Rust line as well.

/// Ends the kernel with a fault.
#[inline(always)]
pub fn trap() -> ! {
    // SAFETY: ends the thread; nothing runs after it.
    unsafe { core::arch::nvptx::trap() }
}

/// Traps unless the condition holds. Costs a predicate and a branch; message arguments are not
/// accepted, since there is nobody to print them. The trap carries the line of the assertion.
#[macro_export]
macro_rules! device_assert {
    ($condition:expr $(,)?) => {
        if !$condition {
            // Here and not in a function, so that the line is the caller's.
            // SAFETY: ends the thread; nothing runs after it.
            unsafe { ::core::arch::asm!("trap;", options(noreturn, nomem, nostack)) }
        }
    };
}

#[cfg(all(target_arch = "nvptx64", feature = "panic-handler"))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    trap()
}
