//! Graphs of captures: instantiated, launched, destroyed.

use std::ffi::c_int;

use simgpu::Code;

use crate::answer::put;
use crate::call::driver;
use crate::current;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(
    executable: *mut u64,
    graph: u64,
    flags: u64,
) -> c_int {
    driver("cuGraphInstantiateWithFlags", format_args!("{graph:#x}, {flags}"), |simulation| {
        // SAFETY: see the head of `driver`.
        unsafe { put(executable, simulation.graphs.instantiate(graph)?) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(executable: u64, stream: usize) -> c_int {
    driver("cuGraphLaunch", format_args!("{executable:#x}, {stream:#x}"), |simulation| {
        let graph = simulation.graphs.executable(executable)?;
        simulation.machine.graph_launch(current::driver_context()?, stream, &graph)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: u64) -> c_int {
    driver("cuGraphDestroy", format_args!("{graph:#x}"), |simulation| {
        simulation.graphs.remove(graph)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(executable: u64) -> c_int {
    driver("cuGraphExecDestroy", format_args!("{executable:#x}"), |simulation| {
        simulation.graphs.remove_executable(executable)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphGetNodes(graph: u64, nodes: *mut u64, count: *mut usize) -> c_int {
    driver("cuGraphGetNodes", format_args!("{graph:#x}"), |simulation| {
        // SAFETY: see the head of `driver`.
        unsafe { put_nodes(simulation.graphs.nodes(graph)?, nodes, count) }
    })
}

/// Writes nodes as CUDA does: without an array their number, otherwise as many as fit.
///
/// # Safety
/// `count` is null or valid, and `nodes` is null or has room for `*count` nodes.
pub(crate) unsafe fn put_nodes(
    handles: impl Iterator<Item = u64>,
    nodes: *mut u64,
    count: *mut usize,
) -> crate::answer::Answer {
    if count.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    if nodes.is_null() {
        // SAFETY: not null, so valid.
        return unsafe { put(count, handles.count()) };
    }
    let mut written = 0;
    // SAFETY: not null, so valid; every place written is among the first `*count`.
    unsafe {
        for handle in handles.take(count.read()) {
            nodes.add(written).write(handle);
            written += 1;
        }
        put(count, written)
    }
}
