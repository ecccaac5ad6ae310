//! The profile as one HTML page: timeline, address space, holders, tables.
//!
//! The page consists of the files in `page/`, compiled into this crate, and the profile. Its
//! content security policy forbids it to load anything. It contains the profile as base64 of
//! deflated JSON and the events as columns (`packed.rs`), so no character of a name or a path can
//! end a script element or begin a tag. The scripts only set text, never markup.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::model::Profile;
use crate::packed;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// In the order of their dependencies. They share one scope, closed to the outside.
const SCRIPTS: [&str; 10] = [
    include_str!("page/units.js"),
    include_str!("page/data.js"),
    include_str!("page/history.js"),
    include_str!("page/series.js"),
    include_str!("page/blocks.js"),
    include_str!("page/stack.js"),
    include_str!("page/chart.js"),
    include_str!("page/map.js"),
    include_str!("page/tables.js"),
    include_str!("page/main.js"),
];

/// Writes the page of `profile` to `out`.
///
/// # Errors
/// Those of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let events = packed::pack(&profile.history.events);
    let document = serde_json::to_vec(&profile.without_events())?;
    // The page marks the most telling frame of each stack, which is found here.
    let telling: Vec<_> = profile.sites.iter().map(|site| site.telling_frame()).collect();
    let mut rest = PAGE;
    for (place, fill) in [
        ("<!-- style -->", STYLE.to_owned()),
        ("<!-- telling -->", serde_json::to_string(&telling)?),
        ("<!-- profile -->", BASE64.encode(packed::deflate(&document))),
        ("<!-- count -->", events.count.to_string()),
        ("<!-- events -->", events.deflated),
        ("<!-- scripts -->", SCRIPTS.concat()),
    ] {
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        out.write_all(before.as_bytes())?;
        out.write_all(fill.as_bytes())?;
        rest = after;
    }
    out.write_all(rest.as_bytes())
}
