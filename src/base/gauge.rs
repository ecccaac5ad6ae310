//! A quantity over time.

/// One quantity of a device: now, at its highest, and everything that was ever added to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Gauge {
    /// The value now.
    pub current: u64,
    /// The highest value since the start or the last reset of peaks.
    pub peak: u64,
    /// The sum of all increases since the start.
    pub total: u64,
}
