//! Discovery: which groups, versions and resources there are, in the old form and the aggregated one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};
use sha2::Digest;

use crate::http::{Body, Media, REPRESENTATIONS, json as respond, kept};
use crate::registry::{Resource, Snapshot, Version};
use crate::status::{Failure, Result};

/// Answers `/api`, `/apis` and below; `parts` are the segments of the path.
pub(super) fn answer(snapshot: &Snapshot, parts: &[&str], headers: &HeaderMap) -> Result<Response<Body>> {
    let value = match parts {
        ["api"] => match aggregated(headers)? {
            Some(media) => return group_list(snapshot, headers, media, true),
            None => json!({
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1" }],
            }),
        },
        ["apis"] => {
            if let Some(media) = aggregated(headers)? {
                return group_list(snapshot, headers, media, false);
            }
            let groups: Vec<Value> = groups(snapshot)
                .iter()
                .filter(|(group, _)| !group.is_empty())
                .map(|(group, versions)| api_group(group, versions))
                .collect();
            json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
        }
        ["apis", group] => {
            let groups = snapshot.groups();
            let (group, versions) = groups
                .iter()
                .find(|(name, _)| name == group)
                .ok_or_else(Failure::no_such_path)?;
            let mut value = api_group(group, versions);
            if let Some(map) = value.as_object_mut() {
                map.insert("kind".into(), "APIGroup".into());
                map.insert("apiVersion".into(), "v1".into());
            }
            value
        }
        ["api", version] => resource_list(snapshot, "", version)?,
        ["apis", group, version] => resource_list(snapshot, group, version)?,
        _ => return Err(Failure::no_such_path()),
    };
    Ok(respond(StatusCode::OK, &value))
}

/// The form in which all groups are wanted at once, if they are: that is closer to what is asked for than the old form.
fn aggregated(headers: &HeaderMap) -> Result<Option<Media>> {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    let (mut plain, mut other) = (false, false);
    for clause in accept.unwrap_or_default().split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let media = match parts.next() {
            Some("application/json" | "*/*" | "application/*") => Media::Json,
            Some("application/yaml") => Media::Yaml,
            _ => continue,
        };
        let parts: Vec<&str> = parts.collect();
        if AGGREGATED.iter().all(|part| parts.contains(part)) {
            return Ok(Some(media));
        }
        if parts.iter().any(|part| part.starts_with("as=")) {
            other = true;
        } else {
            plain = true;
        }
    }
    if other && !plain {
        return Err(Failure::other_shape(format!(
            "only the following media types are accepted: {}",
            REPRESENTATIONS.join(", ")
        )));
    }
    Ok(None)
}

const AGGREGATED: [&str; 3] = ["as=APIGroupDiscoveryList", "g=apidiscovery.k8s.io", "v=v2"];

fn api_group(group: &str, versions: &[String]) -> Value {
    let all: Vec<Value> = versions
        .iter()
        .map(|version| json!({ "groupVersion": format!("{group}/{version}"), "version": version }))
        .collect();
    json!({ "name": group, "versions": all, "preferredVersion": all.first() })
}

fn storage_hash(resource: &Resource) -> String {
    let text = format!("{}/{}/{}", resource.group, resource.storage, resource.kind);
    let digest = sha2::Sha256::digest(text);
    STANDARD.encode(digest.get(..8).unwrap_or_default())
}

/// A subresource: name, kind, and group and version where they differ from the resource's, verbs.
struct Sub {
    name: &'static str,
    kind: String,
    other: Option<(&'static str, &'static str)>,
    verbs: &'static [&'static str],
}

fn subresources(resource: &Resource, version: &Version) -> Vec<Sub> {
    const CHANGE: &[&str] = &["get", "patch", "update"];
    let sub = |name, kind: &str, other, verbs| Sub {
        name,
        kind: kind.to_owned(),
        other,
        verbs,
    };
    let mut all = Vec::new();
    match &*resource.table {
        "certificatesigningrequests.certificates.k8s.io" => {
            all.push(sub("approval", "CertificateSigningRequest", None, CHANGE));
        }
        "namespaces" => all.push(sub("finalize", "Namespace", None, &["update"])),
        "serviceaccounts" => {
            all.push(sub(
                "token",
                "TokenRequest",
                Some(("authentication.k8s.io", "v1")),
                &["create"],
            ));
        }
        _ => {}
    }
    if version.scale.is_some() {
        all.push(sub("scale", "Scale", Some(("autoscaling", "v1")), CHANGE));
    }
    if version.status {
        // Custom resources list them the other way round.
        let at = if resource.builtin.is_some() { all.len() } else { 0 };
        all.insert(at, sub("status", &resource.kind, None, CHANGE));
    }
    all
}

