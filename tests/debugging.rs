//! What `GENESIS_DEBUG` finds, under every strategy and the race detector, on both stores.
//!
//! Programs here use memory wrongly, each in one way, and what the log then says is compared.
//! Call sites are numbers that a test sets; they read "program.c:NUMBER (main)".

#[path = "debugging/c_programs.rs"]
mod c_programs;
#[path = "debugging/guard.rs"]
mod guard;
#[path = "debugging/history.rs"]
mod history;
#[path = "debugging/leaks.rs"]
mod leaks;
#[path = "debugging/poison.rs"]
mod poison;
#[path = "c_interface/programs.rs"]
mod programs;
#[path = "debugging/quarantine.rs"]
mod quarantine;
mod support;

use std::cell::Cell;

use genesis::base::size::MIB;
use genesis::config::{DebugModes, PoolType};
use genesis::observe::EventStream;
use genesis_profile::model::{Frame, Site};
use simgpu::StoreKind;

use support::{Plan, Rig, Subject};

const FRESH: u8 = 0xCD;
const FREED: u8 = 0xDD;
const LEAKS: DebugModes = DebugModes { leaks: true, ..DebugModes::OFF };
const POISON: DebugModes = DebugModes { poison: true, ..DebugModes::OFF };
const QUARANTINE: DebugModes = DebugModes { quarantine: true, ..DebugModes::OFF };
const GUARD: DebugModes = DebugModes { guard: true, ..DebugModes::OFF };
/// Small and large, of whole alignments and not.
const SIZES_BYTES: [u64; 6] = [1, 512, 4000, 100_000, MIB, 3 * MIB + 77];

thread_local! {
    static LINE: Cell<u32> = const { Cell::new(0) };
}

/// From here on this thread is at that line of its program.
fn at(line: u32) {
    LINE.set(line);
}

/// A heap with `modes` on, whose call sites are what [`at`] says.
fn plan(pool_type: PoolType, store: StoreKind, modes: DebugModes) -> Plan {
    EventStream::silent().set_site_finder(|| LINE.get());
    EventStream::silent().set_site_namer(|line| Site {
        frames: vec![Frame { function: "main".into(), file: "program.c".into(), line }],
    });
    at(0);
    Subject::new(pool_type, store).plan().set(|settings| settings.debug = modes)
}

/// Runs `case` for each strategy and store.
fn everywhere(modes: DebugModes, case: impl Fn(Rig)) {
    for pool_type in PoolType::ALL {
        for store in [StoreKind::RealBytes, StoreKind::AddressesOnly] {
            case(plan(*pool_type, store, modes).start());
        }
    }
}

/// Runs `case` for each strategy, with bytes.
fn with_bytes(modes: DebugModes, case: impl Fn(Rig)) {
    for pool_type in PoolType::ALL {
        case(plan(*pool_type, StoreKind::RealBytes, modes).start());
    }
}

impl Rig {
    /// Whether `bytes` at `address` are all `value`; the work of the device is over.
    fn is_filled(&self, address: u64, bytes: u64, value: u8) -> bool {
        self.machine.synchronize(0).unwrap();
        self.machine.find_other(0, address, bytes, value).unwrap().is_none()
    }

    /// Writes a byte on `stream`.
    fn write(&self, address: u64, stream: genesis::base::StreamHandle) {
        self.machine.fill(0, stream.0, address, 1, 0x11).unwrap();
    }

    /// The one line that has been logged, without addresses and times.
    #[track_caller]
    fn only_line(&self) -> String {
        let lines = self.lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        plain(&lines[0])
    }
}

/// A line with `A` for each address and `T` for each time.
fn plain(line: &str) -> String {
    let mut words = Vec::new();
    for word in line.split(' ') {
        let is_time = word
            .strip_prefix('(')
            .is_some_and(|time| time.contains('.') && time.parse::<f64>().is_ok());
        let hexadecimal = word
            .strip_prefix("0x")
            .map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_hexdigit()).to_owned());
        words.push(match hexadecimal {
            Some(rest) => format!("A{rest}"),
            None if is_time => "(T".to_owned(),
            None => word.to_owned(),
        });
    }
    words.join(" ")
}
