//! Cases, judging and reports of Plumbline.
//!
//! ```text
//! YAML -> cases -> inputs -> backend ------\
//!                     \---> reference ----> judge -> verdict -> report
//! ```
//! Data flows left to right once; nothing calls back.

pub mod adapter;
pub mod assert;
mod attempt;
pub mod case;
pub mod cli;
pub mod coverage;
mod enclosed;
pub mod fuzz;
pub mod generate;
pub mod hardware;
pub mod judge;
pub mod load;
mod locate;
pub mod memory;
pub mod mutants;
pub mod probe;
pub mod product;
mod recording;
mod refused;
pub mod registry;
mod replay;
pub mod report;
pub mod runner;
pub mod seed;
pub mod sequence;
pub mod setup;
pub mod source;
mod strides;
pub mod suite;
pub mod sweep;
mod vacuity;
pub mod verdict;
pub mod waiver;
mod weights;
pub mod worker;
