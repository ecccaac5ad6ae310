//! Scripted faults at the symbols: calls that are not the machine's own fail here, by name.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use simgpu::Code;

/// The rules; almost always there are none, and then a call costs one load.
#[derive(Debug, Default)]
pub(crate) struct Script {
    is_active: AtomicBool,
    rules: Mutex<Vec<Rule>>,
}

#[derive(Debug)]
struct Rule {
    call: String,
    calls_to_spare: u64,
    strikes_left: u64,
    code: i32,
}

impl Script {
    /// From the `nth` call of `call` on, `times` calls return `code`.
    pub(crate) fn add(&self, call: &str, nth: u64, code: i32, times: u64) {
        let calls_to_spare = nth.saturating_sub(1);
        let rule = Rule { call: call.to_owned(), calls_to_spare, strikes_left: times, code };
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).push(rule);
        self.is_active.store(true, Ordering::Release);
    }

    /// Forgets every rule.
    pub(crate) fn clear(&self) {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.is_active.store(false, Ordering::Release);
    }

    /// Fails if a rule strikes this call of `name`. The symbol's version suffix does not matter.
    #[inline]
    pub(crate) fn permit(&self, name: &str) -> Result<(), Code> {
        if self.is_active.load(Ordering::Acquire) { self.judge(name) } else { Ok(()) }
    }

    #[cold]
    fn judge(&self, name: &str) -> Result<(), Code> {
        let plain = name.split_once("_v").map_or(name, |(plain, _)| plain);
        let mut struck = None;
        for rule in self.rules.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            if rule.call != name && rule.call != plain {
                continue;
            }
            if rule.calls_to_spare > 0 {
                rule.calls_to_spare -= 1;
            } else if struck.is_none() && rule.strikes_left > 0 {
                rule.strikes_left -= 1;
                struck = Some(Code(rule.code));
            }
        }
        struck.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_count_the_calls_of_their_name() {
        let script = Script::default();
        assert_eq!(script.permit("cudaMalloc"), Ok(()));
        script.add("cudaMalloc", 2, 2, 2);
        script.add("cuCtxGetDevice", 1, 4, u64::MAX);
        let answers = [(); 4].map(|()| script.permit("cudaMalloc").is_ok());
        assert_eq!(answers, [true, false, false, true]);
        assert_eq!(script.permit("cuCtxGetDevice"), Err(Code(4)));
        assert_eq!(script.permit("cuCtxGetDevice_v2"), Err(Code(4)));
        script.clear();
        assert_eq!(script.permit("cuCtxGetDevice"), Ok(()));
    }
}