fn resource_list(snapshot: &Snapshot, group: &str, version: &str) -> Result<Value> {
    let mut resources = Vec::new();
    for resource in snapshot.group(group) {
        let Some(served) = resource.version(version) else {
            continue;
        };
        let mut entry = json!({
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": resource.verbs,
        });
        if let Some(map) = entry.as_object_mut() {
            if !resource.short_names.is_empty() {
                map.insert("shortNames".into(), resource.short_names.clone().into());
            }
            if !resource.categories.is_empty() {
                map.insert("categories".into(), resource.categories.clone().into());
            }
            if resource.allows("get") {
                map.insert("storageVersionHash".into(), storage_hash(resource).into());
            }
        }
        resources.push(entry);
        for sub in subresources(resource, served) {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, sub.name),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": sub.kind,
                "verbs": sub.verbs,
            });
            if let (Some((group, version)), Some(map)) = (sub.other, entry.as_object_mut()) {
                map.insert("group".into(), group.into());
                map.insert("version".into(), version.into());
            }
            resources.push(entry);
        }
    }
    if resources.is_empty() {
        return Err(if snapshot.is_builtin(group) {
            Failure::no_such_resource()
        } else {
            Failure::no_such_path()
        });
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut list =
        json!({ "kind": "APIResourceList", "groupVersion": group_version, "resources": resources });
    if let Some(map) = list.as_object_mut().filter(|_| !group.is_empty()) {
        map.insert("apiVersion".into(), "v1".into());
    }
    Ok(list)
}

/// The built-in groups in the order in which the real server prefers them; those of definitions follow by name.
const PREFERRED: [&str; 17] = [
    "",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
];

/// All groups, best first.
fn groups(snapshot: &Snapshot) -> Vec<(String, Vec<String>)> {
    let mut groups = snapshot.groups();
    groups.sort_by_key(|(group, _)| {
        PREFERRED
            .iter()
            .position(|name| *name == group.as_str())
            .unwrap_or(PREFERRED.len())
    });
    groups
}

fn group_list(snapshot: &Snapshot, headers: &HeaderMap, media: Media, core: bool) -> Result<Response<Body>> {
    let items: Vec<Value> = groups(snapshot)
        .iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = snapshot
                        .group(group)
                        .filter_map(|resource| discovered(resource, version))
                        .collect();
                    json!({ "version": version, "resources": resources, "freshness": "Current" })
                })
                .collect();
            let metadata = if core { json!({}) } else { json!({ "name": group }) };
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect();
    let value = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    });
    let json = Bytes::from(value.to_string());
    let tag = kept::tag(&json);
    // There, a client may name one tag, and no more.
    let has = headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|given| given.as_bytes() == tag.as_bytes());
    let whole = media.respond(StatusCode::OK, json)?.into_body();
    let form = format!(
        "{};{}",
        media.content_type(),
        "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    let mut response = if has {
        kept::document(None, &form, &tag)
    } else {
        kept::document(Some(whole), &form, &tag)
    };
    let public = HeaderValue::from_static("public");
    response.headers_mut().insert(header::CACHE_CONTROL, public);
    Ok(response)
}

fn discovered(resource: &Resource, version: &str) -> Option<Value> {
    let served = resource.version(version)?;
    // Built-in resources name group and version of a kind only where they are not their own.
    let own = match resource.builtin {
        Some(_) => ("", ""),
        None => (resource.group.as_str(), version),
    };
    let kind =
        |group: &str, version: &str, kind: &str| json!({ "group": group, "version": version, "kind": kind });
    let subresources: Vec<Value> = subresources(resource, served)
        .into_iter()
        .map(|sub| {
            let (group, version) = sub.other.unwrap_or(own);
            json!({ "subresource": sub.name, "responseKind": kind(group, version, &sub.kind), "verbs": sub.verbs })
        })
        .collect();
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": kind(own.0, own.1, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    if let Some(map) = entry.as_object_mut() {
        if !resource.short_names.is_empty() {
            map.insert("shortNames".into(), resource.short_names.clone().into());
        }
        if !resource.categories.is_empty() {
            map.insert("categories".into(), resource.categories.clone().into());
        }
        if !subresources.is_empty() {
            map.insert("subresources".into(), subresources.into());
        }
    }
    Some(entry)
}
