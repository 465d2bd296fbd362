//! `writ describe`: one object, its conditions, reports and events, and what to do next.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams},
};
use serde::Serialize;
use serde_json::Value;
use writ_api::cluster::{
    ManagedCluster, ManagedClusterSet, PlacementDecision, placement_decision::PLACEMENT_LABEL,
};
use writ_controller::tolerant::{self, Tolerant};

use crate::{
    cluster_choice::{self, Choice},
    connect::{Connection, explain},
    describe::{self, Condition, Report},
    kinds::{self, Kind},
    output::{self, Format},
};

/// Longer values are shortened in the text form.
const MAX_TEXT: usize = 200;
/// How many characters of a shortened value are shown.
const SHOWN: usize = 40;

/// Show one object: its conditions and events, what each cluster says, what to do next.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  writ describe cluster cluster1\n  writ describe permission alice-reads-web -n cluster1\n  writ describe sync tenant --cluster cluster1"
)]
pub struct Describe {
    /// cluster, permission, work, account, set, sync, reposync, placement or addon; or KIND/NAME.
    kind: String,
    /// The object.
    name: Option<String>,
    /// Its namespace; default: that of the context, and where it names none, found by the object's name.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    connection: Connection,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Serialize)]
struct Description {
    /// The managed cluster, if one was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    object: Value,
    conditions: Vec<Condition>,
    reports: Vec<Report>,
    events: Vec<EventLine>,
    next: Vec<String>,
}

/// An event, in short.
#[derive(Serialize)]
struct EventLine {
    time: String,
    #[serde(rename = "type")]
    type_: String,
    reason: String,
    message: String,
}

impl Describe {
    pub async fn run(self) -> Result<ExitCode> {
        let (kind, name) = kinds::parse(&self.kind, self.name.as_deref())?;
        let name = name.with_context(|| {
            format!(
                "which one? say `writ describe {} NAME`; `writ get {}` lists them",
                self.kind,
                kind.word()
            )
        })?;
        kind.check_location(&self.choice)?;
        let namespace = match &self.namespace {
            // The namespace of the context is for the hub, but the object is on a managed cluster.
            None if self.choice.is_named() => None,
            None => self.connection.namespace()?,
            named => named.clone(),
        };
        let chosen = cluster_choice::choose(&self.connection, &self.choice).await?;
        let (asked, kind, namespace) = (&self, &kind, namespace.as_deref());
        let (found, missing) = cluster_choice::ask(chosen, |cluster, client| async move {
            match find(&client, kind, name, namespace).await? {
                Some(object) => Ok(Some(asked.describe(&client, kind, &cluster, object).await?)),
                None => Ok(None),
            }
        })
        .await?;
        let found: Vec<Description> = found.into_iter().filter_map(|(_, found)| found).collect();
        match (self.output, found.as_slice()) {
            // Clusters without the object are no fault; a cluster that did not answer is reported below.
            (_, []) if missing.is_none() => bail!(
                "there is no {} {name}{}; `writ get {}{}` lists them",
                kind.resource.kind,
                match (kind.namespaced, namespace) {
                    (false, _) => String::new(),
                    (true, Some(namespace)) => format!(" in namespace {namespace}"),
                    (true, None) => " in any namespace".into(),
                },
                kind.word(),
                match (kind.on_clusters, &self.choice.cluster) {
                    (false, _) => String::new(),
                    (true, Some(cluster)) => format!(" --cluster {cluster}"),
                    (true, None) => " --all".into(),
                }
            ),
            (_, []) => {}
            (Format::Name, _) => println!("{}", kind.object(name)),
            (output, [only]) => output::value(output, only, || only.text())?,
            (output, all) => output::value(output, &all, || {
                all.iter().map(Description::text).collect::<Vec<_>>().join("\n\n")
            })?,
        }
        missing.map_or(Ok(ExitCode::SUCCESS), Err)
    }

