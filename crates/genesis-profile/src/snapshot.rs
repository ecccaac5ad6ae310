//! x
use crate::model::*;
use std::io;
use std::io::Write;
/// x
pub fn write_pickle(_: &Profile, _: &mut dyn Write) -> io::Result<()> {
    Ok(())
}
/// x
pub fn write_json(_: &Profile, _: &mut dyn Write) -> io::Result<()> {
    Ok(())
}
