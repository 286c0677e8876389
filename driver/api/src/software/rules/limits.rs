//! What a kernel may be launched with, by its declaration and its device, and the attributes that follow from them.

use warpsmith_arch::{DEFAULT_SHARED, MAX_THREADS, REGISTERS, WARP};
use warpsmith_simt::KernelInfo;

use crate::codes::{Code, Res};
use crate::software::spec::Spec;
use crate::software::tables::{objects::Function, software::Software, state::State};

/// No assembler fits a kernel into less, whatever its `.minnctapersm` says.
const LEAST_REGISTERS: u32 = 24;

impl Function {
    pub fn info(&self) -> Res<&KernelInfo> {
        self.instance.module().kernel(&self.name).ok_or(Code::INVALID_HANDLE)
    }
}

/// The most dynamic shared memory that a kernel may have before it opts in to more.
pub(crate) fn default_dynamic_shared(info: &KernelInfo) -> u32 {
    DEFAULT_SHARED.saturating_sub(info.static_shared)
}

/// Threads of a block as the kernel declares them.
fn declared_threads(info: &KernelInfo) -> Option<u32> {
    let declared = info.required_threads.or(info.max_threads)?;
    Some(declared.iter().fold(1, |a: u32, n| a.saturating_mul(*n)).clamp(1, MAX_THREADS))
}

/// Registers of a thread: as many as are live at once, but no more than leave room for the declared block, and for as many of them
/// as `.minnctapersm` says, for which an assembler fits them.
pub(crate) fn registers(info: &KernelInfo) -> u32 {
    let Some(threads) = declared_threads(info) else { return info.registers };
    let room = |blocks: u32| REGISTERS / threads.next_multiple_of(WARP).saturating_mul(blocks) / 8 * 8;
    // It is no more than a wish: an assembler that cannot fulfil it takes what it needs.
    let wished = info.min_blocks.map(|blocks| room(blocks.max(1))).filter(|&room| room >= LEAST_REGISTERS);
    info.registers.min(wished.unwrap_or(room(1)))
}

/// The largest block: by the device, the declared bounds, and the registers.
pub(crate) fn max_threads(info: &KernelInfo) -> u32 {
    let warps = REGISTERS / (registers(info).max(1).next_multiple_of(8) * WARP);
    declared_threads(info).unwrap_or(MAX_THREADS).min((warps * WARP).max(WARP))
}

/// Whether a kernel may be launched with such a block. A block that breaks the bounds which the kernel declares is a wrong
/// argument; one for whose threads there are not enough registers lacks resources.
pub(crate) fn check_block(info: &KernelInfo, block: [u32; 3]) -> Res {
    let threads = block.iter().fold(1u32, |all, n| all.saturating_mul(*n));
    if info.required_threads.is_some_and(|required| required != block)
        || declared_threads(info).is_some_and(|most| threads > most)
    {
        return Err(Code::INVALID_VALUE);
    }
    if threads > max_threads(info) { Err(Code::LAUNCH_OUT_OF_RESOURCES) } else { Ok(()) }
}

/// An attribute that follows from the code and the device alone.
pub(crate) fn attribute(info: &KernelInfo, target_sm: u32, device_sm: u32, attribute: i32) -> Res<u32> {
    Ok(match attribute {
        0 => max_threads(info),
        1 => info.static_shared,
        2 => info.const_bytes,
        7 => 0,
        3 => info.local_bytes,
        4 => registers(info),
        5 => target_sm,
        6 => device_sm,
        // Clusters: none.
        10..=15 => 0,
        _ => return Err(Code::INVALID_VALUE),
    })
}

/// Whether an attribute may be set to a value: dynamic shared memory, and the carve-out.
pub(crate) fn check_settable(info: &KernelInfo, spec: Spec, attribute: i32, value: i32) -> Res {
    let room = spec.arch.shared_optin.saturating_sub(info.static_shared);
    match (attribute, u32::try_from(value)) {
        (8, Ok(bytes)) if bytes <= room => Ok(()),
        // -1: as the driver likes.
        (9, _) if (-1..=100).contains(&value) => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

pub(crate) fn set(state: &mut State, software: &Software, function: u64, attribute: i32, value: i32) -> Res {
    let found = state.functions.get(&function).ok_or(Code::INVALID_HANDLE)?;
    let spec = software.device(state.device_of(found.context)?)?.spec;
    check_settable(found.info()?, spec, attribute, value)?;
    let found = state.functions.get_mut(&function).ok_or(Code::INVALID_HANDLE)?;
    if attribute == 8 {
        found.max_dynamic_shared = value as u32;
    } else {
        found.carveout = value;
    }
    Ok(())
}
