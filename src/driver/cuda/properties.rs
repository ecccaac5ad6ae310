//! The properties with which memory is requested, in the types of `cuda.h`.

use std::ffi::c_int;

use cudarc::driver::sys;

use crate::base::DeviceOrdinal;
use crate::driver::{HandleOptions, Shareable};

/// `CU_MEM_HANDLE_TYPE_FABRIC`, in `cuda.h` from CUDA 12.3 on; older drivers refuse it.
const HANDLE_TYPE_FABRIC: sys::CUmemAllocationHandleType = sys::CUmemAllocationHandleType(8);

/// The types are bits of a set.
const HANDLE_TYPE_POSIX_OR_FABRIC: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType(1 | HANDLE_TYPE_FABRIC.0);

/// Physical memory of a device, with `options`.
pub fn properties(ordinal: DeviceOrdinal, options: HandleOptions) -> sys::CUmemAllocationProp {
    use sys::CUmemAllocationHandleType as HandleType;
    let handle_type = match options.shareable {
        Shareable::None => HandleType::CU_MEM_HANDLE_TYPE_NONE,
        Shareable::PosixFd => HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        Shareable::Fabric => HANDLE_TYPE_FABRIC,
        Shareable::PosixFdOrFabric => HANDLE_TYPE_POSIX_OR_FABRIC,
    };
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: handle_type,
        location: location(ordinal),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: options.rdma.into(),
            usage: 0,
            reserved: [0; 4],
        },
    }
}

/// Access of one device: reading and writing.
pub fn access(ordinal: DeviceOrdinal) -> sys::CUmemAccessDesc {
    sys::CUmemAccessDesc {
        location: location(ordinal),
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    }
}

fn location(ordinal: DeviceOrdinal) -> sys::CUmemLocation {
    sys::CUmemLocation {
        type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: ordinal.0 as c_int,
    }
}
