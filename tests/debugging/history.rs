//! Frees that are wrong, told with where the block came from and where it went.

use genesis::base::Status;
use genesis::base::size::MIB;
use genesis::config::DebugModes;

use crate::support::{A, B, status_of};
use crate::{GUARD, LEAKS, POISON, QUARANTINE, SIZES_BYTES, at, everywhere, plain};

const ALL_MODES: [DebugModes; 5] = [LEAKS, POISON, QUARANTINE, GUARD, DebugModes::ALL];

#[test]
fn a_double_free_names_all_three_places() {
    for modes in ALL_MODES {
        everywhere(modes, |rig| {
            for bytes in SIZES_BYTES {
                at(10);
                let address = rig.allocate(bytes, A);
                at(11);
                rig.free(address);
                at(12);
                let error = rig.heap.free(address).unwrap_err();
                assert_eq!(error.status, Status::DoubleFree);
                assert_eq!(
                    plain(&error.message),
                    format!(
                        "A is already free: {bytes} bytes allocated at program.c:10 (main) (T s \
                         ago), freed at program.c:11 (main) (T s ago); now used at program.c:12 \
                         (main)"
                    )
                );
                assert_eq!(rig.lines().last().unwrap(), &*error.message);
                at(13);
                let again = status_of(rig.heap.free(address));
                assert_eq!(again, Status::DoubleFree, "and the first free is still the first");
                assert!(rig.lines().last().unwrap().contains("freed at program.c:11"));
                // Nor may a freed block be named otherwise.
                assert_eq!(status_of(rig.heap.record_stream(address, B)), Status::DoubleFree);
            }
            rig.finish();
        });
    }
}

#[test]
fn a_foreign_free_says_what_is_near() {
    everywhere(LEAKS, |rig| {
        at(20);
        let address = rig.allocate(MIB, A);
        at(21);
        let of = |address| rig.heap.free(address).unwrap_err();
        let inside = of(address + 512);
        assert_eq!(inside.status, Status::ForeignPointer);
        assert_eq!(
            plain(&inside.message),
            "A points into the block at A, not to its start, allocated at program.c:20 (main) (T \
             s ago); now used at program.c:21 (main)"
        );
        let elsewhere = of(0x1000);
        assert_eq!(elsewhere.status, Status::ForeignPointer);
        assert_eq!(
            plain(&elsewhere.message),
            "A was not allocated by genesis, or its memory has been released; now used at \
             program.c:21 (main)"
        );
        at(22);
        rig.free(address);
        let of_freed = of(address + 512);
        assert!(
            plain(&of_freed.message).ends_with(
                "it is 512 bytes into a block at A: 1048576 bytes allocated at program.c:20 (main) \
                 (T s ago), freed at program.c:22 (main) (T s ago); now used at program.c:22 (main)"
            ),
            "{of_freed}"
        );
        rig.finish();
    });
}

#[test]
fn blocks_from_before_are_known_as_far_as_they_are() {
    everywhere(DebugModes::OFF, |rig| {
        at(30);
        let address = rig.allocate(MIB, A);
        let mut settings = rig.heap.settings();
        settings.debug = LEAKS;
        rig.heap.apply(&settings);
        at(0);
        rig.free(address);
        let error = rig.heap.free(address).unwrap_err();
        assert_eq!(
            plain(&error.message),
            "A is already free: freed at a place not known (T s ago); now used at a place not known"
        );
        settings.debug = DebugModes::OFF;
        rig.heap.apply(&settings);
        rig.finish();
    });
}
