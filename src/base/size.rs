//! Sizes in bytes: rounding that cannot overflow, and the texts that people write and read.

use std::fmt;

/// One kibibyte, in bytes.
pub const KIB: u64 = 1 << 10;
/// One mebibyte, in bytes.
pub const MIB: u64 = 1 << 20;
/// One gibibyte, in bytes.
pub const GIB: u64 = 1 << 30;

/// Every pointer handed out is a multiple of this, in bytes.
pub const ALIGNMENT_BYTES: u64 = 512;

/// The largest request the library considers, in bytes: 2^47, the span of a user address
/// space. Anything above is a mistake of the caller, often a negative size, and is refused before
/// any arithmetic.
pub const LARGEST_REQUEST_BYTES: u64 = 1 << 47;

/// Blocks up to this size, in bytes, are small.
pub const SMALL_BLOCK_LIMIT_BYTES: u64 = MIB;

/// The two kinds of blocks that PyTorch's allocator keeps and counts separately, as its small pool
/// and its large pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SizeClass {
    /// Blocks of at most [`SMALL_BLOCK_LIMIT_BYTES`].
    Small,
    /// All others.
    Large,
}

impl SizeClass {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Small, Self::Large];

    /// The class of a block of `block_bytes`.
    #[inline]
    pub const fn of(block_bytes: u64) -> Self {
        if block_bytes > SMALL_BLOCK_LIMIT_BYTES { Self::Large } else { Self::Small }
    }

    /// The class as an index into a table of both.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// `bytes` rounded up to a multiple of `multiple_bytes`, or `None` above `u64::MAX`.
pub const fn round_up(bytes: u64, multiple_bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(multiple_bytes)
}

/// A size that displays the way people read it: `512 B`, `1.50 GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < KIB {
            return write!(formatter, "{} B", self.0);
        }
        let unit = (self.0.ilog2() / 10 - 1) as usize;
        let scaled = self.0 as f64 / (1u64 << (10 * (unit + 1))) as f64;
        write!(formatter, "{scaled:.2} {}", UNITS[unit])
    }
}

/// Parses a size, in bytes.
///
/// A decimal number, optionally with a fraction, and optionally a unit in any case:
/// `B`, `K`/`KB`/`KiB`, `M…`, `G…`, `T…`. All units are binary, as GPU users mean them:
/// `2GB` is 2 × 2^30. Returns `None` for anything else, and for sizes above `u64::MAX`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift);
    }
    let scaled = number.parse::<f64>().ok()? * (1u64 << shift) as f64;
    (scaled < u64::MAX as f64).then_some(scaled as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_written() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("2GB", 2 * GIB),
            (" 1.5 GiB ", 3 * GIB / 2),
            ("20m", 20 * MIB),
            ("16k", 16 * KIB),
            ("1T", 1 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text), Some(bytes), "{text:?}");
        }
        for text in ["", "GB", "-1", "2 G B", "1e9", "0x10", "1..5", "99999999999T", "16777216T"] {
            assert_eq!(parse_bytes(text), None, "{text:?}");
        }
    }

    #[test]
    fn sizes_display_in_the_largest_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (3 * GIB / 2, "1.50 GiB"),
            (u64::MAX, "16.00 EiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn rounding_up_never_wraps() {
        assert_eq!(round_up(0, 512), Some(0));
        assert_eq!(round_up(1, 512), Some(512));
        assert_eq!(round_up(u64::MAX, 512), None);
    }
}
