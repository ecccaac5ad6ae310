//! What lies in device memory: filling it, and checking that it still has the value.
//!
//! A fill is work on its stream, as `cuMemsetD8Async` is, and a touch for the race detector. Real
//! bytes are set when the call is made, not when the stream comes to it, because nothing else
//! that is queued moves bytes here. On a capturing stream the touch goes into the capture and
//! nothing is set. A check is a copy to the host that waits, as `cuMemcpyDtoH` into pageable
//! memory; with addresses only it finds the value it expects.

use crate::call::Call;
use crate::code::{Code, Result};
use crate::machine::Machine;
use crate::tables::STREAM_LEGACY;
use crate::touch::{Access, Work};

impl Machine {
    /// Sets `bytes` (not 0) from `address` on, mapped without a gap and accessible, to `value`:
    /// work on `stream`.
    pub fn fill(
        &self,
        context: u32,
        stream: usize,
        address: u64,
        bytes: u64,
        value: u8,
    ) -> Result<()> {
        let (mut state, slot) = self.enter_work(context, stream, Some(Call::Fill))?;
        if bytes == 0 || !state.is_accessible(address, bytes) {
            return Err(Code::INVALID_VALUE);
        }
        let entry = &state.streams.slots[slot as usize];
        let (is_capturing, device) = (entry.capture.is_some(), entry.device);
        let work = Work::write(address, bytes, Call::Fill.name());
        state.enqueue_copy(slot, stream, work)?;
        if !is_capturing {
            state.store.fill(address, bytes, value);
        }
        state.charge_size(device, Call::Fill, bytes, 0);
        Ok(())
    }

    /// The offset of the first of `bytes` (not 0) from `address` on that is not `value`. The
    /// rules are those of [`Self::copy_to_host`].
    pub fn find_other(
        &self,
        context: u32,
        address: u64,
        bytes: u64,
        value: u8,
    ) -> Result<Option<u64>> {
        let call = Call::CopyToHost;
        let (mut state, _) = self.enter_work(context, STREAM_LEGACY, Some(call))?;
        if bytes == 0 || !state.is_accessible(address, bytes) {
            return Err(Code::INVALID_VALUE);
        }
        state.copy_work(context, call, address, bytes, Access::Read)?;
        Ok(state.store.find_other(address, bytes, value))
    }
}