    async fn describe(
        &self,
        client: &Client,
        kind: &Kind,
        cluster: &str,
        mut object: DynamicObject,
    ) -> Result<Description> {
        let events = events(client, &object).await?;
        object.metadata.managed_fields = None;
        let object = serde_json::to_value(&object)?;
        let word = kind.word();
        let mut reports = describe::reports(word, &object, cluster);
        reports.extend(related(client, word, &object).await?);
        Ok(Description {
            cluster: self.choice.is_named().then(|| cluster.to_owned()),
            conditions: describe::conditions(&object),
            reports,
            next: describe::advice(word, &object),
            events,
            object,
        })
    }
}

/// Finds the object in its namespace, or the only one of that name in any namespace.
async fn find(
    client: &Client,
    kind: &Kind,
    name: &str,
    namespace: Option<&str>,
) -> Result<Option<DynamicObject>> {
    let what = format!("read {} {name}", kind.resource.kind);
    let api: Api<DynamicObject> = match (namespace, kind.namespaced) {
        (_, false) => Api::all_with(client.clone(), &kind.resource),
        (Some(namespace), true) => Api::namespaced_with(client.clone(), namespace, &kind.resource),
        (None, true) => {
            let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource);
            let params = ListParams::default().fields(&format!("metadata.name={name}"));
            let mut found = all.list(&params).await.map_err(|e| explain(&what, &e))?.items;
            let places: Vec<_> = found.iter().filter_map(ResourceExt::namespace).collect();
            let only = found.pop();
            if !found.is_empty() {
                bail!(
                    "there is more than one {} {name}: choose with -n one of {}",
                    kind.resource.kind,
                    places.join(", ")
                );
            }
            return Ok(only);
        }
    };
    match api.get(name).await {
        // The object does not exist, while its kind is served.
        Err(kube::Error::Api(status)) if is_absent(&status, name) => Ok(None),
        answer => Ok(Some(answer.map_err(|e| explain(&what, &e))?)),
    }
}

fn is_absent(status: &kube::core::Status, name: &str) -> bool {
    let details = status.details.as_ref();
    status.code == 404 && details.is_some_and(|details| details.name == name)
}

/// Reports from other objects: the members of a set, the decisions of a placement.
async fn related(client: &Client, word: &str, object: &Value) -> Result<Vec<Report>> {
    let all = ListParams::default();
    let found = match word {
        "sets" => {
            let set: ManagedClusterSet = serde_json::from_value(object.clone()).context("read the set")?;
            let clusters = tolerant::list(&Api::<Tolerant<ManagedCluster>>::all(client.clone()), &all).await;
            clusters.map(|clusters| describe::members(&set, &clusters))
        }
        "placements" => {
            let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let own = all.labels(&format!("{PLACEMENT_LABEL}={}", text("/metadata/name")));
            let api = Api::<PlacementDecision>::namespaced(client.clone(), text("/metadata/namespace"));
            api.list(&own)
                .await
                .map(|decisions| describe::decisions(&decisions.items))
        }
        _ => return Ok(Vec::new()),
    };
    match found {
        // Without the right to read them the rest is still shown.
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Vec::new()),
        found => found.map_err(|e| explain("read what belongs to it", &e)),
    }
}

/// The events about an object, the oldest first. Those about cluster-scoped objects are in `default`.
async fn events(client: &Client, object: &DynamicObject) -> Result<Vec<EventLine>> {
    let namespace = object.namespace().unwrap_or_else(|| "default".into());
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let uid = object.uid();
    let list = match api.list(&ListParams::default()).await {
        Ok(list) => list,
        // Without the right to read events the rest is still shown.
        Err(kube::Error::Api(status)) if status.code == 403 => return Ok(Vec::new()),
        Err(error) => return Err(explain("read the events", &error)),
    };
    let mut lines: Vec<EventLine> = list
        .items
        .into_iter()
        .filter(|event| event.involved_object.uid == uid)
        .map(|event| EventLine {
            time: event
                .last_timestamp
                .map(|time| time.0.to_string())
                .or_else(|| event.event_time.map(|time| time.0.to_string()))
                .unwrap_or_default(),
            type_: event.type_.unwrap_or_default(),
            reason: event.reason.unwrap_or_default(),
            message: event.message.unwrap_or_default(),
        })
        .collect();
    lines.sort_by(|a, b| a.time.cmp(&b.time));
    Ok(lines)
}

