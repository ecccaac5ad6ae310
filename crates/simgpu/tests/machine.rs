//! The machine's rules, prices and instruments, each in a file of its own. They are one program,
//! because linking takes longer than most of them run.

#[path = "machine/aliases.rs"]
mod aliases;
#[path = "machine/captures.rs"]
mod captures;
#[path = "machine/contexts.rs"]
mod contexts;
#[path = "machine/copies.rs"]
mod copies;
#[path = "machine/driver_face.rs"]
mod driver_face;
#[path = "machine/handles.rs"]
mod handles;
#[path = "machine/limits.rs"]
mod limits;
#[path = "machine/managed.rs"]
mod managed;
#[path = "machine/memory.rs"]
mod memory;
#[path = "machine/prices.rs"]
mod prices;
#[path = "machine/quiet.rs"]
mod quiet;
#[path = "machine/races.rs"]
mod races;
#[path = "machine/random.rs"]
mod random;
#[path = "machine/rights.rs"]
mod rights;
#[path = "machine/streams.rs"]
mod streams;
