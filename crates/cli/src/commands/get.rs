//! `writ get`: what the server's own columns say, as kubectl prints them.

use std::process::ExitCode;

use anyhow::{Context, Error, Result, bail};
use clap::Args;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    connect::{Connection, explain},
    fleet::{self, Choice, Chosen},
    kinds::{self, Kind},
    output::{self, Format},
};

/// List clusters, permissions, works, accounts, sets or syncs.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  writ get clusters\n  writ get permissions -n cluster1 -o yaml\n  writ get syncs --all\n\nExit code: 0, or 2 on an error, or if a name is given and nothing has it."
)]
pub struct Get {
    /// clusters, permissions, works, accounts, sets, syncs, reposyncs, placements or addons.
    kind: String,
    /// One object; without it, all.
    name: Option<String>,
    /// The namespace; default: that of the context, and all namespaces where it names none.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// All namespaces, whatever the context says.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Only objects with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    connection: Connection,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What is asked of each cluster.
struct Wanted<'a> {
    kind: &'a Kind,
    name: Option<&'a str>,
    namespace: Option<&'a str>,
    selector: Option<&'a str>,
}

impl Get {
    pub async fn run(self) -> Result<ExitCode> {
        let kind = kinds::find(&self.kind)?;
        kind.must_be_there(&self.choice)?;
        let namespace = match &self.namespace {
            // The context is about the hub, the objects are elsewhere.
            None if self.all_namespaces || self.choice.is_named() => None,
            None => self.connection.namespace()?,
            named => named.clone(),
        };
        let wanted = Wanted {
            kind: &kind,
            name: self.name.as_deref(),
            namespace: namespace.as_deref().filter(|_| kind.namespaced),
            selector: self.selector.as_deref(),
        };
        let chosen = fleet::choose(&self.connection, &self.choice).await?;
        let missing = match self.output {
            Format::Table => self.tables(&wanted, chosen).await?,
            _ => self.objects(&wanted, chosen).await?,
        };
        missing.map_or(Ok(ExitCode::SUCCESS), Err)
    }

    async fn tables(&self, wanted: &Wanted<'_>, chosen: Chosen) -> Result<Option<Error>> {
        let (found, missing) =
            fleet::ask(chosen, |_, client| async move { wanted.table(&client).await }).await?;
        let namespaces = wanted.kind.namespaced && wanted.namespace.is_none();
        let header = found.first().map(|(_, table)| table.header(namespaces));
        let rows: Vec<Vec<String>> = found
            .iter()
            .flat_map(|(cluster, table)| {
                let place = self.choice.all.then(|| cluster.clone());
                let rows = table.rows(namespaces).into_iter();
                rows.map(move |row| place.clone().into_iter().chain(row).collect())
            })
            .collect();
        if rows.is_empty() {
            self.nothing(wanted)?;
        } else {
            let place = self.choice.all.then(|| "CLUSTER".to_owned());
            let header: Vec<String> = place.into_iter().chain(header.into_iter().flatten()).collect();
            let header: Vec<&str> = header.iter().map(String::as_str).collect();
            print!("{}", output::table(&header, &rows));
        }
        Ok(missing)
    }

    async fn objects(&self, wanted: &Wanted<'_>, chosen: Chosen) -> Result<Option<Error>> {
        let (found, missing) =
            fleet::ask(chosen, |_, client| async move { wanted.objects(&client).await }).await?;
        let objects = || {
            let all = found.iter();
            all.flat_map(|(cluster, objects)| objects.iter().map(move |object| (cluster, object)))
        };
        if objects().next().is_none() {
            self.nothing(wanted)?;
        }
        if self.output == Format::Name {
            for (cluster, object) in objects() {
                let place = if self.choice.all {
                    format!("{cluster} ")
                } else {
                    String::new()
                };
                println!("{place}{}", wanted.kind.object(&object.name_any()));
            }
        } else if self.choice.all {
            let all: Vec<_> = objects()
                .map(|(cluster, object)| json!({"cluster": cluster, "object": object}))
                .collect();
            output::value(self.output, &all, String::new)?;
        } else {
            let all: Vec<_> = objects().map(|(_, object)| object).collect();
            match (wanted.name, all.as_slice()) {
                (Some(_), [only]) => output::value(self.output, only, String::new)?,
                (_, all) => {
                    let list = json!({"apiVersion": "v1", "kind": "List", "items": all});
                    output::value(self.output, &list, String::new)?;
                }
            }
        }
        Ok(missing)
    }

