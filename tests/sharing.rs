//! Blocks shared with other processes, through the C functions, on simcuda.
//!
//! A test drives *peers*: processes of this same program that do what they are told, one line at a
//! time ([`peer`]). Each has its own simulated driver; the drivers share memory as CUDA's do, with
//! CUDA's rules. A peer that breaks one (such as freeing what is open elsewhere) aborts.

#[path = "sharing/faults.rs"]
mod faults;
#[path = "sharing/handles.rs"]
mod handles;
#[path = "sharing/lifetimes.rs"]
mod lifetimes;
#[path = "support/on_simcuda.rs"]
mod on_simcuda;
#[path = "sharing/peer.rs"]
#[allow(dead_code)] // tests/neighbours.rs uses the rest
mod peer;

use genesis::config::PoolType;
use peer::Peer;

const MIB: u64 = 1 << 20;
/// Under an extent, over one, and over many: at 1 GiB, extents are of a few mebibytes.
const SIZES: [u64; 4] = [700, MIB, 5 * MIB + 512, 200 * MIB];

#[test]
fn contents_are_shared_both_ways() {
    for pool_type in PoolType::ALL {
        let (mut here, mut there) = Peer::pair(*pool_type);
        for bytes in SIZES {
            let block = here.malloc(bytes);
            here.fill(block, bytes, 0x5A);
            let handle = here.export(block);
            let (copy, size) = there.import(&handle);
            assert!(size >= bytes, "{pool_type:?}: {size} bytes of {bytes}");
            there.expect(copy, bytes, 0x5A);
            there.fill(copy, bytes, 0xA5);
            here.expect(block, bytes, 0xA5);
            there.close(copy);
            here.free(block);
        }
        Peer::finish([here, there]);
    }
}

#[test]
fn a_block_is_mapped_once_however_often_it_is_imported() {
    for pool_type in PoolType::ALL {
        let (mut here, mut there) = Peer::pair(*pool_type);
        let (first, second) = (here.malloc(3 * MIB), here.malloc(100));
        let handles = [first, first, second, first].map(|block| here.export(block));
        let copies = handles.each_ref().map(|handle| there.import(handle).0);
        assert_eq!((copies[0], copies[1]), (copies[1], copies[3]), "{pool_type:?}");
        assert_ne!(copies[0], copies[2]);
        let all = there.census("opened") + there.census("mappings");
        for _ in 0..2 {
            there.close(copies[0]);
            assert_eq!(there.census("opened") + there.census("mappings"), all);
        }
        there.close(copies[0]);
        let rest = there.census("opened") + there.census("mappings");
        // Under Caching the two may lie in one segment.
        assert!(rest > 0 && rest <= all, "{pool_type:?}: {rest} of {all}");
        there.close(copies[2]);
        assert_eq!(there.census("opened") + there.census("mappings"), 0);
        here.free(first);
        here.free(second);
        Peer::finish([here, there]);
    }
}

#[test]
fn blocks_of_one_segment_share_its_opening() {
    let (mut here, mut there) = Peer::pair(PoolType::Caching);
    let blocks = [1000, 2000, 3000].map(|bytes| here.malloc(bytes));
    let copies = blocks.map(|block| {
        let handle = here.export(block);
        there.import(&handle).0
    });
    assert_eq!(there.census("opened"), 1);
    assert_eq!(copies[1] - copies[0], blocks[1] - blocks[0]);
    for (block, copy) in blocks.into_iter().zip(copies) {
        here.fill(block, 1000, 7);
        there.expect(copy, 1000, 7);
        there.close(copy);
        here.free(block);
    }
    Peer::finish([here, there]);
}

#[test]
fn threads_import_and_close_at_once() {
    for pool_type in [PoolType::Caching, PoolType::Elastic] {
        let (mut here, mut there) = Peer::pair(pool_type);
        let blocks = [512, 3 * MIB, 40 * MIB].map(|bytes| here.malloc(bytes));
        let handles: Vec<String> =
            (0..24).map(|index| here.export(blocks[index % blocks.len()])).collect();
        there.ask(&format!("crowd {}", handles.join(" "))).unwrap();
        blocks.into_iter().for_each(|block| here.free(block));
        Peer::finish([here, there]);
    }
}

#[test]
fn elastic_says_what_it_needs() {
    let mut here = Peer::start(PoolType::Elastic, &[("GENESIS_HANDLE_TYPE", "none")]);
    let block = here.malloc(MIB);
    let refusal = here.ask(&format!("export {block:#x}")).unwrap_err();
    assert!(refusal.contains("GENESIS_HANDLE_TYPE=posix"), "{refusal}");
    here.free(block);
    Peer::finish([here]);
}
