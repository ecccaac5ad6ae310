//! Kernels written in PTX, which the driver compiles: loading and launching.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use super::{Answer, Driver, Stream, call};

/// Kernels that hold a stream and that keep the device busy.
pub(crate) const HOLD: &str = include_str!("ptx/hold.ptx");
/// Kernels that write through one address and read through another.
pub(crate) const ROUNDS: &str = include_str!("ptx/rounds.ptx");
/// The same, for programmatic dependent launch.
pub(crate) const DEPENDENT: &str = include_str!("ptx/dependent.ptx");

/// Loaded code, of the context that was current when it was loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Module<'a> {
    driver: &'a Driver,
    handle: usize,
}

/// A kernel of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel(usize);

/// How many blocks of how many threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) blocks: c_uint,
    pub(crate) threads: c_uint,
}

/// `CUlaunchAttribute` with a number as its value.
#[repr(C)]
struct Attribute {
    id: c_uint,
    padding: c_uint,
    value: c_uint,
    rest: [c_uint; 15],
}

/// `CUlaunchConfig`.
#[repr(C)]
pub(super) struct LaunchConfiguration {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: usize,
    attributes: *const Attribute,
    attribute_count: c_uint,
}

impl<'a> Module<'a> {
    /// Compiles and loads `ptx`. A failure has the compiler's message.
    pub(crate) fn load(driver: &'a Driver, ptx: &str) -> Result<Self, String> {
        const ERROR_LOG: c_int = 5;
        const ERROR_LOG_BYTES: c_int = 6;
        let text = CString::new(ptx).map_err(|error| error.to_string())?;
        let mut log = [0 as c_char; 4096];
        let mut handle = 0;
        let mut options = [ERROR_LOG, ERROR_LOG_BYTES];
        // The second value is a number passed as a pointer, as the driver wants it. The last byte
        // is left zero, so that the log ends.
        let mut values: [*mut c_void; 2] =
            [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len() - 1)];
        let loaded = call!(
            driver,
            cuModuleLoadDataEx(
                &mut handle,
                text.as_ptr(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr()
            )
        );
        loaded.map_err(|failure| {
            let bytes = log.map(|character| character as u8);
            let said = CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy();
            format!("{failure}: {}", said.trim().replace('\n', "; "))
        })?;
        Ok(Self { driver, handle })
    }

    pub(crate) fn kernel(&self, name: &str) -> Result<Kernel, String> {
        let name = CString::new(name).map_err(|error| error.to_string())?;
        let mut kernel = 0;
        call!(self.driver, cuModuleGetFunction(&mut kernel, self.handle, name.as_ptr()))?;
        Ok(Kernel(kernel))
    }
}

impl Driver {
    /// Launches a kernel. A parameter of 32 bits is the lower half of its 64, because machines with
    /// CUDA are little-endian.
    pub(crate) fn launch(
        &self,
        kernel: Kernel,
        grid: Grid,
        parameters: &[u64],
        stream: Stream,
    ) -> Answer {
        let mut pointers = pointers(parameters);
        let (blocks, threads) = (grid.blocks, grid.threads);
        let (first, none) = (pointers.as_mut_ptr(), std::ptr::null_mut());
        call!(self, cuLaunchKernel(kernel.0, blocks, 1, 1, threads, 1, 1, 0, stream.0, first, none))
    }

    /// Launches a kernel that may start before the one in front of it is complete.
    pub(crate) fn launch_dependent(
        &self,
        kernel: Kernel,
        grid: Grid,
        parameters: &[u64],
        stream: Stream,
    ) -> Answer {
        const PROGRAMMATIC_STREAM_SERIALIZATION: c_uint = 6;
        let attribute = Attribute {
            id: PROGRAMMATIC_STREAM_SERIALIZATION,
            padding: 0,
            value: 1,
            rest: [0; 15],
        };
        let configuration = LaunchConfiguration {
            grid: [grid.blocks, 1, 1],
            block: [grid.threads, 1, 1],
            shared_bytes: 0,
            stream: stream.0,
            attributes: &attribute,
            attribute_count: 1,
        };
        let mut pointers = pointers(parameters);
        let (first, none) = (pointers.as_mut_ptr(), std::ptr::null_mut());
        call!(self, cuLaunchKernelEx(&configuration, kernel.0, first, none))
    }
}

/// Pointers to the parameters, which the driver copies during the launch and does not write.
fn pointers(parameters: &[u64]) -> Vec<*mut c_void> {
    parameters.iter().map(|value| std::ptr::from_ref(value).cast_mut().cast()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_laid_out_as_the_driver_has_them() {
        assert_eq!(size_of::<Attribute>(), 72);
        assert_eq!(size_of::<LaunchConfiguration>(), 56);
        assert_eq!(std::mem::offset_of!(LaunchConfiguration, stream), 32);
    }
}
