//! x
use std::io;use std::io::Write;use crate::model::*;
/// x
pub fn write_pickle(_: &Profile, _: &mut dyn Write)->io::Result<()> {Ok(())}
/// x
pub fn write_json(_: &Profile, _: &mut dyn Write)->io::Result<()> {Ok(())}
