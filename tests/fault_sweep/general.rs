//! The program for every strategy: growth, streams that share and move memory, shortage, a handle
//! that is used again, another context, a capture.

use super::verdict::{BESIDE_A_CAPTURE, SLEEP, WAKE};
use super::*;

impl Run {
    pub(super) fn use_everything(&mut self) {
        self.grow_and_use_across_streams();
        self.move_between_streams();
        self.run_short();
        self.free_all();
        self.give_a_handle_again();
        self.use_a_stream_of_another_context();
        self.free_all();
        self.limit_a_tag();
        self.free_all();
        self.limit_a_pool();
        self.free_all();
        self.sleep_and_wake();
        self.free_all();
        self.communicate();
        self.free_all();
        self.run_short_beside_a_capture();
    }

    /// The account is checked at the end.
    fn limit_a_tag(&mut self) {
        let heap = self.rig.heap.clone();
        self.note("limit", heap.set_tag_limit(LIMITED, None, Some(24 * MIB)));
        self.note("begin the tag", heap.begin_tag(LIMITED));
        let first = self.allocate("under a tag", 16 * MIB, A);
        self.note("begin a tag within", heap.begin_tag("within"));
        let second = self.allocate_unused("under two", 4 * MIB, A);
        self.read_elsewhere("under two", second, (0, C));
        self.note("end the tag within", heap.end_tag());
        self.free("under two", second);
        self.allocate("under a tag again", 8 * MIB, A);
        self.allocate("beyond the limit", 4 * MIB, A);
        self.note("end the tag", heap.end_tag());
        self.free("under a tag", first);
    }

    fn limit_a_pool(&mut self) {
        let heap = self.rig.heap.clone();
        self.note("hold a pool", heap.hold_pool(DEVICE, LIMITED_POOL, false));
        let limit = Some(24 * MIB);
        self.note("limit it", heap.set_pool_limit(DEVICE, LIMITED_POOL, limit));
        self.note("begin it", heap.begin_pool(DEVICE, LIMITED_POOL, Arc::new(|_| true)));
        let first = self.allocate("in a limited pool", 8 * MIB, A);
        self.allocate("beyond its limit", 32 * MIB, A);
        self.free("in a limited pool", first);
        self.allocate("in a limited pool again", 6 * MIB, A);
        let blocks = heap.pool_blocks(DEVICE, LIMITED_POOL);
        if let (Ok(usage), Ok(blocks)) = (heap.pool_usage(DEVICE, LIMITED_POOL), blocks) {
            let held_bytes: u64 = blocks.iter().map(|block| block.bytes).sum();
            assert_eq!(usage.reserved_bytes, held_bytes, "the pool's account");
        }
        self.note("end it", heap.end_pool(DEVICE, LIMITED_POOL));
        for _ in 0..2 {
            self.note("release it", heap.release_pool(DEVICE, LIMITED_POOL));
        }
    }

    fn sleep_and_wake(&mut self) {
        let heap = self.rig.heap.clone();
        self.note("a graph", heap.begin_pool(DEVICE, SLEEPING_POOL, Arc::new(|_| true)));
        let scratch = self.allocate("captured", 3 * MIB, A);
        self.allocate("captured", 2 * MIB, A);
        self.free("captured", scratch);
        self.note("a graph", heap.end_pool(DEVICE, SLEEPING_POOL));
        let tagged = heap.set_pool_tag(DEVICE, SLEEPING_POOL, SLEEPING, Backup::Pageable);
        self.note("a graph's tag", tagged);
        self.note("begin the tag", heap.begin_tag_with(SLEEPING, Backup::Pinned));
        let freed = self.allocate("under a tag that sleeps", 4 * MIB, A);
        self.allocate("under a tag that sleeps", 6 * MIB, B);
        self.note("end the tag", heap.end_tag());
        self.note(SLEEP, heap.pause_tags(None, Keeping::default()));
        self.free("asleep", freed);
        let guest = self.allocate("while others sleep", 36 * MIB, C);
        self.free("while others sleep", guest);
        self.note(WAKE, heap.resume_tags(None));
        self.note("end the graph", heap.release_pool(DEVICE, SLEEPING_POOL));
    }

