//! One capacity for all processes that have the same devices: a file of who holds how much.
//!
//! A real device counts the memory of all processes together, and memory that several have once.
//! So do machines whose configurations name the same file. Each cell of its table is a *holding*:
//!
//! | word | of the head, cell 0 | of a holding |
//! |---|---|---|
//! | 0 | `TABLE` | the device + 1; 0: vacant |
//! | 1 | a random number | bytes |
//! | 2 | the last cell ever used | a random number |
//!
//! A machine has a holding for each device, of what only it can hold, and one for each piece of
//! memory that was made to be shared. A holding counts while any machine has its byte of the file
//! locked. So a piece counts until the last one lets go of it, and the kernel ends the holdings of
//! a process that dies. A piece that only a descriptor on its way keeps alive counts for nobody; who
//! imports it then has a holding of its own.
//!
//! **Locks**: byte 0 of the file, while cells are summed and changed.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::shared::{CELLS, HEAD, Piece, TABLE_BYTES, Table, random_number};
use crate::code::{Code, Result};

/// What all machines of one file hold, as one of them sees it.
#[derive(Debug)]
pub(crate) struct Common {
    table: Table,
    nonce: u64,
    /// By device: the holding of what only this machine can hold.
    own: Vec<u32>,
    /// The pieces that this machine holds, by cell.
    pieces: BTreeMap<u32, Held>,
}

/// How a machine holds a piece.
#[derive(Clone, Copy, Debug)]
struct Held {
    number: u64,
    times: u64,
}

impl Common {
    /// Joins the machines of the file at `path`, which is made if it is not there.
    pub(crate) fn open(path: &Path, devices: u32) -> Result<Self> {
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = open.and_then(|file| file.set_len(TABLE_BYTES).map(|()| file));
        let table = Table::map(file.map_err(|_| Code::OUT_OF_MEMORY)?.into())?;
        let mut common = Self { table, nonce: 0, own: Vec::new(), pieces: BTreeMap::new() };
        common.table.lock_head()?;
        let joined = common.join(devices);
        common.table.unlock(HEAD);
        joined.map(|()| common)
    }

    fn join(&mut self, devices: u32) -> Result<()> {
        if !self.table.is_made() {
            self.table.make(random_number()?);
        }
        self.nonce = self.table.nonce();
        self.own = (0..devices).map(|device| self.add(device, 0)).collect::<Result<_>>()?;
        Ok(())
    }

    /// Counts `bytes` more of `device`. `OUT_OF_MEMORY` if all machines would then hold more than
    /// `available_bytes`.
    pub(crate) fn take(&mut self, device: u32, bytes: u64, available_bytes: u64) -> Result<()> {
        self.locked(|common| {
            let held_bytes = common.sum(device);
            if bytes > available_bytes.saturating_sub(held_bytes) {
                return Err(Code::OUT_OF_MEMORY);
            }
            common.own_bytes(device).fetch_add(bytes, Ordering::AcqRel);
            Ok(())
        })
    }

