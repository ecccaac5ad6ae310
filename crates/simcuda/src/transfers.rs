//! Copies and fills: what they touch, and with real memory the bytes they move.
//!
//! A copy is a touch on its stream for each side that is device memory or page-locked, a fill is one. Rows of a pitched copy are touched
//! one by one, so that the memory between them stays untouched. Bytes are moved when the call is
//! made, not when the stream comes to it. With addresses only, reads from a device return zeros.
//! On a capturing stream the touches go into the graph and no bytes move. Copies between a device
//! and the host that wait are counted and charged like the machine's own. Their host side may be
//! any memory of the program, so the bytes are moved here and not by the machine.

use std::ptr;

use simgpu::{Access, Call, Code, Machine, StoreKind};

use crate::answer::Answer;
use crate::simulation::Simulation;

/// Where a call's work goes, and its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work<'a> {
    pub(crate) simulation: &'a Simulation,
    pub(crate) context: u32,
    pub(crate) stream: usize,
    pub(crate) label: &'a str,
    /// True for a peer copy, which needs no access of its device.
    pub(crate) is_peer: bool,
}

/// Rows of bytes at equal distances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) address: u64,
    pub(crate) pitch_bytes: u64,
    pub(crate) width_bytes: u64,
    pub(crate) count: u64,
}

/// The kinds of memory that a call copies between; CUDA's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    HostToHost = 0,
    HostToDevice = 1,
    DeviceToHost = 2,
    DeviceToDevice = 3,
    /// Found out from the addresses.
    Default = 4,
}

impl Direction {
    /// `cudaMemcpyKind` as a direction.
    pub(crate) fn new(kind: i32) -> Answer<Self> {
        let all = [
            Self::HostToHost,
            Self::HostToDevice,
            Self::DeviceToHost,
            Self::DeviceToDevice,
            Self::Default,
        ];
        all.into_iter().find(|one| *one as i32 == kind).ok_or(Code::INVALID_VALUE)
    }

    fn permits(self, to_device: bool, from_device: bool) -> bool {
        match self {
            Self::HostToHost => !to_device && !from_device,
            Self::HostToDevice => to_device && !from_device,
            Self::DeviceToHost => !to_device && from_device,
            Self::DeviceToDevice => to_device && from_device,
            Self::Default => true,
        }
    }
}

impl Rows {
    /// One row.
    pub(crate) const fn line(address: u64, bytes: u64) -> Self {
        Self { address, pitch_bytes: bytes, width_bytes: bytes, count: 1 }
    }

    fn addresses(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |row| self.address + row * self.pitch_bytes)
    }

    fn is_valid(self) -> bool {
        let before_last = self.pitch_bytes.checked_mul(self.count.saturating_sub(1));
        let bytes = before_last.and_then(|bytes| bytes.checked_add(self.width_bytes));
        let fits = bytes.is_some_and(|bytes| self.address.checked_add(bytes).is_some());
        fits && (self.count <= 1 || self.pitch_bytes >= self.width_bytes)
    }

    fn is_empty(self) -> bool {
        self.width_bytes == 0 || self.count == 0
    }
}

