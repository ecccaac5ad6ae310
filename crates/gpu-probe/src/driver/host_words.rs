//! Words of page-locked memory, which host and device both read and write.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{Answer, Driver};

/// A number of words; never freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostWords {
    address: u64,
    count: u64,
}

/// A word that kernels read while the host writes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag(HostWords);

impl HostWords {
    pub(crate) fn new(driver: &Driver, count: u64) -> Answer<Self> {
        Ok(Self { address: driver.host_allocate(count * 4)?, count })
    }

    /// The address of a word, for host and device.
    pub(crate) fn address(&self, index: u64) -> u64 {
        self.address + index * 4
    }

    /// The words; to be read when the device has finished with them.
    pub(crate) fn words(&self) -> impl Iterator<Item = u32> {
        self.atomics().iter().map(|word| word.load(Ordering::Acquire))
    }

    /// Writes words from the first on.
    pub(crate) fn put(&self, values: impl Iterator<Item = u32>) {
        for (word, value) in self.atomics().iter().zip(values) {
            word.store(value, Ordering::Release);
        }
    }

    fn atomics(&self) -> &[AtomicU32] {
        let first = std::ptr::with_exposed_provenance(self.address as usize);
        // SAFETY: `new` allocated the memory, so many words, aligned to pages and never freed;
        // the host uses it through these atomics only.
        unsafe { std::slice::from_raw_parts(first, self.count as usize) }
    }
}

impl Flag {
    pub(crate) fn new(driver: &Driver) -> Answer<Self> {
        let flag = Self(HostWords::new(driver, 1)?);
        flag.set(false);
        Ok(flag)
    }

    pub(crate) fn address(&self) -> u64 {
        self.0.address(0)
    }

    pub(crate) fn set(&self, value: bool) {
        self.0.put(std::iter::once(u32::from(value)));
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.words().any(|word| word != 0)
    }
}
