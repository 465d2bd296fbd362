//! What is asked of admission, and how it says no.

use serde_json::{Map, Value, json};

use super::rules::Place;
use crate::builtin::autoscaler;
use crate::go_numbers::without_whole_floats;

/// What is done to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is new.
    Create,
    /// It changes.
    Update,
    /// It goes.
    Delete,
    /// Somebody connects to it.
    Connect,
}

impl Operation {
    /// The name in rules and reviews.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// Who asks.
#[derive(Clone, Debug, Default)]
pub struct User {
    /// The name.
    pub username: String,
    /// The uid, may be empty.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// What the authenticator added.
    pub extra: Map<String, Value>,
}

/// One request on its way to the store.
#[derive(Clone, Debug)]
pub struct Request {
    /// A fresh uid for the review.
    pub uid: String,
    /// What is done.
    pub operation: Operation,
    /// Whether it is done to a custom resource.
    pub custom: bool,
    /// The API group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The kind of the object (of a subresource: its own kind), and its group.
    pub kind: String,
    /// The group of the kind; that of a subresource may be another than its resource's.
    pub kind_group: String,
    /// The version of the kind, if it is another than the resource's.
    pub kind_version: Option<&'static str>,
    /// The resource.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// Whether the resource is namespaced.
    pub namespaced: bool,
    /// The namespace, or empty.
    pub namespace: String,
    /// The name; empty while it is still to be generated.
    pub name: String,
    /// What the name will begin with, if it is still to be generated.
    pub prefix: String,
    /// Who asks.
    pub user: User,
    /// The object before an update or delete.
    pub old_object: Option<Value>,
    /// CreateOptions, UpdateOptions, PatchOptions or DeleteOptions.
    pub options: Value,
    /// Whether nothing will be stored.
    pub dry_run: bool,
}

impl Request {
    /// The `request` of a review. `place` is where the matched rule speaks.
    pub(super) fn review(&self, place: &Place, object: Option<&Value>) -> Value {
        let mut out = self.told(place);
        if let Some(map) = out.as_object_mut() {
            for (name, value) in [("object", object), ("oldObject", self.old_object.as_ref())] {
                let shown = value.map_or(Value::Null, |value| self.shown_at(place, value));
                map.insert(name.into(), shown);
            }
        }
        out
    }

    /// The `request` of CEL expressions, which have the objects beside it.
    pub(super) fn told(&self, place: &Place) -> Value {
        let own = Place::of(self);
        let kind = |place: &Place| {
            let version = self.kind_version.unwrap_or(&place.version);
            let moved = place.group != self.group;
            let group = if moved { &place.group } else { &self.kind_group };
            json!({"group": group, "version": version, "kind": self.kind})
        };
        let resource = |place: &Place| json!({"group": place.group, "version": place.version, "resource": self.resource});
        let mut user = Map::new();
        user.insert("username".into(), self.user.username.as_str().into());
        if !self.user.uid.is_empty() {
            user.insert("uid".into(), self.user.uid.as_str().into());
        }
        if !self.user.groups.is_empty() {
            user.insert("groups".into(), self.user.groups.clone().into());
        }
        if !self.user.extra.is_empty() {
            user.insert("extra".into(), Value::Object(self.user.extra.clone()));
        }
        let mut out = json!({
            "uid": self.uid,
            "kind": kind(place),
            "resource": resource(place),
            "requestKind": kind(&own),
            "requestResource": resource(&own),
            "operation": self.operation.as_str(),
            "userInfo": user,
            "dryRun": self.dry_run,
            "options": self.options,
        });
        if let Some(map) = out.as_object_mut() {
            for (key, value) in [
                ("subResource", &self.subresource),
                ("requestSubResource", &self.subresource),
                ("name", &self.name),
                ("namespace", &self.namespace),
            ] {
                if !value.is_empty() {
                    map.insert(key.into(), value.as_str().into());
                }
            }
        }
        out
    }