/// Copies `from` into `to`, which has as many rows of the same width. With `waits`, the host waits
/// for a copy to or from host memory, as the calls without `Async` do.
///
/// # Safety
/// The parts of either side outside device memory belong to the caller and may be read, or
/// written, until the call returns; with real memory, so may those inside.
pub(crate) unsafe fn copy(
    work: Work<'_>,
    to: Rows,
    from: Rows,
    direction: Direction,
    waits: bool,
) -> Answer {
    if to.is_empty() {
        return Ok(());
    }
    if !to.is_valid() || !from.is_valid() {
        return Err(Code::INVALID_VALUE);
    }
    let to_device = is_device_address(work.simulation, to.address);
    let from_device = is_device_address(work.simulation, from.address);
    if !direction.permits(to_device, from_device) {
        return Err(Code::INVALID_VALUE);
    }
    if waits && to_device != from_device {
        let call = if to_device { Call::CopyToDevice } else { Call::CopyToHost };
        let bytes = to.width_bytes * to.count;
        work.simulation.machine.count_copy(work.context, call, bytes)?;
    }
    if from_device || is_pinned(work.simulation, from.address) {
        work.touch(from, Access::Read)?;
    }
    if to_device || is_pinned(work.simulation, to.address) {
        work.touch(to, Access::Write)?;
    }
    if work.simulation.machine.is_capturing_within_call(work.context, work.stream)? {
        return Ok(());
    }
    let is_real = work.simulation.settings.store == StoreKind::RealBytes;
    let width = to.width_bytes as usize;
    for (to, from) in to.addresses().zip(from.addresses()) {
        // SAFETY: host sides are the caller's by this function's contract; device sides are
        // dereferenced with real memory only, where `touch` found them accessible.
        unsafe {
            match (to_device && !is_real, from_device && !is_real) {
                (true, _) => {}
                (false, true) => ptr::write_bytes(to as *mut u8, 0, width),
                (false, false) => ptr::copy(from as *const u8, to as *mut u8, width),
            }
        }
    }
    if waits && !(to_device && from_device) {
        work.simulation.machine.wait_within_call(work.context, work.stream)?;
    }
    Ok(())
}

/// Fills `to` with a value of `N` bytes over and over; it must be device memory.
///
/// # Safety
/// With real memory, the caller owns `to` until the call returns.
pub(crate) unsafe fn fill<const N: usize>(work: Work<'_>, to: Rows, value: [u8; N]) -> Answer {
    if to.is_empty() {
        return Ok(());
    }
    let is_aligned = to.address.is_multiple_of(N as u64) && to.width_bytes.is_multiple_of(N as u64);
    if !to.is_valid() || !is_aligned || !is_device_address(work.simulation, to.address) {
        return Err(Code::INVALID_VALUE);
    }
    work.touch(to, Access::Write)?;
    let is_capturing =
        work.simulation.machine.is_capturing_within_call(work.context, work.stream)?;
    if is_capturing || work.simulation.settings.store != StoreKind::RealBytes {
        return Ok(());
    }
    for address in to.addresses() {
        for offset in (0..to.width_bytes).step_by(N) {
            // SAFETY: `touch` found the rows accessible, and the memory is real.
            unsafe { ((address + offset) as *mut [u8; N]).write(value) };
        }
    }
    Ok(())
}

/// Returns true if an address belongs to devices, mapped or not.
pub(crate) fn is_device_address(simulation: &Simulation, address: u64) -> bool {
    let (base, bytes) = simulation.machine.address_span();
    address.checked_sub(base).is_some_and(|offset| offset < bytes)
}

/// Returns true if an address is of page-locked host memory, where the race detector sees a copy.
fn is_pinned(simulation: &Simulation, address: u64) -> bool {
    simulation.host_memory.find(address).is_some()
}

impl Work<'_> {
    /// Enqueues the touches of rows of device memory, or of pinned host memory. Memory of a device
    /// without access is a violation and an invalid value.
    fn touch(&self, rows: Rows, access: Access) -> Answer {
        let machine = &self.simulation.machine;
        let is_contiguous = rows.pitch_bytes == rows.width_bytes;
        let lines = if is_contiguous {
            Rows::line(rows.address, rows.width_bytes * rows.count)
        } else {
            rows
        };
        for address in lines.addresses() {
            let bytes = lines.width_bytes;
            let touch = if self.is_peer { Machine::peer_copy_touch } else { Machine::copy_touch };
            let work = simgpu::Work::new(address, bytes, access, self.label);
            touch(machine, self.context, self.stream, work)?;
            if is_device_address(self.simulation, address) && !machine.is_accessible(address, bytes)
            {
                return Err(Code::INVALID_VALUE);
            }
        }
        Ok(())
    }
}
