//! One request about a resource.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::WebSocketUpgrade;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use serde_json::Value;

use super::{create, delete, list, patch, reviews, scale, table, token, update, watch};
use crate::auth::User;
use crate::builtin::Kind;
use crate::http::{Accept, Body, Query, Shape, Target, negotiate};
use crate::registry::{Resource, Version};
use crate::state::State;
use crate::status::{Failure, Result};
use crate::store::{Object, key_of};

/// How many characters of warnings an answer has; if there are more, how many each.
const WARNINGS: usize = 4096;
const WARNING: usize = 256;

/// A request whose user may do what it asks.
pub(crate) struct Call {
    pub state: Arc<State>,
    pub user: User,
    pub method: Method,
    pub target: Target,
    pub query: Query,
    pub headers: HeaderMap,
    pub resource: Arc<Resource>,
    /// What is not newer may lack defaults of the present schema, and have fields that it does not know.
    since: u64,
    warnings: Mutex<Warnings>,
    /// What a change through `/scale` looks like to those who came through that door.
    pub scale: Mutex<Option<Scaling>>,
    /// The connection, if it may become a WebSocket.
    pub socket: Mutex<Option<Box<WebSocketUpgrade>>>,
}

/// Warnings in their order, each once.
#[derive(Default)]
struct Warnings {
    list: Vec<Arc<str>>,
    seen: HashSet<Arc<str>>,
}

/// The Scale of an object before a change, and after it.
#[derive(Clone)]
pub(crate) struct Scaling {
    pub before: Value,
    pub after: Value,
}

/// Since when a resource is what it is now; a built-in one has always been.
fn since(state: &State, resource: &Resource) -> u64 {
    match resource.builtin {
        Some(_) => 0,
        None => state.registry.snapshot().since(&resource.table),
    }
}

impl Call {
    pub fn new(
        state: Arc<State>,
        user: User,
        method: Method,
        target: Target,
        query: Query,
        headers: HeaderMap,
        resource: Arc<Resource>,
    ) -> Self {
        Self {
            since: since(&state, &resource),
            state,
            user,
            method,
            target,
            query,
            headers,
            resource,
            warnings: Mutex::default(),
            scale: Mutex::default(),
            socket: Mutex::default(),
        }
    }

    /// The same request for a task that outlives it.
    pub fn detached(&self) -> Self {
        Self {
            state: self.state.clone(),
            user: self.user.clone(),
            method: self.method.clone(),
            target: self.target.clone(),
            query: self.query.clone(),
            headers: HeaderMap::new(),
            resource: self.resource.clone(),
            since: self.since,
            warnings: Mutex::default(),
            scale: Mutex::default(),
            socket: Mutex::default(),
        }
    }

    /// The same request, read as one about another kind: what the door takes, not what is behind it.
    pub fn about(&self, resource: Arc<Resource>) -> Self {
        Self {
            headers: self.headers.clone(),
            resource,
            ..self.detached()
        }
    }

    /// The same request, as one that reads another resource in a version.
    pub fn reading(&self, resource: Arc<Resource>, version: &str) -> Self {
        let mut other = self.about(resource);
        other.since = since(&other.state, &other.resource);
        version.clone_into(&mut other.target.version);
        other
    }

    /// Says in this request's answer what was to be said in another's.
    pub fn take_warnings(&self, other: &Self) {
        let warnings = std::mem::take(&mut *other.warnings.lock().unwrap_or_else(PoisonError::into_inner));
        for warning in &warnings.list {
            self.warn(warning);
        }
    }

    pub async fn answer(&self, verb: &str, body: &Bytes) -> Result<Response<Body>> {
        self.check_scope()?;
        self.check_subresource()?;
        if verb.is_empty() || self.method == Method::HEAD {
            return Err(Failure::no_such_method());
        }
        let subresource = self.target.subresource.as_str();
        let served = |kind: &Kind| subresource.is_empty() || kind.subresources.contains(&subresource);
        if let Some(warning) = self.version()?.deprecated.as_deref()
            && self.resource.builtin.is_none_or(served)
        {
            self.warn(warning);
        }
        if !self.target.subresource.is_empty() {
            return self.answer_subresource(verb, body).await;
        }
        if !self.resource.allows(verb) {
            return Err(Failure::no_such_method());
        }
        match verb {
            "get" => self.get(),
            "list" => list::list(self),
            "watch" => watch::watch(self),
            "create" if !self.target.name.is_empty() && self.resource.builtin.is_some() => {
                Err(Failure::no_such_method())
            }
            "create" if reviews::is_review(&self.resource) => reviews::answer(self, body).await,
            "create" => create::create(self, body).await,
            "update" | "patch" if self.target.name.is_empty() => Err(Failure::no_such_method()),
            "update" => update::update(self, body).await,
            "patch" => patch::patch(self, body).await,
            "delete" => delete::delete(self, body).await,
            "deletecollection" => delete::delete_collection(self, body).await,
            _ => Err(Failure::no_such_method()),
        }
    }

