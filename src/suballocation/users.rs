//! The streams other than its own that use the memory of an arena.
//!
//! A stream *joins* by waiting for the own stream: it may then use all memory that was free there.
//! It joins again when more has become free since, which is another *generation*. The own stream
//! waits for it before memory is free again, and once more if it was used since.
//!
//! ```text
//! a user is settled  ⇔  waited = uses
//! ```

use crate::base::StreamHandle;

#[derive(Debug, Default)]
pub(super) struct Users {
    users: Vec<User>,
    generation: u64,
}

/// A stream that has joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    pub(super) stream: StreamHandle,
    /// The generation in which it joined last.
    joined: u64,
    /// Counts what it uses.
    uses: u64,
    /// Its uses when the own stream last waited for it.
    waited: u64,
}

impl Users {
    /// Memory has become free, or there is more.
    pub(super) fn begin_generation(&mut self) {
        self.generation += 1;
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Counts a use of memory by `stream`; returns false if it must join first.
    pub(super) fn count_use(&mut self, stream: StreamHandle) -> bool {
        let found = self.users.iter_mut().find(|user| user.stream == stream);
        let has_joined = |user: &&mut User| user.joined == self.generation;
        found.filter(has_joined).map(|user| user.uses += 1).is_some()
    }

    /// `stream` has waited for the own stream in `generation`.
    pub(super) fn join(&mut self, stream: StreamHandle, generation: u64) {
        match self.users.iter_mut().find(|user| user.stream == stream) {
            Some(user) => {
                user.joined = user.joined.max(generation);
                user.uses += 1;
            }
            None => self.users.push(User { stream, joined: generation, uses: 1, waited: 0 }),
        }
    }

    /// Those for which the own stream has not waited since their last use.
    #[inline]
    pub(super) fn unsettled(&self) -> Vec<User> {
        self.users.iter().filter(|user| user.waited != user.uses).copied().collect()
    }

    /// The own stream has waited for `user`, as it was then.
    pub(super) fn settle(&mut self, user: User) {
        if let Some(known) = self.users.iter_mut().find(|known| known.stream == user.stream) {
            known.waited = known.waited.max(user.uses);
        }
    }

    /// A part of the memory stays in use, and with it all users.
    pub(super) fn stay(&mut self) {
        self.users.iter_mut().for_each(|user| user.uses += 1);
    }

    /// No memory is in use any more. Returns who used it.
    pub(super) fn leave(&mut self) -> Vec<User> {
        std::mem::take(&mut self.users)
    }
}
