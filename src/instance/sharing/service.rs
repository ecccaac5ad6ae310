//! The exporting side: the blocks that other processes may import, and which of them have what.
//!
//! **Invariant**: a share is held once for each of its tokens and once for each use by a line, and
//! is in the table while it is held. **Locks**: the table's, never held while the heap is called.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use once_cell::sync::OnceCell;

use super::handle::{BlockHandle, ServiceId, door};
use super::wire::{Request, send_answer};
use crate::base::{Error, Result, Status};
use crate::heap::{ShareId, SharedBlock};
use crate::instance;
use crate::process::{Door, Line, random_bytes, starting_threads};

/// How long an importing process may take to read an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The service of the process, from the first export on.
static SERVICE: OnceCell<ServiceId> = OnceCell::new();
static EXPORTS: Mutex<Option<HashMap<ShareId, Export>>> = Mutex::new(None);
static LAST_TOKEN: AtomicU64 = AtomicU64::new(0);

/// A block that other processes may import.
#[derive(Debug)]
struct Export {
    block: SharedBlock,
    /// Those of handles that nobody has imported or discarded.
    tokens: HashSet<u64>,
}

/// Returns true if this process made the handle.
pub(super) fn is_own(handle: &BlockHandle) -> bool {
    SERVICE.get() == Some(&handle.service)
}

/// Exports the block that starts at `address`.
pub(super) fn export(address: u64) -> Result<BlockHandle> {
    let heap = instance::heap()?;
    let service = *SERVICE.get_or_try_init(start)?;
    let block = heap.share(address)?;
    if let Err(error) = heap.check_sendable(&block) {
        heap.unshare(address, block.id)?;
        return Err(error);
    }
    let token = LAST_TOKEN.fetch_add(1, Relaxed) + 1;
    let new = || Export { block, tokens: HashSet::new() };
    exports().get_or_insert_default().entry(block.id).or_insert_with(new).tokens.insert(token);
    let (process, device) = (std::process::id(), block.device.0);
    Ok(BlockHandle { service, share: block.id, bytes: block.bytes, token, process, device })
}

/// Makes the hold of a handle the caller's; if the handle was used before, holds once more.
pub(super) fn claim(handle: &BlockHandle) -> Result<SharedBlock> {
    claim_share(handle.share, handle.token, handle.bytes).ok_or_else(|| handle.gone())
}

fn claim_share(share: ShareId, token: u64, bytes: u64) -> Option<SharedBlock> {
    let (block, is_first) = {
        let mut exports = exports();
        let export = exports.as_mut()?.get_mut(&share)?;
        if export.block.bytes != bytes {
            return None;
        }
        (export.block, export.tokens.remove(&token))
    };
    let heap = instance::heap().ok()?;
    (is_first || heap.share_again(block.address, share)).then_some(block)
}

/// Ends one hold of a share.
pub(super) fn release(share: ShareId) -> Result<()> {
    let block = exports().as_ref().and_then(|all| all.get(&share)).map(|export| export.block);
    let Some(block) = block else { return Ok(()) };
    // An error is the driver's, and the share is over all the same.
    let released = instance::heap()?.unshare(block.address, share);
    if !matches!(released, Ok(false))
        && let Some(all) = exports().as_mut()
    {
        all.remove(&share);
    }
    released.map(|_| ())
}

/// Ends the hold of a handle that was not used; does nothing for any other.
pub(super) fn discard(handle: &BlockHandle) -> Result<()> {
    discard_token(handle.share, handle.token)
}

fn discard_token(share: ShareId, token: u64) -> Result<()> {
    let is_unused = exports()
        .as_mut()
        .and_then(|all| all.get_mut(&share))
        .is_some_and(|export| export.tokens.remove(&token));
    if is_unused { release(share) } else { Ok(()) }
}

fn exports() -> MutexGuard<'static, Option<HashMap<ShareId, Export>>> {
    EXPORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the door and starts the thread behind it.
fn start() -> Result<ServiceId> {
    let failed = |what: &str, error: std::io::Error| {
        let message = format!("blocks cannot be exported: {what}: {error}");
        Error::new(Status::NotSupported, message)
    };
    let service: ServiceId = random_bytes().map_err(|error| failed("no random number", error))?;
    let door = Door::open(&door(&service)).map_err(|error| failed("no socket", error))?;
    let builder = thread::Builder::new().name("genesis-export".into());
    let started = starting_threads(|| builder.spawn(move || serve_all(&door)));
    started.map_err(|error| failed("no thread", error))?;
    Ok(service)
}

/// Serves every process that connects, each in a thread.
fn serve_all(door: &Door) {
    loop {
        let Ok(mut line) = door.accept() else {
            // Too many descriptors, a foreign user, or a connection that ended: the next may work.
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        line.limit(PATIENCE, false);
        // A thread that cannot be started ends the line; the other process sees that.
        let _ = thread::Builder::new().name("genesis-export".into()).spawn(move || serve(&line));
    }
}

/// Serves one process until it closes its line or ends, which releases all that it holds.
fn serve(line: &Line) {
    let mut held: HashMap<ShareId, u64> = HashMap::new();
    while let Ok(request) = Request::receive(line) {
        // An importer that does not read its answer in time gives the line up, but still has what
        // it has mapped: only the line's end releases that.
        let _ = match request {
            Request::Import(share, token, bytes) => {
                let claimed = claim_share(share, token, bytes).ok_or_else(not_there);
                let sent = claimed.and_then(|block| {
                    *held.entry(share).or_default() += 1;
                    instance::heap()?.send(&block).inspect_err(|_| end_one(&mut held, share))
                });
                send_answer(line, &sent.map(Some))
            }
            Request::Release(share) => {
                end_one(&mut held, share);
                Ok(())
            }
            Request::Discard(share, token) => {
                send_answer(line, &discard_token(share, token).map(|()| None))
            }
        };
    }
    for (share, count) in held {
        // Errors are the driver's, at the end of the process.
        (0..count).for_each(|_| drop(release(share)));
    }
}

/// Ends one use by a line, if it has one.
fn end_one(held: &mut HashMap<ShareId, u64>, share: ShareId) {
    if let Some(count) = held.get_mut(&share).filter(|count| **count > 0) {
        *count -= 1;
        // As at the end of the line.
        let _ = release(share);
    }
}

fn not_there() -> Error {
    Error::new(Status::DoubleFree, "no such share")
}
