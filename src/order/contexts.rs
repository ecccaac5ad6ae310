//! The contexts whose streams use the memory of one device.
//!
//! A stream belongs to one context, of one device. Its events are made there, and a wait for a
//! context waits for that one's work alone. So when a block of one device was used on a stream of
//! another one, or of a second context of the same, its event comes from that context's pool, and
//! the device's memory is idle only when *all* contexts are that have ever used it.
//!
//! Number 0 is the device's own, primary context: that of the runtime. The others are found by the
//! streams that programs name, and stay known for good; of most devices there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Release};

use super::EventPool;
use crate::base::lock::{Lock, assert_none_held, rank};
use crate::base::{DeviceOrdinal, StreamHandle};
use crate::driver::{self, Call, Code, Device, DriverError};

/// The number of a device's own context.
pub const OWN_CONTEXT: u16 = 0;
/// So many contexts may use the memory of one device.
const MOST_CONTEXTS: usize = 1 << 12;

/// The contexts of one device, with a pool of events for each.
#[derive(Debug)]
pub struct Contexts {
    own: Arc<EventPool>,
    others: Lock<Vec<Arc<EventPool>>, { rank::DEVICE }>,
    /// How many others there are.
    count: AtomicUsize,
}

impl Contexts {
    /// The own context of `device` alone.
    pub fn new(device: Arc<dyn Device>) -> Self {
        let own = Arc::new(EventPool::new(device));
        Self { own, others: Lock::default(), count: AtomicUsize::new(0) }
    }

    /// The events of the own context.
    #[inline]
    pub fn own(&self) -> &Arc<EventPool> {
        &self.own
    }

    /// The events of the context of that number.
    pub fn get(&self, number: u16) -> Arc<EventPool> {
        let other = usize::from(number).checked_sub(1);
        let found = other.and_then(|index| self.others.lock().get(index).cloned());
        found.unwrap_or_else(|| Arc::clone(&self.own))
    }

    /// The number of the context that `stream` belongs to: of a default stream, the one that is
    /// current in the calling thread.
    pub fn of_stream(&self, stream: StreamHandle) -> driver::Result<u16> {
        assert_none_held();
        match self.own.device().other_context_of(stream)? {
            None => Ok(OWN_CONTEXT),
            Some(context) => self.find_or_add(context),
        }
    }

    /// The number of a context that is not the own one.
    pub fn find_or_add(&self, context: Arc<dyn Device>) -> driver::Result<u16> {
        let mut others = self.others.lock();
        let wanted = context.context();
        let known = others.iter().position(|events| events.device().context() == wanted);
        let index = match known {
            Some(index) => index,
            None if others.len() < MOST_CONTEXTS => {
                others.push(Arc::new(EventPool::new(context)));
                self.count.store(others.len(), Release);
                others.len() - 1
            }
            None => {
                let code = Code::NOT_SUPPORTED;
                return Err(DriverError { call: Call::StreamContext, code });
            }
        };
        Ok(index as u16 + 1)
    }

    /// The devices of the other contexts.
    pub fn other_devices(&self) -> impl Iterator<Item = DeviceOrdinal> + '_ {
        let numbers = 1..=self.count.load(Acquire);
        numbers.map(|number| self.get(number as u16).device().ordinal())
    }

    /// Waits for all work of all contexts: see [`Device::synchronize`].
    pub fn synchronize(&self) -> driver::Result<()> {
        assert_none_held();
        self.own.device().synchronize()?;
        self.synchronize_others()
    }

    /// Waits for all work of the other contexts. One that is gone has none.
    pub fn synchronize_others(&self) -> driver::Result<()> {
        for number in 1..=self.count.load(Acquire) {
            match self.get(number as u16).device().synchronize() {
                Err(error) if error.is_context_gone() => {}
                answer => answer?,
            }
        }
        Ok(())
    }
}
