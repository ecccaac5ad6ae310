//! Streams and their capture.

use std::ffi::{c_int, c_uint, c_void};

use simgpu::Code;

use crate::answer::{put, put_if};
use crate::call::runtime;
use crate::host_functions::HostFunction;
use crate::{capture, current};

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamCreate(stream: *mut usize) -> c_int {
    // SAFETY: see the head of `runtime`.
    unsafe { cudaStreamCreateWithPriority(stream, 0, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamCreateWithFlags(stream: *mut usize, flags: c_uint) -> c_int {
    // SAFETY: see the head of `runtime`.
    unsafe { cudaStreamCreateWithPriority(stream, flags, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamCreateWithPriority(
    stream: *mut usize,
    flags: c_uint,
    priority: c_int,
) -> c_int {
    runtime("cudaStreamCreateWithPriority", format_args!("{flags}, {priority}"), |simulation| {
        let context = current::runtime_context();
        // SAFETY: see the head of `runtime`.
        unsafe {
            put(stream, simulation.streams.create(&simulation.machine, context, flags, priority)?)
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamDestroy(stream: usize) -> c_int {
    runtime("cudaStreamDestroy", format_args!("{stream:#x}"), |simulation| {
        simulation.streams.destroy(&simulation.machine, current::runtime_context(), stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamQuery(stream: usize) -> c_int {
    runtime("cudaStreamQuery", format_args!("{stream:#x}"), |simulation| {
        let is_complete = simulation.machine.stream_query(current::runtime_context(), stream)?;
        if is_complete { Ok(()) } else { Err(Code::NOT_READY) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamSynchronize(stream: usize) -> c_int {
    runtime("cudaStreamSynchronize", format_args!("{stream:#x}"), |simulation| {
        simulation.machine.stream_synchronize(current::runtime_context(), stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamWaitEvent(stream: usize, event: u64, flags: c_uint) -> c_int {
    runtime("cudaStreamWaitEvent", format_args!("{stream:#x}, {event:#x}, {flags}"), |simulation| {
        simulation.machine.stream_wait(current::runtime_context(), stream, event)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamGetPriority(stream: usize, priority: *mut c_int) -> c_int {
    runtime("cudaStreamGetPriority", format_args!("{stream:#x}"), |simulation| {
        let known = simulation.streams.get(current::runtime_context(), stream)?;
        // SAFETY: see the head of `runtime`.
        unsafe { put(priority, known.priority) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamGetFlags(stream: usize, flags: *mut c_uint) -> c_int {
    runtime("cudaStreamGetFlags", format_args!("{stream:#x}"), |simulation| {
        let known = simulation.streams.get(current::runtime_context(), stream)?;
        // SAFETY: see the head of `runtime`.
        unsafe { put(flags, known.flags) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamGetId(stream: usize, id: *mut u64) -> c_int {
    runtime("cudaStreamGetId", format_args!("{stream:#x}"), |simulation| {
        let known = simulation.machine.stream_id(current::runtime_context(), stream)?;
        // SAFETY: see the head of `runtime`.
        unsafe { put(id, known) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamGetDevice(stream: usize, device: *mut c_int) -> c_int {
    runtime("cudaStreamGetDevice", format_args!("{stream:#x}"), |simulation| {
        let context = simulation.machine.stream_context(current::runtime_context(), stream)?;
        // SAFETY: see the head of `runtime`.
        unsafe { put(device, simulation.machine.context_device(context)? as c_int) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaLaunchHostFunc(
    stream: usize,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> c_int {
    runtime("cudaLaunchHostFunc", format_args!("{stream:#x}"), |simulation| {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        let function = HostFunction::Plain(function, data as usize);
        simulation.host_functions.add(
            &simulation.machine,
            current::runtime_context(),
            stream,
            function,
        )
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamAddCallback(
    stream: usize,
    function: Option<unsafe extern "C" fn(usize, c_int, *mut c_void)>,
    data: *mut c_void,
    _flags: c_uint,
) -> c_int {
    runtime("cudaStreamAddCallback", format_args!("{stream:#x}"), |simulation| {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        let function = HostFunction::Callback(function, data as usize);
        simulation.host_functions.add(
            &simulation.machine,
            current::runtime_context(),
            stream,
            function,
        )
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamBeginCapture(stream: usize, mode: c_int) -> c_int {
    runtime("cudaStreamBeginCapture", format_args!("{stream:#x}, {mode}"), |simulation| {
        let mode = capture::mode(mode)?;
        simulation.machine.begin_capture(current::runtime_context(), stream, mode)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamEndCapture(stream: usize, graph: *mut u64) -> c_int {
    runtime("cudaStreamEndCapture", format_args!("{stream:#x}"), |simulation| {
        let captured = simulation.machine.end_capture(current::runtime_context(), stream)?;
        // SAFETY: see the head of `runtime`.
        unsafe { put(graph, simulation.graphs.add(captured)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamIsCapturing(stream: usize, status: *mut c_int) -> c_int {
    runtime("cudaStreamIsCapturing", format_args!("{stream:#x}"), |simulation| {
        let (answer, _) = capture::status(simulation, current::runtime_context(), stream)?;
        // SAFETY: see the head of `runtime`.
        unsafe { put(status, answer) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamGetCaptureInfo(
    stream: usize,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut u64,
    dependencies: *mut usize,
    edges: *mut usize,
    dependency_count: *mut usize,
) -> c_int {
    runtime("cudaStreamGetCaptureInfo", format_args!("{stream:#x}"), |simulation| {
        let context = current::runtime_context();
        // SAFETY: see the head of `runtime`.
        unsafe {
            put_if(dependencies, 0);
            put_if(edges, 0);
            put_if(dependency_count, 0);
            capture::put_info(simulation, context, stream, capture::Outputs { status, id, graph })
        }
    })
}

/// CUDA 12's name; it has no kinds of edges.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaStreamGetCaptureInfo_v2(
    stream: usize,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut u64,
    dependencies: *mut usize,
    dependency_count: *mut usize,
) -> c_int {
    let edges = std::ptr::null_mut();
    // SAFETY: see the head of `runtime`.
    unsafe {
        cudaStreamGetCaptureInfo(stream, status, id, graph, dependencies, edges, dependency_count)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int {
    runtime("cudaThreadExchangeStreamCaptureMode", format_args!(""), |_| {
        // SAFETY: see the head of `runtime`.
        unsafe { capture::exchange_mode(mode) }
    })
}
