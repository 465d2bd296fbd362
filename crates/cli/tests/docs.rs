//! Every command in the docs is run: each page against a fleet of its own, block after block, as a reader would.
//!
//! A block of `sh` or `console` that cannot be run has a comment before it: `<!-- not run: the reason -->`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]
#![allow(dead_code, reason = "the support module serves other tests too")]

mod support;

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use support::{Up, named, read};
use writ_testenv::{Assets, harness};

fn main() {
    let mut tests: Vec<Trial> = pages()
        .unwrap()
        .into_iter()
        .map(|page| {
            let name = format!("every_command_of_{page}_works");
            harness::real(&name, move || async move {
                tokio::task::spawn_blocking(move || run(&page)).await?
            })
        })
        .collect();
    tests.push(harness::plain(
        "every_cluster_role_is_explained",
        "docs",
        cluster_roles,
    ));
    tests.push(harness::plain("links_lead_somewhere", "docs", links));
    harness::run(tests);
}

/// README and the pages of `docs/` that people follow.
fn pages() -> Result<Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec!["README.md".to_owned()];
    for entry in fs::read_dir(root.join("docs"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let name = path.file_name().context("a name")?.to_string_lossy().into_owned();
            pages.push(format!("docs/{name}"));
        }
    }
    pages.sort();
    Ok(pages)
}

/// The scripts of a page, each with the line it starts at.
fn blocks(text: &str) -> Result<Vec<(usize, String)>> {
    let (mut blocks, mut skip) = (Vec::new(), false);
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let line = line.trim_start();
        if let Some(reason) = line.strip_prefix("<!-- not run:") {
            ensure!(
                reason.trim_end_matches("-->").trim().len() > 10,
                "line {}: say why",
                number + 1
            );
            skip = true;
            continue;
        }
        let Some(language) = line.strip_prefix("```") else {
            skip = skip && line.is_empty();
            continue;
        };
        let body: Vec<&str> = lines
            .by_ref()
            .map(|(_, line)| line)
            .take_while(|line| line.trim() != "```")
            .collect();
        let script = match language.trim() {
            "sh" => Some(body.join("\n")),
            "console" => {
                let commands = body
                    .iter()
                    .filter_map(|line| line.trim_start().strip_prefix("$ "));
                Some(commands.collect::<Vec<_>>().join("\n"))
            }
            _ => None,
        };
        if let Some(script) = script.filter(|_| !skip) {
            blocks.push((number + 1, script));
        }
        skip = false;
    }
    Ok(blocks)
}

fn run(page: &str) -> Result<()> {
    let blocks = blocks(&read(page)?)?;
    if blocks.is_empty() {
        return Ok(());
    }
    let up = Up::start(&[])?;
    let bin = named("writ")?;
    std::os::unix::fs::symlink(support::WRIT, bin.path().join("kubectl-writ"))?;
    let assets = Assets::find().map_err(|missing| anyhow::anyhow!("{missing}"))?;
    let path = format!(
        "{}:{}:{}",
        bin.path().display(),
        assets.folder().display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let work = tempfile::tempdir()?;
    for (line, script) in blocks {
        // What the page says is refused must be refused: the shell alone lets `! command` pass either way.
        let script =
            format!("refused() {{ ! \"$@\" || {{ echo \"not refused: $*\"; exit 1; }}; }}\n{script}");
        let script = script.replace("\n! ", "\nrefused ");
        let output = support::run(
            Command::new("bash")
                .args(["-e", "-o", "pipefail", "-c", &script])
                .current_dir(work.path())
                .env("PATH", &path)
                .env("HOME", work.path())
                .env("KUBECONFIG", &up.kubeconfig)
                .env("WRIT_LOG", "warn"),
        )?;
        ensure!(
            output.code == 0,
            "{page}:{line}: exit code {}\n{script}\n{}{}",
            output.code,
            output.out,
            output.err
        );
    }
    Ok(())
}

/// docs/security-model.md names each ClusterRole of deploy/.
async fn cluster_roles() -> Result<()> {
    let page = read("docs/security-model.md")?;
    let mut missing = Vec::new();
    for folder in ["hub", "agent", "sync"] {
        for (file, text) in writ_fleet::manifests::folder(folder) {
            for object in writ_runtime::yaml::documents::<serde_json::Value>(&text)? {
                let name = object["metadata"]["name"].as_str().context("a name")?;
                if object["kind"] == "ClusterRole" && !page.contains(&format!("`{name}`")) {
                    missing.push(format!("{name} (deploy/{file})"));
                }
            }
        }
    }
    ensure!(
        missing.is_empty(),
        "docs/security-model.md does not say why these are shipped: {}",
        missing.join(", ")
    );
    Ok(())
}

/// Links between pages of the repository.
async fn links() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut dead = Vec::new();
    for page in pages()? {
        let text = read(&page)?;
        let folder = root.join(&page).parent().unwrap().to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.contains("://") && !folder.join(file).exists() {
                dead.push(format!("{page}: {link}"));
            }
        }
    }
    ensure!(dead.is_empty(), "{}", dead.join("\n"));
    Ok(())
}
