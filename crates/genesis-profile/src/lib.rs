//! The profile of the allocator's memory, and every form in which it is written.
//!
//! The library fills a [`Profile`]; this crate turns it into text, pages and files for other tools.
//! It does not depend on how the allocator works, and the allocator does not depend on the forms.
//! Every form is a pure function of the profile; only [`json`] can be read back.
//!
//! | form | for | written by |
//! |---|---|---|
//! | JSON | keeping, comparing, other programs | [`json`] |
//! | one HTML page | looking, in any browser, without a network | [`html`] |
//! | Chrome's trace events | ui.perfetto.dev, chrome://tracing | [`perfetto`] |
//! | plain text | the terminal | [`text`] |
//! | Prometheus' text exposition | the node exporter's textfile collector | [`prometheus`] |
//! | PyTorch's memory snapshot | `torch.cuda._memory_viz`, pytorch.org/memory_viz | [`snapshot`] |

#![forbid(unsafe_code)]

pub mod form;
pub mod html;
pub mod json;
pub mod levels;
pub mod merge;
pub mod model;
mod packed;
pub mod perfetto;
mod place;
pub mod prometheus;
pub mod snapshot;
pub mod text;
pub mod tiers;
pub mod units;
mod validate;

// The sample that tests share names this crate from outside.
#[cfg(test)]
extern crate self as genesis_profile;
#[cfg(test)]
#[path = "../tests/sample/mod.rs"]
mod sample;

pub use form::Form;
pub use model::Profile;