    /// Undoes [`Self::take`].
    pub(crate) fn give(&self, device: u32, bytes: u64) {
        self.own_bytes(device).fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Makes `bytes` that were taken a piece of their own, which other machines can hold too.
    pub(crate) fn set_apart(&mut self, device: u32, bytes: u64) -> Result<Piece> {
        self.locked(|common| {
            let piece = common.add_piece(device, bytes)?;
            common.give(device, bytes);
            Ok(piece)
        })
    }

    /// Holds a piece of `bytes` that another machine, or this one, set apart. One of machines with
    /// another file counts there alone.
    pub(crate) fn hold(&mut self, piece: Piece, device: u32, bytes: u64) -> Result<Option<Piece>> {
        if piece.nonce != self.nonce {
            return Ok(None);
        }
        let held = self.pieces.get_mut(&piece.cell).filter(|held| held.number == piece.number);
        if let Some(held) = held {
            held.times += 1;
            return Ok(Some(piece));
        }
        let held = self.locked(|common| {
            if !common.is_of_others(piece) {
                return common.add_piece(device, bytes);
            }
            common.table.lock(piece.cell)?;
            common.pieces.insert(piece.cell, Held { number: piece.number, times: 1 });
            Ok(piece)
        });
        held.map(Some)
    }

    /// Undoes one [`Self::hold`], or [`Self::set_apart`] with its bytes.
    pub(crate) fn let_go(&mut self, piece: Piece) {
        let Some(held) = self.pieces.get_mut(&piece.cell) else { return };
        held.times -= 1;
        if held.times == 0 {
            self.pieces.remove(&piece.cell);
            self.table.unlock(piece.cell);
        }
    }

    /// What all machines together hold of `device`, in bytes.
    pub(crate) fn held_bytes(&mut self, device: u32) -> Result<u64> {
        self.locked(|common| Ok(common.sum(device)))
    }

    /// What only this machine can hold of `device`, in bytes.
    pub(crate) fn private_bytes(&self, device: u32) -> u64 {
        self.own_bytes(device).load(Ordering::Acquire)
    }

    fn locked<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.table.lock_head()?;
        let result = act(self);
        self.table.unlock(HEAD);
        result
    }

    fn own_bytes(&self, device: u32) -> &AtomicU64 {
        self.table.word(self.own.get(device as usize).copied().unwrap_or(HEAD), 1)
    }

    /// The sum of the holdings of `device`; those of nobody are vacant from now on.
    fn sum(&self, device: u32) -> u64 {
        let mut bytes = 0;
        for cell in 1..=self.last().load(Ordering::Acquire) as u32 {
            if self.device_of(cell) == u64::from(device) + 1 {
                if self.is_held(cell) {
                    bytes += self.table.word(cell, 1).load(Ordering::Acquire);
                } else {
                    self.table.word(cell, 0).store(0, Ordering::Release);
                }
            }
        }
        bytes
    }

    fn add_piece(&mut self, device: u32, bytes: u64) -> Result<Piece> {
        let (cell, number) = (self.add(device, bytes)?, random_number()?);
        self.table.word(cell, 2).store(number, Ordering::Release);
        self.pieces.insert(cell, Held { number, times: 1 });
        Ok(Piece { nonce: self.nonce, cell, number })
    }

    /// A holding of this machine, in a cell that nobody holds.
    fn add(&self, device: u32, bytes: u64) -> Result<u32> {
        let last = self.last().load(Ordering::Acquire) as u32;
        let vacant = (1..=last).find(|&cell| self.device_of(cell) == 0 && !self.is_held(cell));
        let cell = vacant.unwrap_or(last + 1);
        if cell >= CELLS {
            return Err(Code::OUT_OF_MEMORY);
        }
        self.table.lock(cell)?;
        self.table.word(cell, 1).store(bytes, Ordering::Release);
        self.table.word(cell, 0).store(u64::from(device) + 1, Ordering::Release);
        self.last().fetch_max(u64::from(cell), Ordering::AcqRel);
        Ok(cell)
    }

    /// Returns true if another machine holds the piece, and it alone.
    fn is_of_others(&self, piece: Piece) -> bool {
        let number = self.table.word(piece.cell, 2).load(Ordering::Acquire);
        number == piece.number
            && self.device_of(piece.cell) != 0
            && self.table.is_locked_elsewhere(piece.cell)
    }

    fn is_held(&self, cell: u32) -> bool {
        self.own.contains(&cell)
            || self.pieces.contains_key(&cell)
            || self.table.is_locked_elsewhere(cell)
    }

    fn device_of(&self, cell: u32) -> u64 {
        self.table.word(cell, 0).load(Ordering::Acquire)
    }

    fn last(&self) -> &AtomicU64 {
        self.table.word(HEAD, 2)
    }
}
