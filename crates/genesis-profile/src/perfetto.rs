//! x
use std::io;use std::io::Write;use crate::model::*;
/// x
pub fn write(_: &Profile, _: &mut dyn Write)->io::Result<()> {Ok(())}
