//! Devices as the heap finds them: nothing is asked of one before its first use, which opens it.

use std::sync::Arc;
use std::sync::atomic::{Ordering::SeqCst, fence};

use once_cell::sync::OnceCell;

use super::Heap;
use super::captures::Captures;
use super::device::DeviceHeap;
use crate::base::{DeviceOrdinal, Error, Result, Status};
use crate::config::LogLevel;
use crate::driver::Device;

/// A device that may not have been used yet: until then nothing is asked of it.
#[derive(Debug)]
pub(super) struct DeviceSlot {
    pub(super) driver: Arc<dyn Device>,
    pub(super) captures: Arc<Captures>,
    pub(super) heap: OnceCell<DeviceHeap>,
}

impl DeviceSlot {
    pub(super) fn new(driver: Arc<dyn Device>) -> Self {
        Self { driver, captures: Arc::default(), heap: OnceCell::new() }
    }
}

impl Heap {
    #[inline]
    pub(super) fn device(&self, ordinal: DeviceOrdinal) -> Result<&DeviceHeap> {
        match self.opened(ordinal) {
            Some(device) => Ok(device),
            None => self.open(ordinal),
        }
    }

    #[inline]
    pub(super) fn opened(&self, ordinal: DeviceOrdinal) -> Option<&DeviceHeap> {
        self.devices.get(ordinal.index())?.heap.get()
    }

    /// Opens the device; one that fails is tried again by the next call.
    #[cold]
    fn open(&self, ordinal: DeviceOrdinal) -> Result<&DeviceHeap> {
        let slot = self.slot(ordinal)?;
        let mut messages = Vec::new();
        let opened = slot.heap.get_or_try_init(|| {
            let driver = Arc::clone(&slot.driver);
            let captures = Arc::clone(&slot.captures);
            let device =
                DeviceHeap::open(driver, captures, &self.settings(), &mut messages, self.events)?;
            // Before any thread has it.
            self.introduce_all(&device, &mut messages);
            Ok(device)
        });
        if let Ok(device) = &opened {
            // Once more, for one that was being opened at the same time.
            fence(SeqCst);
            self.introduce_all(device, &mut messages);
        }
        if let Err(error) = &opened {
            messages.push((LogLevel::Error, format!("device {ordinal}: {error}")));
        }
        // Only now: whoever receives them may call the library, on this thread or another.
        for (level, message) in messages {
            self.log.write(level, &message);
        }
        opened
    }

    pub(super) fn slot(&self, ordinal: DeviceOrdinal) -> Result<&DeviceSlot> {
        self.devices.get(ordinal.index()).ok_or_else(|| no_such_device(ordinal, self.devices.len()))
    }
}

#[cold]
fn no_such_device(ordinal: DeviceOrdinal, count: usize) -> Error {
    Error::new(Status::InvalidDevice, format!("no device {ordinal}: there are {count}"))
}
