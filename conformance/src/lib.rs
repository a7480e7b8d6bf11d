//! Cases, judging and reports of Plumbline.

pub mod case;
pub mod seed;
