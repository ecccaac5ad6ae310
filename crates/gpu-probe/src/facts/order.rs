//! Questions about streams and events, which the reuse of memory relies on.

use super::{Observation, Observed};
use crate::driver::{Answer, Driver, Gate, Stream};

/// Is the handle of a stream destroyed with work pending given to a new stream?
pub(super) fn destroyed_streams_handle(driver: &Driver) -> Observed {
    const STREAMS: usize = 64;
    let stream = driver.stream_create()?;
    let id = driver.stream_id(stream)?;
    let gate = Gate::close(driver, stream)?;
    driver.stream_destroy(stream)?;
    let recycled = |driver: &Driver| -> Answer<(bool, bool)> {
        let streams =
            (0..STREAMS).map(|_| driver.stream_create()).collect::<Answer<Vec<Stream>>>()?;
        let same_handle = streams.contains(&stream);
        let mut same_id = false;
        for new in streams {
            same_id |= driver.stream_id(new)? == id;
            driver.stream_destroy(new)?;
        }
        Ok((same_handle, same_id))
    };
    let (while_pending, same_id) = recycled(driver)?;
    gate.open();
    driver.synchronize()?;
    let (afterwards, same_id_later) = recycled(driver)?;
    let yes = |answer: bool| if answer { "yes" } else { "no" };
    let text = format!(
        "while pending: {}; afterwards: {}; its id: {}",
        yes(while_pending),
        yes(afterwards),
        yes(same_id || same_id_later)
    );
    Ok(Observation::new(!(same_id || same_id_later), text))
}

/// Does an event stay pending when its stream is destroyed, and complete?
pub(super) fn event_outlives_its_stream(driver: &Driver) -> Observed {
    let (stream, event) = (driver.stream_create()?, driver.event_create(false)?);
    let gate = Gate::close(driver, stream)?;
    driver.event_record(event, stream)?;
    driver.stream_destroy(stream)?;
    let early = driver.event_query(event)? && gate.is_closed();
    gate.open();
    driver.event_synchronize(event)?;
    let late = driver.event_query(event)?;
    driver.event_destroy(event)?;
    let text = match (early, late) {
        (false, true) => "yes",
        (true, _) => "it counts as complete at once",
        (false, false) => "it never completes",
    };
    Ok(Observation::new(!early && late, text))
}

/// Does a stream still wait when the event is destroyed?
pub(super) fn wait_outlives_its_event(driver: &Driver) -> Observed {
    let (first, second) = (driver.stream_create()?, driver.stream_create()?);
    let event = driver.event_create(false)?;
    let address = driver.allocate(4096)?;
    let gate = Gate::close(driver, first)?;
    driver.event_record(event, first)?;
    driver.stream_wait(second, event)?;
    driver.event_destroy(event)?;
    driver.fill(address, 4096, 1, second)?;
    std::thread::sleep(std::time::Duration::from_millis(20));
    let early = driver.stream_query(second)? && gate.is_closed();
    gate.open();
    driver.stream_synchronize(second)?;
    driver.free(address)?;
    let text = if early { "it went ahead" } else { "yes" };
    Ok(Observation::new(!early, text))
}

/// Does the legacy stream go ahead of a non-blocking stream?
pub(super) fn legacy_stream_and_others(driver: &Driver) -> Observed {
    let stream = driver.stream_create()?;
    let address = driver.allocate(4096)?;
    let (filled, elapsed, was_closed) = Gate::hold(driver, stream, || {
        driver.fill(address, 4096, 1, Stream::LEGACY)?;
        driver.stream_synchronize(Stream::LEGACY)
    })?;
    filled?;
    driver.free(address)?;
    let text = if was_closed { "yes" } else { "no" };
    Ok(Observation::new(was_closed, format!("{text}: it took {elapsed:.1?}")))
}

/// May an event be recorded and asked about with another context current, or none?
pub(super) fn events_in_other_contexts(driver: &Driver) -> Observed {
    const INVALID_CONTEXT: i32 = 201;
    let (stream, event) = (driver.stream_create()?, driver.event_create(false)?);
    let calls = || [driver.event_record(event, stream), driver.event_query(event).map(|_| ())];
    let own = driver.current_context()?;
    driver.context_create()?;
    let in_another = calls();
    driver.enter_context(own)?;
    // A new thread has none.
    let in_none = std::thread::scope(|scope| scope.spawn(calls).join());
    let in_none = in_none.map_err(|_| "a thread has panicked")?;
    let is_expected = |answer: &Answer| {
        answer.is_ok() || answer.is_err_and(|failure| failure.code == INVALID_CONTEXT)
    };
    let as_expected = in_another.iter().chain(&in_none).all(is_expected);
    let text = |answers: [Answer; 2]| {
        let text =
            |answer: Answer| answer.map_or_else(|failure| failure.to_string(), |()| "works".into());
        answers.map(text).join(", ")
    };
    let text = format!("in another: {}; in none: {}", text(in_another), text(in_none));
    Ok(Observation::new(as_expected, text))
}
