//! Result codes: names, texts, and the bounds of what a caller can hold.
//!
//! `cust_raw` 0.11.3 declares results as a Rust `enum` of CUDA 11.4; any other value in it is
//! undefined behaviour in the caller. [`clamp`] turns what it lacks into 999, for every call.

use std::ffi::CStr;

/// A failure: a CUDA result code other than 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct Code(pub i32);

/// What the software side of an API function answers.
pub(crate) type Res<T = ()> = Result<T, Code>;

macro_rules! codes {
    ($($value:literal $short:ident $known:literal $text:literal;)*) => {
        impl Code {
            $(#[allow(dead_code)] pub(crate) const $short: Code = Code($value);)*
        }
        const TABLE: &[(i32, bool, &CStr, &CStr)] = &[
            $(($value, $known == 1, name_c(concat!("CUDA_ERROR_", stringify!($short), "\0")), name_c(concat!($text, "\0"))),)*
        ];
    };
}

const fn name_c(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(c) => c,
        Err(_) => c"",
    }
}

// value, name without CUDA_ERROR_, 1 if cust_raw 0.11.3 has it, text
codes! {
    1 INVALID_VALUE 1 "invalid argument";
    2 OUT_OF_MEMORY 1 "out of memory";
    3 NOT_INITIALIZED 1 "initialization error";
    4 DEINITIALIZED 1 "driver shutting down";
    5 PROFILER_DISABLED 1 "profiler disabled while using external profiling tool";
    6 PROFILER_NOT_INITIALIZED 1 "profiler not initialized: call cudaProfilerInitialize()";
    7 PROFILER_ALREADY_STARTED 1 "profiler already started";
    8 PROFILER_ALREADY_STOPPED 1 "profiler already stopped";
    34 STUB_LIBRARY 1 "CUDA driver is a stub library";
    36 CALL_REQUIRES_NEWER_DRIVER 0 "API call is not supported in the installed CUDA driver";
    46 DEVICE_UNAVAILABLE 0 "CUDA-capable device(s) is/are busy or unavailable";
    100 NO_DEVICE 1 "no CUDA-capable device is detected";
    101 INVALID_DEVICE 1 "invalid device ordinal";
    102 DEVICE_NOT_LICENSED 1 "device doesn't have valid Grid license";
    200 INVALID_IMAGE 1 "device kernel image is invalid";
    201 INVALID_CONTEXT 1 "invalid device context";
    202 CONTEXT_ALREADY_CURRENT 1 "context already current";
    205 MAP_FAILED 1 "mapping of buffer object failed";
    206 UNMAP_FAILED 1 "unmapping of buffer object failed";
    207 ARRAY_IS_MAPPED 1 "array is mapped";
    208 ALREADY_MAPPED 1 "resource already mapped";
    209 NO_BINARY_FOR_GPU 1 "no kernel image is available for execution on the device";
    210 ALREADY_ACQUIRED 1 "resource already acquired";
    211 NOT_MAPPED 1 "resource not mapped";
    212 NOT_MAPPED_AS_ARRAY 1 "resource not mapped as array";
    213 NOT_MAPPED_AS_POINTER 1 "resource not mapped as pointer";
    214 ECC_UNCORRECTABLE 1 "uncorrectable ECC error encountered";
    215 UNSUPPORTED_LIMIT 1 "limit is not supported on this architecture";
    216 CONTEXT_ALREADY_IN_USE 1 "exclusive-thread device already in use by a different thread";
    217 PEER_ACCESS_UNSUPPORTED 1 "peer access is not supported between these two devices";
    218 INVALID_PTX 1 "a PTX JIT compilation failed";
    219 INVALID_GRAPHICS_CONTEXT 1 "invalid OpenGL or DirectX context";
    220 NVLINK_UNCORRECTABLE 1 "uncorrectable NVLink error detected during the execution";
    221 JIT_COMPILER_NOT_FOUND 1 "PTX JIT compiler library not found";
    222 UNSUPPORTED_PTX_VERSION 1 "the provided PTX was compiled with an unsupported toolchain.";
    223 JIT_COMPILATION_DISABLED 1 "PTX JIT compilation was disabled";
    224 UNSUPPORTED_EXEC_AFFINITY 1 "the provided execution affinity is not supported";
    225 UNSUPPORTED_DEVSIDE_SYNC 0 "device-side synchronization is not supported";
    226 CONTAINED 0 "contained exception";
    227 NVLINK_CONTAINED 0 "contained NVLink exception";
    300 INVALID_SOURCE 1 "device kernel image is invalid";
    301 FILE_NOT_FOUND 1 "file not found";
    302 SHARED_OBJECT_SYMBOL_NOT_FOUND 1 "shared object symbol not found";
    303 SHARED_OBJECT_INIT_FAILED 1 "shared object initialization failed";
    304 OPERATING_SYSTEM 1 "OS call failed or operation not supported on this OS";
    400 INVALID_HANDLE 1 "invalid resource handle";
    401 ILLEGAL_STATE 1 "the operation cannot be performed in the present state";
    402 LOSSY_QUERY 0 "attempted introspection would be semantically lossy";
    500 NOT_FOUND 1 "named symbol not found";
    600 NOT_READY 1 "device not ready";
    700 ILLEGAL_ADDRESS 1 "an illegal memory access was encountered";
    701 LAUNCH_OUT_OF_RESOURCES 1 "too many resources requested for launch";
    702 LAUNCH_TIMEOUT 1 "the launch timed out and was terminated";
    703 LAUNCH_INCOMPATIBLE_TEXTURING 1 "launch uses incompatible texturing mode";
    704 PEER_ACCESS_ALREADY_ENABLED 1 "peer access is already enabled";
    705 PEER_ACCESS_NOT_ENABLED 1 "peer access has not been enabled";
    708 PRIMARY_CONTEXT_ACTIVE 1 "cannot set while device is active in this process";
    709 CONTEXT_IS_DESTROYED 1 "context is destroyed";
    710 ASSERT 1 "device-side assert triggered";
    711 TOO_MANY_PEERS 1 "peer mapping resources exhausted";
    712 HOST_MEMORY_ALREADY_REGISTERED 1 "part or all of the requested memory range is already mapped";
    713 HOST_MEMORY_NOT_REGISTERED 1 "pointer does not correspond to a registered memory region";
    714 HARDWARE_STACK_ERROR 1 "hardware stack error";
    715 ILLEGAL_INSTRUCTION 1 "an illegal instruction was encountered";
    716 MISALIGNED_ADDRESS 1 "misaligned address";
    717 INVALID_ADDRESS_SPACE 1 "operation not supported on global/shared address space";
    718 INVALID_PC 1 "invalid program counter";
    719 LAUNCH_FAILED 1 "unspecified launch failure";
    720 COOPERATIVE_LAUNCH_TOO_LARGE 1 "too many blocks in cooperative launch";
    721 TENSOR_MEMORY_LEAK 0 "a tensor memory leak was detected";
    800 NOT_PERMITTED 1 "operation not permitted";
    801 NOT_SUPPORTED 1 "operation not supported";
    802 SYSTEM_NOT_READY 1 "system not yet initialized";
    803 SYSTEM_DRIVER_MISMATCH 1 "system has unsupported display driver / cuda driver combination";
    804 COMPAT_NOT_SUPPORTED_ON_DEVICE 1 "forward compatibility was attempted on non supported HW";
    805 MPS_CONNECTION_FAILED 1 "MPS client failed to connect to the MPS control daemon or the MPS server";
    806 MPS_RPC_FAILURE 1 "the remote procedural call between the MPS server and the MPS client failed";
    807 MPS_SERVER_NOT_READY 1 "MPS server is not ready to accept new MPS client requests";
    808 MPS_MAX_CLIENTS_REACHED 1 "the hardware resources required to create MPS client have been exhausted";
    809 MPS_MAX_CONNECTIONS_REACHED 1 "the hardware resources required to support device connections have been exhausted";
    810 MPS_CLIENT_TERMINATED 0 "the MPS client has been terminated by the server";
    811 CDP_NOT_SUPPORTED 0 "the module uses CUDA Dynamic Parallelism, which the configuration does not support";
    812 CDP_VERSION_MISMATCH 0 "unsupported interaction between versions of CUDA Dynamic Parallelism";
    900 STREAM_CAPTURE_UNSUPPORTED 1 "operation not permitted when stream is capturing";
    901 STREAM_CAPTURE_INVALIDATED 1 "operation failed due to a previous error during capture";
    902 STREAM_CAPTURE_MERGE 1 "operation would result in a merge of separate capture sequences";
    903 STREAM_CAPTURE_UNMATCHED 1 "capture was not ended in the same stream as it began";
    904 STREAM_CAPTURE_UNJOINED 1 "capturing stream has unjoined work";
    905 STREAM_CAPTURE_ISOLATION 1 "dependency created on uncaptured work in another stream";
    906 STREAM_CAPTURE_IMPLICIT 1 "operation would make the legacy stream depend on a capturing blocking stream";
    907 CAPTURED_EVENT 1 "operation not permitted on an event last recorded in a capturing stream";
    908 STREAM_CAPTURE_WRONG_THREAD 1 "attempt to terminate a thread-local capture sequence from another thread";
    909 TIMEOUT 1 "wait operation timed out";
    910 GRAPH_EXEC_UPDATE_FAILURE 1 "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update";
    911 EXTERNAL_DEVICE 1 "an async error has occurred in external entity outside of CUDA";
    912 INVALID_CLUSTER_SIZE 0 "a kernel launch error has occurred due to cluster misconfiguration";
    913 FUNCTION_NOT_LOADED 0 "the function handle is not loaded";
    914 INVALID_RESOURCE_TYPE 0 "the resource type is not valid for this operation";
    915 INVALID_RESOURCE_CONFIGURATION 0 "the resource configuration is not valid";
    916 KEY_ROTATION 0 "an error occurred during a key rotation";
    917 STREAM_DETACHED 0 "the stream is detached";
    918 GRAPH_RECAPTURE_FAILURE 0 "the graph could not be captured again";
    999 UNKNOWN 1 "unknown error";
}

