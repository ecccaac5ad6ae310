//! Who keeps a block alive, and who may end first.

use genesis::config::PoolType;

use crate::MIB;
use crate::peer::Peer;

#[test]
fn a_freed_block_stays_until_the_last_importer_lets_go() {
    for pool_type in PoolType::ALL {
        let (mut here, mut there) = Peer::pair(*pool_type);
        let block = here.malloc(8 * MIB);
        here.fill(block, 8 * MIB, 1);
        let handles = [here.export(block), here.export(block)];
        here.free(block);
        let refusal = here.ask(&format!("free {block}")).unwrap_err();
        assert!(refusal.starts_with("DoubleFree"), "{refusal}");
        // The second handle is imported after the free.
        let (copy, _) = there.import(&handles[0]);
        assert_eq!(there.import(&handles[1]).0, copy);
        here.ask("empty").unwrap();
        let others: Vec<u64> = (0..8).map(|_| here.malloc(8 * MIB)).collect();
        for &other in &others {
            assert_ne!(other, block);
            here.fill(other, 8 * MIB, 2);
        }
        there.expect(copy, 8 * MIB, 1);
        there.close(copy);
        there.expect(copy, 8 * MIB, 1);
        there.close(copy);
        others.into_iter().for_each(|other| here.free(other));
        Peer::finish([here, there]);
    }
}

#[test]
fn a_consumer_that_dies_lets_go() {
    for pool_type in [PoolType::Naive, PoolType::Caching, PoolType::Elastic] {
        let (mut here, mut first) = Peer::pair(pool_type);
        let mut second = Peer::start(pool_type, &[]);
        let blocks = [100, 30 * MIB].map(|bytes| here.malloc(bytes));
        for block in blocks {
            let handle = here.export(block);
            first.import(&handle);
            let handle = here.export(block);
            first.import(&handle);
        }
        let handle = here.export(blocks[1]);
        let (copy, _) = second.import(&handle);
        blocks.into_iter().for_each(|block| here.free(block));
        first.kill();
        second.expect(copy, 30 * MIB, 0);
        second.close(copy);
        Peer::finish([here, second]);
    }
}

#[test]
fn a_producer_may_end_first() {
    let (mut here, mut there) = Peer::pair(PoolType::Elastic);
    let block = here.malloc(20 * MIB);
    here.fill(block, 20 * MIB, 9);
    let handles = [here.export(block), here.export(block)];
    let (copy, _) = there.import(&handles[0]);
    here.kill();
    there.expect(copy, 20 * MIB, 9);
    let refusal = there.ask(&format!("import {}", handles[1]));
    // It is mapped already, so no question is asked.
    assert!(refusal.is_ok());
    there.close(copy);
    there.close(copy);
    let refusal = there.ask(&format!("import {}", handles[1])).unwrap_err();
    assert!(refusal.starts_with("InvalidArgument") && refusal.contains("is gone"), "{refusal}");
    Peer::finish([there]);
}

#[test]
fn a_handle_can_be_discarded_anywhere() {
    for pool_type in [PoolType::Caching, PoolType::Elastic] {
        let (mut here, mut there) = Peer::pair(pool_type);
        let block = here.malloc(MIB);
        let handles = [here.export(block), here.export(block), here.export(block)];
        here.free(block);
        here.ask(&format!("discard {}", handles[0])).unwrap();
        there.ask(&format!("discard {}", handles[1])).unwrap();
        // Twice is once.
        there.ask(&format!("discard {}", handles[1])).unwrap();
        here.expect_allocated(MIB);
        there.ask(&format!("discard {}", handles[2])).unwrap();
        here.expect_allocated(0);
        let gone = there.ask(&format!("import {}", handles[2])).unwrap_err();
        assert!(gone.starts_with("InvalidArgument"), "{gone}");
        Peer::finish([here, there]);
    }
}

#[test]
fn a_process_that_imports_its_own_block_gets_the_block() {
    for pool_type in PoolType::ALL {
        let mut here = Peer::start(*pool_type, &[]);
        let block = here.malloc(MIB);
        let handle = here.export(block);
        assert_eq!(here.import(&handle).0, block);
        here.free(block);
        here.expect(block, MIB, 0);
        here.close(block);
        let refusal = here.ask(&format!("close {block}")).unwrap_err();
        assert!(refusal.starts_with("ForeignPointer"), "{refusal}");
        Peer::finish([here]);
    }
}

#[test]
fn a_close_during_a_capture_happens_after_it() {
    for pool_type in [PoolType::Caching, PoolType::Elastic] {
        let (mut here, mut there) = Peer::pair(pool_type);
        let blocks = [MIB, 2 * MIB].map(|bytes| here.malloc(bytes));
        let copies = blocks.map(|block| {
            let handle = here.export(block);
            there.import(&handle).0
        });
        blocks.into_iter().for_each(|block| here.free(block));
        there.ask("capture begin").unwrap();
        there.close(copies[0]);
        assert_ne!(there.census("opened") + there.census("mappings"), 0);
        here.expect_allocated(3 * MIB);
        there.ask("capture end").unwrap();
        // The next close also ends the late one.
        there.close(copies[1]);
        Peer::finish([here, there]);
    }
}

#[test]
fn a_tag_is_not_paused_while_another_process_has_a_block_of_it() {
    let (mut here, mut there) = Peer::pair(PoolType::Elastic);
    here.ask("tag push weights").unwrap();
    let block = here.malloc(4 * MIB);
    here.fill(block, 4 * MIB, 3);
    let handle = here.export(block);
    let refusal = here.ask("tag pause weights").unwrap_err();
    assert!(refusal.starts_with("Busy"), "{refusal}");
    let (copy, _) = there.import(&handle);
    assert!(here.ask("tag pause weights").is_err());
    there.expect(copy, 4 * MIB, 3);
    there.close(copy);
    // A release needs a moment to arrive.
    while here.ask("tag pause weights").is_err() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let refusal = here.ask(&format!("export {block}")).unwrap_err();
    assert!(refusal.starts_with("Busy"), "{refusal}");
    here.ask("tag resume weights").unwrap();
    here.expect(block, 4 * MIB, 3);
    here.free(block);
    Peer::finish([here, there]);
}
