//! The program in which memory moves in every way there is.

use super::*;

impl Run {
    pub(super) fn move_memory(&mut self) {
        self.move_within_a_stream();
        self.move_to_another_stream();
        self.move_on_and_on();
        self.move_beside_a_capture();
    }

    /// Every second page, as one block, and so again.
    fn move_within_a_stream(&mut self) {
        let pages = [(); 8].map(|()| self.allocate("page", 2 * MIB, A));
        pages.iter().step_by(2).for_each(|&page| self.free("page", page));
        for _ in 0..2 {
            let stretch = self.allocate("every second page", 8 * MIB, A);
            self.free("every second page", stretch);
            let apart = [(); 4].map(|()| self.allocate("apart again", 2 * MIB, A));
            apart.into_iter().for_each(|page| self.free("apart", page));
        }
        pages.iter().skip(1).step_by(2).for_each(|&page| self.free("page", page));
    }

    /// Without an event, with one, and back.
    fn move_to_another_stream(&mut self) {
        let kept = self.allocate("kept", 2 * MIB, A);
        let first = self.allocate("before an event", 4 * MIB, B);
        let small = self.allocate("makes the event", 700, A);
        let second = self.allocate("behind the event", 6 * MIB, B);
        self.free("first", first);
        self.free("second", second);
        self.free("kept", kept);
        self.free("small", small);
        let back = self.allocate("back", 8 * MIB, A);
        self.free("back", back);
    }

    /// Any two to five of eight pages as one block: many views.
    fn move_on_and_on(&mut self) {
        let mut pages = [(); 8].map(|()| self.allocate("page", 2 * MIB, A));
        let some = (0..256u32).filter(|set| (2..=5).contains(&set.count_ones()));
        for set in some {
            let is_chosen = |index: &usize| set >> index & 1 == 1;
            (0..8).filter(is_chosen).for_each(|index| self.free("page", pages[index]));
            let bytes = u64::from(set.count_ones()) * 2 * MIB;
            let block = self.allocate("some pages", bytes, A);
            self.rig.run(A);
            self.free("some pages", block);
            for index in (0..8).filter(is_chosen) {
                pages[index] = self.allocate("page again", 2 * MIB, A);
            }
        }
        pages.into_iter().for_each(|page| self.free("page", page));
    }

    /// While a stream captures into a pool, the others' memory moves on.
    fn move_beside_a_capture(&mut self) {
        self.note("trim", self.rig.heap.trim(DEVICE, 10 * MIB).map(drop));
        let pool = PoolId(0, 1);
        self.rig.machine.begin_capture(0, C.0, CaptureMode::Global).unwrap();
        let filter = Arc::new(|stream| stream == C);
        self.note("begin", self.rig.heap.begin_pool(DEVICE, pool, filter));
        let captured = self.allocate("captured", 3 * MIB, C);
        let pages = [(); 4].map(|()| self.allocate("beside the capture", 2 * MIB, A));
        pages.iter().step_by(2).for_each(|&page| self.free("beside the capture", page));
        self.allocate("moved beside the capture", 4 * MIB, A);
        self.free("captured", captured);
        self.allocate("captured again", 4 * MIB, C);
        self.allocate("too much for now", 12 * MIB, B);
        self.note("end", self.rig.heap.end_pool(DEVICE, pool));
        self.rig.machine.end_capture(0, C.0).expect("nothing has disturbed it");
        self.note("release", self.rig.heap.release_pool(DEVICE, pool));
        self.note("empty", self.rig.heap.empty_cache(DEVICE).map(drop));
    }
}