    async fn answer_subresource(&self, verb: &str, body: &Bytes) -> Result<Response<Body>> {
        match (self.target.subresource.as_str(), verb) {
            ("status" | "approval", "get") => self.get(),
            ("status" | "approval" | "finalize", "update") => update::update(self, body).await,
            ("status" | "approval", "patch") => patch::patch(self, body).await,
            ("scale", "get" | "update" | "patch") => scale::answer(self, verb, body).await,
            ("token", "create") => token::create(self, body).await,
            _ => Err(self.no_such_method(verb)),
        }
    }

    fn check_subresource(&self) -> Result<()> {
        let version = self.version()?;
        let served = match self.target.subresource.as_str() {
            "" => true,
            "status" => version.status,
            "scale" => version.scale.is_some(),
            "token" => &*self.resource.table == "serviceaccounts",
            "approval" => self.is_csr(),
            "finalize" => &*self.resource.table == "namespaces",
            _ => false,
        };
        match self.resource.builtin {
            _ if served => Ok(()),
            Some(_) => Err(Failure::no_such_resource()),
            None => Err(self.not_found()),
        }
    }

    /// Custom resources have no routes by method: whoever handles them knows the verb.
    fn no_such_method(&self, verb: &str) -> Failure {
        match self.resource.builtin {
            Some(_) => Failure::no_such_method(),
            None => Failure::not_supported(&self.resource.group, &self.resource.plural, verb),
        }
    }

    fn is_csr(&self) -> bool {
        &*self.resource.table == "certificatesigningrequests.certificates.k8s.io"
    }

    /// Namespaced resources are reached through a namespace, others without one; only collections of namespaced ones both ways.
    ///
    /// Whoever has rights in a namespace has them for whatever is reached through it, so nothing else may be.
    fn check_scope(&self) -> Result<()> {
        let target = &self.target;
        let whole = target.name.is_empty();
        let review = reviews::is_review(&self.resource);
        let everywhere = self.resource.namespaced && target.namespace.is_empty();
        let served = if self.resource.builtin.is_some() && !target.beyond.is_empty() {
            false
        } else if self.resource.namespaced {
            !everywhere || (whole && !review)
        } else if self.resource.builtin.is_some() {
            !target.inside
        } else {
            // A custom resource that is called `namespaces` is none.
            target.namespace.is_empty()
        };
        if !served || target.proxy || (review && !whole) {
            return Err(match self.resource.builtin {
                Some(_) => Failure::no_such_resource(),
                None if target.proxy && served => {
                    Failure::not_supported(&self.resource.group, &self.resource.plural, "proxy")
                }
                None => Failure::no_such_path(),
            });
        }
        // The old prefix has routes for GET alone. Custom resources have no routes: by any method it is a watch.
        if target.watch && self.resource.builtin.is_some() {
            if !target.subresource.is_empty() || !self.resource.allows("watch") {
                return Err(Failure::no_such_resource());
            }
            if self.method != Method::GET {
                return Err(Failure::no_such_method());
            }
        }
        let writes = self.method == Method::DELETE || self.method == Method::POST;
        if everywhere && writes && !target.watch {
            return Err(Failure::no_such_method());
        }
        let problems = crate::schema::names::path_segment(&target.name);
        if !whole && !problems.is_empty() {
            return Err(Failure::bad_request(format!(
                "Name parameter invalid: {:?}: {}",
                target.name,
                problems.join(";")
            )));
        }
        Ok(())
    }

    pub fn version(&self) -> Result<&Version> {
        self.resource
            .version(&self.target.version)
            .ok_or_else(Failure::no_such_path)
    }

    pub fn api_version(&self) -> String {
        self.resource.api_version(&self.target.version)
    }

    /// Adds a warning to the answer; each is said once, and nothing is none.
    pub fn warn(&self, warning: &str) {
        if warning.is_empty() {
            return;
        }
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if !warnings.seen.contains(warning) {
            let warning: Arc<str> = warning.into();
            warnings.seen.insert(warning.clone());
            warnings.list.push(warning);
        }
    }

