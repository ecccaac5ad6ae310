//! Launches of kernels.
//!
//! A kernel does nothing; a launch is an operation of its stream, captured like any other. It
//! touches what `touches` reads from the kernel's name.

use std::ffi::c_void;

use simgpu::{Code, Work};

use crate::answer::Answer;
use crate::kernels;
use crate::simulation::Simulation;

/// Limits of the one kind of device there is: threads of a block, threads and blocks of a
/// multiprocessor.
pub(crate) const MOST_BLOCK_THREADS: i32 = 1024;
pub(crate) const MOST_PROCESSOR_THREADS: i32 = 2048;
pub(crate) const MOST_PROCESSOR_BLOCKS: i32 = 32;

/// Enqueues a kernel and what it touches.
///
/// # Safety
/// `arguments` is null or has a pointer to each argument of the kernel.
pub(crate) unsafe fn kernel(
    simulation: &Simulation,
    context: u32,
    stream: usize,
    handle: usize,
    arguments: *const *const c_void,
) -> Answer {
    let shape = kernels::shape(handle)?;
    let machine = &simulation.machine;
    machine.touch(context, stream, Work::read(0, 0, &shape.name))?;
    if !simulation.settings.kernel_touches || !simulation.settings.detect_races {
        return Ok(());
    }
    // SAFETY: by this function's contract.
    unsafe { shape.pointers(arguments) }.try_for_each(|pointer| {
        let Some(range) = machine.find(pointer.address) else { return Ok(()) };
        let (address, bytes) = pointer.extent(range);
        machine.touch(context, stream, Work::new(address, bytes, pointer.access, &shape.name))
    })
}

/// How many blocks of so many threads fit on a multiprocessor.
pub(crate) fn blocks_per_processor(block_threads: i32) -> Answer<i32> {
    if !(1..=MOST_BLOCK_THREADS).contains(&block_threads) {
        return Err(Code::INVALID_VALUE);
    }
    Ok((MOST_PROCESSOR_THREADS / block_threads).clamp(1, MOST_PROCESSOR_BLOCKS))
}
