//! Events, waits and synchronisation, on the streams that every device has.

use genesis::base::StreamHandle;

use crate::subject::Subject;

const STREAMS: [StreamHandle; 3] =
    [StreamHandle::LEGACY, StreamHandle::LEGACY_ALIAS, StreamHandle::PER_THREAD];

pub(crate) fn an_event_never_recorded_is_complete(subject: &Subject) {
    let driver = &subject.driver;
    let event = driver.event_create().unwrap();
    assert_eq!(driver.event_query(event), Ok(true));
    driver.event_synchronize(event).unwrap();
    driver.stream_wait(StreamHandle::LEGACY, event).unwrap();
    driver.event_destroy(event).unwrap();
}

pub(crate) fn a_recorded_event_completes(subject: &Subject) {
    let driver = &subject.driver;
    let events: Vec<_> = (0..32).map(|_| driver.event_create().unwrap()).collect();
    for (index, &event) in events.iter().enumerate() {
        assert!(!events[..index].contains(&event), "{event:?} given out twice");
        driver.event_record(event, STREAMS[index % STREAMS.len()]).unwrap();
    }
    driver.event_synchronize(events[0]).unwrap();
    assert_eq!(driver.event_query(events[0]), Ok(true));
    driver.synchronize().unwrap();
    for event in events {
        assert_eq!(driver.event_query(event), Ok(true));
        driver.event_destroy(event).unwrap();
    }
}

pub(crate) fn waits_survive_their_event(subject: &Subject) {
    let driver = &subject.driver;
    let event = driver.event_create().unwrap();
    driver.event_record(event, StreamHandle::PER_THREAD).unwrap();
    driver.stream_wait(StreamHandle::LEGACY, event).unwrap();
    driver.stream_wait(StreamHandle::PER_THREAD, event).unwrap();
    driver.event_destroy(event).unwrap();
    let after = driver.event_create().unwrap();
    driver.event_record(after, StreamHandle::LEGACY).unwrap();
    driver.event_synchronize(after).unwrap();
    assert_eq!(driver.event_query(after), Ok(true));
    driver.event_destroy(after).unwrap();
}

pub(crate) fn events_may_be_recorded_again(subject: &Subject) {
    let driver = &subject.driver;
    let event = driver.event_create().unwrap();
    for stream in STREAMS.into_iter().cycle().take(12) {
        driver.event_record(event, stream).unwrap();
        driver.event_record(event, stream).unwrap();
        driver.event_synchronize(event).unwrap();
        assert_eq!(driver.event_query(event), Ok(true));
    }
    driver.event_destroy(event).unwrap();
}

pub(crate) fn default_streams_are_not_capturing(subject: &Subject) {
    for stream in STREAMS {
        assert_eq!(subject.driver.stream_is_capturing(stream), Ok(false));
    }
}
