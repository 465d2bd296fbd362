//! What writ costs, as ratios measured in one run.

pub mod limits;
pub mod month;
pub mod trace;
