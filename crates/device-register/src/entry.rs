//! An entry: what one process holds and may hold of the device, in 144 bytes.
//!
//! ```text
//!   word 0         1                2      3        4     5       6      7          8, 9    10, 11     12, 13          14 – 17
//!   │ checksum │ process, weight │ total │ charged │ live │ cached │ limit │ guarantee │ promised │ door, key │ container, limit │ program │
//! ```

use std::time::Duration;

/// The size of an entry, and of the file's head.
pub(crate) const ENTRY_BYTES: usize = 144;
const WORDS: usize = ENTRY_BYTES / 8;
const PROGRAM_AT: usize = 14 * 8;
const PROGRAM_BYTES: usize = 32;

/// The limit of a process that has none.
pub const NO_LIMIT: u64 = u64::MAX;
/// A promise counts for so long: who has it may have been stopped meanwhile.
pub const PROMISE_LASTS: Duration = Duration::from_secs(1);

/// What one process holds and may hold. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The process's number, as the process itself sees it.
    pub process: u32,
    /// Its part of what no guarantee covers, in proportion to the others'; 0: it has none.
    pub weight: u32,
    /// The device's memory, as its driver says.
    pub total_bytes: u64,
    /// What it holds, or is asking of the driver now.
    pub charged_bytes: u64,
    /// Of that, what its program uses; a moment old.
    pub live_bytes: u64,
    /// Of that, what its program does not use; a moment old.
    pub cached_bytes: u64,
    /// The most that it may hold; [`NO_LIMIT`].
    pub limit_bytes: u64,
    /// What the others leave it.
    pub guarantee_bytes: u64,
    /// What others have given back for it and it is about to take.
    pub promised_bytes: u64,
    /// Since when, by [`now_ns`].
    pub promised_since_ns: u64,
    /// The number by which it is asked; 0: it cannot be.
    pub door: u64,
    /// Whoever names it has read this entry.
    pub key: u64,
    /// The number of its container, if that has a limit for all of its processes together; 0: it has
    /// none.
    pub container: u64,
    /// The most that all processes of the container may hold, as this one was told.
    pub container_limit_bytes: u64,
    /// The program's name, as far as it fits.
    pub program: String,
}

impl Entry {
    /// Others have given back `bytes` more for it.
    pub fn promise(&mut self, bytes: u64) {
        self.promised_bytes = self.promised_bytes.saturating_add(bytes);
        self.promised_since_ns = now_ns();
    }

    /// What is promised to it at `now_ns`. The clock of a container may be ahead of another one's.
    pub(crate) fn promised_bytes_at(&self, now_ns: u64) -> u64 {
        let age_ns = now_ns.abs_diff(self.promised_since_ns);
        if u128::from(age_ns) < PROMISE_LASTS.as_nanos() { self.promised_bytes } else { 0 }
    }

    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut words = [0; WORDS];
        words[1] = u64::from(self.process) | u64::from(self.weight) << 32;
        let sizes = [
            self.total_bytes,
            self.charged_bytes,
            self.live_bytes,
            self.cached_bytes,
            self.limit_bytes,
            self.guarantee_bytes,
            self.promised_bytes,
            self.promised_since_ns,
            self.door,
            self.key,
            self.container,
            self.container_limit_bytes,
        ];
        words[2..14].copy_from_slice(&sizes);
        let mut bytes = bytes_of(&words);
        let name = self.program.floor_char_boundary_of(PROGRAM_BYTES);
        bytes[PROGRAM_AT..][..name.len()].copy_from_slice(name.as_bytes());
        seal(&mut bytes);
        bytes
    }

    /// The entry in `bytes`; `None` for anything that [`Self::encode`] does not make.
    pub(crate) fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        if !is_sealed(bytes) {
            return None;
        }
        let word = |index: usize| word_of(bytes, index);
        let (process, weight) = (word(1) as u32, (word(1) >> 32) as u32);
        let name = &bytes[PROGRAM_AT..];
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        Some(Self {
            process,
            weight,
            total_bytes: word(2),
            charged_bytes: word(3),
            live_bytes: word(4),
            cached_bytes: word(5),
            limit_bytes: word(6),
            guarantee_bytes: word(7),
            promised_bytes: word(8),
            promised_since_ns: word(9),
            door: word(10),
            key: word(11),
            container: word(12),
            container_limit_bytes: word(13),
            program: String::from_utf8_lossy(&name[..end]).into_owned(),
        })
    }
}

