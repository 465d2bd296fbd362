//! What an evaluation rests on: the answers so far, the questions that are still open, and the comparisons made.

use std::collections::{BTreeSet, HashMap};

use writ_api::work::ExecutorServiceAccount;
use writ_authz::Budget;

use super::{
    model::{AccessQuestion, AgentIdentity},
    rbac_index::RbacIndex,
};
use crate::work::{
    model::{PlannedManifest, RbacId, Verdict},
    options::{Authorizers, ExecutorGranularity},
};

/// Everything that a verdict rests on.
pub struct EvaluationInput<'a> {
    /// The executor.
    pub executor: &'a ExecutorServiceAccount,
    /// The agent itself.
    pub agent: &'a AgentIdentity,
    /// The manifests.
    pub manifests: &'a [PlannedManifest],
    /// The RBAC objects of the cluster.
    pub rbac: &'a RbacIndex,
    /// What the API server answered.
    pub answers: &'a HashMap<AccessQuestion, bool>,
    /// What decides about requests.
    pub authorizers: Authorizers,
    /// What a refused manifest means for the others.
    pub granularity: ExecutorGranularity,
}

/// The outcome of an evaluation.
#[derive(Debug)]
pub enum Evaluation {
    /// These questions have to be asked first.
    Ask(BTreeSet<AccessQuestion>),
    /// All is answered.
    Verdict(Verdict),
}

/// What was compared for one work with one state of RBAC. Each grant is compared once, and all comparisons share one
/// budget.
#[derive(Default)]
pub struct Comparisons {
    /// What is left of the budget.
    pub budget: Budget,
    /// Whether the executor holds what is granted, or what it lacks.
    pub held: HashMap<GrantedRules, Result<(), String>>,
}

impl Comparisons {
    /// Whether the executor was found to hold anything that is granted.
    pub fn has_allowed(&self) -> bool {
        self.held.values().any(Result::is_ok)
    }
}

/// The rules that a manifest grants, and where.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct GrantedRules {
    /// The namespace; empty for all.
    pub namespace: String,
    /// The rules of this existing role.
    pub live: Option<RbacId>,
    /// The rules in these manifests of the work, by ordinal.
    pub manifests: Vec<usize>,
    /// Every rule, beyond those.
    pub everything: bool,
}

/// Looks up answers, and collects the questions without one.
pub struct Lookup<'a> {
    /// What the evaluation rests on.
    pub input: &'a EvaluationInput<'a>,
    /// The executor's user name.
    pub user: String,
    /// The executor's groups.
    pub groups: Vec<String>,
    /// What was compared for this work.
    pub comparisons: &'a mut Comparisons,
    /// The questions without an answer.
    pub open: BTreeSet<AccessQuestion>,
    /// Whether RBAC allows something that the API server's authorizer refuses: it lags behind.
    pub is_unsettled: bool,
    /// The answers for all names of a kind in a namespace, of which a work may have a thousand objects.
    for_all_names: HashMap<AccessQuestion, Option<bool>>,
}

impl<'a> Lookup<'a> {
    /// A lookup for one evaluation.
    pub fn new(input: &'a EvaluationInput<'a>, comparisons: &'a mut Comparisons) -> Self {
        Self {
            input,
            comparisons,
            user: input.executor.user(),
            groups: input.executor.groups(),
            open: BTreeSet::new(),
            is_unsettled: false,
            for_all_names: HashMap::new(),
        }
    }

    /// The RBAC objects.
    pub fn rbac(&self) -> &'a RbacIndex {
        self.input.rbac
    }

    fn is_allowed_by_rbac(&self, question: &AccessQuestion) -> bool {
        let attributes = question.attributes().into();
        self.input
            .rbac
            .index()
            .allows(&self.user, &self.groups, &attributes)
            .allowed()
    }

    /// Whether exactly this is allowed. Where RBAC decides, both the RBAC objects and the API server must say so.
    pub fn is_allowed(&mut self, question: &AccessQuestion) -> bool {
        let decides_rbac = self.input.authorizers == Authorizers::Rbac;
        if decides_rbac && !self.is_allowed_by_rbac(question) {
            return false;
        }
        let Some(answer) = self.input.answers.get(question) else {
            self.open.insert(question.clone());
            // No verdict is made before all is answered.
            return true;
        };
        self.is_unsettled |= decides_rbac && !answer;
        *answer
    }

    /// Whether this is allowed for all names; `None` if that leaves open what is allowed for single names.
    pub fn is_allowed_for_all_names(&mut self, question: &AccessQuestion) -> Option<bool> {
        if self.input.authorizers != Authorizers::Rbac {
            return None;
        }
        let broad = question.for_all_names();
        if let Some(known) = self.for_all_names.get(&broad) {
            return *known;
        }
        let answer = self.is_allowed_by_rbac(&broad).then(|| self.is_allowed(&broad));
        self.for_all_names.insert(broad, answer);
        answer
    }
}
