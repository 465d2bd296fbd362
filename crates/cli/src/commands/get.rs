//! `writ get`: lists objects with the columns of the server, as kubectl prints them.

use std::process::ExitCode;

use anyhow::{Context, Error, Result, bail};
use clap::{Args, ValueEnum};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, Request, WatchEvent, WatchParams},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    cluster_choice::{self, Choice, Chosen},
    connect::{Connection, explain},
    kinds::{self, Kind},
    output::{self, Format},
};

/// List clusters, permissions, works, accounts, sets or syncs.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  writ get clusters\n  writ get permissions -n cluster1 -o yaml\n  writ get works -n cluster1 -w\n  writ get syncs --all\n\nExit code: 0, or 2 on an error, or if a name is given and nothing has it."
)]
pub struct Get {
    /// clusters, permissions, works, accounts, sets, syncs, reposyncs, placements or addons; or KIND/NAME.
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
    /// Go on and print what changes, until it is stopped.
    #[arg(short, long, conflicts_with = "all")]
    watch: bool,
    /// Leave the titles of the columns out.
    #[arg(long)]
    no_headers: bool,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Print,
}

/// How to print: as the other commands do, or with more columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Print {
    /// Columns for people.
    #[default]
    Table,
    /// More columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// `kind/name` lines.
    Name,
}

/// The list that each cluster is asked for.
struct Wanted<'a> {
    kind: &'a Kind,
    name: Option<&'a str>,
    namespace: Option<&'a str>,
    selector: Option<&'a str>,
}

impl Get {
    pub async fn run(self) -> Result<ExitCode> {
        let (kind, name) = kinds::parse(&self.kind, self.name.as_deref())?;
        kind.check_location(&self.choice)?;
        let namespace = match &self.namespace {
            // The namespace of the context is for the hub, but the objects are on managed clusters.
            None if self.all_namespaces || self.choice.is_named() => None,
            None => self.connection.namespace()?,
            named => named.clone(),
        };
        let wanted = Wanted {
            kind: &kind,
            name,
            namespace: namespace.as_deref().filter(|_| kind.namespaced),
            selector: self.selector.as_deref(),
        };
        let format = match self.output {
            Print::Table | Print::Wide => None,
            Print::Json => Some(Format::Json),
            Print::Yaml => Some(Format::Yaml),
            Print::Name => Some(Format::Name),
        };
        let chosen = cluster_choice::choose(&self.connection, &self.choice).await?;
        let missing = match format {
            Some(_) if self.watch => bail!("--watch prints rows: leave -o out, or say -o wide"),
            Some(format) => self.objects(&wanted, chosen, format).await?,
            None if self.watch => return self.follow(&wanted, chosen).await,
            None => self.tables(&wanted, chosen).await?,
        };
        missing.map_or(Ok(ExitCode::SUCCESS), Err)
    }

    async fn tables(&self, wanted: &Wanted<'_>, chosen: Chosen) -> Result<Option<Error>> {
        let (found, missing) =
            cluster_choice::ask(chosen, |_, client| async move { wanted.table(&client).await }).await?;
        let shown = self.shown(wanted);
        let header = found.first().map(|(_, table)| shown.header(table.columns()));
        let rows: Vec<Vec<String>> = found
            .iter()
            .flat_map(|(cluster, table)| {
                let place = self.choice.all.then(|| cluster.clone());
                let rows = shown.rows(table.columns(), table).into_iter();
                rows.map(move |row| place.clone().into_iter().chain(row).collect())
            })
            .collect();
        if rows.is_empty() {
            self.report_empty(wanted)?;
        } else {
            let place = self.choice.all.then(|| "CLUSTER".to_owned());
            let header = place.into_iter().chain(header.into_iter().flatten()).collect();
            self.print(header, &rows);
        }
        Ok(missing)
    }

    fn shown(&self, wanted: &Wanted<'_>) -> Shown {
        Shown {
            namespaces: wanted.kind.namespaced && wanted.namespace.is_none(),
            wide: self.output == Print::Wide,
        }
    }

    /// Prints a table. Returns the widths of its columns.
    fn print(&self, header: Vec<String>, rows: &[Vec<String>]) -> Vec<usize> {
        let header = Some(header).filter(|_| !self.no_headers);
        let widths = output::widths(header.iter().chain(rows));
        for row in header.iter().chain(rows) {
            print!("{}", output::line(row, &widths));
        }
        widths
    }

    /// Prints the table, then a row for every change.
    async fn follow(&self, wanted: &Wanted<'_>, chosen: Chosen) -> Result<ExitCode> {
        let Some((_, client)) = chosen.into_iter().next() else {
            bail!("no cluster was chosen")
        };
        let client = client?;
        let all = wanted.table(&client).await?;
        let shown = self.shown(wanted);
        let columns = all.columns();
        let widths = self.print(shown.header(columns), &shown.rows(columns, &all));
        let mut version = all.metadata.resource_version.clone().unwrap_or_default();
        loop {
            let mut changes = wanted.changes(&client, &version).await?;
            // The server ends every watch after some minutes: continue at the version seen last.
            while let Some(change) = changes.try_next().await? {
                let (table, gone) = match change {
                    WatchEvent::Added(rows) | WatchEvent::Modified(rows) => (rows, ""),
                    WatchEvent::Deleted(rows) => (rows, "   (deleted)"),
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
                };
                for row in shown.rows(columns, &table) {
                    println!("{}{gone}", output::line(&row, &widths).trim_end());
                }
                let last = table.rows.last();
                let seen = last.and_then(|row| row.object.pointer("/metadata/resourceVersion"));
                if let Some(seen) = seen.and_then(Value::as_str) {
                    seen.clone_into(&mut version);
                }
            }
        }
    }

