//! Kernels and variables that a program registered, or looked up by name.
//!
//! Registration happens while libraries are loaded, tens of thousands of times, so it only
//! notes two pointers. `launch` launches kernels.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use simgpu::Machine;

use crate::answer::Answer;
use crate::code::{INVALID_DEVICE_FUNCTION, INVALID_SYMBOL};
use crate::touches::Shape;

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

#[derive(Default)]
struct Registry {
    /// Kernels by handle: the address of the host's stub, or a number made here.
    kernels: HashMap<usize, Kernel>,
    /// Variables of device memory, by the address of the host's shadow.
    variables: HashMap<usize, Variable>,
    /// How many kernels are known by name only.
    named: usize,
}

/// A kernel; its shape is worked out at its first launch.
#[derive(Clone)]
enum Kernel {
    /// Registered by a library, under a constant of that library.
    Registered(&'static CStr),
    /// Looked up by name, or launched before.
    Known(Arc<Shape>),
}

/// A variable of device memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variable {
    pub(crate) bytes: usize,
    /// The device it was allocated on, and where; `None` until the first call that needs it.
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

/// Fails if there is no kernel of that handle.
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
pub(crate) fn shape(handle: usize) -> Answer<Arc<Shape>> {
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

/// Where a variable of the program lies, and its size. Its memory is allocated at the first call,
/// once for all devices, in the primary context of the device of `context`, and freed with that.
pub(crate) fn variable(machine: &Machine, context: u32, shadow: usize) -> Answer<(u64, usize)> {
    let mut guard = registry();
    let known = guard.get_or_insert_default().variables.get_mut(&shadow);
    let variable = known.ok_or(INVALID_SYMBOL)?;
    if let Some((_, address)) = variable.address {
        return Ok((address, variable.bytes));
    }
    let device = machine.context_device(context)?;
    let address = machine.allocate(device, variable.bytes.max(1) as u64)?;
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
