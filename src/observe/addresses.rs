//! Maps from addresses of blocks, for those who keep something for each live one.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by address.
pub type AddressMap<T> = HashMap<u64, T, BuildHasherDefault<AddressHasher>>;

/// Spreads addresses, which are multiples of 512 and not chosen by an adversary, over the map:
/// both halves of a product with 2^64 divided by the golden ratio.
#[derive(Debug, Default)]
pub struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, address: u64) {
        let product = u128::from(address) * 0x9E37_79B9_7F4A_7C15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}
