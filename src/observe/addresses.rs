//! Maps by address, size or key of a stream, for consumers that look something up for each event.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by address.
pub type AddressMap<T> = NumberMap<u64, T>;
/// A map by numbers that no adversary chooses.
pub type NumberMap<K, T> = HashMap<K, T, BuildHasherDefault<NumberHasher>>;

/// Spreads addresses, which are multiples of 512, over the map: the product with 2^64 / golden
/// ratio, its halves combined.
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
        let product = u128::from(self.0 ^ number) * 0x9E37_79B9_7F4A_7C15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}
