//! Scenarios, each run on the embedded API server and on a real one.
