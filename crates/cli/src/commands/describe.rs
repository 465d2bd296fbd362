//! `writ describe`: one object, what is said about it, and what to do next.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams},
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    connect::{Connection, explain},
    describe::{self, Condition, Report},
    kinds::{self, Kind},
    output::{self, Format},
};

/// Show one object: its conditions and events, what each cluster says, what to do next.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  writ describe cluster cluster1\n  writ describe permission alice-reads-web -n cluster1\n  writ describe sync tenant --context writ-cluster1"
)]
pub struct Describe {
    /// cluster, permission, work, account, set, sync, reposync, placement or addon.
    kind: String,
    /// The object.
    name: String,
    /// Its namespace; default: found by its name.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Serialize)]
struct Description {
    object: Value,
    conditions: Vec<Condition>,
    reports: Vec<Report>,
    events: Vec<Told>,
    next: Vec<String>,
}

/// An event, in short.
#[derive(Serialize)]
struct Told {
    time: String,
    #[serde(rename = "type")]
    type_: String,
    reason: String,
    message: String,
}

impl Describe {
    pub async fn run(self) -> Result<ExitCode> {
        let kind = kinds::find(&self.kind)?;
        let client = self.connection.client().await?;
        let mut object = self.find(&client, &kind).await?;
        let events = events(&client, &object).await?;
        object.metadata.managed_fields = None;
        if self.output == Format::Name {
            println!("{}.{}/{}", kind.resource.plural, kind.resource.group, self.name);
            return Ok(ExitCode::SUCCESS);
        }
        let object = serde_json::to_value(&object)?;
        let word = kind.words.first().copied().unwrap_or_default();
        let description = Description {
            conditions: describe::conditions(&object),
            reports: describe::reports(word, &object),
            next: describe::advice(word, &object),
            events,
            object,
        };
        output::value(self.output, &description, || description.text())?;
        Ok(ExitCode::SUCCESS)
    }

    /// The object: by its namespace, or the only one of that name in any.
    async fn find(&self, client: &Client, kind: &Kind) -> Result<DynamicObject> {
        let what = format!("read {} {}", kind.resource.kind, self.name);
        let api: Api<DynamicObject> = match (&self.namespace, kind.namespaced) {
            (_, false) => Api::all_with(client.clone(), &kind.resource),
            (Some(namespace), true) => Api::namespaced_with(client.clone(), namespace, &kind.resource),
            (None, true) => {
                let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource);
                let params = ListParams::default().fields(&format!("metadata.name={}", self.name));
                let mut found = all.list(&params).await.map_err(|e| explain(&what, &e))?.items;
                let places: Vec<_> = found.iter().filter_map(ResourceExt::namespace).collect();
                return match (found.pop(), found.len()) {
                    (Some(only), 0) => Ok(only),
                    (Some(_), _) => bail!(
                        "there is more than one {} {}: choose with -n one of {}",
                        kind.resource.kind,
                        self.name,
                        places.join(", ")
                    ),
                    (None, _) => bail!(
                        "there is no {} {} in any namespace; `writ get {}` lists them",
                        kind.resource.kind,
                        self.name,
                        kind.words.first().copied().unwrap_or_default()
                    ),
                };
            }
        };
        api.get(&self.name).await.map_err(|e| explain(&what, &e))
    }
}

/// The events about an object, the oldest first; those of cluster-scoped ones are in `default`.
async fn events(client: &Client, object: &DynamicObject) -> Result<Vec<Told>> {
    let namespace = object.namespace().unwrap_or_else(|| "default".into());
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let uid = object.uid();
    let list = match api.list(&ListParams::default()).await {
        Ok(list) => list,
        // Who may not read events still gets the rest.
        Err(kube::Error::Api(status)) if status.code == 403 => return Ok(Vec::new()),
        Err(error) => return Err(explain("read the events", &error)),
    };
    let mut told: Vec<Told> = list
        .items
        .into_iter()
        .filter(|event| event.involved_object.uid == uid)
        .map(|event| Told {
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
    told.sort_by(|a, b| a.time.cmp(&b.time));
    Ok(told)
}

impl Description {
    fn text(&self) -> String {
        let mut lines = self.head();
        let mut section = |title: &str, body: Vec<String>| {
            if !body.is_empty() {
                lines.extend([String::new(), title.to_owned()]);
                lines.extend(body.into_iter().map(|line| format!("  {line}")));
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
        let spec = self
            .object
            .get("spec")
            .and_then(|spec| writ_runtime::yaml::to_string(spec).ok());
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
        section("Conditions", or(conditions, "none yet"));
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
            or(self.next.clone(), "nothing: all is as wanted"),
        );
        lines.join("\n")
    }

    /// What and where.
    fn head(&self) -> Vec<String> {
        let heads = [
            ("Kind", "/kind"),
            ("Name", "/metadata/name"),
            ("Namespace", "/metadata/namespace"),
            ("Created", "/metadata/creationTimestamp"),
        ];
        let text = |path: &str| self.object.pointer(path).and_then(Value::as_str);
        let labels = self.object.pointer("/metadata/labels").and_then(Value::as_object);
        heads
            .into_iter()
            .filter_map(|(title, path)| Some(format!("{title:<11}{}", text(path)?)))
            .chain(labels.into_iter().flatten().map(|(key, value)| {
                let value = value.as_str().unwrap_or_default();
                format!("{:<11}{key}={value}", "Label")
            }))
            .collect()
    }
}

fn or(lines: Vec<String>, otherwise: &str) -> Vec<String> {
    if lines.is_empty() {
        vec![otherwise.to_owned()]
    } else {
        lines
    }
}