    pub fn add_warnings(&self, headers: &mut HeaderMap) {
        let warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        // One line each; where they are too many, short ones.
        let good = || {
            warnings
                .list
                .iter()
                .filter(|warning| !warning.contains(char::is_control))
        };
        let cut = good().map(|warning| warning.chars().count()).sum::<usize>() > WARNINGS;
        let (mut whole, mut written) = (0, 0);
        for warning in good() {
            // Those that came before there were too many are all said.
            if whole > WARNINGS && written >= WARNINGS {
                break;
            }
            let shown: String = warning
                .chars()
                .take(if cut { WARNING } else { usize::MAX })
                .collect();
            whole += warning.chars().count();
            written += shown.chars().count();
            let text = shown.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
                headers.append(header::WARNING, value);
            }
        }
    }

    /// The resourceVersion since which a custom resource is what it is now.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Whether a custom resource has become another since the request.
    pub fn redefined(&self) -> bool {
        self.resource.builtin.is_none()
            && self.state.registry.snapshot().since(&self.resource.table) != self.since
    }

    pub fn accept(&self) -> Result<Accept> {
        let pretty = self.query.get("pretty").unwrap_or_default();
        let pretty = matches!(pretty, "1" | "t" | "T" | "true" | "TRUE" | "True");
        negotiate(&self.headers, pretty, self.resource.builtin.is_none())
    }

    pub fn key(&self) -> Arc<str> {
        let namespace = if self.resource.namespaced {
            self.target.namespace.as_str()
        } else {
            ""
        };
        key_of(namespace, &self.target.name)
    }

    pub fn not_found(&self) -> Failure {
        self.not_found_named(&self.target.name)
    }

    pub fn not_found_named(&self, name: &str) -> Failure {
        Failure::not_found(&self.resource.group, &self.resource.plural, name)
    }

    pub fn current(&self) -> Result<Arc<Object>> {
        self.state
            .store
            .get(&self.resource.table, &self.key())
            .ok_or_else(|| self.not_found())
    }

    fn get(&self) -> Result<Response<Body>> {
        self.accept()?;
        if let Some(rv) = list::resource_version(self)? {
            list::check_reached(&self.state.store, rv)?;
        }
        let current = self.current()?;
        self.readable(&current)?;
        self.respond(StatusCode::OK, &current)
    }

    /// The object as JSON in the version that was asked for.
    pub fn json_of(&self, object: &Object) -> Bytes {
        if crate::registry::must_convert(&self.resource) {
            let mut value = object.value();
            crate::registry::from_storage(&self.resource, &mut value);
            return value.to_string().into();
        }
        if object.rv <= self.since || self.resource.differing {
            return self.value_of(object).to_string().into();
        }
        object.json_as(&self.api_version(), &self.resource.kind)
    }

    /// The object as a tree in the version that was asked for.
    pub fn value_of(&self, object: &Object) -> Value {
        let mut value = object.value();
        self.to_request_version(&mut value, object.rv);
        value
    }

    /// From the stored form, of which `rv` tells the age, to that of the version that was asked for.
    pub fn to_request_version(&self, value: &mut Value, rv: u64) {
        crate::registry::from_storage(&self.resource, value);
        if rv <= self.since || self.resource.differing {
            let wanted = self.version().ok();
            let api_version = value
                .get("apiVersion")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let stored = self.resource.stored_version(api_version).or(wanted);
            let schema = |version: Option<&Version>| version.and_then(|version| version.schema.clone());
            // It has the defaults of the version in which it is stored, and the fields that both know.
            if let Some(schema) = schema(stored) {
                schema.prune(value);
                schema.default(value);
            }
            if let Some(schema) = schema(wanted).filter(|_| self.resource.differing) {
                schema.prune(value);
                schema.prune_nulls(value);
            }
        }
        if let Some(map) = value.as_object_mut() {
            map.insert("apiVersion".into(), self.api_version().into());
        }
    }

    /// An object that is not stored (dry-run), as it would be read if it had been.
    pub fn as_read(&self, mut value: Value) -> Value {
        if self.resource.differing || self.resource.builtin.is_none() {
            crate::registry::to_storage(&self.resource, &mut value);
            self.to_request_version(&mut value, u64::MAX);
        }
        value
    }

    /// Whether the object can be read: its definition may have lost the version in which it was stored.
    pub fn readable(&self, object: &Object) -> Result<()> {
        if self.resource.builtin.is_some() || object.rv > self.since {
            return Ok(());
        }
        let value = object.value();
        let version = value
            .get("apiVersion")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if self.resource.stored_version(version).is_some() {
            return Ok(());
        }
        let why = format!("request to convert CR from an invalid group/version: {version}");
        Err(Failure::new(500, "", why))
    }

    /// An answer with one stored object in the shape that was asked for.
    pub fn respond(&self, code: StatusCode, object: &Object) -> Result<Response<Body>> {
        let accept = self.accept()?;
        let json = match &accept.shape {
            Shape::Whole => self.json_of(object),
            _ => return self.respond_value(code, &self.value_of(object)),
        };
        accept.media.respond(code, json)
    }

    /// An answer with an object that is not stored (dry-run).
    pub fn respond_value(&self, code: StatusCode, value: &Value) -> Result<Response<Body>> {
        let accept = self.accept()?;
        let json = match &accept.shape {
            Shape::Whole => value.to_string(),
            Shape::Table(version) => table::Printer::new(self)?
                .table(version, std::slice::from_ref(value), &table::Position::of(value))
                .to_string(),
            Shape::Metadata(version) => table::partial(value, version).to_string(),
            Shape::MetadataList(_)
                if self.resource.builtin.is_none() && self.target.subresource != "scale" =>
            {
                return Err(Failure::new(500, "", "content is not a list"));
            }
            Shape::MetadataList(_) => {
                return Err(Failure::other_shape(format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a list (*core.{})",
                    self.resource.kind
                )));
            }
        };
        accept.media.respond(code, json.into())
    }

    /// Nothing is changed that could not be kept: others would see it.
    pub fn writable(&self) -> Result<()> {
        self.state.store.writable().map_err(Failure::internal)
    }

    /// Waits until the write is on disk.
    pub async fn durable(&self, rv: u64) -> Result<()> {
        self.state.store.durable(rv).await.map_err(Failure::internal)
    }
}
