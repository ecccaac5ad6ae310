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

impl Gauge {
    /// The quantity has grown by `amount`.
    #[inline]
    pub fn add(&mut self, amount: u64) {
        self.current += amount;
        self.total += amount;
        if self.current > self.peak {
            self.peak = self.current;
        }
    }

    /// The quantity has shrunk by `amount`.
    #[inline]
    pub fn take(&mut self, amount: u64) {
        self.current -= amount;
    }

    /// Makes the peak the current value.
    pub fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    /// The sum of two quantities. Their peaks may have come at different times, so the peak of the
    /// sum is an upper bound.
    pub fn plus(self, other: Self) -> Self {
        Self {
            current: self.current + other.current,
            peak: self.peak + other.peak,
            total: self.total + other.total,
        }
    }
}