    /// The object as it is spoken of in a place.
    pub(super) fn shown_at(&self, place: &Place, object: &Value) -> Value {
        let mut object = object.clone();
        if place.group != self.group {
            crate::registry::convert_event(&self.group, &place.group, &mut object);
        } else if self.is_autoscaler(autoscaler::NEWER, place, autoscaler::OLDER) {
            autoscaler::to_older(&mut object);
        } else if self.is_autoscaler(autoscaler::OLDER, place, autoscaler::NEWER) {
            autoscaler::to_stored(&mut object);
        } else if place.version != self.version
            && self.kind_version.is_none()
            && let Some(map) = object.as_object_mut()
        {
            map.insert("apiVersion".into(), join(&self.kind_group, &place.version).into());
        }
        object
    }

    /// What is sent of a custom resource; what a built-in one holds has been read into its type.
    pub(super) fn written(&self, value: Value) -> Value {
        if self.custom {
            without_whole_floats(value)
        } else {
            value
        }
    }

    /// From the form that it has in a place to that of the request, in which it was `before`.
    pub(super) fn read_at(&self, place: &Place, object: &mut Value, before: &Value) -> Result<(), Rejection> {
        if place.group != self.group {
            crate::registry::convert_event(&place.group, &self.group, object);
        } else if self.is_autoscaler(autoscaler::OLDER, place, autoscaler::NEWER) {
            autoscaler::to_older(object);
        } else if self.is_autoscaler(autoscaler::NEWER, place, autoscaler::OLDER) {
            return autoscaler::to_newer(object, before).map_err(|why| Rejection::internal(&why));
        } else if object.get("apiVersion").and_then(Value::as_str)
            == Some(&*join(&self.kind_group, &place.version))
            && let Some(map) = object.as_object_mut()
        {
            map.insert("apiVersion".into(), join(&self.kind_group, &self.version).into());
        }
        Ok(())
    }

    /// Whether an autoscaler of one version is spoken of in another.
    fn is_autoscaler(&self, own: &str, place: &Place, there: &str) -> bool {
        self.kind == "HorizontalPodAutoscaler"
            && (self.group.as_str(), place.group.as_str()) == ("autoscaling", "autoscaling")
            && (self.version.as_str(), place.version.as_str()) == (own, there)
    }

    /// A 422 about the object of this request.
    pub(super) fn invalid(&self, causes: &[crate::schema::Cause]) -> Rejection {
        crate::status::Failure::invalid(&self.kind_group, &self.kind, &self.name, causes).into()
    }

    /// A 403 about this request.
    pub(super) fn forbidden(&self, why: &str) -> Rejection {
        let qualified = if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        };
        let names = [self.name.as_str(), &self.prefix, "Unknown"];
        let name = names
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default();
        let mut details = Map::new();
        for (key, value) in [("name", name), ("group", &self.group), ("kind", &self.resource)] {
            if !value.is_empty() {
                details.insert(key.into(), value.into());
            }
        }
        Rejection {
            code: 403,
            reason: "Forbidden".into(),
            message: format!("{qualified} {} is forbidden: {why}", crate::schema::quote(name)),
            details: Some(Value::Object(details)),
        }
    }
}

/// `group/version`, or the version alone for the core group.
pub(super) fn join(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// The text at a pointer, or nothing.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A request that was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason, may be empty.
    pub reason: String,
    /// The message.
    pub message: String,
    /// `status.details`.
    pub details: Option<Value>,
}

impl Rejection {
    /// 500: something could not be asked.
    pub(crate) fn internal(why: &str) -> Self {
        Self {
            code: 500,
            reason: "InternalError".into(),
            message: format!("Internal error occurred: {why}"),
            details: Some(json!({"causes": [{"message": why}]})),
        }
    }

    /// 400.
    pub(super) fn bad_request(why: String) -> Self {
        Self {
            code: 400,
            reason: "BadRequest".into(),
            message: why,
            details: None,
        }
    }
}
