//! Initialisation, errors, devices, contexts, modules, functions, occupancy.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use super::{api, api_always};
use crate::software::functions::{context, device, function, link, module, occupancy};
use crate::types::*;

api_always! {
    rows always_rows;
    /// Chooses the engine: see the crate's documentation.
    [cuInit 2000] cuInit(flags: c_uint) => crate::engine::init;
    [cuDriverGetVersion 2020] cuDriverGetVersion(version: *mut c_int) => super::proc_address::version;
    [cuGetErrorString 6000] cuGetErrorString(error: CUresult, text: *mut *const c_char) => super::proc_address::error_string;
    [cuGetErrorName 6000] cuGetErrorName(error: CUresult, name: *mut *const c_char) => super::proc_address::error_name;
    [cuGetProcAddress 11030] cuGetProcAddress(
        symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: c_ulonglong,
    ) => super::lookup_v1;
    [cuGetProcAddress 12000] cuGetProcAddress_v2(
        symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: c_ulonglong, status: *mut c_int,
    ) => super::lookup_v2;
}

api! {
    rows control_rows;
    [cuDeviceGet 2000] cuDeviceGet(device: *mut CUdevice, ordinal: c_int) => device::get;
    [cuDeviceGetCount 2000] cuDeviceGetCount(count: *mut c_int) => device::count;
    [cuDeviceGetName 2000] cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice) => device::name;
    [cuDeviceGetUuid 9020] cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice) => device::uuid;
    [cuDeviceGetUuid 11040] cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) => device::uuid;
    [cuDeviceTotalMem 3020] cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) => device::total_memory;
    [cuDeviceGetAttribute 2000] cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice) => device::attribute;
    [cuDeviceGetProperties 2000] cuDeviceGetProperties(properties: *mut CUdevprop, device: CUdevice) => device::properties;
    [cuDeviceComputeCapability 2000] cuDeviceComputeCapability(
        major: *mut c_int, minor: *mut c_int, device: CUdevice,
    ) => device::compute_capability;
    [cuDeviceGetPCIBusId 4010] cuDeviceGetPCIBusId(id: *mut c_char, len: c_int, device: CUdevice) => device::pci_bus_id;
    [cuDeviceGetByPCIBusId 4010] cuDeviceGetByPCIBusId(device: *mut CUdevice, id: *const c_char) => device::by_pci_bus_id;
    [cuDeviceCanAccessPeer 4000] cuDeviceCanAccessPeer(
        can: *mut c_int, device: CUdevice, peer: CUdevice,
    ) => device::can_access_peer;
    [cuDeviceGetP2PAttribute 8000] cuDeviceGetP2PAttribute(
        value: *mut c_int, attribute: c_int, device: CUdevice, peer: CUdevice,
    ) => device::p2p_attribute;

    [cuDevicePrimaryCtxRetain 7000] cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) => context::primary_retain;
    [cuDevicePrimaryCtxRelease 11000] cuDevicePrimaryCtxRelease_v2(device: CUdevice) => context::primary_release;
    [cuDevicePrimaryCtxReset 11000] cuDevicePrimaryCtxReset_v2(device: CUdevice) => context::primary_reset;
    [cuDevicePrimaryCtxSetFlags 11000] cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) => context::primary_set_flags;
    [cuDevicePrimaryCtxGetState 7000] cuDevicePrimaryCtxGetState(
        device: CUdevice, flags: *mut c_uint, active: *mut c_int,
    ) => context::primary_state;

    [cuDevicePrimaryCtxRelease 7000] cuDevicePrimaryCtxRelease(device: CUdevice) => context::primary_release;
    [cuDevicePrimaryCtxReset 7000] cuDevicePrimaryCtxReset(device: CUdevice) => context::primary_reset;
    [cuDevicePrimaryCtxSetFlags 7000] cuDevicePrimaryCtxSetFlags(device: CUdevice, flags: c_uint) => context::primary_set_flags;
    [cuDeviceGetExecAffinitySupport 11040] cuDeviceGetExecAffinitySupport(
        supported: *mut c_int, kind: c_int, device: CUdevice,
    ) => context::affinity_support;

    [cuCtxCreate 2000] cuCtxCreate(context: *mut CUcontext, flags: c_uint, device: CUdevice) => context::create;
    [cuCtxDestroy 2000] cuCtxDestroy(context: CUcontext) => context::destroy;
    [cuCtxPushCurrent 2000] cuCtxPushCurrent(context: CUcontext) => context::push;
    [cuCtxPopCurrent 2000] cuCtxPopCurrent(context: *mut CUcontext) => context::pop;
    [cuCtxAttach 2000] cuCtxAttach(context: *mut CUcontext, flags: c_uint) => context::attach;
    [cuCtxDetach 2000] cuCtxDetach(context: CUcontext) => context::detach;
    [cuCtxGetDevice 13000] cuCtxGetDevice_v2(device: *mut CUdevice, context: CUcontext) => context::get_device_v2;
    [cuCtxSynchronize 13000] cuCtxSynchronize_v2(context: CUcontext) => context::synchronize_v2;
    [cuCtxSetFlags 12010] cuCtxSetFlags(flags: c_uint) => context::set_flags;
    [cuCtxGetExecAffinity 11040] cuCtxGetExecAffinity(affinity: *mut c_void, kind: c_int) => context::get_affinity;
    [cuCtxCreate 3020] cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) => context::create;
    [cuCtxCreate 11040] cuCtxCreate_v3(
        context: *mut CUcontext, affinity: *mut c_void, count: c_int, flags: c_uint, device: CUdevice,
    ) => context::create_v3;
    [cuCtxCreate 12050] cuCtxCreate_v4(
        context: *mut CUcontext, parameters: *mut c_void, flags: c_uint, device: CUdevice,
    ) => context::create_v4;
    [cuCtxDestroy 4000] cuCtxDestroy_v2(context: CUcontext) => context::destroy;
    [cuCtxPushCurrent 4000] cuCtxPushCurrent_v2(context: CUcontext) => context::push;
    [cuCtxPopCurrent 4000] cuCtxPopCurrent_v2(context: *mut CUcontext) => context::pop;
    [cuCtxSetCurrent 4000] cuCtxSetCurrent(context: CUcontext) => context::set_current;
    [cuCtxGetCurrent 4000] cuCtxGetCurrent(context: *mut CUcontext) => context::get_current;
    [cuCtxGetDevice 2000] cuCtxGetDevice(device: *mut CUdevice) => context::get_device;
    [cuCtxGetFlags 7000] cuCtxGetFlags(flags: *mut c_uint) => context::get_flags;
    [cuCtxGetId 12000] cuCtxGetId(context: CUcontext, id: *mut c_ulonglong) => context::get_id;
    [cuCtxSynchronize 2000] cuCtxSynchronize() => context::synchronize;
    [cuCtxSetLimit 3010] cuCtxSetLimit(limit: c_int, value: usize) => context::set_limit;
    [cuCtxGetLimit 3010] cuCtxGetLimit(value: *mut usize, limit: c_int) => context::get_limit;
    [cuCtxGetCacheConfig 3020] cuCtxGetCacheConfig(config: *mut c_int) => context::get_cache_config;
    [cuCtxSetCacheConfig 3020] cuCtxSetCacheConfig(config: c_int) => context::set_cache_config;
    [cuCtxGetSharedMemConfig 4020] cuCtxGetSharedMemConfig(config: *mut c_int) => context::get_shared_config;
    [cuCtxSetSharedMemConfig 4020] cuCtxSetSharedMemConfig(config: c_int) => context::set_shared_config;
    [cuCtxGetApiVersion 3020] cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint) => context::api_version;
    [cuCtxGetStreamPriorityRange 5050] cuCtxGetStreamPriorityRange(
        least: *mut c_int, greatest: *mut c_int,
    ) => context::priority_range;
    [cuCtxResetPersistingL2Cache 11000] cuCtxResetPersistingL2Cache() => context::reset_l2;
    [cuCtxEnablePeerAccess 4000] cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) => context::enable_peer;
    [cuCtxDisablePeerAccess 4000] cuCtxDisablePeerAccess(peer: CUcontext) => context::disable_peer;

    [cuModuleLoad 2000] cuModuleLoad(module: *mut CUmodule, path: *const c_char) => module::load_file;
    [cuModuleLoadData 2000] cuModuleLoadData(module: *mut CUmodule, image: *const c_void) => module::load_data;
    [cuModuleLoadDataEx 2010] cuModuleLoadDataEx(
        module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut c_int, values: *mut *mut c_void,
    ) => module::load_data_ex;
    [cuModuleLoadFatBinary 2000] cuModuleLoadFatBinary(module: *mut CUmodule, image: *const c_void) => module::load_data;
    [cuModuleUnload 2000] cuModuleUnload(module: CUmodule) => module::unload;
    [cuModuleGetFunction 2000] cuModuleGetFunction(
        function: *mut CUfunction, module: CUmodule, name: *const c_char,
    ) => module::get_function;
    [cuModuleGetFunctionCount 12040] cuModuleGetFunctionCount(count: *mut c_uint, module: CUmodule) => module::function_count;
    [cuModuleEnumerateFunctions 12040] cuModuleEnumerateFunctions(
        functions: *mut CUfunction, count: c_uint, module: CUmodule,
    ) => module::enumerate;
    [cuModuleGetLoadingMode 11070] cuModuleGetLoadingMode(mode: *mut c_int) => module::loading_mode;
    [cuModuleGetGlobal 3020] cuModuleGetGlobal_v2(
        address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char,
    ) => module::get_global;
    [cuLinkCreate 5050] cuLinkCreate(
        count: c_uint, options: *mut c_int, values: *mut *mut c_void, state: *mut CUlinkState,
    ) => link::create;
    [cuLinkAddData 5050] cuLinkAddData(
        state: CUlinkState, kind: c_int, data: *mut c_void, size: usize, name: *const c_char,
        count: c_uint, options: *mut c_int, values: *mut *mut c_void,
    ) => link::add_data;
    [cuLinkAddFile 5050] cuLinkAddFile(
        state: CUlinkState, kind: c_int, path: *const c_char, count: c_uint, options: *mut c_int, values: *mut *mut c_void,
    ) => link::add_file;
    [cuLinkCreate 6050] cuLinkCreate_v2(
        count: c_uint, options: *mut c_int, values: *mut *mut c_void, state: *mut CUlinkState,
    ) => link::create;
    [cuLinkAddData 6050] cuLinkAddData_v2(
        state: CUlinkState, kind: c_int, data: *mut c_void, size: usize, name: *const c_char,
        count: c_uint, options: *mut c_int, values: *mut *mut c_void,
    ) => link::add_data;
    [cuLinkAddFile 6050] cuLinkAddFile_v2(
        state: CUlinkState, kind: c_int, path: *const c_char, count: c_uint, options: *mut c_int, values: *mut *mut c_void,
    ) => link::add_file;
    [cuLinkComplete 5050] cuLinkComplete(
        state: CUlinkState, image: *mut *mut c_void, size: *mut usize,
    ) => link::complete;
    [cuLinkDestroy 5050] cuLinkDestroy(state: CUlinkState) => link::destroy;

    [cuFuncGetAttribute 2020] cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: CUfunction) => function::get_attribute;
    [cuFuncSetAttribute 9000] cuFuncSetAttribute(function: CUfunction, attribute: c_int, value: c_int) => function::set_attribute;
    [cuFuncSetCacheConfig 3000] cuFuncSetCacheConfig(function: CUfunction, config: c_int) => function::set_config;
    [cuFuncSetSharedMemConfig 4020] cuFuncSetSharedMemConfig(function: CUfunction, config: c_int) => function::set_config;
    [cuFuncGetModule 11000] cuFuncGetModule(module: *mut CUmodule, function: CUfunction) => function::get_module;
    [cuFuncGetName 12030] cuFuncGetName(name: *mut *const c_char, function: CUfunction) => function::get_name;
    [cuFuncGetParamInfo 12040] cuFuncGetParamInfo(
        function: CUfunction, index: usize, offset: *mut usize, size: *mut usize,
    ) => function::get_param_info;
    [cuFuncGetParamCount 13020] cuFuncGetParamCount(function: CUfunction, count: *mut usize) => function::get_param_count;
    [cuFuncIsLoaded 12040] cuFuncIsLoaded(loaded: *mut c_int, function: CUfunction) => function::is_loaded;
    [cuFuncLoad 12040] cuFuncLoad(function: CUfunction) => function::ensure_loaded;

    [cuOccupancyMaxActiveBlocksPerMultiprocessor 6050] cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, function: CUfunction, block_size: c_int, shared: usize,
    ) => occupancy::max_active_blocks;
    [cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags 7000] cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut c_int, function: CUfunction, block_size: c_int, shared: usize, flags: c_uint,
    ) => occupancy::max_active_blocks_with_flags;
    [cuOccupancyMaxPotentialBlockSize 6050] cuOccupancyMaxPotentialBlockSize(
        grid: *mut c_int, block: *mut c_int, function: CUfunction, shared_of_block: CUoccupancyB2DSize, shared: usize, limit: c_int,
    ) => occupancy::max_potential;
    [cuOccupancyMaxPotentialBlockSizeWithFlags 7000] cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut c_int, block: *mut c_int, function: CUfunction, shared_of_block: CUoccupancyB2DSize, shared: usize,
        limit: c_int, flags: c_uint,
    ) => occupancy::max_potential_with_flags;
    [cuOccupancyAvailableDynamicSMemPerBlock 10020] cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: *mut usize, function: CUfunction, blocks: c_int, block_size: c_int,
    ) => occupancy::available_shared;
    [cuOccupancyMaxActiveClusters 11070] cuOccupancyMaxActiveClusters(
        clusters: *mut c_int, function: CUfunction, config: *const LaunchConfig,
    ) => occupancy::max_active_clusters;
    [cuOccupancyMaxPotentialClusterSize 11070] cuOccupancyMaxPotentialClusterSize(
        size: *mut c_int, function: CUfunction, config: *const LaunchConfig,
    ) => occupancy::max_cluster_size;

    [cuProfilerStart 4000] cuProfilerStart() => context::profiler;
    [cuProfilerStop 4000] cuProfilerStop() => context::profiler;
}
