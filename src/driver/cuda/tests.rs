//! The CUDA driver's code against a stand-in for the driver, compiled for each test.
//!
//! The stand-in refuses every call made without the device's context or outside the relaxed
//! capture mode, and every structure filled in wrongly; see its source.

use std::ffi::{CString, c_int, c_long, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::base::StreamHandle;
use crate::driver::{Advice, DriverError, HandleOptions, Handles, Location, Pages, Shareable};

const STREAM: StreamHandle = StreamHandle(77);
/// Memory without special properties.
const PLAIN: HandleOptions = HandleOptions { shareable: Shareable::None, rdma: false };

/// A freshly compiled stand-in: one for each test, because its state is global.
struct Fake {
    library: Library,
    name: CString,
    path: PathBuf,
}

impl Fake {
    fn compile(switches: &[&str]) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let file = format!("genesis-fake-cuda-{}-{number}.so", std::process::id());
        let path = std::env::temp_dir().join(file);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_cuda/fake_cuda.c");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let status = Command::new(compiler)
            .args(["-std=gnu11", "-Wall", "-Werror", "-fPIC", "-shared", "-o"])
            .arg(&path)
            .args(switches.iter().map(|switch| format!("-D{switch}")))
            .arg(source)
            .status()
            .expect("a C compiler");
        assert!(status.success());
        let name = CString::new(path.to_str().unwrap()).unwrap();
        let library = Library::load(&name).unwrap();
        Self { library, name, path }
    }

    fn open(&self) -> Platform {
        open_library(&self.name).unwrap()
    }

    fn driver(&self, index: usize) -> Arc<dyn Device> {
        Arc::clone(&self.open().devices[index])
    }

    fn read<T: Copy>(&self, variable: &CStr) -> T {
        let address = self.library.symbol(variable).cast::<T>();
        assert!(!address.is_null());
        // SAFETY: the caller names a variable of that type in the stand-in.
        unsafe { address.read_volatile() }
    }

    fn write(&self, variable: &CStr, value: c_int) {
        let address = self.library.symbol(variable).cast::<c_int>();
        assert!(!address.is_null());
        // SAFETY: the caller names an `int` in the stand-in, which the test's thread alone uses.
        unsafe { address.write_volatile(value) }
    }

    /// A function of the stand-in that takes nothing and returns an `int`.
    fn function(&self, name: &CStr) -> extern "C" fn() -> c_int {
        let address = self.library.symbol(name);
        assert!(!address.is_null());
        // SAFETY: the caller names such a function.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(address) }
    }

    /// The thread's state is as before the calls: no context of this library, no relaxed mode.
    fn assert_restored(&self, depth: c_int, capture_mode: c_int) {
        assert_eq!(self.function(c"fake_context_depth")(), depth);
        assert_eq!(self.function(c"fake_capture_mode")(), capture_mode);
        let (pushes, pops): (c_long, c_long) = (self.read(c"fake_pushes"), self.read(c"fake_pops"));
        assert_eq!(pushes, pops + c_long::from(depth));
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The message with which a stand-in with these switches does not open.
fn refusal(switches: &[&str]) -> String {
    let fake = Fake::compile(switches);
    let error = open_library(&fake.name).unwrap_err();
    assert_eq!(error.status, Status::DriverUnavailable);
    error.message.replace(fake.name.to_str().unwrap(), "libcuda.so.1")
}

fn error(call: Call, code: i32) -> DriverError {
    DriverError { call, code: Code(code) }
}

/// Where no context is current, a call that is not made by handles alone is made again in the device's.
const ASKED_AGAIN: u64 = 2;

/// Calls every method once, in an order that a real driver would accept.
fn use_everything(driver: &dyn Device) -> crate::driver::Result<()> {
    let granule_bytes = driver.granularity(PLAIN)?;
    driver.memory_info()?;
    let (address, host_address) = (driver.allocate(1000)?, driver.host_allocate(1000)?);
    driver.copy_to_host(host_address, address, 1000)?;
    driver.copy_to_device(address, host_address, 1000)?;
    driver.fill(address, 1000, 0xCD, STREAM)?;
    let managed = driver.allocate_managed(1000)?;
    driver.advise(managed, 1000, Advice::PreferredLocation(true), Location::Host)?;
    driver.prefetch(managed, 1000, Location::Host, STREAM)?;
    let shared = driver.share_allocation(address)?;
    let opened = driver.open_allocation(&shared)?;
    assert_eq!(opened, address);
    driver.close_allocation(opened)?;
    driver.free(address)?;
    driver.host_free(host_address)?;
    let pages = Pages::map(1, None).expect("a page");
    driver.host_register(pages.address(), pages.bytes())?;
    driver.host_unregister(pages.address())?;
    driver.can_access_peer(DeviceOrdinal(1 - driver.ordinal().0))?;
    let range = driver.reserve(4 * granule_bytes, 0)?;
    let handle = driver.create(granule_bytes, PLAIN)?;
    driver.map(range, granule_bytes, handle)?;
    driver.set_access(range, granule_bytes, &[])?;
    driver.unmap(range, granule_bytes)?;
    let descriptor = driver.export(handle)?;
    assert_eq!(driver.import(&descriptor)?, handle);
    driver.release(handle)?;
    driver.unreserve(range, 4 * granule_bytes)?;
    let event = driver.event_create()?;
    driver.event_record(event, STREAM)?;
    driver.stream_wait(STREAM, event)?;
    assert!(driver.event_query(event)?);
    driver.event_synchronize(event)?;
    driver.event_destroy(event)?;
    // This asks first whether the stream is captured: `ASKED_AGAIN`.
    assert!(driver.stream_query(STREAM)?);
    assert_eq!(driver.stream_id(STREAM)?, 17);
    assert!(driver.other_context_of(STREAM)?.is_none());
    driver.synchronize()
}

#[test]
fn a_library_that_is_absent_makes_the_driver_unavailable() {
    let error = open_library(c"libgenesis-there-is-none.so.1").unwrap_err();
    assert_eq!(error.status, Status::DriverUnavailable);
    assert!(error.message.contains("libgenesis-there-is-none.so.1: "), "{error}");
}

#[test]
fn a_driver_that_does_not_start_says_why() {
    assert_eq!(
        refusal(&["INIT_CODE=100"]),
        "libcuda.so.1 (CUDA 12.4): cuInit failed with code 100 (CUDA_ERROR_NO_DEVICE)"
    );
    assert_eq!(
        refusal(&["INIT_CODE=12345"]),
        "libcuda.so.1 (CUDA 12.4): cuInit failed with code 12345"
    );
    assert_eq!(refusal(&["WITHOUT_INIT"]), "libcuda.so.1 (CUDA 12.4): it has no cuInit");
    assert_eq!(refusal(&["DEVICE_COUNT=0"]), "libcuda.so.1 (CUDA 12.4): it has no device");
}

#[test]
fn opening_makes_no_context_and_the_first_use_makes_one_for_ever() {
    let fake = Fake::compile(&["DEVICE_COUNT=3"]);
    let platform = fake.open();
    assert_eq!((platform.backend, platform.devices.len()), (Backend::Cuda, 3));
    for (index, driver) in platform.devices.iter().enumerate() {
        assert_eq!(driver.ordinal().index(), index);
        assert_eq!(driver.usage().total_calls(), 0);
    }
    assert_eq!(platform.devices[0].name(), "Fake GPU 0");
    assert_eq!(fake.read::<c_long>(c"fake_retains"), 0);
    for _ in 0..3 {
        platform.devices[1].synchronize().unwrap();
    }
    assert_eq!(fake.read::<c_long>(c"fake_retains"), 1);
    assert_eq!(platform.devices[1].usage().calls[Call::Initialize as usize], 1);
    assert_eq!(platform.devices[1].usage().calls[Call::Synchronize as usize], 3);
    drop(platform);
    fake.assert_restored(0, 0);
}

#[test]
fn every_call_is_made_rightly_counted_and_leaves_the_thread_as_it_was() {
    for switches in [&["RDMA_SUPPORTED=1"][..], &["RDMA_UNKNOWN"], &[]] {
        let fake = Fake::compile(switches);
        let driver = fake.driver(1);
        use_everything(&*driver).unwrap();
        fake.assert_restored(0, 0);
        let usage = driver.usage();
        let mut expected = [1; Call::COUNT];
        expected[Call::StreamIsCapturing as usize] = ASKED_AGAIN;
        assert_eq!(usage.calls, expected);
        assert!(usage.nanoseconds > 0);
    }
}

#[test]
fn the_callers_context_and_capture_mode_survive() {
    let fake = Fake::compile(&[]);
    let platform = fake.open();
    platform.devices[1].synchronize().unwrap();
    let api = Api::find(&fake.library);
    let mut theirs = std::ptr::null_mut();
    // SAFETY: the stand-in's contexts are retained only in relaxed mode, entered just before;
    // afterwards the thread captures in thread-local mode, and pointers are to live locals.
    unsafe {
        let mut mode: c_uint = 2;
        assert_eq!(api.exchange_capture_mode.unwrap()(&mut mode), 0);
        assert_eq!(api.primary_context_retain.unwrap()(&mut theirs, 1), 0);
        mode = 1;
        assert_eq!(api.exchange_capture_mode.unwrap()(&mut mode), 0);
        assert_eq!(api.context_push.unwrap()(theirs), 0);
    }
    let info = platform.devices[0].memory_info().unwrap();
    assert_eq!(info, crate::driver::MemoryInfo { free_bytes: 1 << 29, total_bytes: 1 << 30 });
    assert_eq!(platform.devices[0].free(3), Err(error(Call::Free, 1)));
    fake.assert_restored(1, 1);
    let mut popped = std::ptr::null_mut();
    // SAFETY: the context pushed above is on this thread's stack.
    assert_eq!(unsafe { api.context_pop.unwrap()(&mut popped) }, 0);
    assert_eq!(popped, theirs);
}

#[test]
fn codes_pass_through_whether_known_or_not() {
    let fake = Fake::compile(&[]);
    let driver = fake.driver(0);
    for code in [2, 4, 700, 12345, -1] {
        fake.write(c"fake_next_code", code);
        assert_eq!(driver.allocate(4096), Err(error(Call::Allocate, code)));
        fake.assert_restored(0, 0);
    }
    assert!(driver.allocate(0).is_err());
    assert_eq!(driver.usage().calls[Call::Allocate as usize], 6);
}

#[test]
fn symbols_that_are_absent_are_errors_of_the_methods_that_need_them() {
    let old = Fake::compile(&["WITHOUT_VMM"]);
    let driver = old.driver(0);
    assert_eq!(driver.create(1 << 21, PLAIN), Err(error(Call::Create, 500)));
    assert_eq!(driver.granularity(PLAIN), Err(error(Call::Create, 500)));
    assert_eq!(driver.unmap(1 << 21, 1 << 21), Err(error(Call::Unmap, 500)));
    driver.free(driver.allocate(4096).unwrap()).unwrap();
    old.assert_restored(0, 0);

    let older = Fake::compile(&["WITHOUT_CAPTURE_MODE"]);
    assert_eq!(older.driver(0).allocate(4096), Err(error(Call::Allocate, 500)));
    older.assert_restored(0, 0);
}

#[test]
fn a_device_without_virtual_memory_says_so() {
    let fake = Fake::compile(&["VMM_SUPPORTED=0"]);
    let driver = fake.driver(0);
    assert_eq!(driver.granularity(PLAIN), Err(error(Call::Create, 801)));
    assert_eq!(driver.create(1 << 21, PLAIN), Err(error(Call::Create, 801)));
    fake.assert_restored(0, 0);
}

#[test]
fn access_is_given_to_the_owner_and_each_peer_once() {
    let fake = Fake::compile(&["DEVICE_COUNT=3"]);
    let driver = fake.driver(1);
    let address = driver.reserve(1 << 21, 1 << 21).unwrap();
    let peers: Vec<DeviceOrdinal> = (0..3).map(DeviceOrdinal).collect();
    driver.set_access(address, 1 << 21, &peers).unwrap();
    assert_eq!(fake.read::<c_long>(c"fake_accessors"), 3);
    let too_many: Vec<DeviceOrdinal> = (2..66).map(DeviceOrdinal).collect();
    assert_eq!(driver.set_access(address, 1 << 21, &too_many), Err(error(Call::SetAccess, 1)));
}

#[test]
fn memory_is_asked_for_with_exactly_the_options_given() {
    let fake = Fake::compile(&["RDMA_SUPPORTED=1"]);
    let driver = fake.driver(0);
    for (shareable, handle_types, granules) in [
        (Shareable::None, 0, 1),
        (Shareable::PosixFd, 1, 1),
        (Shareable::Fabric, 8, 8),
        (Shareable::PosixFdOrFabric, 9, 1),
    ] {
        for rdma in [false, true] {
            let options = HandleOptions { shareable, rdma };
            let granule_bytes = (1 << 21) * if rdma { granules.max(2) } else { granules };
            assert_eq!(driver.granularity(options), Ok(granule_bytes), "{options:?}");
            assert_eq!(driver.recommended_granularity(options), Ok(32 * granule_bytes));
            driver.create(granule_bytes, options).unwrap();
            assert_eq!(fake.read::<c_int>(c"fake_handle_types"), handle_types);
            assert_eq!(fake.read::<c_int>(c"fake_rdma"), c_int::from(rdma));
        }
    }
    fake.assert_restored(0, 0);
}

#[test]
fn rdma_is_refused_where_the_device_does_not_promise_it() {
    for switches in [&["RDMA_SUPPORTED=0"][..], &["RDMA_SUPPORTED=1", "RDMA_UNKNOWN"]] {
        let fake = Fake::compile(switches);
        let driver = fake.driver(0);
        let options = HandleOptions { shareable: Shareable::PosixFd, rdma: true };
        assert_eq!(driver.granularity(options), Err(error(Call::Create, 801)));
        assert_eq!(driver.create(1 << 21, options), Err(error(Call::Create, 801)));
        driver.create(1 << 21, HandleOptions { rdma: false, ..options }).unwrap();
    }
}

#[test]
fn a_fabric_refused_costs_the_fabric_alone_and_no_granularity() {
    for code in [1, 800, 801] {
        let fake = Fake::compile(&["RDMA_SUPPORTED=1", &format!("FABRIC_CODE={code}")]);
        let wished = HandleOptions { shareable: Shareable::Fabric, rdma: true };
        let driver = fake.driver(0);
        assert_eq!(driver.create(1 << 24, wished), Err(error(Call::Create, code)));
        let handles = Handles::open(driver, wished).unwrap();
        assert_eq!((handles.options(), handles.granularity_bytes()), (wished, 1 << 24));
        handles.create(1 << 24).unwrap();
        assert_eq!(fake.read::<c_int>(c"fake_handle_types"), 0);
        assert_eq!(fake.read::<c_int>(c"fake_rdma"), 1);
        let left = HandleOptions { shareable: Shareable::None, rdma: true };
        assert_eq!((handles.options(), handles.granularity_bytes()), (left, 1 << 24));
    }
}

#[test]
fn a_device_is_asked_about_another_without_a_context() {
    let fake = Fake::compile(&["DEVICE_COUNT=3"]);
    let driver = fake.driver(1);
    let can_access = |peer| driver.can_access_peer(DeviceOrdinal(peer));
    assert_eq!([0, 1, 2].map(can_access), [Ok(true), Ok(true), Ok(false)]);
    assert_eq!(can_access(3), Err(error(Call::CanAccessPeer, 101)));
    assert_eq!(driver.usage().calls[Call::CanAccessPeer as usize], 2, "not about itself");
    assert_eq!(fake.read::<c_long>(c"fake_retains"), 0);
}

#[test]
fn copies_move_bytes_both_ways() {
    let fake = Fake::compile(&[]);
    let driver = fake.driver(0);
    let [from, to] = [(); 2].map(|()| driver.host_allocate(1000).unwrap());
    let address = driver.allocate(1000).unwrap();
    // SAFETY: 1000 bytes of this test's own each, as the stand-in's memory is the host's.
    unsafe {
        (from as *mut u8).write_bytes(7, 1000);
        (to as *mut u8).write_bytes(0, 1000);
    }
    driver.copy_to_device(address, from, 1000).unwrap();
    driver.copy_to_host(to, address, 999).unwrap();
    // SAFETY: as above.
    let copied = unsafe { std::slice::from_raw_parts(to as *const u8, 1000) };
    assert!(copied[..999].iter().all(|&byte| byte == 7) && copied[999] == 0);
    fake.write(c"fake_next_code", 700);
    assert_eq!(driver.copy_to_host(to, address, 1), Err(error(Call::CopyToHost, 700)));
    assert_eq!(driver.copy_to_device(address, to, 0), Err(error(Call::CopyToDevice, 1)));
    fake.assert_restored(0, 0);
}

#[test]
fn memory_is_filled_and_looked_at() {
    let fake = Fake::compile(&[]);
    let driver = fake.driver(0);
    // More than one chunk of the comparison.
    let bytes = (3 << 20) + 77;
    let address = driver.allocate(bytes).unwrap();
    for (value, stream) in [(0xCD, STREAM), (0, StreamHandle::LEGACY)] {
        driver.fill(address, bytes, value, stream).unwrap();
        assert_eq!(driver.find_other(address, bytes, value), Ok(None));
        assert_eq!(driver.find_other(address, bytes, value ^ 1), Ok(Some(0)));
    }
    driver.fill(address + bytes - 3, 2, 9, STREAM).unwrap();
    assert_eq!(driver.find_other(address, bytes, 0), Ok(Some(bytes - 3)));
    assert_eq!(driver.find_other(address, bytes - 3, 0), Ok(None));
    assert_eq!(driver.fill(address, 0, 0, STREAM), Err(error(Call::Fill, 1)));
    fake.write(c"fake_next_code", 700);
    assert_eq!(driver.find_other(address, 1, 0), Err(error(Call::CopyToHost, 700)));
    driver.free(address).unwrap();
    fake.assert_restored(0, 0);
}

#[test]
fn events_and_captures_are_answered_without_waiting() {
    let fake = Fake::compile(&[]);
    let driver = fake.driver(0);
    let event = driver.event_create().unwrap();
    fake.write(c"fake_event_ready", 0);
    assert_eq!(driver.event_query(event), Ok(false));
    assert_eq!(driver.stream_query(STREAM), Ok(false));
    fake.write(c"fake_event_ready", 1);
    assert_eq!(driver.event_query(event), Ok(true));
    assert_eq!(driver.stream_query(STREAM), Ok(true));
    for status in [1, 2, 9] {
        fake.write(c"fake_capture_status", status);
        assert_eq!(driver.stream_is_capturing(STREAM), Ok(true));
        assert_eq!(driver.stream_is_capturing(StreamHandle::LEGACY), Ok(true));
        assert_eq!(driver.stream_query(STREAM), Err(error(Call::StreamQuery, 900)));
    }
    fake.write(c"fake_capture_status", 0);
    assert_eq!(driver.stream_is_capturing(StreamHandle::LEGACY), Ok(false));
    driver.event_destroy(event).unwrap();
}

#[test]
fn a_stream_of_another_context_is_found_with_its_device() {
    let fake = Fake::compile(&[]);
    let platform = fake.open();
    let [first, second] = [&platform.devices[0], &platform.devices[1]];
    let other = second.other_context_of(StreamHandle(78)).unwrap().unwrap();
    assert_eq!((other.ordinal(), other.context()), (first.ordinal(), first.context()));
    assert_ne!(other.context(), second.context());
    other.synchronize().unwrap();
    assert_eq!(fake.read::<c_long>(c"fake_retains"), 2, "by the two devices, and not by the face");
    // In this thread no context is current.
    assert!(second.other_context_of(StreamHandle::LEGACY).unwrap().is_none());
    assert_eq!((first.is_in_use(), second.is_in_use()), (Ok(true), Ok(false)));
    fake.assert_restored(0, 0);
}

#[test]
fn numbers_of_streams_are_few_bits_or_none() {
    let fake = Fake::compile(&[]);
    let driver = fake.driver(0);
    fake.write(c"fake_stream_id", -1);
    assert_eq!(driver.stream_id(STREAM), Err(error(Call::StreamId, 500)));
    assert_eq!(driver.stream_id(StreamHandle(79)), Err(error(Call::StreamId, 400)));
}

#[test]
fn threads_share_a_device_and_one_context() {
    let fake = Fake::compile(&[]);
    let platform = fake.open();
    let depth = fake.function(c"fake_context_depth");
    let capture_mode = fake.function(c"fake_capture_mode");
    std::thread::scope(|scope| {
        for index in 0..8 {
            let driver = &platform.devices[index % 2];
            scope.spawn(move || {
                for _ in 0..200 {
                    use_everything(&**driver).unwrap();
                    assert_eq!((depth(), capture_mode()), (0, 0));
                }
            });
        }
    });
    fake.assert_restored(0, 0);
    assert_eq!(fake.read::<c_long>(c"fake_retains"), 2);
    for driver in &platform.devices {
        let mut expected = [4 * 200; Call::COUNT];
        expected[Call::Initialize as usize] = 1;
        expected[Call::StreamIsCapturing as usize] *= ASKED_AGAIN;
        assert_eq!(driver.usage().calls, expected);
    }
}
