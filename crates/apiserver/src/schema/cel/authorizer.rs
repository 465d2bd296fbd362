//! `authorizer`: what a user may do, asked from within an expression.
//!
//! `authorizer.group('apps').resource('deployments').namespace('a').check('create').allowed()`,
//! `authorizer.path('/healthz').check('get').allowed()`, `authorizer.requestResource.check('sign').allowed()`,
//! `authorizer.serviceAccount('a', 'b')...`. Each step is a value of its own; only `check` asks.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Key, Map, Opaque};
use kube_cel::cel::{Context, ExecutionError, ResolveResult, Value as Cel};
use writ_authz::{Attributes, ResourceAttributes};

use super::super::meta::NameRule;

/// Decides what users may do.
pub trait Authorize: Send + Sync {
    /// Whether the user may do it, and why.
    fn authorize(&self, user: &str, groups: &[String], attributes: &Attributes<'_>) -> (bool, String);
}

/// Who asks whom.
#[derive(Clone)]
struct Asker {
    authorizer: Arc<dyn Authorize>,
    user: Arc<str>,
    groups: Arc<[String]>,
}

impl PartialEq for Asker {
    fn eq(&self, other: &Self) -> bool {
        self.user == other.user && self.groups == other.groups
    }
}

impl Eq for Asker {}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Asker").field(&self.user).finish()
    }
}

/// One step of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Asker(Asker),
    Path(Asker, String),
    Group(Asker, String),
    Resource(Asker, Resource),
    Decision(bool, String),
}

/// What is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Opaque for Step {
    fn runtime_type_name(&self) -> &str {
        match self {
            Self::Asker(_) => "kubernetes.authorization.Authorizer",
            Self::Path(..) => "kubernetes.authorization.PathCheck",
            Self::Group(..) => "kubernetes.authorization.GroupCheck",
            Self::Resource(..) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(..) => "kubernetes.authorization.Decision",
        }
    }
}

/// Where the steps of `authorizer` itself begin: it is a map, because only maps have fields, and it has one.
const SELF: &str = "";

/// The value of `authorizer` for a request by this user about this resource.
pub(crate) fn value(authorizer: Arc<dyn Authorize>, user: &str, groups: &[String], request: Resource) -> Cel {
    let asker = Asker {
        authorizer,
        user: user.into(),
        groups: groups.into(),
    };
    let fields = [
        ("requestResource", Step::Resource(asker.clone(), request)),
        (SELF, Step::Asker(asker)),
    ];
    let map: HashMap<Key, Cel> = fields
        .into_iter()
        .map(|(name, step)| (Key::String(Arc::new(name.to_owned())), opaque(step)))
        .collect();
    Cel::Map(Map { map: Arc::new(map) })
}

fn opaque(step: Step) -> Cel {
    Cel::Opaque(Arc::new(step))
}

/// The step that a value is.
fn step(value: &Cel) -> Option<&Step> {
    match value {
        Cel::Opaque(value) => value.downcast_ref::<Step>(),
        Cel::Map(map) => map
            .map
            .get(&Key::String(Arc::new(SELF.to_owned())))
            .and_then(|value| match value {
                Cel::Opaque(value) => value.downcast_ref::<Step>(),
                _ => None,
            }),
        _ => None,
    }
}

