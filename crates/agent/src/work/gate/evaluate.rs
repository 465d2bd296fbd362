//! Pure: from a work's manifests, the RBAC of the cluster and the answers so far to a verdict, or to the questions
//! that are still open.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use writ_api::work::ExecutorServiceAccount;

use super::{
    escalation::{self, Coming, Compared},
    protected,
    question::{Question, verbs},
    rbac::{Myself, Rbac},
};
use crate::{
    options::{Authorizers, ExecutorGranularity},
    work::plan::Item,
};

/// How many names a message gives before it counts.
const NAMES: usize = 10;

/// Everything that a verdict rests on.
pub struct Inputs<'a> {
    /// The executor.
    pub executor: &'a ExecutorServiceAccount,
    /// The agent itself: nobody but it may touch what is its own.
    pub agent: &'a Myself,
    /// The manifests.
    pub items: &'a [Item],
    /// The RBAC objects of the cluster.
    pub rbac: &'a Rbac,
    /// What the API server answered.
    pub answers: &'a HashMap<Question, bool>,
    /// What decides about requests.
    pub authorizers: Authorizers,
    /// What a refused manifest means for the others.
    pub granularity: ExecutorGranularity,
}

/// What can be said with the answers so far.
#[derive(Debug)]
pub enum Outcome {
    /// These questions have to be asked first.
    Ask(BTreeSet<Question>),
    /// This is the verdict.
    Verdict(Verdict),
}

/// What the gate says about one revision of a work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What the work's condition says, if anything is refused.
    pub refusal: Option<String>,
    /// What the condition of each refused manifest says, by ordinal.
    pub refused: BTreeMap<usize, Refused>,
    /// The refused manifests whose objects the executor may read, so that their state may be told.
    pub readable: BTreeSet<usize>,
    /// Whether RBAC grants something that the API server does not know yet, or the other way round.
    pub unsettled: bool,
}

/// Why one manifest is not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The executor may not hold it.
    Denied(String),
    /// It would be allowed, but others of the same work are not.
    Held(String),
}

impl Verdict {
    /// Why this manifest must not be written, if so.
    pub fn of(&self, ordinal: usize) -> Option<&Refused> {
        self.refused.get(&ordinal)
    }

    /// Nothing may be written, for one reason.
    pub fn refuse_all(items: &[Item], reason: &str) -> Self {
        Self {
            refusal: Some(reason.into()),
            refused: items
                .iter()
                .map(|item| (item.ordinal, Refused::Denied(reason.into())))
                .collect(),
            readable: BTreeSet::new(),
            unsettled: false,
        }
    }

    /// Nobody could be asked: nothing may be written, and asking again can help.
    pub fn unanswered(items: &[Item], reason: &str) -> Self {
        Self {
            unsettled: true,
            ..Self::refuse_all(items, reason)
        }
    }
}

/// Why a manifest is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Denial {
    /// These verbs are not allowed.
    Verbs(Vec<&'static str>),
    /// Its object is none of the executor's business, or cannot be named.
    Closed(String),
    /// Anything else, in words.
    Other(String),
}

/// Looks up answers, and notes what is missing.
pub struct Lookup<'a> {
    inputs: &'a Inputs<'a>,
    /// The executor's user name.
    pub user: String,
    /// The executor's groups.
    pub groups: Vec<String>,
    /// What was compared for this work.
    pub compared: &'a mut Compared,
    open: BTreeSet<Question>,
    unsettled: bool,
    /// What was said about all names of a kind in a namespace: a work often has a thousand of them.
    broadly: HashMap<Question, Option<bool>>,
}

impl<'a> Lookup<'a> {
    fn new(inputs: &'a Inputs<'a>, compared: &'a mut Compared) -> Self {
        Self {
            inputs,
            compared,
            user: inputs.executor.user(),
            groups: inputs.executor.groups(),
            open: BTreeSet::new(),
            unsettled: false,
            broadly: HashMap::new(),
        }
    }

    /// The RBAC objects.
    pub fn rbac(&self) -> &'a Rbac {
        self.inputs.rbac
    }

    fn by_rbac(&self, question: &Question) -> bool {
        let attributes = question.attributes().into();
        self.inputs
            .rbac
            .index()
            .allows(&self.user, &self.groups, &attributes)
            .allowed()
    }

    /// Whether exactly this is allowed. Where RBAC decides, both the RBAC objects and the API server must say so.
    pub fn allowed(&mut self, question: &Question) -> bool {
        if self.inputs.authorizers == Authorizers::Rbac && !self.by_rbac(question) {
            return false;
        }
        let Some(answer) = self.inputs.answers.get(question) else {
            self.open.insert(question.clone());
            // Nothing is decided before all is answered.
            return true;
        };
        if !answer && self.inputs.authorizers == Authorizers::Rbac {
            self.unsettled = true;
        }
        *answer
    }

    /// Whether this is allowed for all names there; `None` if that does not answer for single names.
    fn allowed_broadly(&mut self, question: &Question) -> Option<bool> {
        if self.inputs.authorizers != Authorizers::Rbac {
            return None;
        }
        let broad = question.broad();
        if let Some(said) = self.broadly.get(&broad) {
            return *said;
        }
        let said = self.by_rbac(&broad).then(|| self.allowed(&broad));
        self.broadly.insert(broad, said);
        said
    }
}

