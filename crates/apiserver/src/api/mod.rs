//! What the server answers: one file per verb.

mod admit;
mod call;
mod create;
mod delete;
mod discovery;
mod ending;
mod filter;
mod health;
mod list;
mod meta;
mod ownership;
mod params;
mod patch;
mod patched;
pub(crate) mod paths;
mod restrict;
mod review_rules;
mod reviews;
mod scale;
mod signing;
mod socket;
mod table;
mod token;
mod update;
mod watch;
mod write;

pub(crate) use call::Call;
pub(crate) use create::create_as;
pub(crate) use ending::{DeleteWish, Propagation, delete_object, remove};
pub(crate) use meta::{edit as edit_metadata, generate_name};
pub(crate) use socket::{is_asked_for as is_socket_asked_for, prepare as prepare_socket};
pub(crate) use update::{How, change_as};
