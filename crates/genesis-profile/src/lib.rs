//! What a profile of the allocator's memory is, and every form it is written in.
//!
//! The library fills a [`Profile`] from what it has seen; here it becomes text, pages and files
//! for other tools. Nothing here knows how the allocator works, and the allocator knows no
//! format. Every form is a pure function of the profile; only [`json`] can be read back.
//!
//! | form | for | written by |
//! |---|---|---|
//! | JSON | keeping, comparing, other programs | [`json`] |
//! | one HTML page | looking, in any browser, without a network | [`html`] |
//! | Chrome's trace events | ui.perfetto.dev, chrome://tracing | [`perfetto`] |
//! | plain text | the terminal | [`text`] |
//! | Prometheus' text exposition | the node exporter's textfile collector | [`prometheus`] |
//! | PyTorch's memory snapshot | `torch.cuda._memory_viz` and pytorch.org/memory_viz | [`snapshot`] |

#![forbid(unsafe_code)]

pub mod form;
pub mod html;
pub mod json;
pub mod levels;
pub mod model;
mod packed;
pub mod perfetto;
mod place;
pub mod prometheus;
pub mod snapshot;
pub mod text;
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
