//! Maps by address, size or key of a stream, for consumers that look something up for each event.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::base::hash::mix;

/// A map by address.
pub type AddressMap<T> = NumberMap<u64, T>;
/// A map by numbers that no adversary chooses.
pub type NumberMap<K, T> = HashMap<K, T, BuildHasherDefault<NumberHasher>>;

/// Spreads addresses, which are multiples of 512, over the map.
#[derive(Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number);
    }
}
