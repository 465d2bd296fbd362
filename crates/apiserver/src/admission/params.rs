//! The parameters of policies: objects of one kind, which bindings choose.

use std::sync::Arc;

use serde_json::Value;

use super::request::text;
use super::{ParamResource, Request, Source};
use crate::selector::LabelSelector;

/// What the parameters of a policy are.
pub(super) struct Kind<'a> {
    api_version: &'a str,
    named: &'a str,
    resource: ParamResource,
}

impl<'a> Kind<'a> {
    /// Whatever its bindings choose, a policy whose kind of parameters is not there is an error.
    pub(super) fn of(source: &dyn Source, policy: &'a Value) -> Result<Option<Self>, String> {
        let Some(wanted) = policy.pointer("/spec/paramKind") else {
            return Ok(None);
        };
        let (api_version, kind) = (text(wanted, "/apiVersion"), text(wanted, "/kind"));
        let Some(resource) = source.resource(api_version, kind) else {
            let slash = if api_version.contains('/') { "" } else { "/" };
            return Err(format!(
                "failed to find resource referenced by paramKind: '{slash}{api_version}, Kind={kind}'"
            ));
        };
        Ok(Some(Self {
            api_version,
            named: kind,
            resource,
        }))
    }

    /// The parameters that a binding brings: none at all is one round without.
    pub(super) fn chosen(
        &self,
        source: &dyn Source,
        binding: &Value,
        request: &Request,
    ) -> Result<Vec<Option<Arc<Value>>>, String> {
        let Some(reference) = binding.pointer("/spec/paramRef") else {
            return Ok(vec![None]);
        };
        let namespace = self.namespace(text(reference, "/namespace"), request)?;
        if !self.resource.listed {
            // The real server waits for a list of them, which never comes.
            return Err(format!(
                "paramKind kind `&ParamKind{{APIVersion:{},Kind:{},}}` not yet synced to use for admission",
                self.api_version, self.named
            ));
        }
        if !self.resource.namespaced && !text(reference, "/namespace").is_empty() {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into());
        }
        let (group, _) = self.api_version.split_once('/').unwrap_or_default();
        let plural = &self.resource.plural;
        let name = text(reference, "/name");
        let found: Vec<Arc<Value>> = if name.is_empty() {
            let selector = LabelSelector::from_object(reference.get("selector"))?;
            let mut all = source.list(group, plural);
            all.retain(|object| {
                (!self.resource.namespaced || text(object, "/metadata/namespace") == namespace)
                    && selector.matches(object.pointer("/metadata/labels").and_then(Value::as_object))
            });
            all
        } else {
            source.get(group, plural, namespace, name).into_iter().collect()
        };
        if found.is_empty() && text(reference, "/parameterNotFoundAction") == "Deny" {
            return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
        }
        let shown = |param: Arc<Value>| Arc::new(source.shown(self.api_version, self.named, &param));
        Ok(found.into_iter().map(|param| Some(shown(param))).collect())
    }

    /// Where they are: in the namespace of the request, if the binding names none.
    fn namespace<'b>(&self, named: &'b str, request: &'b Request) -> Result<&'b str, String> {
        match (self.resource.namespaced, named) {
            (false, _) => Ok(""),
            (true, "") if request.namespace.is_empty() => Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .into(),
            ),
            (true, "") => Ok(&request.namespace),
            (true, named) => Ok(named),
        }
    }
}
