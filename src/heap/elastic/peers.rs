//! Peers: other devices that may access what is mapped of one.
//!
//! Memory of `cuMemCreate` is not reached by `cuCtxEnablePeerAccess`: each mapping names who may
//! access it. So a peer is told to `memory::Pages`, which names it with all mappings it makes
//! from then on, and gives it those that are there.

use super::super::Heap;
use crate::base::{DeviceOrdinal, Error, Result, Status};

impl Heap {
    /// From now on `peer` can access all memory of `device`: what is held, live or cached, and
    /// what will be. Does nothing if it can already, and for a device and itself.
    ///
    /// `NotSupported` under other strategies than Elastic, on a device without virtual memory
    /// management, and where the driver knows no way from `peer` to `device`; `Busy` while
    /// another thread enables a peer, pauses or resumes. After a failure of the driver the peer
    /// is not enabled, though it may reach a part of what is held.
    pub fn enable_peer_access(&self, device: DeviceOrdinal, peer: DeviceOrdinal) -> Result<()> {
        self.require_elastic()?;
        let accessing = self.slot(peer)?;
        let held = self.device(device)?;
        if device == peer {
            return Ok(());
        }
        let not_supported = |what: &str| {
            let message = format!("device {device} cannot be accessed by device {peer}: {what}");
            Error::new(Status::NotSupported, message)
        };
        let Some(pages) = &held.pages else {
            return Err(not_supported("it has no virtual memory management"));
        };
        let _transition = self.tags.begin_transition()?;
        if !accessing.driver.can_access_peer(device)? {
            return Err(not_supported("the driver knows no way"));
        }
        Ok(pages.add_peer(peer)?)
    }
}