fn asker(value: &Cel) -> Result<&Asker, ExecutionError> {
    match step(value) {
        Some(Step::Asker(asker)) => Ok(asker),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

/// Adds to a question about a resource.
fn narrow(value: &Cel, add: impl FnOnce(&mut Resource)) -> ResolveResult {
    match step(value) {
        Some(Step::Resource(asker, resource)) => {
            let mut resource = resource.clone();
            add(&mut resource);
            Ok(opaque(Step::Resource(asker.clone(), resource)))
        }
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

fn decision(value: &Cel) -> Result<(bool, &str), ExecutionError> {
    match step(value) {
        Some(Step::Decision(allowed, reason)) => Ok((*allowed, reason)),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

fn text(value: &str) -> Cel {
    Cel::String(Arc::new(value.to_owned()))
}

/// Adds the functions to a context.
pub(super) fn register(context: &mut Context<'_>) {
    context.add_function(
        "path",
        |This(this): This<Cel>, path: Arc<String>| -> ResolveResult {
            if path.is_empty() {
                return Err(ExecutionError::function_error("path", "path must not be empty"));
            }
            Ok(opaque(Step::Path(asker(&this)?.clone(), path.to_string())))
        },
    );
    context.add_function(
        "group",
        |This(this): This<Cel>, group: Arc<String>| -> ResolveResult {
            Ok(opaque(Step::Group(asker(&this)?.clone(), group.to_string())))
        },
    );
    context.add_function(
        "serviceAccount",
        |This(this): This<Cel>, namespace: Arc<String>, name: Arc<String>| -> ResolveResult {
            let refuse = |what: &str| {
                let why = format!("Invalid service account {what}");
                Err(ExecutionError::function_error("serviceAccount", why))
            };
            if !NameRule::Subdomain.problems(&name, false).is_empty() {
                return refuse("name");
            }
            if !NameRule::Label.problems(&namespace, false).is_empty() {
                return refuse("namespace");
            }
            Ok(opaque(Step::Asker(Asker {
                authorizer: asker(&this)?.authorizer.clone(),
                user: format!("system:serviceaccount:{namespace}:{name}").into(),
                groups: [
                    "system:serviceaccounts".to_owned(),
                    format!("system:serviceaccounts:{namespace}"),
                    "system:authenticated".to_owned(),
                ]
                .into(),
            })))
        },
    );
    context.add_function(
        "resource",
        |This(this): This<Cel>, name: Arc<String>| -> ResolveResult {
            match step(&this) {
                Some(Step::Group(asker, group)) => {
                    let resource = Resource {
                        group: group.clone(),
                        plural: name.to_string(),
                        ..Resource::default()
                    };
                    Ok(opaque(Step::Resource(asker.clone(), resource)))
                }
                _ => Err(ExecutionError::NoSuchOverload),
            }
        },
    );
    context.add_function("subresource", |This(this): This<Cel>, name: Arc<String>| {
        narrow(&this, |resource| resource.subresource = name.to_string())
    });
    context.add_function("namespace", |This(this): This<Cel>, name: Arc<String>| {
        narrow(&this, |resource| resource.namespace = name.to_string())
    });
    context.add_function("name", |This(this): This<Cel>, name: Arc<String>| {
        narrow(&this, |resource| resource.name = name.to_string())
    });
    // RBAC knows no selectors: a rule that allows everything allows a selection.
    for selector in ["fieldSelector", "labelSelector"] {
        context.add_function(selector, |This(this): This<Cel>, _: Arc<String>| {
            narrow(&this, |_| ())
        });
    }
    context.add_function("check", |This(this): This<Cel>, verb: Arc<String>| {
        check(&this, &verb)
    });
    context.add_function("allowed", |This(this): This<Cel>| -> ResolveResult {
        Ok(Cel::Bool(decision(&this)?.0))
    });
    context.add_function("reason", |This(this): This<Cel>| -> ResolveResult {
        Ok(text(decision(&this)?.1))
    });
    context.add_function("errored", |This(this): This<Cel>| -> ResolveResult {
        decision(&this).map(|_| Cel::Bool(false))
    });
    context.add_function("error", |This(this): This<Cel>| -> ResolveResult {
        decision(&this).map(|_| text(""))
    });
}

fn check(this: &Cel, verb: &str) -> ResolveResult {
    let (asker, attributes) = match step(this) {
        Some(Step::Path(asker, path)) => (asker, Attributes::non_resource(verb, path)),
        Some(Step::Resource(asker, of)) => (
            asker,
            Attributes::Resource(ResourceAttributes {
                verb,
                group: &of.group,
                resource: &of.plural,
                subresource: &of.subresource,
                namespace: &of.namespace,
                name: &of.name,
            }),
        ),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    let (allowed, reason) = asker
        .authorizer
        .authorize(&asker.user, &asker.groups, &attributes);
    Ok(opaque(Step::Decision(allowed, reason)))
}

#[cfg(test)]
mod tests {
    use super::super::{Activation, Expression};
    use super::*;

    struct Rule;

    impl Authorize for Rule {
        fn authorize(&self, user: &str, groups: &[String], attributes: &Attributes<'_>) -> (bool, String) {
            let allowed = match attributes {
                Attributes::Resource(of) => {
                    of.verb == "create"
                        && of.group == "apps"
                        && of.resource == "deployments"
                        && of.namespace == "a"
                        && of.name == "web"
                        && (user == "alice" || groups.iter().any(|group| group == "system:serviceaccounts:b"))
                }
                Attributes::NonResource { verb, path } => *verb == "get" && *path == "/healthz",
            };
            (allowed, "because".into())
        }
    }

    #[test]
    fn questions_are_answered() {
        let request = Resource {
            group: "apps".into(),
            plural: "deployments".into(),
            namespace: "a".into(),
            name: "web".into(),
            ..Resource::default()
        };
        let mut activation = Activation::default();
        activation.bind_cel("authorizer", value(Arc::new(Rule), "alice", &[], request));
        let web = "group('apps').resource('deployments').namespace('a').name('web')";
        for (rule, wanted) in [
            (format!("authorizer.{web}.check('create').allowed()"), Some(true)),
            (
                format!("authorizer.{web}.check('create').reason() == 'because'"),
                Some(true),
            ),
            (format!("authorizer.{web}.check('delete').allowed()"), Some(false)),
            (
                format!("authorizer.{web}.subresource('status').check('create').allowed()"),
                Some(true),
            ),
            (
                format!("authorizer.{web}.labelSelector('a=b').check('create').errored()"),
                Some(false),
            ),
            (
                format!("authorizer.serviceAccount('b', 'c').{web}.check('create').allowed()"),
                Some(true),
            ),
            (
                format!("authorizer.serviceAccount('c', 'c').{web}.check('create').allowed()"),
                Some(false),
            ),
            (
                "authorizer.path('/healthz').check('get').allowed()".into(),
                Some(true),
            ),
            ("authorizer.path('/').check('get').allowed()".into(), Some(false)),
            (
                "authorizer.requestResource.check('create').allowed()".into(),
                Some(true),
            ),
            (
                "authorizer.serviceAccount('c c', 'c').path('/').check('get').allowed()".into(),
                None,
            ),
            ("authorizer.check('create').allowed()".into(), None),
            ("authorizer.path('').check('get').allowed()".into(), None),
            ("'text'.check('get').allowed()".into(), None),
        ] {
            let answer = Expression::compile(&rule).and_then(|e| e.evaluate_bool(&activation));
            assert_eq!(answer.ok(), wanted, "{rule}");
        }
    }
}
