//! Bytes, times, counts and call sites as readable text.

use crate::model::{Frame, Site};
use crate::place;

/// `1.5 GiB`, `512 B`: three or four digits and a unit.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// The same with a sign.
pub fn signed_bytes(difference: i128) -> String {
    let sign = match difference {
        0 => "",
        1.. => "+",
        _ => "−",
    };
    let size = u64::try_from(difference.unsigned_abs()).unwrap_or(u64::MAX);
    format!("{sign}{}", bytes(size))
}

/// `12.3 µs`, `4.00 s`, `2 h 05 min`.
pub fn time(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        1_000_000_000..100_000_000_000 => format!("{seconds:.2} s"),
        _ if seconds < 6000.0 => {
            format!("{} min {:02} s", ns / 60_000_000_000, ns / 1_000_000_000 % 60)
        }
        _ => format!("{} h {:02} min", ns / 3_600_000_000_000, ns / 60_000_000_000 % 60),
    }
}

/// `1,234,567`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `97.3 %`, or a dash if the whole is 0.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

/// A site in a line: its most telling frame, followed by the innermost if that is another one, such
/// as `train.py:12 step · linear.py:134 forward`; `(not known)` without frames.
pub fn site(site: &Site) -> String {
    stack(&site.frames)
}

/// The same for a stack, innermost frame first.
pub fn stack(frames: &[Frame]) -> String {
    match place::telling(frames) {
        None => "(not known)".to_owned(),
        Some(0) => frame(&frames[0]),
        Some(telling) => format!("{} · {}", frame(&frames[telling]), frame(&frames[0])),
    }
}

/// A frame in a line, the file without its folders.
pub fn frame(frame: &Frame) -> String {
    let file = frame.file.rsplit(['/', '\\']).next().unwrap_or_default();
    let place = match (file, frame.line) {
        ("", _) => String::new(),
        (file, 0) => file.to_owned(),
        (file, line) => format!("{file}:{line}"),
    };
    let text = match (place.as_str(), frame.function.as_str()) {
        ("", "") => "(not known)".to_owned(),
        (place, "") => place.to_owned(),
        ("", function) => function.to_owned(),
        (place, function) => format!("{place} {function}"),
    };
    one_line(&text)
}

/// The text with control characters, which could control a terminal, replaced by spaces.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes((1 << 30) - 1), "1.0 GiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(signed_bytes(-2048), "−2.0 KiB");
        assert_eq!(signed_bytes(5), "+5 B");
        assert_eq!(time(999), "999 ns");
        assert_eq!(time(1_500_000), "1.5 ms");
        assert_eq!(time(125_000_000_000), "2 min 05 s");
        assert_eq!(time(7_500_000_000_000), "2 h 05 min");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(1, 0), "-");
    }

    #[test]
    fn a_site_is_the_frame_that_tells_most_and_the_innermost() {
        let inner = Frame { function: "forward".into(), file: "/a/model.py".into(), line: 42 };
        let frames = vec![inner.clone(), Frame::default()];
        assert_eq!(site(&Site { frames }), "model.py:42 forward");
        let file = "/usr/lib/python3/dist-packages/torch/nn/linear.py".to_owned();
        let library = Frame { function: "forward".into(), file, line: 134 };
        let frames = vec![library, inner];
        assert_eq!(site(&Site { frames }), "model.py:42 forward · linear.py:134 forward");
        assert_eq!(site(&Site::default()), "(not known)");
        let strange = Frame { function: "f\u{1b}[31m".into(), ..Frame::default() };
        assert_eq!(frame(&strange), "f [31m");
    }
}
