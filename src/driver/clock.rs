//! A clock for frequent measurements: the processor's own counter, which costs a third of the
//! system's clock.
//!
//! On x86-64 it is the time stamp counter, on AArch64 the generic timer. Both run at one rate, no
//! matter the processor's frequency, and agree between processors, on any machine with a GPU.
//! A caller that needs nanoseconds measures the rate against the system's clock.
#![allow(unsafe_code)]

/// Ticks after some fixed moment.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the counter, and Linux lets programs read it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Ticks after some fixed moment.
#[cfg(target_arch = "aarch64")]
#[inline]
pub fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: reads a register that Linux lets programs read, and nothing else.
    unsafe {
        std::arch::asm!(
            "mrs {}, cntvct_el0",
            out(reg) ticks,
            options(nomem, nostack, preserves_flags)
        );
    }
    ticks
}

/// Ticks after some fixed moment: nanoseconds.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
pub fn ticks() -> u64 {
    use once_cell::sync::Lazy;
    use std::time::Instant;
    static START: Lazy<Instant> = Lazy::new(Instant::now);
    START.elapsed().as_nanos() as u64
}
