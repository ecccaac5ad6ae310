//! Metrics in Prometheus' text exposition format, version 0.0.4, for instance for the textfile
//! collector of the node exporter.
//!
//! Levels and peaks are gauges; counts are counters, whose names end in `_total`. Every sample has
//! its process and its device's ordinal as labels, those of streams also the stream's handle. The
//! process is a label because collectors join the files of several processes and refuse duplicate
//! samples. In the values of labels, backslash, quote and line feed are escaped, as the format
//! requires.

use std::fmt::{Display, Write};

use crate::model::{Device, Levels, Profile};

type Level = (&'static str, &'static str, fn(&Levels) -> u64);
type Metric = (&'static str, &'static str, &'static str, fn(&Device) -> u64);

const LEVELS: [Level; 4] = [
    ("requested", "Live bytes, as asked for", |levels| levels.requested_bytes),
    ("allocated", "Live bytes, of the blocks that serve them", |levels| levels.allocated_bytes),
    ("active", "Allocated bytes and those of freed blocks still in use", |l| l.active_bytes),
    ("reserved", "Physical memory held from the driver", |levels| levels.reserved_bytes),
];

const METRICS: [Metric; 7] = [
    ("total_bytes", "gauge", "Memory of the device.", |device| device.total_bytes),
    ("usable_bytes", "gauge", "The most that may be reserved.", |device| device.usable_bytes),
    ("oversubscribed_bytes", "gauge", "Reserved beyond the memory of the device.", |device| {
        device.oversubscribed_bytes()
    }),
    ("allocations_total", "counter", "Blocks handed out.", |device| device.allocations),
    ("frees_total", "counter", "Blocks freed.", |device| device.frees),
    ("hits_total", "counter", "Allocations served from what their stream had free.", |d| d.hits),
    ("out_of_memory_total", "counter", "Allocations that failed for want of memory.", |d| {
        d.out_of_memory_events
    }),
];

/// The metrics of the profile's devices and streams as they are now.
pub fn metrics(profile: &Profile) -> String {
    let Profile { devices, streams, .. } = profile;
    let mut text = Text { text: String::new(), process_id: profile.process_id };
    let name = |device: &Device| Label("name", device.name.clone());
    let info = devices.iter().map(|device| (vec![label(device.ordinal), name(device)], 1));
    text.family("device_info", "gauge", "What the device is called.", info);
    for (level, help, of) in LEVELS {
        let now = devices.iter().map(|device| (vec![label(device.ordinal)], of(&device.now)));
        text.family(&format!("memory_{level}_bytes"), "gauge", &format!("{help}."), now);
        let peak = devices.iter().map(|device| (vec![label(device.ordinal)], of(&device.peak)));
        let peak_help = format!("The highest it has been: {}.", help.to_lowercase());
        text.family(&format!("memory_{level}_peak_bytes"), "gauge", &peak_help, peak);
    }
    for (metric, kind, help, of) in METRICS {
        let values = devices.iter().map(|device| (vec![label(device.ordinal)], of(device)));
        text.family(&format!("memory_{metric}"), kind, help, values);
    }
    let help = "1 - largest free run / all that is free; 0 where nothing is.";
    let index = devices.iter().map(|d| (vec![label(d.ordinal)], d.fragmentation_index));
    text.family("memory_fragmentation_ratio", "gauge", help, index);
    let help = "Steps until memory runs out; no sample where it does not grow.";
    let left = devices.iter().filter_map(|d| Some((d.ordinal, d.forecast?.steps_left)));
    let left = left.map(|(ordinal, steps)| (vec![label(ordinal)], steps));
    text.family("forecast_steps_left", "gauge", help, left);
    // A stream reserves nothing itself.
    for (level, help, of) in &LEVELS[..3] {
        let values = streams.iter().map(|stream| {
            let key = Label("stream", format!("{:#x}", stream.key));
            (vec![label(stream.device), key], of(&stream.now))
        });
        let help = format!("{help}, by stream.");
        text.family(&format!("stream_{level}_bytes"), "gauge", &help, values);
    }
    text.text
}

struct Label(&'static str, String);

fn label(ordinal: u32) -> Label {
    Label("device", ordinal.to_string())
}

/// The text for one process.
struct Text {
    text: String,
    process_id: u32,
}

impl Text {
    /// A metric with its samples; nothing if there are none.
    fn family<V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl Iterator<Item = (Vec<Label>, V)>,
    ) {
        let mut samples = samples.peekable();
        if samples.peek().is_none() {
            return;
        }
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# HELP genesis_{name} {help}");
        let _ = writeln!(self.text, "# TYPE genesis_{name} {kind}");
        for (labels, value) in samples {
            let process = Label("process", self.process_id.to_string());
            let labels: Vec<String> = std::iter::once(&process)
                .chain(&labels)
                .map(|Label(key, value)| format!("{key}=\"{}\"", escaped(value)))
                .collect();
            let _ = writeln!(self.text, "genesis_{name}{{{}}} {value}", labels.join(","));
        }
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Stream;

    #[test]
    fn the_exposition_is_as_the_format_has_it() {
        let now = Levels { allocated_bytes: 4096, ..Levels::default() };
        let name = "a \"b\"\\\n".to_owned();
        let device =
            Device { ordinal: 3, name, now, fragmentation_index: 0.25, ..Device::default() };
        let stream = Stream { device: 3, key: 0x20, now, ..Stream::default() };
        let (devices, streams) = (vec![device], vec![stream]);
        let profile = Profile { process_id: 7, devices, streams, ..Profile::default() };
        let text = metrics(&profile);
        assert!(text.contains(
            "# HELP genesis_memory_allocated_bytes Live bytes, of the blocks that serve them.\n\
             # TYPE genesis_memory_allocated_bytes gauge\n\
             genesis_memory_allocated_bytes{process=\"7\",device=\"3\"} 4096\n"
        ));
        assert!(text.contains(
            "genesis_device_info{process=\"7\",device=\"3\",name=\"a \\\"b\\\"\\\\\\n\"} 1\n"
        ));
        assert!(
            text.contains("genesis_memory_fragmentation_ratio{process=\"7\",device=\"3\"} 0.25\n")
        );
        assert!(text.contains(
            "genesis_stream_allocated_bytes{process=\"7\",device=\"3\",stream=\"0x20\"} 4096\n"
        ));
        let families = text.lines().filter(|line| line.starts_with("# TYPE")).count();
        let mut names: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        names.dedup_by_key(|line| line.split('{').next().unwrap_or_default().to_owned());
        assert_eq!(names.len(), families, "the samples of a metric stand together");
        assert!(text.ends_with('\n'));
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        assert_eq!(metrics(&Profile::default()), "");
    }
}
