//! Kernels: what a program registered, and launches of it.
//!
//! A kernel does nothing; a launch is an operation of its stream, captured like any other.
//! Registration happens while libraries are loaded, tens of thousands of times, so it only
//! notes two pointers. What a launch touches is `touches`' business.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use simgpu::{Access, Code};

use crate::call::Answer;
use crate::code::{INVALID_DEVICE_FUNCTION, INVALID_SYMBOL};
use crate::simulation::Simulation;
use crate::touches::Shape;

/// Threads and shared memory of a block, and threads of a multiprocessor, on the one kind of
/// device there is.
pub(crate) const MOST_BLOCK_THREADS: i32 = 1024;
pub(crate) const MOST_PROCESSOR_THREADS: i32 = 2048;
pub(crate) const MOST_PROCESSOR_BLOCKS: i32 = 32;

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

#[derive(Default)]
struct Registry {
    /// Kernels by handle: the address of the host's stub, or a number of ours.
    kernels: HashMap<usize, Kernel>,
    /// Variables of device memory by the address of the host's shadow.
    variables: HashMap<usize, Variable>,
    /// How many kernels are known by name only.
    named: usize,
}

/// A kernel; what it touches is found out at its first launch.
#[derive(Clone)]
enum Kernel {
    /// Registered by a library, under a constant of that library.
    Registered(&'static CStr),
    /// Asked for by name, or launched before.
    Known(Arc<Shape>),
}

/// A variable of device memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variable {
    pub(crate) bytes: usize,
    /// Where it lies on each device that has asked, once it has.
    address: Option<(u32, u64)>,
}

/// Handles of kernels that are known by name only: nothing lies there.
const FIRST_NAMED: usize = 0x5b00_0000_0000;
const NAMED_STEP: usize = 16;

fn registry() -> MutexGuard<'static, Option<Registry>> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a kernel of the program.
///
/// # Safety
/// `name` is null or a string that stays as it is for as long as kernels may be launched.
pub(crate) unsafe fn register(stub: *const c_void, name: *const c_char) {
    let name = if name.is_null() {
        c"a kernel"
    } else {
        // SAFETY: not null, so a string that stays, by this function's contract.
        unsafe { CStr::from_ptr(name) }
    };
    let kernel = Kernel::Registered(name);
    registry().get_or_insert_default().kernels.insert(stub as usize, kernel);
}

/// Registers a variable of the program.
pub(crate) fn register_variable(shadow: *const c_void, bytes: usize) {
    let variable = Variable { bytes, address: None };
    registry().get_or_insert_default().variables.insert(shadow as usize, variable);
}

/// A handle for the kernel `name` of a module.
pub(crate) fn named(name: &CStr) -> usize {
    let name = name.to_string_lossy();
    let mut guard = registry();
    let registry = guard.get_or_insert_default();
    let known = (0..registry.named).map(|index| FIRST_NAMED + index * NAMED_STEP);
    let is_it = |handle: &usize| match registry.kernels.get(handle) {
        Some(Kernel::Known(shape)) => shape.name == name,
        _ => false,
    };
    if let Some(handle) = known.into_iter().find(is_it) {
        return handle;
    }
    let handle = FIRST_NAMED + registry.named * NAMED_STEP;
    registry.named += 1;
    registry.kernels.insert(handle, Kernel::Known(Arc::new(Shape::of(&name))));
    handle
}

/// Whether there is a kernel of that handle.
pub(crate) fn check(handle: usize) -> Answer {
    let guard = registry();
    let is_known = guard.as_ref().is_some_and(|registry| registry.kernels.contains_key(&handle));
    if is_known { Ok(()) } else { Err(INVALID_DEVICE_FUNCTION) }
}

/// A kernel as the log names it.
pub(crate) struct Named(pub(crate) usize);