    async fn objects(&self, wanted: &Wanted<'_>, chosen: Chosen, format: Format) -> Result<Option<Error>> {
        let (found, missing) =
            cluster_choice::ask(chosen, |_, client| async move { wanted.objects(&client).await }).await?;
        let objects = || {
            let all = found.iter();
            all.flat_map(|(cluster, objects)| objects.iter().map(move |object| (cluster, object)))
        };
        if objects().next().is_none() {
            self.report_empty(wanted)?;
        }
        if format == Format::Name {
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
            output::value(format, &all, String::new)?;
        } else {
            let all: Vec<_> = objects().map(|(_, object)| object).collect();
            match (wanted.name, all.as_slice()) {
                (Some(_), [only]) => output::value(format, only, String::new)?,
                (_, all) => {
                    let list = json!({"apiVersion": "v1", "kind": "List", "items": all});
                    output::value(format, &list, String::new)?;
                }
            }
        }
        Ok(missing)
    }

    /// Reports an empty result: an error only if an object was asked for by name.
    fn report_empty(&self, wanted: &Wanted<'_>) -> Result<()> {
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
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Table {
    #[serde(default)]
    metadata: ListMeta,
    /// Only the first event of a watch has them.
    column_definitions: Option<Vec<Column>>,
    #[serde(default)]
    rows: Vec<Row>,
}

#[derive(Clone, Debug, Deserialize)]
struct Column {
    name: String,
    #[serde(default)]
    priority: i32,
}

#[derive(Clone, Debug, Deserialize)]
struct Row {
    cells: Vec<Value>,
    #[serde(default)]
    object: Value,
}

impl Wanted<'_> {
    /// Asks for the server's own columns.
    async fn table(&self, client: &Client) -> Result<Table> {
        let request = self.request().list(&self.params()).context("build the request")?;
        let answer = client.request(as_table(request)).await;
        answer.map_err(|e| explain(&format!("read {}", self.kind.resource.plural), &e))
    }

    /// Watches changes after a version, as rows.
    async fn changes(
        &self,
        client: &Client,
        version: &str,
    ) -> Result<BoxStream<'static, kube::Result<WatchEvent<Table>>>> {
        let list = self.params();
        let params = WatchParams {
            label_selector: list.label_selector,
            field_selector: list.field_selector,
            bookmarks: false,
            ..WatchParams::default()
        };
        let request = self.request().watch(&params, version);
        let request = as_table(request.context("build the request")?);
        let answer = client.request_events(request).await.map(StreamExt::boxed);
        answer.map_err(|e| explain(&format!("watch {}", self.kind.resource.plural), &e))
    }

    fn request(&self) -> Request {
        let resource = &self.kind.resource;
        let mut path = format!("/apis/{}/{}", resource.group, resource.version);
        if let Some(namespace) = self.namespace {
            path = format!("{path}/namespaces/{namespace}");
        }
        Request::new(format!("{path}/{}", resource.plural))
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

/// Asks for rows instead of objects.
fn as_table(mut request: http::Request<Vec<u8>>) -> http::Request<Vec<u8>> {
    let accept =
        http::HeaderValue::from_static("application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
    request.headers_mut().insert(http::header::ACCEPT, accept);
    request
}

/// The columns of a table that are shown.
#[derive(Clone, Copy)]
struct Shown {
    /// The namespace, as the first column.
    namespaces: bool,
    /// Also the columns of lower priority.
    wide: bool,
}

impl Shown {
    fn shows(self, column: &Column) -> bool {
        self.wide || column.priority == 0
    }

    /// The names of the columns.
    fn header(self, columns: &[Column]) -> Vec<String> {
        let first = self.namespaces.then(|| "NAMESPACE".to_owned());
        let shown = columns.iter().filter(|column| self.shows(column));
        first
            .into_iter()
            .chain(shown.map(|column| column.name.to_uppercase()))
            .collect()
    }

    /// The rows of a table as text.
    fn rows(self, columns: &[Column], table: &Table) -> Vec<Vec<String>> {
        let text = |cell: &Value| match cell {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let row = |row: &Row| {
            let namespace = row.object.pointer("/metadata/namespace");
            let first = self.namespaces.then(|| namespace.map(text).unwrap_or_default());
            let cells = row.cells.iter().zip(columns);
            let shown = cells.filter(|(_, column)| self.shows(column));
            first
                .into_iter()
                .chain(shown.map(|(cell, _)| text(cell)))
                .collect()
        };
        table.rows.iter().map(row).collect()
    }
}

impl Table {
    fn columns(&self) -> &[Column] {
        self.column_definitions.as_deref().unwrap_or_default()
    }
}