    /// A pool for NCCL: what it has is registered, asleep and awake.
    fn communicate(&mut self) {
        let (heap, book) = (self.rig.heap.clone(), Arc::new(Book::default()));
        let registrar: Arc<dyn Registrar> = book.clone();
        let registrar = Some(registrar);
        let options = PoolOptions { communicates: true, registrar, ..PoolOptions::default() };
        // The tag is known also where the device cannot be opened.
        heap.begin_tag(REGISTERED).and_then(|()| heap.end_tag()).unwrap();
        let created = heap.create_pool(DEVICE, REGISTERED_POOL, options);
        let is_registered = created.is_ok();
        self.note("a pool for NCCL", created);
        if !is_registered {
            // It is as any other, if the device can be opened at all.
            let _ = heap.hold_pool(DEVICE, REGISTERED_POOL, false);
        }
        let tagged = heap.set_pool_tag(DEVICE, REGISTERED_POOL, REGISTERED, Backup::Pinned);
        self.note("its tag", tagged);
        let begun = heap.begin_pool_of_thread(DEVICE, REGISTERED_POOL);
        self.note("begin it", begun);
        let buffers = [MIB, 3 * MIB, 5 * MIB].map(|bytes| self.allocate("buffer", bytes, A));
        self.free("buffer", buffers[1]);
        self.note("end it", heap.end_pool(DEVICE, REGISTERED_POOL));
        let is_there = |address: &u64| book.0.lock().unwrap().contains_key(address);
        let live = || [buffers[0], buffers[2]].into_iter().flatten();
        assert!(!is_registered || live().all(|address| is_there(&address)), "not registered");
        let paused = heap.pause_tags(Some(REGISTERED), Keeping::default());
        assert!(paused.is_err() || !live().any(|address| is_there(&address)), "still registered");
        self.note(SLEEP, paused);
        let resumed = heap.resume_tags(Some(REGISTERED));
        assert!(
            resumed.is_err() || !is_registered || live().all(|address| is_there(&address)),
            "not registered again"
        );
        self.note(WAKE, resumed);
        [buffers[0], buffers[2]].into_iter().for_each(|buffer| self.free("buffer", buffer));
        for _ in 0..2 {
            self.note("release it", heap.release_pool(DEVICE, REGISTERED_POOL));
        }
        self.books.push(book);
    }

    fn grow_and_use_across_streams(&mut self) {
        let small = [(); 3].map(|()| self.allocate("small", 700, A));
        self.free("small", small[1]);
        let kept = self.allocate("kept", 8 * MIB, A);
        let shared = self.allocate_unused("shared", 8 * MIB, A);
        for stream in [B, C] {
            self.read_elsewhere("shared", shared, (0, stream));
        }
        self.free("shared", shared);
        self.rig.run(B);
        self.rig.run(C);
        self.allocate("after B and C", 8 * MIB, A);
        self.free("kept", kept);
        let direct = self.allocate("direct", 6 * MIB, A);
        let address = direct.unwrap_or(0); // which is freed by doing nothing
        self.live.remove(&address);
        self.note("direct", self.rig.heap.free_directly(address).map(drop));
    }

    fn move_between_streams(&mut self) {
        let given = self.allocate("given", 12 * MIB, A);
        self.free("given", given);
        let first = self.allocate("asks for a fence", 12 * MIB, B);
        self.allocate("makes the fence", 700, A);
        let second = self.allocate("waits for the fence", 12 * MIB, B);
        self.free("first", first);
        self.free("second", second);
    }