/// The beginning of a text that ends with a whole character.
trait FloorCharBoundary {
    fn floor_char_boundary_of(&self, most_bytes: usize) -> &str;
}

impl FloorCharBoundary for str {
    fn floor_char_boundary_of(&self, most_bytes: usize) -> &str {
        let end = (0..=most_bytes.min(self.len())).rev().find(|&end| self.is_char_boundary(end));
        &self[..end.unwrap_or(0)]
    }
}

fn bytes_of(words: &[u64; WORDS]) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

pub(crate) fn word_of(bytes: &[u8; ENTRY_BYTES], index: usize) -> u64 {
    bytes[index * 8..][..8].try_into().map_or(0, u64::from_le_bytes)
}

/// Puts the checksum of all other bytes into the first word.
pub(crate) fn seal(bytes: &mut [u8; ENTRY_BYTES]) {
    let sum = checksum(&bytes[8..]);
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
}

pub(crate) fn is_sealed(bytes: &[u8; ENTRY_BYTES]) -> bool {
    word_of(bytes, 0) == checksum(&bytes[8..])
}

/// FNV-1a. It finds halves of two writes; it is no secret.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// The time since the machine began, in nanoseconds: the same for all processes.
pub fn now_ns() -> u64 {
    // SAFETY: all zeros are a valid value, which the call replaces; this clock always exists.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            process: u32::MAX,
            weight: 100,
            total_bytes: 80 << 30,
            charged_bytes: 7,
            limit_bytes: NO_LIMIT,
            promised_bytes: 5,
            promised_since_ns: 1,
            key: 3,
            container: 9,
            container_limit_bytes: 40 << 30,
            program: "python".to_owned(),
            ..Entry::default()
        }
    }

    #[test]
    fn an_entry_is_read_back() {
        assert_eq!(Entry::decode(&entry().encode()), Some(entry()));
        let long = Entry { program: "ä".repeat(20), ..entry() };
        assert_eq!(Entry::decode(&long.encode()).unwrap().program, "ä".repeat(16));
        let odd = Entry { program: format!("x{}", "ä".repeat(20)), ..entry() };
        assert_eq!(Entry::decode(&odd.encode()).unwrap().program.len(), 31);
    }

    #[test]
    fn no_changed_byte_and_no_half_of_a_write_goes_unnoticed() {
        let bytes = entry().encode();
        for index in 0..ENTRY_BYTES {
            let mut changed = bytes;
            changed[index] ^= 1;
            assert_eq!(Entry::decode(&changed), None, "byte {index}");
        }
        let later = Entry { charged_bytes: 8, cached_bytes: 1, program: "p".into(), ..entry() };
        let later = later.encode();
        for cut in (1..ENTRY_BYTES).filter(|&cut| bytes[..cut] != later[..cut]) {
            let mut torn = later;
            torn[..cut].copy_from_slice(&bytes[..cut]);
            assert!(torn == bytes || Entry::decode(&torn).is_none(), "cut at {cut}");
        }
        assert_eq!(Entry::decode(&[0; ENTRY_BYTES]), None);
    }

    #[test]
    fn a_promise_ends_by_itself() {
        let lasts_ns = PROMISE_LASTS.as_nanos() as u64;
        let promised = Entry { promised_since_ns: 10, ..entry() };
        assert_eq!(promised.promised_bytes_at(5), 5);
        assert_eq!(promised.promised_bytes_at(9 + lasts_ns), 5);
        assert_eq!(promised.promised_bytes_at(10 + lasts_ns), 0);
        // By another clock it may be given in an hour.
        let ahead = Entry { promised_since_ns: 5 + lasts_ns, ..entry() };
        assert_eq!((ahead.promised_bytes_at(5), ahead.promised_bytes_at(6)), (0, 5));
        assert!(now_ns() <= now_ns());
    }
}