impl Description {
    fn text(&self) -> String {
        let mut lines = self.head();
        let mut section = |title: &str, body: Vec<String>| {
            if !body.is_empty() {
                lines.extend([String::new(), title.to_owned()]);
                let body = body.iter().flat_map(|text| text.lines());
                lines.extend(body.map(|line| format!("  {line}")));
            }
        };
        let table = |header: &[&str], rows: Vec<Vec<String>>| -> Vec<String> {
            if rows.is_empty() {
                return Vec::new();
            }
            // A message of several lines is one cell.
            let flat = |cell: String| cell.lines().collect::<Vec<_>>().join("; ");
            let rows: Vec<Vec<String>> = rows
                .into_iter()
                .map(|row| row.into_iter().map(flat).collect())
                .collect();
            output::table(header, &rows).lines().map(str::to_owned).collect()
        };
        let mut spec = self.object.get("spec").cloned();
        spec.iter_mut().for_each(hide_secrets);
        spec.iter_mut().for_each(shorten);
        let spec = spec.and_then(|spec| writ_runtime::yaml::to_string(&spec).ok());
        section(
            "Spec",
            spec.iter()
                .flat_map(|text| text.lines())
                .map(str::to_owned)
                .collect(),
        );
        let conditions = self.conditions.iter().map(|c| {
            vec![
                c.name.clone(),
                c.status.clone(),
                c.reason.clone(),
                c.since.clone(),
                c.message.clone(),
            ]
        });
        let conditions = table(
            &["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"],
            conditions.collect(),
        );
        section("Conditions", unless_empty(conditions, "none yet"));
        let reports = self
            .reports
            .iter()
            .map(|r| vec![r.cluster.clone(), r.about.clone(), r.says.clone()]);
        section(
            "What clusters say",
            table(&["CLUSTER", "ABOUT", "SAYS"], reports.collect()),
        );
        let events = self.events.iter().map(|e| {
            vec![
                e.time.clone(),
                e.type_.clone(),
                e.reason.clone(),
                e.message.clone(),
            ]
        });
        section(
            "Events",
            table(&["TIME", "TYPE", "REASON", "MESSAGE"], events.collect()),
        );
        section(
            "What to do next",
            unless_empty(self.next.clone(), "Nothing to do."),
        );
        lines.join("\n")
    }

    /// The kind, name, namespace, cluster and labels.
    fn head(&self) -> Vec<String> {
        let heads = [
            ("Kind", "/kind"),
            ("Name", "/metadata/name"),
            ("Namespace", "/metadata/namespace"),
            ("Created", "/metadata/creationTimestamp"),
        ];
        let text = |path: &str| self.object.pointer(path).and_then(Value::as_str);
        let cluster = self
            .cluster
            .iter()
            .map(|cluster| format!("{:<11}{cluster}", "Cluster"));
        let labels = self.object.pointer("/metadata/labels").and_then(Value::as_object);
        heads
            .into_iter()
            .filter_map(|(title, path)| Some(format!("{title:<11}{}", text(path)?)))
            .chain(cluster)
            .chain(labels.into_iter().flatten().map(|(key, value)| {
                let value = value.as_str().unwrap_or_default();
                format!("{:<11}{key}={value}", "Label")
            }))
            .collect()
    }
}

/// Shortens long values, such as certificates, which would fill the screen.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > MAX_TEXT => {
            let begin: String = text.chars().take(SHOWN).collect();
            *text = format!("{begin}... ({} bytes, see -o yaml)", text.len());
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(map) => map.values_mut().for_each(shorten),
        _ => {}
    }
}

/// Hides the data of Secrets, as this text is often shown to others. `-o yaml` has everything.
fn hide_secrets(value: &mut Value) {
    let is_secret = value.get("kind").is_some_and(|kind| kind == "Secret");
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if is_secret && (key == "data" || key == "stringData") {
                    for hidden in value.as_object_mut().into_iter().flat_map(|map| map.values_mut()) {
                        *hidden = "(hidden)".into();
                    }
                } else {
                    hide_secrets(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_secrets),
        _ => {}
    }
}

fn unless_empty(lines: Vec<String>, otherwise: &str) -> Vec<String> {
    if lines.is_empty() {
        vec![otherwise.to_owned()]
    } else {
        lines
    }
}
