//! Multiplicative hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
//!
//! For words that are sizes, addresses or small numbers, not chosen by an adversary.

/// 2^64 / the golden ratio. Its multiples modulo 2^64 are spread as evenly as those of any number, and
/// have no short period.
pub const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// `word` times [`FACTOR`], modulo 2^64. The highest bits are mixed best.
#[inline(always)]
pub const fn spread(word: u64) -> u64 {
    word.wrapping_mul(FACTOR)
}

/// The two halves of `word` times [`FACTOR`] in one: all bits are mixed.
#[inline(always)]
pub const fn mix(word: u64) -> u64 {
    let product = word as u128 * FACTOR as u128;
    product as u64 ^ (product >> u64::BITS) as u64
}
