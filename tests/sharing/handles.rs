//! Wrong pointers and wrong handles: clear errors, and never anything else.

use genesis::config::PoolType;

use crate::MIB;
use crate::peer::Peer;

fn refused(peer: &mut Peer, order: &str, status: &str) {
    let refusal = peer.ask(order).unwrap_err();
    assert!(refusal.starts_with(status), "{order}: {refusal}");
}

#[test]
fn only_live_blocks_of_the_process_are_exported() {
    for pool_type in PoolType::ALL {
        let (mut here, mut there) = Peer::pair(*pool_type);
        let (block, freed) = (here.malloc(3 * MIB), here.malloc(5 * MIB));
        here.free(freed);
        refused(&mut here, "export 0", "ForeignPointer");
        refused(&mut here, "export 4096", "ForeignPointer");
        refused(&mut here, &format!("export {}", block + 512), "ForeignPointer");
        let refusal = here.ask(&format!("export {freed}")).unwrap_err();
        let expected = ["DoubleFree", "ForeignPointer"];
        assert!(expected.iter().any(|status| refusal.starts_with(status)), "{refusal}");
        let handle = here.export(block);
        let (copy, _) = there.import(&handle);
        refused(&mut there, &format!("export {copy}"), "InvalidArgument");
        refused(&mut there, &format!("free {copy}"), "ForeignPointer");
        refused(&mut there, &format!("close {}", copy + 512), "ForeignPointer");
        there.close(copy);
        refused(&mut there, &format!("close {copy}"), "ForeignPointer");
        here.free(block);
        Peer::finish([here, there]);
    }
}

#[test]
fn changed_handles_are_refused() {
    for pool_type in [PoolType::Caching, PoolType::Elastic] {
        let (mut here, mut there) = Peer::pair(pool_type);
        let block = here.malloc(2 * MIB);
        let handle = bytes_of(&here.export(block));
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        for round in 0..600 {
            let mut changed = handle;
            // Not the token: any token of a share that exists is good for one more import.
            for _ in 0..=random.below(4) {
                changed[random.below(40)] = random.below(256) as u8;
            }
            if round % 8 == 0 {
                changed.fill_with(|| random.below(256) as u8);
            }
            if round % 2 == 0 {
                sign(&mut changed);
            }
            if changed[..40] == handle[..40] {
                continue;
            }
            for (peer, verb) in [(&mut there, "import"), (&mut here, "import")] {
                let order = format!("{verb} {}", text_of(&changed));
                refused(peer, &order, "InvalidArgument");
            }
        }
        let (copy, _) = there.import(&text_of(&handle));
        there.close(copy);
        here.free(block);
        Peer::finish([here, there]);
    }
}

/// Puts the right checksum behind the bytes, so that they are looked at.
fn sign(handle: &mut [u8; 64]) {
    let sum = handle[..56].iter().fold(0xcbf2_9ce4_8422_2325u64, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    handle[56..].copy_from_slice(&sum.to_le_bytes());
}

fn bytes_of(text: &str) -> [u8; 64] {
    std::array::from_fn(|index| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).unwrap())
}

fn text_of(handle: &[u8; 64]) -> String {
    handle.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }
}
