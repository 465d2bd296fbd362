//! The evaluation of a work apart from all other tasks: how long it takes is up to whoever wrote the work.

use std::{collections::HashMap, sync::Arc};

use writ_api::work::ExecutorServiceAccount;
use writ_controller::Error;

use super::{
    Gate,
    escalation::Compared,
    plan::{Inputs, Outcome, evaluate},
    question::Question,
    rbac::{Myself, Rbac},
};
use crate::work::plan::Item;

impl Gate {
    /// One evaluation, on a thread of its own and by a copy of the RBAC objects: neither a task nor a change of RBAC
    /// waits for it. What it was given comes back with the outcome.
    pub(super) async fn evaluate(
        &self,
        account: &ExecutorServiceAccount,
        agent: &Myself,
        items: &Arc<[Item]>,
        rbac: Arc<Rbac>,
        answers: HashMap<Question, bool>,
        mut compared: Compared,
    ) -> Result<(Outcome, HashMap<Question, bool>, Compared), Error> {
        let (executor, agent, items) = (account.clone(), agent.clone(), items.clone());
        let (authorizers, granularity) = (self.authorizers, self.granularity);
        let evaluation = tokio::task::spawn_blocking(move || {
            let inputs = Inputs {
                executor: &executor,
                agent: &agent,
                items: &items,
                rbac: &rbac,
                answers: &answers,
                authorizers,
                granularity,
            };
            (evaluate(&inputs, &mut compared), answers, compared)
        });
        let stopped = |_| Error::Invalid(format!("the check of {} was stopped", account.user()));
        evaluation.await.map_err(stopped)
    }
}