/// The verdict, or what has to be asked before there is one. What was compared before is given along, if it was for the
/// same work and the same RBAC objects.
pub fn evaluate(inputs: &Inputs<'_>, compared: &mut Compared) -> Outcome {
    let mut lookup = Lookup::new(inputs, compared);
    let mut denials: BTreeMap<usize, Denial> = BTreeMap::new();
    // What binds a role comes last: of the work's roles only those that will be written count for it.
    let binds = |item: &&Item| {
        let target = item.target.as_ref();
        target.is_ok_and(|target| escalation::bound_role(target).is_some())
    };
    let (bindings, others): (Vec<&Item>, Vec<&Item>) = inputs.items.iter().partition(binds);
    for item in others {
        if let Some(denial) = deny(item, &Coming::default(), inputs, &mut lookup) {
            denials.insert(item.ordinal, denial);
        }
    }
    let accepted = |item: &&Item| !denials.contains_key(&item.ordinal);
    let coming = if bindings.is_empty() {
        Coming::default()
    } else {
        Coming::new(inputs.items.iter().filter(accepted))
    };
    for item in bindings {
        if let Some(denial) = deny(item, &coming, inputs, &mut lookup) {
            denials.insert(item.ordinal, denial);
        }
    }
    if !lookup.open.is_empty() {
        return Outcome::Ask(lookup.open);
    }
    if denials.is_empty() {
        return Outcome::Verdict(Verdict::default());
    }
    Outcome::Verdict(verdict(inputs, &denials, lookup.unsettled))
}

fn deny(item: &Item, coming: &Coming, inputs: &Inputs<'_>, lookup: &mut Lookup<'_>) -> Option<Denial> {
    let target = match &item.target {
        Ok(target) => target,
        Err(problem) => return Some(Denial::Closed(problem.clone())),
    };
    if let Some(reason) = protected::reason(target, inputs) {
        return Some(Denial::Closed(reason));
    }
    let missing: Vec<&'static str> = verbs(target)
        .into_iter()
        .filter(|verb| {
            let question = Question::about(verb, target);
            let allowed = match lookup.allowed_broadly(&question) {
                Some(true) => true,
                // The server does not know yet what RBAC says: single names would not tell more.
                Some(false) => false,
                None => lookup.allowed(&question),
            };
            !allowed
        })
        .collect();
    if !missing.is_empty() {
        return Some(Denial::Verbs(missing));
    }
    if !target.written() {
        return None;
    }
    escalation::check(item, target, coming, lookup)
        .err()
        .map(|reason| Denial::Other(format!("permission escalation: {reason}")))
}

fn verdict(inputs: &Inputs<'_>, denials: &BTreeMap<usize, Denial>, unsettled: bool) -> Verdict {
    let mut refused = BTreeMap::new();
    let mut readable = BTreeSet::new();
    for item in inputs.items {
        let closed = match denials.get(&item.ordinal) {
            Some(Denial::Verbs(verbs)) => verbs.contains(&"get"),
            Some(Denial::Closed(_)) => true,
            Some(Denial::Other(_)) | None => false,
        };
        if !closed {
            readable.insert(item.ordinal);
        }
        let refusal = match denials.get(&item.ordinal) {
            Some(denial) => Refused::Denied(explain(item, denial, inputs.executor)),
            None if inputs.granularity == ExecutorGranularity::Work => Refused::Held(
                "Held back: other manifests of this work are refused, see the condition of the work".into(),
            ),
            None => continue,
        };
        refused.insert(item.ordinal, refusal);
    }
    Verdict {
        refusal: Some(summary(inputs, denials)),
        refused,
        readable,
        unsettled,
    }
}

fn explain(item: &Item, denial: &Denial, executor: &ExecutorServiceAccount) -> String {
    let meta = &item.meta;
    let object = format!(
        "not allowed to apply the resource {} {}, {} {}",
        meta.group, meta.resource, meta.namespace, meta.name
    );
    match denial {
        Denial::Verbs(verbs) => format!("{object}: {} may not {}", executor.user(), verbs.join(", ")),
        Denial::Closed(reason) if item.target.is_err() => reason.clone(),
        Denial::Closed(reason) | Denial::Other(reason) => format!("{object}, error: {reason}"),
    }
}

/// The denials, grouped by verb, resource and namespace.
fn summary(inputs: &Inputs<'_>, denials: &BTreeMap<usize, Denial>) -> String {
    let mut groups: BTreeMap<(String, String, String), Vec<&str>> = BTreeMap::new();
    for item in inputs.items {
        let meta = &item.meta;
        let resource = match (meta.resource.is_empty(), meta.group.is_empty()) {
            (true, _) => meta.kind.clone(),
            (false, true) => meta.resource.clone(),
            (false, false) => format!("{}.{}", meta.resource, meta.group),
        };
        let mut add = |what: String| {
            groups
                .entry((what, resource.clone(), meta.namespace.clone()))
                .or_default()
                .push(&meta.name);
        };
        match denials.get(&item.ordinal) {
            Some(Denial::Verbs(verbs)) => verbs.iter().for_each(|verb| add(format!("may not {verb}"))),
            Some(Denial::Closed(reason)) if item.target.is_err() => add(format!("cannot map ({reason})")),
            Some(Denial::Closed(reason) | Denial::Other(reason)) => add(format!("may not write ({reason})")),
            None => {}
        }
    }
    let mut lines = vec![format!(
        "Failed to apply manifest work: {} of {} manifests are refused for executor {}",
        denials.len(),
        inputs.items.len(),
        inputs.executor.user()
    )];
    for ((what, resource, namespace), names) in groups {
        let place = if namespace.is_empty() {
            String::new()
        } else {
            format!(" in namespace {namespace}")
        };
        let shown = names.iter().take(NAMES).copied().collect::<Vec<_>>().join(", ");
        let more = match names.len().saturating_sub(NAMES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        lines.push(format!(
            "{what} {resource}{place}: {} ({shown}{more})",
            names.len()
        ));
    }
    lines.join("\n")
}