/// Name and text of a code, NUL-terminated, or `None` for a code that CUDA does not have.
pub(crate) fn describe(code: i32) -> Option<(&'static CStr, &'static CStr)> {
    if code == 0 {
        return Some((c"CUDA_SUCCESS", c"no error"));
    }
    let at = TABLE.binary_search_by_key(&code, |row| row.0).ok()?;
    TABLE.get(at).map(|row| (row.2, row.3))
}

/// The code itself if the callers' declarations have it, else 999.
pub(crate) fn clamp(code: i32) -> CUresult {
    let known = code == 0
        || TABLE.binary_search_by_key(&code, |row| row.0).is_ok_and(|at| TABLE.get(at).is_some_and(|row| row.1));
    if known { code } else { Code::UNKNOWN.0 }
}

use crate::CUresult;

/// The name of a result code, such as `CUDA_ERROR_INVALID_VALUE`.
pub fn result_name(code: i32) -> &'static str {
    describe(code).and_then(|(name, _)| name.to_str().ok()).unwrap_or("CUDA_ERROR_(unlisted)")
}

/// The text of a result code, as `cuGetErrorString` gives it.
pub fn result_text(code: i32) -> &'static str {
    describe(code).and_then(|(_, text)| text.to_str().ok()).unwrap_or("a result code that this version does not know")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes that cust_raw 0.11.3 declares, read off its source.
    const CUST_RAW: &[i32] = &[
        0, 1, 2, 3, 4, 5, 6, 7, 8, 34, 100, 101, 102, 200, 201, 202, 205, 206, 207, 208, 209, 210, 211, 212, 213, 214,
        215, 216, 217, 218, 219, 220, 221, 222, 223, 224, 300, 301, 302, 303, 304, 400, 401, 500, 600, 700, 701, 702,
        703, 704, 705, 708, 709, 710, 711, 712, 713, 714, 715, 716, 717, 718, 719, 720, 800, 801, 802, 803, 804, 805,
        806, 807, 808, 809, 900, 901, 902, 903, 904, 905, 906, 907, 908, 909, 910, 911, 999,
    ];

    #[test]
    fn clamps_exactly_what_callers_cannot_hold() {
        for code in -10..1100 {
            let expected = if CUST_RAW.contains(&code) { code } else { 999 };
            assert_eq!(clamp(code), expected, "code {code}");
        }
        assert_eq!(clamp(i32::MIN), 999);
        assert_eq!(clamp(i32::MAX), 999);
    }

    #[test]
    fn table_is_sorted_and_every_code_has_name_and_text() {
        assert!(TABLE.windows(2).all(|w| w[0].0 < w[1].0));
        for (code, _, name, text) in TABLE {
            assert!(name.to_bytes().starts_with(b"CUDA_ERROR_"), "{code}");
            assert!(!text.to_bytes().is_empty(), "{code}");
        }
        assert_eq!(result_name(0), "CUDA_SUCCESS");
        assert_eq!(result_name(719), "CUDA_ERROR_LAUNCH_FAILED");
        assert_eq!(result_text(2), "out of memory");
        assert_eq!(result_name(12345), "CUDA_ERROR_(unlisted)");
    }
}
