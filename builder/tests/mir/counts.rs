//! Counts of bits, in the ways in which kernels come to them. Behind a line stands what rust-cuda miscompiles in it.
#![no_std]

/// Inlined where it is called: the line is this one.
#[inline(always)]
fn helper(n: usize) -> usize {
    n.next_power_of_two() //~ next_power_of_two of usize
}

/// Evaluated by rustc.
pub const LANES: usize = 48usize.next_power_of_two();

/// At compile time and at run time.
pub const fn both(n: u64) -> u32 {
    n.trailing_zeros() //~ trailing_zeros of u64
}

pub struct Mask(pub u64);

impl Mask {
    pub fn ranks(&self) -> impl Fn(u32) -> u32 + '_ {
        |lane| (self.0 & ((1 << lane) - 1)).count_ones() //~ count_ones of u64
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel(y: *mut u32, n: usize, b: u8, v: u64, w: u32, m: &Mask) {
    unsafe {
        *y = helper(n) as u32;
        *y.add(1) = b.count_ones(); //~ count_ones of u8
        *y.add(2) = v.leading_zeros() + w.leading_zeros(); //~ leading_zeros of u64
        *y.add(3) = LANES as u32 + both(v) + w.next_power_of_two();
        *y.add(4) = v.is_power_of_two() as u32; //~ is_power_of_two of u64
        *y.add(5) = (n as u128).trailing_ones(); //~ trailing_ones of u128
        *y.add(6) = v.checked_ilog2().unwrap_or(3); //~ checked_ilog2 of u64
        *y.add(7) = m.ranks()(w) + w.count_ones() + w.rotate_left(3) + w.ilog2();
        *y.add(8) = (n as i16).leading_zeros(); //~ leading_zeros of u16
        *y.add(9) = v.rotate_left(w) as u32 + v.swap_bytes() as u32 + v.pow(3) as u32;
        *y.add(10) = const { 12345678u64.count_ones() };
        *y.add(11) = n.isqrt() as u32; //~ isqrt of u64
    }
}
