//! `writ get`: what the server's own columns say, as kubectl prints them.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams},
};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    connect::{Connection, explain},
    kinds::{self, Kind},
    output::{self, Format},
};

/// List clusters, permissions, works, accounts, sets or syncs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  writ get clusters\n  writ get permissions -n cluster1 -o yaml")]
pub struct Get {
    /// clusters, permissions, works, accounts, sets, syncs, reposyncs, placements or addons.
    kind: String,
    /// One object; without it, all.
    name: Option<String>,
    /// The namespace; without it, all namespaces.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Only objects with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Get {
    pub async fn run(self) -> Result<ExitCode> {
        let kind = kinds::find(&self.kind)?;
        let client = self.connection.client().await?;
        match self.output {
            Format::Table => self.table(&client, &kind).await,
            _ => self.objects(&client, &kind).await,
        }
    }

    async fn table(&self, client: &Client, kind: &Kind) -> Result<ExitCode> {
        let table = fetch_table(
            client,
            kind,
            self.namespace.as_deref(),
            self.name.as_deref(),
            self.selector.as_deref(),
        )
        .await?;
        if table.rows.is_empty() {
            self.nothing(kind)?;
        } else {
            print!("{}", table.print(kind.namespaced && self.namespace.is_none()));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// That there is nothing is an error only where one object was asked for by name.
    fn nothing(&self, kind: &Kind) -> Result<()> {
        let place = match (&self.namespace, kind.namespaced) {
            (Some(namespace), true) => format!(" in namespace {namespace}"),
            (None, true) => " in any namespace".to_owned(),
            _ => String::new(),
        };
        match &self.name {
            Some(name) => bail!("there is no {} {name}{place}", kind.resource.kind),
            None => eprintln!("no {} found{place}", kind.resource.plural),
        }
        Ok(())
    }

    async fn objects(&self, client: &Client, kind: &Kind) -> Result<ExitCode> {
        let api: Api<DynamicObject> = match (&self.namespace, kind.namespaced) {
            (Some(namespace), true) => Api::namespaced_with(client.clone(), namespace, &kind.resource),
            _ => Api::all_with(client.clone(), &kind.resource),
        };
        let what = format!("read {}", kind.resource.plural);
        let mut params = ListParams::default();
        params.label_selector.clone_from(&self.selector);
        params.field_selector = self.name.as_ref().map(|name| format!("metadata.name={name}"));
        let list = api.list(&params).await.map_err(|e| explain(&what, &e))?;
        if list.items.is_empty() {
            self.nothing(kind)?;
        }
        if self.output == Format::Name {
            for object in &list {
                println!(
                    "{}.{}/{}",
                    kind.resource.plural,
                    kind.resource.group,
                    object.name_any()
                );
            }
        } else {
            let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": list.items});
            output::value(self.output, &list, String::new)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A list as the server prints it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Table {
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

/// Asks for the server's own columns.
pub async fn fetch_table(
    client: &Client,
    kind: &Kind,
    namespace: Option<&str>,
    name: Option<&str>,
    selector: Option<&str>,
) -> Result<Table> {
    let resource = &kind.resource;
    let mut path = format!("/apis/{}/{}", resource.group, resource.version);
    if let (Some(namespace), true) = (namespace, kind.namespaced) {
        path = format!("{path}/namespaces/{namespace}");
    }
    let request = kube::core::Request::new(format!("{path}/{}", resource.plural));
    let params = ListParams {
        label_selector: selector.map(Into::into),
        field_selector: name.map(|name| format!("metadata.name={name}")),
        ..ListParams::default()
    };
    let mut request = request.list(&params).context("build the request")?;
    let accept =
        http::HeaderValue::from_static("application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
    request.headers_mut().insert(http::header::ACCEPT, accept);
    client
        .request(request)
        .await
        .map_err(|e| explain(&format!("read {}", resource.plural), &e))
}

impl Table {
    /// The rows as text, with the namespace as first column where it matters.
    pub fn print(&self, namespaces: bool) -> String {
        let shown: Vec<bool> = self
            .column_definitions
            .iter()
            .map(|column| column.priority == 0)
            .collect();
        let names = self
            .column_definitions
            .iter()
            .filter(|column| column.priority == 0);
        let mut header: Vec<String> = names.map(|column| column.name.to_uppercase()).collect();
        if namespaces {
            header.insert(0, "NAMESPACE".into());
        }
        let rows: Vec<Vec<String>> =
            self.rows
                .iter()
                .map(|row| {
                    let cells =
                        row.cells.iter().zip(&shown).filter(|(_, shown)| **shown).map(
                            |(cell, _)| match cell {
                                Value::String(text) => text.clone(),
                                Value::Null => String::new(),
                                other => other.to_string(),
                            },
                        );
                    let namespace = row
                        .object
                        .pointer("/metadata/namespace")
                        .and_then(Value::as_str)
                        .unwrap_or_default();
                    namespaces
                        .then(|| namespace.to_owned())
                        .into_iter()
                        .chain(cells)
                        .collect()
                })
                .collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        output::table(&header, &rows)
    }
}
