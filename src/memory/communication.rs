//! Memory that other devices, processes and network cards reach by its address: buffers of NCCL and
//! RDMA.
//!
//! It is made as NCCL's `ncclMemAlloc` makes it: handles that can be shared by file descriptor and
//! over a fabric, without the fabric if the driver refuses that, for GPUDirect RDMA if the device
//! can; sizes are multiples of the recommended granularity; every device of the process that can
//! access the memory may. A [`Registrar`] learns of each mapping, before it is used and before it
//! goes.

use std::fmt::Debug;
use std::sync::Arc;

use crate::base::DeviceOrdinal;
use crate::driver::{Code, Device, HandleOptions, Handles, Result, Shareable};

/// Registers mappings with whoever reaches the memory by address. Any thread may call it, with no
/// lock held; it must not allocate from the pool that it serves.
pub trait Registrar: Debug + Send + Sync {
    /// `[address, address + bytes)` is mapped and accessible. Returns false if it cannot be
    /// registered; then it is unmapped, and what needed it fails.
    fn register(&self, address: u64, bytes: u64) -> bool;

    /// Memory that was registered is about to be unmapped; no work on it is under way.
    fn deregister(&self, address: u64, bytes: u64);
}

/// How such memory of one device is made.
#[derive(Debug)]
pub struct Communication {
    handles: Handles,
    peers: Vec<DeviceOrdinal>,
    registrar: Option<Arc<dyn Registrar>>,
}

impl Communication {
    /// Memory of the device behind `driver`. `NOT_SUPPORTED` without virtual memory management.
    pub fn open(driver: &Arc<dyn Device>, registrar: Option<Arc<dyn Registrar>>) -> Result<Self> {
        let wished = HandleOptions { shareable: Shareable::PosixFdOrFabric, rdma: true };
        let handles = Handles::open_recommended(Arc::clone(driver), wished)?;
        Ok(Self { handles, peers: all_peers(&**driver)?, registrar })
    }

    /// What makes its handles.
    pub fn handles(&self) -> &Handles {
        &self.handles
    }

    /// The other devices that may access it.
    pub fn peers(&self) -> &[DeviceOrdinal] {
        &self.peers
    }

    pub(super) fn register(&self, address: u64, bytes: u64) -> bool {
        self.registrar.as_ref().is_none_or(|registrar| registrar.register(address, bytes))
    }

    pub(super) fn deregister(&self, address: u64, bytes: u64) {
        if let Some(registrar) = &self.registrar {
            registrar.deregister(address, bytes);
        }
    }
}

/// The other devices of the process that can access memory of `driver`'s.
fn all_peers(driver: &dyn Device) -> Result<Vec<DeviceOrdinal>> {
    let mut peers = Vec::new();
    for peer in (0..).map(DeviceOrdinal).filter(|&peer| peer != driver.ordinal()) {
        match driver.can_access_peer(peer) {
            Ok(true) => peers.push(peer),
            Ok(false) => {}
            Err(error) if error.code == Code::INVALID_DEVICE => break,
            Err(error) => return Err(error),
        }
    }
    Ok(peers)
}