    fn run_short(&mut self) {
        self.note("trim", self.rig.heap.trim(DEVICE, 40 * MIB).map(drop));
        self.note("compact", self.rig.heap.compact(DEVICE).map(drop));
        self.allocate("too much", 100 * MIB, A);
        let large = self.allocate("all that is left", 36 * MIB, C);
        self.allocate("what is not there", 30 * MIB, A);
        self.free("large", large);
        self.allocate("from a stream that never called again", 36 * MIB, B);
        self.note("collect", self.rig.heap.collect_garbage(DEVICE).map(drop));
        self.note("information", self.rig.heap.memory_info(DEVICE).map(drop));
        self.note("empty", self.rig.heap.empty_cache(DEVICE).map(drop));
        self.allocate("afresh", 700, C);
    }

    /// A stream is destroyed while its work is outstanding, and the next has its handle: once with
    /// a word before, once without.
    fn give_a_handle_again(&mut self) {
        for is_told in [false, true] {
            let old = StreamHandle(self.rig.machine.stream_create(0, false).unwrap());
            let kept = self.allocate("of a stream that ends", 8 * MIB, old);
            let freed = self.allocate("of a stream that ends", 8 * MIB, old);
            self.free("of a stream that ends", freed);
            let shared = self.allocate_unused("used by it", 4 * MIB, A);
            self.read_elsewhere("used by it", shared, (0, old));
            if is_told {
                self.note("forget", self.rig.heap.forget_stream(old));
            } else {
                self.free("used by it", shared);
            }
            self.rig.machine.stream_destroy(0, old.0).unwrap();
            let new = StreamHandle(self.rig.machine.stream_create(0, false).unwrap());
            assert_eq!(new, old, "the handle is given again");
            let other = self.allocate("of the next stream", 8 * MIB, new);
            if is_told {
                self.free("used by the stream before", shared);
            }
            self.free("of the next stream", other);
            self.free("of a stream that has ended", kept);
            self.allocate("of a stream that lasts", 700, A);
            self.note("forget the next", self.rig.heap.forget_stream(new));
            self.rig.machine.stream_destroy(0, new.0).unwrap();
        }
        let all = self.allocate("what they had", 40 * MIB, B);
        self.free("what they had", all);
    }

    fn use_a_stream_of_another_context(&mut self) {
        let context = self.rig.machine.context_create(0).unwrap();
        let foreign = StreamHandle(self.rig.machine.stream_create(context, false).unwrap());
        let shared = self.allocate_unused("used in another context", 16 * MIB, A);
        self.read_elsewhere("used in another context", shared, (context, foreign));
        self.free("used in another context", shared);
        let own = self.allocate_unused("of another context", 12 * MIB, foreign);
        if let Some(address) = own {
            let machine = &self.rig.machine;
            machine.touch(context, foreign.0, Work::write(address, MIB, "foreign")).unwrap();
        }
        self.free("of another context", own);
        let large = self.allocate("what both contexts used", 48 * MIB, B);
        self.free("what both contexts used", large);
    }

    /// Another thread captures, and has said so.
    fn run_short_beside_a_capture(&mut self) {
        let waits = self.allocate_unused("waits for the reader", 12 * MIB, A);
        self.read_elsewhere("waits for the reader", waits, (0, B));
        self.note("begin a capture", self.rig.heap.begin_capture(DEVICE));
        let (rig, told) = (self.rig.clone(), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                rig.machine.begin_capture(0, C.0, CaptureMode::Global).unwrap();
                told.wait();
                told.wait();
                rig.machine.end_capture(0, C.0).expect("nothing has disturbed it");
            });
            told.wait();
            self.free("waits for the reader", waits);
            self.allocate(BESIDE_A_CAPTURE, 4 * MIB, C);
            let much = self.allocate(BESIDE_A_CAPTURE, 60 * MIB, A);
            self.free(BESIDE_A_CAPTURE, much);
            self.note("empty", self.rig.heap.empty_cache(DEVICE).map(drop));
            told.wait();
        });
        self.note("end the capture", self.rig.heap.end_capture(DEVICE));
        let after = self.allocate("after the capture", 32 * MIB, A);
        self.free("after the capture", after);
    }
}
