//! What a worker pauses and resumes: its tag, with its pools and its graphs, and blocks that have
//! their memory to themselves.

use genesis::base::{Backup, Status};
use genesis::heap::Keeping;

use super::{Live, Worker};
use crate::operation::Kept;

impl Worker {
    /// Pauses the worker's own tag. Another worker may be about its own at the moment.
    pub(super) fn pause(&mut self, kept: Kept, version: Option<u64>) {
        let backup = match kept {
            Kept::AsAllocated => None,
            Kept::None => Some(Backup::None),
            Kept::Pageable => Some(Backup::Pageable),
            Kept::Pinned => Some(Backup::Pinned),
            Kept::Disk => Some(Backup::Disk),
        };
        match self.rig.heap.pause_tags(Some(&self.tag), Keeping { backup, version }) {
            Ok(()) => {
                self.captured.iter_mut().for_each(|captured| captured.set_paused(true));
                // The pools of graphs have the tag, too.
                let is_pooled = |live: &Live| live.is_pooled || live.is_captured;
                let goes =
                    |live: &&mut Live| (live.is_tagged || is_pooled(live)) && !live.is_paused;
                for live in self.live.iter_mut().filter(goes) {
                    live.is_paused = true;
                    // Tags are begun with none, and the pool has one.
                    live.is_kept = match kept {
                        Kept::AsAllocated => is_pooled(live),
                        _ => kept != Kept::None,
                    };
                    self.oracle.pause(live.device as usize, live.allocated_bytes);
                }
            }
            // It has not been used yet.
            Err(error) if error.status == Status::InvalidArgument => {}
            Err(error) if error.status == Status::NotSupported => self.assert_not_elastic(),
            Err(error) => assert!(self.may_be_busy(error.status), "{error}"),
        }
    }

    /// Resumes it, if there is enough memory.
    pub(super) fn resume(&mut self) {
        match self.rig.heap.resume(&self.tag) {
            Ok(()) => {
                self.captured.iter_mut().for_each(|captured| captured.set_paused(false));
                for index in 0..self.live.len() {
                    self.come_back(index);
                }
            }
            Err(error) if error.status == Status::InvalidArgument => {}
            Err(error) if error.status == Status::OutOfMemory => {}
            Err(error) if error.status == Status::NotSupported => self.assert_not_elastic(),
            Err(error) => assert!(self.may_be_busy(error.status), "{error}"),
        }
    }

    /// The block has its memory again, with its contents or without.
    fn come_back(&mut self, index: usize) {
        let live = &mut self.live[index];
        if !live.is_paused {
            return;
        }
        live.is_paused = false;
        let live = *live;
        self.oracle.resume(live.device as usize, live.allocated_bytes);
        if live.is_kept { self.check_mark(&live.filled()) } else { self.write_mark(&live.filled()) }
    }

    /// Pauses a block, which it is if it has its memory to itself; others may.
    pub(super) fn pause_block(&mut self, which: u64) {
        let Some(index) = self.pick(which) else { return };
        let live = self.live[index];
        match self.rig.heap.pause_block(live.address) {
            Ok(()) if live.is_paused => {}
            Ok(()) => {
                assert!(live.is_tagged, "{live:?}");
                self.live[index].is_paused = true;
                self.live[index].is_kept = false;
                self.oracle.pause(live.device as usize, live.allocated_bytes);
            }
            Err(error) if error.status == Status::InvalidArgument => {
                assert!(!live.is_alone, "{error}");
            }
            Err(error) if error.status == Status::NotSupported => self.assert_not_elastic(),
            Err(error) => assert!(self.may_be_busy(error.status), "{error}"),
        }
    }

    /// Resumes one of the paused blocks whose memory is only theirs.
    pub(super) fn resume_block(&mut self) {
        let is_away = |live: &Live| live.is_alone && live.is_paused;
        let Some(index) = self.live.iter().position(is_away) else { return };
        match self.rig.heap.resume_block(self.live[index].address) {
            Ok(()) => self.come_back(index),
            Err(error) if error.status == Status::OutOfMemory => {}
            Err(error) => assert!(self.may_be_busy(error.status), "{error}"),
        }
    }

    pub(super) fn assert_not_elastic(&self) {
        assert!(!self.is_elastic());
    }
}
