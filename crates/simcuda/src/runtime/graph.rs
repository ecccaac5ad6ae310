//! Graphs of captures: instantiated, launched, destroyed.

use std::ffi::c_int;

use crate::answer::put;
use crate::call::runtime;
use crate::current;
use crate::driver::put_nodes;

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGraphInstantiate(executable: *mut u64, graph: u64, flags: u64) -> c_int {
    // SAFETY: see the head of `runtime`.
    unsafe { cudaGraphInstantiateWithFlags(executable, graph, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGraphInstantiateWithFlags(
    executable: *mut u64,
    graph: u64,
    flags: u64,
) -> c_int {
    runtime("cudaGraphInstantiateWithFlags", format_args!("{graph:#x}, {flags}"), |simulation| {
        // SAFETY: see the head of `runtime`.
        unsafe { put(executable, simulation.graphs.instantiate(graph)?) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphLaunch(executable: u64, stream: usize) -> c_int {
    runtime("cudaGraphLaunch", format_args!("{executable:#x}, {stream:#x}"), |simulation| {
        let graph = simulation.graphs.executable(executable)?;
        simulation.machine.graph_launch(current::runtime_context(), stream, &graph)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphDestroy(graph: u64) -> c_int {
    runtime("cudaGraphDestroy", format_args!("{graph:#x}"), |simulation| {
        simulation.graphs.remove(graph)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphExecDestroy(executable: u64) -> c_int {
    runtime("cudaGraphExecDestroy", format_args!("{executable:#x}"), |simulation| {
        simulation.graphs.remove_executable(executable)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGraphGetNodes(graph: u64, nodes: *mut u64, count: *mut usize) -> c_int {
    runtime("cudaGraphGetNodes", format_args!("{graph:#x}"), |simulation| {
        // SAFETY: see the head of `runtime`.
        unsafe { put_nodes(simulation.graphs.nodes(graph)?, nodes, count) }
    })
}