impl fmt::Display for Named {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match shape(self.0) {
            Ok(shape) => formatter.write_str(&shape.name),
            Err(_) => write!(formatter, "{:#x}", self.0),
        }
    }
}

/// The shape of a kernel, worked out once.
fn shape(handle: usize) -> Answer<Arc<Shape>> {
    let mut guard = registry();
    let kernel = guard.as_mut().and_then(|registry| registry.kernels.get_mut(&handle));
    let kernel = kernel.ok_or(INVALID_DEVICE_FUNCTION)?;
    if let Kernel::Registered(name) = kernel {
        *kernel = Kernel::Known(Arc::new(Shape::of(&name.to_string_lossy())));
    }
    match kernel {
        Kernel::Known(shape) => Ok(shape.clone()),
        Kernel::Registered(_) => Err(INVALID_DEVICE_FUNCTION),
    }
}

/// A variable of the program and where it lies: its memory is had from the device at the first
/// asking, once for all devices, in its device's primary context, and goes with that.
pub(crate) fn variable(
    simulation: &Simulation,
    context: u32,
    shadow: usize,
) -> Answer<(u64, usize)> {
    let mut guard = registry();
    let known = guard.get_or_insert_default().variables.get_mut(&shadow);
    let variable = known.ok_or(INVALID_SYMBOL)?;
    if let Some((_, address)) = variable.address {
        return Ok((address, variable.bytes));
    }
    let device = simulation.machine.context_device(context)?;
    let address = simulation.machine.allocate(device, variable.bytes.max(1) as u64)?;
    variable.address = Some((device, address));
    Ok((address, variable.bytes))
}

/// Forgets where variables lie on a device that was reset.
pub(crate) fn forget_variables(device: u32) {
    let mut guard = registry();
    let variables = guard.iter_mut().flat_map(|known| known.variables.values_mut());
    for variable in variables {
        variable.address = variable.address.filter(|&(place, _)| place != device);
    }
}

/// Device memory that variables of programs take, in bytes as the machine counts them.
pub(crate) fn variable_bytes() -> u64 {
    placed_variables(|variable| (variable.bytes.max(1) as u64).next_multiple_of(512)).sum()
}

/// How many variables of programs have device memory.
pub(crate) fn variable_count() -> usize {
    placed_variables(|_| ()).count()
}

fn placed_variables<T>(of: impl Fn(&Variable) -> T) -> impl Iterator<Item = T> {
    let guard = registry();
    let variables = guard.iter().flat_map(|known| known.variables.values());
    let placed: Vec<T> = variables.filter(|one| one.address.is_some()).map(of).collect();
    placed.into_iter()
}

/// Enqueues a kernel and what it touches.
///
/// # Safety
/// `arguments` is null or has a pointer to each argument that the kernel's declaration says.
pub(crate) unsafe fn launch(
    simulation: &Simulation,
    context: u32,
    stream: usize,
    handle: usize,
    arguments: *const *const c_void,
) -> Answer {
    let shape = shape(handle)?;
    let machine = &simulation.machine;
    machine.touch(context, stream, 0, 0, Access::Read, &shape.name)?;
    if !simulation.settings.kernel_touches || !simulation.settings.detect_races {
        return Ok(());
    }
    // SAFETY: by this function's contract.
    unsafe { shape.pointers(arguments) }.try_for_each(|pointer| {
        let Some(range) = machine.find(pointer.address) else { return Ok(()) };
        let (address, bytes) = pointer.extent(range);
        machine.touch(context, stream, address, bytes, pointer.access, &shape.name)
    })
}

/// How many blocks of so many threads fit on a multiprocessor.
pub(crate) fn blocks_per_processor(block_threads: i32) -> Answer<i32> {
    if !(1..=MOST_BLOCK_THREADS).contains(&block_threads) {
        return Err(Code::INVALID_VALUE);
    }
    Ok((MOST_PROCESSOR_THREADS / block_threads).clamp(1, MOST_PROCESSOR_BLOCKS))
}
