//! The driver fails at each call of a scene in turn, in either process.

use genesis::config::PoolType;

use crate::MIB;
use crate::peer::Peer;

/// A shortage of memory, an error without a name, and a driver that has shut down.
const CODES: [u32; 3] = [2, 12345, 4];

/// The calls that an exporter and an importer make of the driver for a scene.
fn kinds(pool_type: PoolType, exports: bool) -> &'static [&'static str] {
    match (pool_type, exports) {
        (PoolType::Elastic, true) => &["cuMemExportToShareableHandle"],
        (PoolType::Elastic, false) => &[
            "cuMemAddressReserve",
            "cuMemImportFromShareableHandle",
            "cuMemMap",
            "cuMemRelease",
            "cuMemSetAccess",
            "cuCtxSynchronize",
            "cuMemUnmap",
            "cuMemAddressFree",
        ],
        (_, true) => &["cuIpcGetMemHandle"],
        (_, false) => &["cuIpcOpenMemHandle", "cuCtxSynchronize", "cuIpcCloseMemHandle"],
    }
}

/// Two blocks, exported, imported and closed; returns whether every step succeeded.
fn scene(here: &mut Peer, there: &mut Peer, blocks: [u64; 2]) -> bool {
    let mut has_succeeded = true;
    for block in blocks {
        let Ok(handle) = here.ask(&format!("export {block}")) else {
            has_succeeded = false;
            continue;
        };
        match there.ask(&format!("import {handle}")) {
            Ok(answer) => {
                let copy = answer.split(' ').next().unwrap().parse().unwrap();
                there.expect(copy, MIB, 6);
                // What cannot be unmapped now is unmapped later; a close itself never fails.
                there.close(copy);
            }
            Err(refusal) => {
                let is_known = ["DriverFailed", "OutOfMemory", "NotSupported"];
                assert!(is_known.iter().any(|known| refusal.starts_with(known)), "{refusal}");
                has_succeeded = false;
            }
        }
    }
    has_succeeded
}

#[test]
fn no_failure_of_the_driver_loses_a_block() {
    for pool_type in [PoolType::Caching, PoolType::Elastic] {
        let (mut here, mut there) = Peer::pair(pool_type);
        let blocks = [MIB, 24 * MIB].map(|bytes| here.malloc(bytes));
        blocks.into_iter().for_each(|block| here.fill(block, MIB, 6));
        assert!(scene(&mut here, &mut there, blocks));
        let mut failures = 0;
        for exports in [true, false] {
            for kind in kinds(pool_type, exports) {
                let count = |peer: &mut Peer| -> u64 {
                    peer.ask(&format!("calls {kind}")).unwrap().parse().unwrap()
                };
                let before = count(if exports { &mut here } else { &mut there });
                assert!(scene(&mut here, &mut there, blocks));
                let calls = count(if exports { &mut here } else { &mut there }) - before;
                assert!(calls > 0, "{kind} is not called");
                for nth in 1..=calls {
                    for (code, times) in CODES.iter().flat_map(|code| [(code, 1), (code, 1000)]) {
                        let failing = if exports { &mut here } else { &mut there };
                        failing.ask(&format!("fail {kind} {nth} {code} {times}")).unwrap();
                        failures += u64::from(!scene(&mut here, &mut there, blocks));
                        let failing = if exports { &mut here } else { &mut there };
                        failing.ask("fail none 0 0 0").unwrap();
                    }
                }
            }
        }
        assert!(failures > 0);
        // A scene in which nothing fails also ends what was left.
        assert!(scene(&mut here, &mut there, blocks));
        blocks.into_iter().for_each(|block| here.free(block));
        Peer::finish([here, there]);
    }
}
