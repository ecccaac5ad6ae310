//! Host time of the calls an allocator makes often: `cargo bench -p simgpu`.
//!
//! Addresses only, race detector off. Each should take well under a microsecond, or replays
//! measure the simulator. Many handles and mappings cost hardly more, because tables are trees.

use std::hint::black_box;
use std::time::Instant;

use simgpu::{Config, Machine, StoreKind, Work};

const ROUNDS: u32 = 200_000;
const GRANULE: u64 = 2 << 20;
/// How many pages an allocator that maps page by page holds of a device of 80 GB.
const PAGES: u64 = 30_000;

fn main() {
    let machine = match Machine::new(Config::new(StoreKind::AddressesOnly, 1, 160 << 30)) {
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
    if let Err(code) = many_pages(&machine) {
        eprintln!("no pages: {code}");
    }
}

/// The calls on single pages of many, at scattered places.
fn many_pages(machine: &Machine) -> simgpu::Result<()> {
    let base = machine.reserve(0, 2 * PAGES * GRANULE, 0)?;
    let mut handles = Vec::new();
    for page in 0..PAGES {
        let handle = machine.create(0, GRANULE)?;
        machine.map(0, base + page * GRANULE, GRANULE, handle)?;
        handles.push(handle);
    }
    machine.set_access(0, base, PAGES * GRANULE, &[0])?;
    let mut page = 0;
    let mut next = || {
        page = (page + 7919) % PAGES;
        page
    };
    measure("of 30,000: map + access + unmap", || {
        let page = next();
        let address = base + (PAGES + page) * GRANULE;
        machine.map(0, address, GRANULE, handles[page as usize])?;
        machine.set_access(0, address, GRANULE, &[0])?;
        machine.unmap(0, address, GRANULE)
    });
    measure("of 30,000: unmap, release, anew", || {
        let page = next();
        let (address, handle) = (base + page * GRANULE, &mut handles[page as usize]);
        machine.unmap(0, address, GRANULE)?;
        machine.release(0, *handle)?;
        *handle = machine.create(0, GRANULE)?;
        machine.map(0, address, GRANULE, *handle)?;
        machine.set_access(0, address, GRANULE, &[0])
    });
    measure("of 30,000: access to 64", || {
        machine.set_access(0, base + next() % (PAGES - 64) * GRANULE, 64 * GRANULE, &[0])
    });
    let touch = |address| machine.touch(0, 0x1234, Work::write(address, GRANULE, "kernel"));
    measure("of 30,000: touch", || touch(base + next() * GRANULE));
    machine.detect_races(true);
    measure("of 30,000: touch, races detected", || touch(base + next() * GRANULE));
    Ok(())
}

fn measure(what: &str, mut call: impl FnMut() -> simgpu::Result<()>) {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        if let Err(code) = black_box(call()) {
            return eprintln!("{what}: {code}");
        }
    }
    let nanoseconds = start.elapsed().as_nanos() / u128::from(ROUNDS);
    println!("{what:<33} {nanoseconds:>6} ns");
}
