//! `lop3`: every function of three bits, each a handler of its own.

use super::OpFn;
use super::lanes::map3;

/// The function of two bits whose value for (b, c) is bit `2 b + c` of the table.
#[inline(always)]
fn of_two(table: u8, b: u32, c: u32) -> u32 {
    match table & 15 {
        0b0000 => 0,
        0b0001 => !(b | c),
        0b0010 => !b & c,
        0b0011 => !b,
        0b0100 => b & !c,
        0b0101 => !c,
        0b0110 => b ^ c,
        0b0111 => !(b & c),
        0b1000 => b & c,
        0b1001 => !(b ^ c),
        0b1010 => c,
        0b1011 => !b | c,
        0b1100 => b,
        0b1101 => b | !c,
        0b1110 => b | c,
        _ => !0,
    }
}

/// Bit `4 a + 2 b + c` of the table: what holds where `a` is 0, and what its being 1 changes.
fn of<const TABLE: u8>() -> OpFn {
    map3(|a: u32, b: u32, c: u32| of_two(TABLE, b, c) ^ (a & of_two(TABLE ^ TABLE >> 4, b, c)))
}

/// Picks among sixteen tables whose upper half is known.
macro_rules! sixteen {
    ($high:literal, $low:expr) => {
        match $low & 15 {
            0 => of::<{ $high + 0 }>(),
            1 => of::<{ $high + 1 }>(),
            2 => of::<{ $high + 2 }>(),
            3 => of::<{ $high + 3 }>(),
            4 => of::<{ $high + 4 }>(),
            5 => of::<{ $high + 5 }>(),
            6 => of::<{ $high + 6 }>(),
            7 => of::<{ $high + 7 }>(),
            8 => of::<{ $high + 8 }>(),
            9 => of::<{ $high + 9 }>(),
            10 => of::<{ $high + 10 }>(),
            11 => of::<{ $high + 11 }>(),
            12 => of::<{ $high + 12 }>(),
            13 => of::<{ $high + 13 }>(),
            14 => of::<{ $high + 14 }>(),
            _ => of::<{ $high + 15 }>(),
        }
    };
}

/// `lop3` with this truth table.
pub(crate) fn lop3(table: u8) -> OpFn {
    match table >> 4 {
        0 => sixteen!(0x00, table),
        1 => sixteen!(0x10, table),
        2 => sixteen!(0x20, table),
        3 => sixteen!(0x30, table),
        4 => sixteen!(0x40, table),
        5 => sixteen!(0x50, table),
        6 => sixteen!(0x60, table),
        7 => sixteen!(0x70, table),
        8 => sixteen!(0x80, table),
        9 => sixteen!(0x90, table),
        10 => sixteen!(0xa0, table),
        11 => sixteen!(0xb0, table),
        12 => sixteen!(0xc0, table),
        13 => sixteen!(0xd0, table),
        14 => sixteen!(0xe0, table),
        _ => sixteen!(0xf0, table),
    }
}
