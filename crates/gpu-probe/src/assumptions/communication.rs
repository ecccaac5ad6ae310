//! Memory for NCCL and RDMA, as Genesis asks for it: what of it the driver grants.
//!
//! The attributes of a device promise kinds of handles that the driver may refuse when memory is
//! created, to a process without an IMEX channel for one. Genesis then makes memory without.

use std::ptr::null_mut;

use genesis::base::Status;
use genesis::ffi::allocation::{genesis_free, genesis_malloc};
use genesis::ffi::communication_pools::{
    PoolCommunication, genesis_private_pool_communication_create,
    genesis_private_pool_communication_get,
};
use genesis::ffi::private_pools::{
    PoolId, genesis_private_pool_begin, genesis_private_pool_end, genesis_private_pool_release,
};

use super::{Bench, Outcome, Tried};

const POOL: PoolId = PoolId { first: 0, second: u64::MAX };
const BYTES: usize = 5 << 20;
const BY_FILE_DESCRIPTOR: i32 = 1;
const OVER_A_FABRIC: i32 = 8;

/// Is it at least shareable within the machine?
pub(super) fn made(_bench: &Bench) -> Tried {
    let done = |status: Status| match status {
        Status::Success => Ok(()),
        other => Err(format!("a pool for communication: {other:?}")),
    };
    // SAFETY: there is no registrar.
    done(unsafe { genesis_private_pool_communication_create(0, POOL, std::ptr::null()) })?;
    done(genesis_private_pool_begin(0, POOL))?;
    let block = genesis_malloc(BYTES, 0, null_mut());
    done(genesis_private_pool_end(0, POOL))?;
    let mut made =
        PoolCommunication { granularity_bytes: 0, handle_types: 0, is_rdma: 0, peer_count: 0 };
    // SAFETY: `made` is live.
    done(unsafe { genesis_private_pool_communication_get(0, POOL, &mut made) })?;
    genesis_free(block, BYTES, 0, null_mut());
    done(genesis_private_pool_release(0, POOL))?;
    done(genesis_private_pool_release(0, POOL))?;
    let has = |kind: i32| if made.handle_types & kind == 0 { "not " } else { "" };
    let seen = format!(
        "of {} KiB; {}by file descriptor, {}over a fabric, {}for RDMA; {} peers",
        made.granularity_bytes >> 10,
        has(BY_FILE_DESCRIPTOR),
        has(OVER_A_FABRIC),
        if made.is_rdma == 0 { "not " } else { "" },
        made.peer_count
    );
    Ok(Outcome::new(!block.is_null() && made.handle_types & BY_FILE_DESCRIPTOR != 0, seen))
}