    /// That there is nothing is an error only where one object was asked for by name.
    fn nothing(&self, wanted: &Wanted<'_>) -> Result<()> {
        let kind = wanted.kind;
        let mut place = match (wanted.namespace, kind.namespaced) {
            (Some(namespace), true) => format!(" in namespace {namespace}"),
            (None, true) => " in any namespace".to_owned(),
            _ => String::new(),
        };
        if kind.on_clusters && !self.choice.is_named() {
            place.push_str(" of this cluster; those of managed clusters: --cluster NAME, or --all");
        }
        match wanted.name {
            Some(name) => bail!("there is no {} {name}{place}", kind.resource.kind),
            None => eprintln!("no {} found{place}", kind.resource.plural),
        }
        Ok(())
    }
}

/// A list as the server prints it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Table {
    column_definitions: Vec<Column>,
    #[serde(default)]
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Column {
    name: String,
    #[serde(default)]
    priority: i32,
}

#[derive(Debug, Deserialize)]
struct Row {
    cells: Vec<Value>,
    #[serde(default)]
    object: Value,
}

impl Wanted<'_> {
    /// Asks for the server's own columns.
    async fn table(&self, client: &Client) -> Result<Table> {
        let resource = &self.kind.resource;
        let mut path = format!("/apis/{}/{}", resource.group, resource.version);
        if let Some(namespace) = self.namespace {
            path = format!("{path}/namespaces/{namespace}");
        }
        let request = kube::core::Request::new(format!("{path}/{}", resource.plural));
        let mut request = request.list(&self.params()).context("build the request")?;
        let accept =
            http::HeaderValue::from_static("application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
        request.headers_mut().insert(http::header::ACCEPT, accept);
        client
            .request(request)
            .await
            .map_err(|e| explain(&format!("read {}", resource.plural), &e))
    }

    /// Asks for the objects themselves.
    async fn objects(&self, client: &Client) -> Result<Vec<DynamicObject>> {
        let resource = &self.kind.resource;
        let api: Api<DynamicObject> = match self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
            None => Api::all_with(client.clone(), resource),
        };
        let list = api.list(&self.params()).await;
        Ok(list
            .map_err(|e| explain(&format!("read {}", resource.plural), &e))?
            .items)
    }

    fn params(&self) -> ListParams {
        ListParams {
            label_selector: self.selector.map(Into::into),
            field_selector: self.name.map(|name| format!("metadata.name={name}")),
            ..ListParams::default()
        }
    }
}

impl Table {
    /// The names of the columns, with the namespace as the first where it matters.
    fn header(&self, namespaces: bool) -> Vec<String> {
        let shown = self
            .column_definitions
            .iter()
            .filter(|column| column.priority == 0);
        let first = namespaces.then(|| "NAMESPACE".to_owned());
        first
            .into_iter()
            .chain(shown.map(|column| column.name.to_uppercase()))
            .collect()
    }

    /// The rows as text.
    fn rows(&self, namespaces: bool) -> Vec<Vec<String>> {
        let text = |cell: &Value| match cell {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let row = |row: &Row| {
            let namespace = row.object.pointer("/metadata/namespace");
            let cells = row.cells.iter().zip(&self.column_definitions);
            let shown = cells.filter(|(_, column)| column.priority == 0);
            let first = namespaces.then(|| namespace.map(text).unwrap_or_default());
            first
                .into_iter()
                .chain(shown.map(|(cell, _)| text(cell)))
                .collect()
        };
        self.rows.iter().map(row).collect()
    }
}
