//! Filling and copying memory by kernels, as programs do, rather than by copy engines.
//!
//! The kernels are PTX, which the driver itself compiles, so no toolkit is needed. If a driver's
//! kernels do nothing (simcuda), its own fills and copies are used instead.

use std::ffi::{c_uint, c_void};

use super::{Answer, Driver, Stream, call};

/// `fill(to, words, value)` and `copy(to, words, from)`, a thread a word.
const PTX: &std::ffi::CStr = c"
.version 7.0
.target sm_75
.address_size 64
.visible .entry fill(.param .u64 to, .param .u32 words, .param .u32 value)
{
    .reg .pred %p; .reg .u32 %r<6>; .reg .u64 %d<4>;
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
    mad.lo.u32 %r3, %r0, %r1, %r2;
    ld.param.u32 %r4, [words];
    setp.ge.u32 %p, %r3, %r4;
    @%p bra done;
    ld.param.u64 %d0, [to]; ld.param.u32 %r5, [value];
    mul.wide.u32 %d1, %r3, 4;
    add.u64 %d2, %d0, %d1;
    st.global.u32 [%d2], %r5;
done:
    ret;
}
.visible .entry copy(.param .u64 to, .param .u32 words, .param .u64 from)
{
    .reg .pred %p; .reg .u32 %r<6>; .reg .u64 %d<6>;
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
    mad.lo.u32 %r3, %r0, %r1, %r2;
    ld.param.u32 %r4, [words];
    setp.ge.u32 %p, %r3, %r4;
    @%p bra done;
    ld.param.u64 %d0, [to]; ld.param.u64 %d3, [from];
    mul.wide.u32 %d1, %r3, 4;
    add.u64 %d2, %d0, %d1;
    add.u64 %d4, %d3, %d1;
    ld.global.u32 %r5, [%d4];
    st.global.u32 [%d2], %r5;
done:
    ret;
}
";

const BLOCK_THREADS: c_uint = 256;

/// Fills and copies memory in stream order.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    driver: &'a Driver,
    kernels: Option<Kernels>,
}

#[derive(Clone, Copy, Debug)]
struct Kernels {
    fill: usize,
    copy: usize,
}

impl<'a> Writer<'a> {
    /// One that uses kernels if they work.
    pub(crate) fn new(driver: &'a Driver) -> Answer<Self> {
        const VALUE: u32 = 0x600D_C0DE;
        let writer = Self { driver, kernels: Some(load(driver)?) };
        let address = driver.allocate(4096)?;
        driver.fill(address, 4096, !VALUE, Stream::LEGACY)?;
        writer.fill(address, 4096, VALUE, Stream::LEGACY)?;
        let words = driver.read(address, 1024)?;
        driver.free(address)?;
        let works = words.iter().all(|word| *word == VALUE);
        Ok(Self { kernels: writer.kernels.filter(|_| works), ..writer })
    }

    /// What it uses, for a report.
    pub(crate) fn means(&self) -> &'static str {
        if self.kernels.is_some() { "kernels" } else { "fills and copies of the driver" }
    }

    /// Enqueues filling `bytes`, a multiple of 4, with `value`.
    pub(crate) fn fill(&self, to: u64, bytes: u64, value: u32, stream: Stream) -> Answer {
        let Some(kernels) = self.kernels else {
            return self.driver.fill(to, bytes, value, stream);
        };
        let (mut to, mut words, mut value) = (to, (bytes / 4) as c_uint, value);
        let parameters = [pointer(&mut to), pointer(&mut words), pointer(&mut value)];
        self.launch(kernels.fill, words, parameters, stream)
    }

    /// Enqueues a copy of `bytes`, a multiple of 4.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: u64, stream: Stream) -> Answer {
        let Some(kernels) = self.kernels else {
            return self.driver.copy(to, from, bytes, stream);
        };
        let (mut to, mut words, mut from) = (to, (bytes / 4) as c_uint, from);
        let parameters = [pointer(&mut to), pointer(&mut words), pointer(&mut from)];
        self.launch(kernels.copy, words, parameters, stream)
    }

    fn launch(
        &self,
        kernel: usize,
        words: c_uint,
        mut parameters: [*mut c_void; 3],
        stream: Stream,
    ) -> Answer {
        let blocks = words.div_ceil(BLOCK_THREADS);
        let none = std::ptr::null_mut();
        let parameters = parameters.as_mut_ptr();
        call!(
            self.driver,
            cuLaunchKernel(
                kernel,
                blocks,
                1,
                1,
                BLOCK_THREADS,
                1,
                1,
                0,
                stream.0,
                parameters,
                none
            )
        )
    }
}

fn pointer<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

fn load(driver: &Driver) -> Answer<Kernels> {
    let (mut module, mut fill, mut copy) = (0, 0, 0);
    call!(driver, cuModuleLoadData(&mut module, PTX.as_ptr()))?;
    call!(driver, cuModuleGetFunction(&mut fill, module, c"fill".as_ptr()))?;
    call!(driver, cuModuleGetFunction(&mut copy, module, c"copy".as_ptr()))?;
    Ok(Kernels { fill, copy })
}
