//! How long a pause and a resume take on a device: a GiB of contents, there and back.
//!
//! Measured with one piece of memory as large as those that a pause copies. While one piece is
//! copied, another thread locks the pages of the next, so a pause into new memory takes the longer of
//! the two; into memory that was kept, and back, it takes the bus's time alone.

use std::fmt;

use genesis::base::size::{GIB, MIB};
use genesis::driver::{Code, Device, DriverError, Node, Pages, Result};

/// A pause copies pieces of so many bytes.
const PIECE_BYTES: u64 = 256 * MIB;
/// Each call is made so often; the least time counts.
const ROUNDS: usize = 2;

/// What the calls for one piece take, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Pausing {
    lock_ns: u64,
    to_host_ns: u64,
    to_device_ns: u64,
}

impl Pausing {
    /// Measures on `device`, with a piece of its memory and one of the host's.
    pub(super) fn measure(device: &dyn Device) -> Result<Self> {
        let address = device.allocate(PIECE_BYTES)?;
        let measured = Self::with_memory(device, address);
        let freed = device.free(address);
        measured.and_then(|measured| freed.map(|()| measured))
    }

    fn with_memory(device: &dyn Device, address: u64) -> Result<Self> {
        let no_memory =
            DriverError { call: genesis::driver::Call::HostAllocate, code: Code::OUT_OF_MEMORY };
        let mut least = Self { lock_ns: u64::MAX, to_host_ns: u64::MAX, to_device_ns: u64::MAX };
        for _ in 0..ROUNDS {
            // New pages each time: those of before are in memory already.
            let pages = Pages::map(PIECE_BYTES, Node::of(device)).map_err(|_| no_memory)?;
            let host = pages.address();
            timed(device, &mut least.lock_ns, || device.host_register(host, PIECE_BYTES))?;
            let copied = timed(device, &mut least.to_host_ns, || {
                device.copy_to_host(host, address, PIECE_BYTES)
            });
            let copied = copied.and_then(|()| {
                timed(device, &mut least.to_device_ns, || {
                    device.copy_to_device(address, host, PIECE_BYTES)
                })
            });
            copied.and(device.host_unregister(host))?;
        }
        Ok(least)
    }
}

/// Makes `call`, and lowers `least_ns` to the time that it took.
fn timed(device: &dyn Device, least_ns: &mut u64, call: impl FnOnce() -> Result<()>) -> Result<()> {
    let begin_ns = device.clock_ns();
    call()?;
    *least_ns = device.clock_ns().saturating_sub(begin_ns).min(*least_ns);
    Ok(())
}

impl fmt::Display for Pausing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lock_ns, to_host_ns, to_device_ns } = *self;
        let pause = GibPrice(lock_ns.max(to_host_ns));
        let (again, resume) = (GibPrice(to_host_ns), GibPrice(to_device_ns));
        write!(
            formatter,
            "a GiB takes {pause}, into memory kept from the last pause {again}; resuming takes {resume}"
        )
    }
}

/// What a GiB takes if a piece takes so many nanoseconds: "46 ms (21.7 GiB/s)".
struct GibPrice(u64);

impl fmt::Display for GibPrice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A device that only pretends to copy takes no time.
        let seconds = (self.0.max(1) * (GIB / PIECE_BYTES)) as f64 / 1e9;
        write!(formatter, "{:.0} ms ({:.1} GiB/s)", seconds * 1e3, 1.0 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of 256 MiB, of which a GiB has four.
    #[test]
    fn a_pause_takes_the_longer_of_locking_and_copying() {
        let of = |lock_ms, to_host_ms, to_device_ms| {
            let [lock_ns, to_host_ns, to_device_ns] =
                [lock_ms, to_host_ms, to_device_ms].map(|ms: u64| ms * 1_000_000);
            Pausing { lock_ns, to_host_ns, to_device_ns }.to_string()
        };
        assert_eq!(
            of(25, 10, 20),
            "a GiB takes 100 ms (10.0 GiB/s), into memory kept from the last pause 40 ms \
             (25.0 GiB/s); resuming takes 80 ms (12.5 GiB/s)"
        );
        assert!(of(5, 10, 20).starts_with("a GiB takes 40 ms (25.0 GiB/s), into"));
        assert!(of(0, 0, 0).contains("resuming takes 0 ms"), "no division by nothing");
    }
}
