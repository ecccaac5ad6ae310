//! Private pools whose memory others reach by its address: NCCL, RDMA.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::private_pools::PoolId;
use super::{boundary, ordinal, pointer, write_required};
use crate::base::{Error, Status};
use crate::driver::Shareable;
use crate::heap::{Communication, PoolOptions, Registrar};
use crate::instance;

/// Called when `[ptr, ptr + bytes)` of `device` is mapped and can be accessed. Returns 0, or anything
/// else if it cannot be registered: then it is unmapped, and the request or resume that needed it
/// fails. It must neither throw nor allocate from the pool.
#[allow(non_camel_case_types)]
pub type genesis_pool_map = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        device: c_int,
        ptr: *mut c_void,
        bytes: usize,
    ) -> c_int,
>;

/// Called before memory for which `genesis_pool_map` has returned 0 is unmapped; no work that uses it
/// is under way. It must not throw.
#[allow(non_camel_case_types)]
pub type genesis_pool_unmap = Option<
    unsafe extern "C" fn(user_data: *mut c_void, device: c_int, ptr: *mut c_void, bytes: usize),
>;

/// With whom the memory of a pool is registered. Any thread may call the functions, and as long as
/// the process lives.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolRegistrar {
    /// Passed to both functions.
    pub user_data: *mut c_void,
    /// Registers memory.
    pub map: genesis_pool_map,
    /// Ends a registration.
    pub unmap: genesis_pool_unmap,
}

/// How the memory of a pool for communication is made.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolCommunication {
    /// Blocks are multiples of so many bytes: the driver's recommended granularity.
    pub granularity_bytes: usize,
    /// How handles can be shared, bits of a `CUmemAllocationHandleType`: 1 by file descriptor, 8 over
    /// a fabric. Fewer once the driver has refused one.
    pub handle_types: c_int,
    /// 1 if network cards can reach the memory (GPUDirect RDMA), otherwise 0.
    pub is_rdma: c_int,
    /// How many other devices of the process can access it.
    pub peer_count: usize,
}

impl From<&Communication> for PoolCommunication {
    fn from(communication: &Communication) -> Self {
        let options = communication.handles().options();
        Self {
            granularity_bytes: communication.handles().granularity_bytes() as usize,
            handle_types: match options.shareable {
                Shareable::None => 0,
                Shareable::PosixFd => 1,
                Shareable::Fabric => 8,
                Shareable::PosixFdOrFabric => 9,
            },
            is_rdma: options.rdma.into(),
            peer_count: communication.peers().len(),
        }
    }
}

/// A registrar whose functions are there.
#[derive(Debug)]
struct Functions {
    device: c_int,
    user_data: *mut c_void,
    map: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, usize) -> c_int,
    unmap: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, usize),
}

// SAFETY: the pointer is only passed on, to functions that any thread may call with it.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

impl Registrar for Functions {
    fn register(&self, address: u64, bytes: u64) -> bool {
        let Self { device, user_data, .. } = *self;
        // SAFETY: the contract of `genesis_private_pool_communication_create`.
        unsafe { (self.map)(user_data, device, pointer(address), bytes as usize) == 0 }
    }

    fn deregister(&self, address: u64, bytes: u64) {
        let Self { device, user_data, .. } = *self;
        // SAFETY: as above.
        unsafe { (self.unmap)(user_data, device, pointer(address), bytes as usize) }
    }
}

/// Makes a private pool of `device` for buffers of NCCL or RDMA, and counts a use of it, like
/// `genesis_private_pool_hold`.
///
/// Each block is one handle of the driver, made as `ncclMemAlloc` makes it: shareable by file
/// descriptor and over a fabric, without the fabric where the driver refuses that; for GPUDirect RDMA
/// if the device can; of the recommended granularity; accessible to every device of the process that
/// can access it. As long as the pool is held a block stays where it is, free ones too, and nobody
/// else gets its memory. Processes that make the same requests of it in the same order on one stream
/// get blocks at the same offsets from its first block; a request waits for the device if a freed
/// block is still used by other streams. While a stream is captured it does not wait.
///
/// If `registrar` is not NULL it is called when memory is mapped and unmapped, also when its tag
/// (`genesis_private_pool_tag_set`) is resumed and paused.
///
/// Returns `GENESIS_STATUS_INVALID_ARGUMENT` if the pool is held, or if a function of the registrar is
/// NULL; `GENESIS_STATUS_NOT_SUPPORTED` under strategies other than Elastic, and without virtual
/// memory management.
///
/// # Safety
/// `registrar` is NULL or points to a registrar, whose functions and user data stay valid as long as
/// the process lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_private_pool_communication_create(
    device: c_int,
    pool: PoolId,
    registrar: *const PoolRegistrar,
) -> Status {
    boundary::demanding(|| {
        // SAFETY: null, or a registrar, by the caller's contract.
        let registrar = match unsafe { registrar.as_ref() } {
            Some(&PoolRegistrar { user_data, map: Some(map), unmap: Some(unmap) }) => {
                Some(Arc::new(Functions { device, user_data, map, unmap }) as Arc<dyn Registrar>)
            }
            Some(_) => {
                return Err(Error::invalid_argument("a function of the pool's registrar is null"));
            }
            None => None,
        };
        let options = PoolOptions { communicates: true, registrar, ..PoolOptions::default() };
        instance::heap()?.create_pool(ordinal(device)?, pool.into(), options)
    })
}

/// Writes to `communication` how the memory of a pool is made that
/// `genesis_private_pool_communication_create` has made. Any thread, at any time.
///
/// Returns `GENESIS_STATUS_INVALID_ARGUMENT` for any other pool.
///
/// # Safety
/// `communication` is NULL, which is an error, or points to a writable `genesis_pool_communication`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_private_pool_communication_get(
    device: c_int,
    pool: PoolId,
    communication: *mut PoolCommunication,
) -> Status {
    let get = || {
        let found = instance::heap()?.pool_communication(ordinal(device)?, pool.into())?;
        let other = || {
            let PoolId { first, second } = pool;
            Error::invalid_argument(format!(
                "the private pool ({first}, {second}) is none for communication"
            ))
        };
        found.as_deref().map(PoolCommunication::from).ok_or_else(other)
    };
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(communication, get) })
}
