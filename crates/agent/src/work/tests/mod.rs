//! Tests of the whole controller, against servers of a few lines.

mod outage;
