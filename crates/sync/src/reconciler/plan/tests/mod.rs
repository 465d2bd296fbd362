//! Tables of decisions. Each case starts from [`case`]: a RootSync whose inventory was read and is empty.

mod decisions;
mod namespaces;
mod order;
mod reports;
mod support;
mod watches;
