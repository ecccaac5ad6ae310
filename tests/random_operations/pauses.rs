//! What a worker pauses and resumes: its tag, with its pool, and blocks that have their memory to
//! themselves.

use genesis::base::{Backup, Status};
use genesis::heap::Keeping;

use super::{Live, Worker};

impl Worker {
    /// Pauses the worker's own tag. Another worker may be about its own at the moment.
    pub(super) fn pause(&mut self) {
        let backup = match self.random.below(16) {
            0 => Some(Backup::Disk),
            1..5 => Some(Backup::Pinned),
            5..9 => Some(Backup::Pageable),
            9..13 => Some(Backup::None),
            _ => None,
        };
        let version = (self.random.below(4) == 0).then(|| 1 + self.random.below(2));
        match self.rig.heap.pause_tags(Some(&self.tag), Keeping { backup, version }) {
            Ok(()) => {
                let goes = |live: &&mut Live| (live.is_tagged || live.is_pooled) && !live.is_paused;
                for live in self.live.iter_mut().filter(goes) {
                    live.is_paused = true;
                    self.oracle.pause(live.device as usize, live.allocated_bytes);
                }
            }
            // It has not been used yet.
            Err(error) if error.status == Status::InvalidArgument => {}
            Err(error) if error.status == Status::NotSupported => self.assert_not_elastic(),
            Err(error) => assert!(self.is_beside_others(error.status), "{error}"),
        }
    }

    /// Resumes it, if there is enough memory.
    pub(super) fn resume(&mut self) {
        match self.rig.heap.resume(&self.tag) {
            Ok(()) => {
                for live in self.live.iter_mut().filter(|live| live.is_paused) {
                    live.is_paused = false;
                    self.oracle.resume(live.device as usize, live.allocated_bytes);
                }
            }
            Err(error) if error.status == Status::InvalidArgument => {}
            Err(error) if error.status == Status::OutOfMemory => {}
            Err(error) if error.status == Status::NotSupported => self.assert_not_elastic(),
            Err(error) => assert!(self.is_beside_others(error.status), "{error}"),
        }
    }

    /// Pauses a block, which it is if it has its memory to itself; others may.
    pub(super) fn pause_block(&mut self) {
        let Some(index) = self.pick_live() else { return };
        let live = self.live[index];
        match self.rig.heap.pause_block(live.address) {
            Ok(()) if live.is_paused => {}
            Ok(()) => {
                assert!(live.is_tagged, "{live:?}");
                self.live[index].is_paused = true;
                self.oracle.pause(live.device as usize, live.allocated_bytes);
            }
            Err(error) if error.status == Status::InvalidArgument => {
                assert!(!live.is_alone, "{error}");
            }
            Err(error) if error.status == Status::NotSupported => self.assert_not_elastic(),
            Err(error) => assert!(self.is_beside_others(error.status), "{error}"),
        }
    }

    /// Resumes one of the paused blocks whose memory is only theirs.
    pub(super) fn resume_block(&mut self) {
        let is_away = |live: &Live| live.is_alone && live.is_paused;
        let Some(index) = self.live.iter().position(is_away) else { return };
        let live = self.live[index];
        match self.rig.heap.resume_block(live.address) {
            Ok(()) => {
                self.live[index].is_paused = false;
                self.oracle.resume(live.device as usize, live.allocated_bytes);
            }
            Err(error) if error.status == Status::OutOfMemory => {}
            Err(error) => assert!(self.is_beside_others(error.status), "{error}"),
        }
    }

    fn assert_not_elastic(&self) {
        assert!(!self.is_elastic());
    }
}
