//! The contexts whose streams use the memory of one device.
//!
//! A stream belongs to one context of one device. Its events are made in that context, and to
//! wait for a context is to wait for the work of that context alone. A block may be used on a
//! stream of another device, or of a second context of its own device. Then its event comes from
//! that context's cache, and the device's memory is idle only when *all* contexts are that have
//! ever used it.
//!
//! Number 0 is the device's own, primary context, the CUDA runtime's. The others are found by the
//! streams that programs name, and stay known for good; most devices have none.

use std::sync::Arc;

use super::EventCache;
use super::omission::Step;
use crate::base::StreamHandle;
use crate::base::lock::{Lock, assert_none_held, rank};
use crate::driver::{self, Call, Code, Device, DriverError};

/// The number of a device's own context.
pub const OWN_CONTEXT: u16 = 0;
/// At most this many contexts may use the memory of one device.
const MOST_CONTEXTS: usize = 1 << 12;

/// The contexts of one device, with an event cache for each.
#[derive(Debug)]
pub struct Contexts {
    own: Arc<EventCache>,
    others: Lock<Vec<Arc<EventCache>>, { rank::DEVICE }>,
}

impl Contexts {
    /// The own context of the device of `driver` alone.
    pub fn new(driver: Arc<dyn Device>) -> Self {
        let own = Arc::new(EventCache::new(driver));
        Self { own, others: Lock::default() }
    }

    /// The events of the own context.
    #[inline]
    pub fn own(&self) -> &Arc<EventCache> {
        &self.own
    }

    /// The events of the context of that number.
    pub fn get(&self, number: u16) -> Arc<EventCache> {
        let other = usize::from(number).checked_sub(1);
        let found = other.and_then(|index| self.others.lock().get(index).cloned());
        found.unwrap_or_else(|| Arc::clone(&self.own))
    }

    /// The number of the context that `stream` belongs to. A default stream belongs to the
    /// context that is current in the calling thread.
    pub fn of_stream(&self, stream: StreamHandle) -> driver::Result<u16> {
        assert_none_held();
        match self.own.driver().other_context_of(stream)? {
            None => Ok(OWN_CONTEXT),
            Some(context) => self.find_or_add(context),
        }
    }

    /// The number of the context of `driver`, which is not the own one.
    pub fn find_or_add(&self, driver: Arc<dyn Device>) -> driver::Result<u16> {
        let mut others = self.others.lock();
        let wanted = driver.context();
        let known = others.iter().position(|events| events.driver().context() == wanted);
        let index = match known {
            Some(index) => index,
            None if others.len() < MOST_CONTEXTS => {
                others.push(Arc::new(EventCache::new(driver)));
                others.len() - 1
            }
            None => {
                let code = Code::NOT_SUPPORTED;
                return Err(DriverError { call: Call::StreamContext, code });
            }
        };
        Ok(index as u16 + 1)
    }

    /// The events of the other contexts that are known now. Whoever waits asks once, before looking
    /// for captures on their devices: nobody has looked on that of a context that becomes known later.
    /// Nor need it be waited for: it has not used what was free before.
    pub fn others(&self) -> Vec<Arc<EventCache>> {
        self.others.lock().clone()
    }

    /// Waits for all work of the own context and of `others`: see [`Device::synchronize`].
    pub fn synchronize(&self, others: &[Arc<EventCache>]) -> driver::Result<()> {
        assert_none_held();
        if Step::DeviceWait.is_left_out() {
            return Ok(());
        }
        self.own.driver().synchronize()?;
        Self::synchronize_others(others)
    }

    /// Waits for all work of `others`. A context that is gone has none.
    pub fn synchronize_others(others: &[Arc<EventCache>]) -> driver::Result<()> {
        for events in others {
            match events.driver().synchronize() {
                Err(error) if error.is_context_gone() => {}
                answer => answer?,
            }
        }
        Ok(())
    }
}
