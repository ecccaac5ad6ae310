//! The heap as a whole: construction, settings, callbacks, and validation.

use std::sync::Arc;

use super::callbacks::{CallbackId, Callbacks, OutOfMemoryCallback};
use super::kept::Debugging;
use super::lane::Lane;
use super::lanes::Lanes;
use super::notes::Notes;
use super::policy::{LISTENING, Policy};
use super::shared_blocks::SharedBlocks;
use super::state::{DeviceSlot, Heap, Surroundings};
use super::tags::Tags;
use super::watch::{CompactionCallback, Told};
use crate::base::lock::Lock;
use crate::base::sync::OnceCell;
use crate::config::Settings;
use crate::driver::{Backend, Platform};
use crate::memory::{Directory, Slot};
use crate::observe::{EventStream, Log};

impl Heap {
    /// A heap over `platform` with the `settings` given.
    pub fn new(platform: Platform, settings: &Settings, surroundings: Surroundings) -> Self {
        let Surroundings { log, events, clock, join } = surroundings;
        let directory = Arc::new(Directory::new());
        let device_count = platform.devices.len();
        let slots = platform.devices.into_iter();
        let heap = Self {
            settings: Lock::new(settings.clone()),
            policy: Policy::new(settings),
            lanes: Lanes::new(Arc::clone(&directory), device_count, events),
            directory,
            backend: platform.backend,
            devices: slots.map(DeviceSlot::new).collect(),
            callbacks: Callbacks::default(),
            compactions: Told::default(),
            asked_whether_lasting: OnceCell::new(),
            tags: Tags::new(device_count),
            debugging: Debugging::new(settings, device_count, events),
            shared: SharedBlocks::default(),
            remains: Lock::default(),
            clock,
            join,
            log,
            notes: Notes { events },
        };
        heap.set_retains_backups(settings.backup_retain);
        if let Some(tag) = &settings.default_tag {
            heap.set_default_tag(tag, settings.default_backup);
        }
        heap
    }

    /// Returns true if operations must do more than serve their caller: see [`Self::heeded`].
    #[inline]
    pub(super) fn has_extras(&self) -> bool {
        self.policy.heeded() | u8::from(self.notes.is_on()) != 0
    }

    /// Returns true if `GENESIS_DEBUG` is on.
    pub fn is_debugging(&self) -> bool {
        self.policy.is_debugging()
    }

    /// The extra work that operations must do now, as bits of `policy`; 0: none.
    #[inline]
    pub(super) fn heeded(&self) -> u8 {
        let listening = if self.notes.is_on() { LISTENING } else { 0 };
        self.policy.heeded() | listening
    }

    /// Calls `callback` for memory before a request fails, until it is removed.
    pub fn add_out_of_memory_callback(&self, callback: OutOfMemoryCallback) -> CallbackId {
        self.callbacks.add(callback)
    }

    /// Returns true if there was such a callback. A call of it that has begun still finishes.
    pub fn remove_out_of_memory_callback(&self, id: CallbackId) -> bool {
        self.callbacks.remove(id)
    }

    /// Has `callback` called after each compaction of the fragmentation watch, in place of the one
    /// before.
    pub fn set_compaction_callback(&self, callback: Option<CompactionCallback>) {
        self.compactions.set(callback);
    }

    /// The settings in force; limits of single devices may differ.
    pub fn settings(&self) -> Settings {
        self.settings.lock().clone()
    }

    /// Applies those of `settings` that differ from the ones in force and may change at run time:
    /// on all devices, also those for which something else was set.
    pub fn apply(&self, settings: &Settings) {
        let old = std::mem::replace(&mut *self.settings.lock(), settings.clone());
        self.policy.set(settings);
        self.apply_debugging(settings);
        self.log.set_level(settings.log);
        self.opened_devices().for_each(|device| device.apply(&old, settings));
    }

    /// The backend of the devices.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Returns true if a block of this heap, live or not, starts at `address`. Takes no lock.
    pub fn knows(&self, address: u64) -> bool {
        self.find(address).is_some()
    }

    /// The stream of events to which the heap reports.
    pub fn events(&self) -> &'static EventStream {
        self.notes.events
    }

    /// The heap's log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Checks every structure of the heap; the error names the invariant that does not hold. For
    /// tests: it takes time linear in the number of blocks, and may see half-updated counters of
    /// lanes in use at the same moment.
    pub fn validate(&self) -> std::result::Result<(), String> {
        self.opened_devices().try_for_each(|device| device.validate())
    }

    /// The block that the directory has at `address`; it may change until the lane is locked.
    #[inline]
    pub(super) fn find(&self, address: u64) -> Option<(&Lane, Slot)> {
        let entry = self.directory.get(address)?;
        Some((self.lanes.get(entry.lane)?, entry.slot))
    }

    pub(super) fn seconds(&self) -> u32 {
        (self.clock)().as_secs() as u32
    }
}
