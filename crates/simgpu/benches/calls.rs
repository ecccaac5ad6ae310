//! Host time of the calls an allocator makes often: `cargo bench -p simgpu`.
//!
//! Addresses only, race detector off. Each should take well under a microsecond, or replays
//! measure the simulator.

use std::hint::black_box;
use std::time::Instant;

use simgpu::{Config, Machine, StoreKind};

const ROUNDS: u32 = 200_000;
const GRANULE: u64 = 2 << 20;

fn main() {
    let machine = match Machine::new(Config::new(StoreKind::AddressesOnly, 1, 80 << 30)) {
        Ok(machine) => machine,
        Err(code) => return eprintln!("no machine: {code}"),
    };
    // A heap of some size, so that the tables are not empty.
    for index in 0..20_000u64 {
        let _ = black_box(machine.allocate(0, 512 + index % 7 * GRANULE / 4));
    }
    let event = machine.event_create(0, false).unwrap_or(0);
    let base = machine.reserve(0, 1 << 40, 0).unwrap_or(0);
    let handle = machine.create(0, GRANULE).unwrap_or(0);
    measure("allocate + free, 4 KiB", || {
        machine.allocate(0, 4096).and_then(|address| machine.free(0, address))
    });
    measure("allocate + free, 20 MiB", || {
        machine.allocate(0, 20 << 20).and_then(|address| machine.free(0, address))
    });
    measure("create + release", || {
        machine.create(0, GRANULE).and_then(|handle| machine.release(0, handle))
    });
    measure("map + set access + unmap", || {
        machine.map(0, base, GRANULE, handle)?;
        machine.set_access(0, base, GRANULE, &[0])?;
        machine.unmap(0, base, GRANULE)
    });
    measure("event record", || machine.event_record(0, event, 0x1234));
    measure("event query", || machine.event_query(0, event).map(|_| ()));
    measure("stream wait", || machine.stream_wait(0, 0x5678, event));
}

fn measure(what: &str, mut call: impl FnMut() -> simgpu::Result<()>) {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        if let Err(code) = black_box(call()) {
            return eprintln!("{what}: {code}");
        }
    }
    let nanoseconds = start.elapsed().as_nanos() / u128::from(ROUNDS);
    println!("{what:<28} {nanoseconds:>6} ns");
}
