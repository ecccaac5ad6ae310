//! Streams.

use std::ffi::{c_int, c_uint, c_void};

use simgpu::{Code, STREAM_LEGACY, STREAM_PER_THREAD};

use crate::answer::{Answer, put, put_if};
use crate::call::driver;
use crate::host_functions::HostFunction;
use crate::{capture, current};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(stream: *mut usize, flags: c_uint) -> c_int {
    driver("cuStreamCreate", format_args!("{flags}"), |simulation| {
        let context = current::driver_context()?;
        // SAFETY: see the head of `driver`.
        unsafe { put(stream, simulation.streams.create(&simulation.machine, context, flags, 0)?) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreateWithPriority(
    stream: *mut usize,
    flags: c_uint,
    priority: c_int,
) -> c_int {
    driver("cuStreamCreateWithPriority", format_args!("{flags}, {priority}"), |simulation| {
        let context = current::driver_context()?;
        // SAFETY: see the head of `driver`.
        unsafe {
            put(stream, simulation.streams.create(&simulation.machine, context, flags, priority)?)
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: usize) -> c_int {
    driver("cuStreamDestroy_v2", format_args!("{stream:#x}"), |simulation| {
        simulation.streams.destroy(&simulation.machine, current::driver_context()?, stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: usize) -> c_int {
    driver("cuStreamQuery", format_args!("{stream:#x}"), |simulation| {
        let is_complete = simulation.machine.stream_query(current::driver_context()?, stream)?;
        if is_complete { Ok(()) } else { Err(Code::NOT_READY) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: usize) -> c_int {
    driver("cuStreamSynchronize", format_args!("{stream:#x}"), |simulation| {
        simulation.machine.stream_synchronize(current::driver_context()?, stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: usize, event: u64, flags: c_uint) -> c_int {
    driver("cuStreamWaitEvent", format_args!("{stream:#x}, {event:#x}, {flags}"), |simulation| {
        simulation.machine.stream_wait(current::driver_context()?, stream, event)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetPriority(stream: usize, priority: *mut c_int) -> c_int {
    driver("cuStreamGetPriority", format_args!("{stream:#x}"), |simulation| {
        let known = simulation.streams.get(current::driver_context()?, stream)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(priority, known.priority) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetFlags(stream: usize, flags: *mut c_uint) -> c_int {
    driver("cuStreamGetFlags", format_args!("{stream:#x}"), |simulation| {
        let known = simulation.streams.get(current::driver_context()?, stream)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(flags, known.flags) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetId(stream: usize, id: *mut u64) -> c_int {
    driver("cuStreamGetId", format_args!("{stream:#x}"), |simulation| {
        let known = simulation.machine.stream_id(current::driver_context()?, stream)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(id, known) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetDevice(stream: usize, device: *mut c_int) -> c_int {
    driver("cuStreamGetDevice", format_args!("{stream:#x}"), |simulation| {
        let context = simulation.machine.stream_context(current::driver_context()?, stream)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(device, simulation.machine.context_device(context)? as c_int) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetCtx(stream: usize, context: *mut usize) -> c_int {
    driver("cuStreamGetCtx", format_args!("{stream:#x}"), |simulation| {
        let known = simulation.machine.stream_context(current::driver_context()?, stream)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(context, current::context_handle(known)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchHostFunc(
    stream: usize,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> c_int {
    driver("cuLaunchHostFunc", format_args!("{stream:#x}"), |simulation| {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        let function = HostFunction::Plain(function, data as usize);
        simulation.host_functions.add(
            &simulation.machine,
            current::driver_context()?,
            stream,
            function,
        )
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: usize, mode: c_int) -> c_int {
    driver("cuStreamBeginCapture_v2", format_args!("{stream:#x}, {mode}"), |simulation| {
        let mode = capture::mode(mode)?;
        simulation.machine.begin_capture(current::driver_context()?, stream, mode)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: usize, graph: *mut u64) -> c_int {
    driver("cuStreamEndCapture", format_args!("{stream:#x}"), |simulation| {
        let captured = simulation.machine.end_capture(current::driver_context()?, stream)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(graph, simulation.graphs.add(captured)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamIsCapturing(stream: usize, status: *mut c_int) -> c_int {
    driver("cuStreamIsCapturing", format_args!("{stream:#x}"), |simulation| {
        let (answer, _) = capture::status(simulation, current::driver_context()?, stream)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(status, answer) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetCaptureInfo_v2(
    stream: usize,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut u64,
    dependencies: *mut usize,
    dependency_count: *mut usize,
) -> c_int {
    driver("cuStreamGetCaptureInfo_v2", format_args!("{stream:#x}"), |simulation| {
        let context = current::driver_context()?;
        // SAFETY: see the head of `driver`.
        unsafe {
            put_if(dependencies, 0);
            put_if(dependency_count, 0);
            capture::put_info(simulation, context, stream, capture::Outputs { status, id, graph })
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetCaptureInfo_v3(
    stream: usize,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut u64,
    dependencies: *mut usize,
    edges: *mut usize,
    dependency_count: *mut usize,
) -> c_int {
    // SAFETY: see the head of `driver`.
    unsafe {
        put_if(edges, 0);
        cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, dependency_count)
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWriteValue32_v2(
    stream: usize,
    address: u64,
    _value: u32,
    flags: c_uint,
) -> c_int {
    let arguments = format_args!("{stream:#x}, {address:#x}, {flags}");
    driver("cuStreamWriteValue32_v2", arguments, |simulation| -> Answer {
        let context = current::driver_context()?;
        let label = "cuStreamWriteValue32";
        simulation.machine.copy_touch(context, stream, simgpu::Work::write(address, 4, label))
    })
}

/// Handles that name default streams are CUDA's.
const _: () = assert!(STREAM_LEGACY == 1 && STREAM_PER_THREAD == 2);
