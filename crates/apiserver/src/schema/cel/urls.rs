//! URLs, in the parts that Go finds in them.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Key, Map, Opaque};
use kube_cel::cel::{Context, ExecutionError, ResolveResult, Value as Cel};

use crate::go_url::GoUrl;

#[derive(Debug)]
struct Located(GoUrl);

impl PartialEq for Located {
    /// However they were written.
    fn eq(&self, other: &Self) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

impl Eq for Located {}

impl Opaque for Located {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.URL"
    }
}

/// Finds one part.
type Part = fn(&GoUrl) -> String;

pub(super) fn register(context: &mut Context<'_>) {
    context.add_function("isURL", |text: Arc<String>| GoUrl::check_request(&text).is_ok());
    context.add_function("url", |text: Arc<String>| -> ResolveResult {
        let parsed = GoUrl::check_request(&text).and_then(|()| GoUrl::parse(&text));
        let url = parsed.map_err(|why| {
            let why = format!("URL parse error during conversion from string: {why}");
            ExecutionError::function_error("url", why)
        })?;
        Ok(Cel::Opaque(Arc::new(Located(url))))
    });
    let texts: [(&str, Part); 5] = [
        ("getScheme", |url| url.scheme.clone()),
        ("getHost", GoUrl::host),
        ("getHostname", |url| url.name_and_port().0),
        ("getPort", |url| url.name_and_port().1),
        ("getEscapedPath", |url| url.path.clone()),
    ];
    for (name, part) in texts {
        context.add_function(name, move |This(url): This<Cel>| -> ResolveResult {
            Ok(Cel::String(Arc::new(part(located(&url)?))))
        });
    }
    context.add_function("getQuery", |This(url): This<Cel>| -> ResolveResult {
        Ok(query(located(&url)?))
    });
}

fn located(value: &Cel) -> Result<&GoUrl, ExecutionError> {
    let located = match value {
        Cel::Opaque(opaque) => opaque.downcast_ref::<Located>(),
        _ => None,
    };
    located
        .map(|located| &located.0)
        .ok_or(ExecutionError::NoSuchOverload)
}

/// All values of each name.
fn query(url: &GoUrl) -> Cel {
    let mut all: HashMap<Key, Vec<Cel>> = HashMap::new();
    for (name, value) in url.pairs() {
        let values = all.entry(Key::String(Arc::new(name))).or_default();
        values.push(Cel::String(Arc::new(value)));
    }
    let lists = all
        .into_iter()
        .map(|(name, values)| (name, Cel::List(Arc::new(values))));
    Cel::Map(Map {
        map: Arc::new(lists.collect()),
    })
}
