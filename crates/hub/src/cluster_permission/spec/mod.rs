//! Pure: the spec of a permission, read once.
//!
//! [`entries`] turns a spec into a list in which everything left out is filled in; the plan, the checks and the indexes of the
//! caches all read that list. [`validate`] says what of an entry can never work: admission refuses it, the plan skips it.
//! [`references`] says which other objects the spec depends on.

mod entries;
pub mod references;
pub mod validate;

use kube::ResourceExt as _;
use writ_api::rbac::ClusterPermission;

pub use entries::{Entry, NamedSubject, Says, entries};

use super::{model::Problem, naming::MAX_NAME};

/// Everything in this permission that can never work.
pub fn problems(permission: &ClusterPermission) -> Vec<Problem> {
    let mut problems: Vec<Problem> = name_problem(permission).into_iter().collect();
    for entry in entries(permission) {
        let subjects = entry.subject_problems();
        problems.extend(entry.problems);
        problems.extend(subjects);
    }
    problems
}

/// What is wrong with the name of the permission.
pub fn name_problem(permission: &ClusterPermission) -> Option<Problem> {
    let length = permission.name_any().len();
    (length > MAX_NAME).then(|| {
        Problem::new(
            "metadata.name",
            format!(
                "has {length} characters; the work that delivers it leaves room for {MAX_NAME}: choose a shorter name"
            ),
        )
    })
}

/// The first `max` problems as one sentence.
pub fn summary(problems: &[Problem], max: usize) -> String {
    let mut words: Vec<String> = problems.iter().take(max).map(ToString::to_string).collect();
    if problems.len() > max {
        words.push(format!("and {} more", problems.len() - max));
    }
    words.join("; ")
}
