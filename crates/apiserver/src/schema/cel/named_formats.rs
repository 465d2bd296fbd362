//! `format.dns1123Label().validate(a)`: what is wrong with a text, by the name of a format.

use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError, ResolveResult, Value as Cel};

use super::super::meta::NameRule;
use super::super::{formats, names};
use super::optional::optional;
use crate::go_url::GoUrl;

/// A format: what it is called, how long the pattern is that it is taken for when it is paid, and what is wrong with a text.
#[derive(Debug)]
struct Format {
    name: &'static str,
    pattern: u64,
    problems: fn(&str) -> Vec<String>,
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Format {}

impl Opaque for &'static Format {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.NamedFormat"
    }
}

const fn format(name: &'static str, pattern: u64, problems: fn(&str) -> Vec<String>) -> Format {
    Format {
        name,
        pattern,
        problems,
    }
}

static FORMATS: [Format; 13] = [
    format("dns1123Label", 30, |text| NameRule::Label.problems(text, false)),
    format("dns1123Subdomain", 60, |text| {
        NameRule::Subdomain.problems(text, false)
    }),
    format("dns1035Label", 30, |text| NameRule::Dns1035.problems(text, false)),
    format("qualifiedName", 60, names::qualified_name),
    format("dns1123LabelPrefix", 30, |text| {
        NameRule::Label.problems(text, true)
    }),
    format("dns1123SubdomainPrefix", 60, |text| {
        NameRule::Subdomain.problems(text, true)
    }),
    format("dns1035LabelPrefix", 30, |text| {
        NameRule::Dns1035.problems(text, true)
    }),
    format("labelValue", 40, names::label_value),
    format("uri", 1103, |text| {
        GoUrl::check_request(text).err().into_iter().collect()
    }),
    format("uuid", 70, |text| {
        of_schemas("uuid", text, "does not match the UUID format")
    }),
    format("byte", 84, |text| of_schemas("byte", text, "invalid base64")),
    format("date", 71, |text| of_schemas("date", text, "invalid date")),
    format("datetime", 71, |text| {
        of_schemas("datetime", text, "invalid datetime")
    }),
];

fn of_schemas(format: &str, text: &str, problem: &str) -> Vec<String> {
    if formats::valid(format, text) {
        Vec::new()
    } else {
        vec![problem.to_owned()]
    }
}

pub(super) fn register(context: &mut Context<'_>) {
    for format in &FORMATS {
        context.add_function(&format!("format.{}", format.name), move || -> ResolveResult {
            Ok(value(format))
        });
    }
    context.add_function("format.named", |name: Arc<String>| -> ResolveResult {
        let named = FORMATS.iter().find(|format| format.name == name.as_str());
        Ok(optional(named.map(value)))
    });
    context.add_function(
        "validate",
        |This(of): This<Cel>, text: Arc<String>| -> ResolveResult {
            let format = named(&of).ok_or(ExecutionError::NoSuchOverload)?;
            let problems = (format.problems)(&text).into_iter();
            let problems: Vec<Cel> = problems.map(|problem| Cel::String(Arc::new(problem))).collect();
            Ok(optional(
                (!problems.is_empty()).then(|| Cel::List(Arc::new(problems))),
            ))
        },
    );
}

fn value(format: &'static Format) -> Cel {
    Cel::Opaque(Arc::new(format))
}

fn named(value: &Cel) -> Option<&'static Format> {
    match value {
        Cel::Opaque(opaque) => opaque.downcast_ref::<&'static Format>().copied(),
        _ => None,
    }
}

/// How long a format is, as a pattern.
pub(super) fn length(value: &Cel) -> u64 {
    named(value).map_or(0, |format| format.pattern)
}
