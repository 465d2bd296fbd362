//! Pods, services and what runs them.

use serde_json::Value;

use super::{
    AGE, CONTAINERS, Column, IMAGES, NAME, SELECTOR, age, boolean, containers, integer, labels, list, number,
    or_none, selector, size, string, text, wide,
};

pub(in crate::builtin) const POD: &[Column] = &[
    NAME,
    text("Ready", |o, _| {
        let statuses = list(o, "/status/containerStatuses");
        let ready = statuses
            .iter()
            .filter(|s| s.get("ready").and_then(Value::as_bool) == Some(true))
            .count();
        format!("{ready}/{}", size(o, "/spec/containers")).into()
    }),
    text("Status", |o, _| {
        let reason = string(o, "/status/reason");
        if o.pointer("/metadata/deletionTimestamp").is_some() {
            return "Terminating".into();
        }
        if reason.is_empty() {
            string(o, "/status/phase").into()
        } else {
            reason.into()
        }
    }),
    text("Restarts", |o, _| {
        let statuses = list(o, "/status/containerStatuses");
        statuses
            .iter()
            .map(|s| number(s, "/restartCount"))
            .sum::<i64>()
            .to_string()
            .into()
    }),
    AGE,
    wide(text("IP", |o, _| or_none(string(o, "/status/podIP")))),
    wide(text("Node", |o, _| or_none(string(o, "/spec/nodeName")))),
    wide(text("Nominated Node", |o, _| {
        or_none(string(o, "/status/nominatedNodeName"))
    })),
    wide(text("Readiness Gates", |_, _| "<none>".into())),
];
pub(in crate::builtin) const SERVICE: &[Column] = &[
    NAME,
    text("Type", |o, _| string(o, "/spec/type").into()),
    text("Cluster-IP", |o, _| or_none(string(o, "/spec/clusterIP"))),
    text("External-IP", |o, _| match string(o, "/spec/type").as_str() {
        "ExternalName" => string(o, "/spec/externalName").into(),
        "ClusterIP" | "NodePort" => or_none(external_ips(o).join(",")),
        "LoadBalancer" => {
            let ingress = list(o, "/status/loadBalancer/ingress").iter();
            let mut all: Vec<String> = ingress
                .map(|at| match string(at, "/ip") {
                    ip if ip.is_empty() => string(at, "/hostname"),
                    ip => ip,
                })
                .filter(|address| !address.is_empty())
                .collect();
            all.sort();
            all.dedup();
            all.extend(external_ips(o));
            if all.is_empty() {
                "<pending>".into()
            } else {
                all.join(",").into()
            }
        }
        _ => "<unknown>".into(),
    }),
    text("Port(s)", |o, _| {
        let ports = list(o, "/spec/ports")
            .iter()
            .map(|p| match number(p, "/nodePort") {
                0 => format!("{}/{}", number(p, "/port"), string(p, "/protocol")),
                node => format!("{}:{node}/{}", number(p, "/port"), string(p, "/protocol")),
            });
        or_none(ports.collect::<Vec<_>>().join(","))
    }),
    AGE,
    wide(text("Selector", |o, _| {
        or_none(labels(o.pointer("/spec/selector")))
    })),
];
fn external_ips(service: &Value) -> Vec<String> {
    let given = list(service, "/spec/externalIPs").iter();
    given.filter_map(Value::as_str).map(str::to_owned).collect()
}

pub(in crate::builtin) const ENDPOINTS: &[Column] = &[
    NAME,
    text("Endpoints", |o, _| {
        let mut out = Vec::new();
        for subset in list(o, "/subsets") {
            for address in list(subset, "/addresses") {
                for port in list(subset, "/ports") {
                    out.push(format!("{}:{}", string(address, "/ip"), number(port, "/port")));
                }
            }
        }
        or_none(out.join(","))
    }),
    AGE,
];
pub(in crate::builtin) const ENDPOINT_SLICE: &[Column] = &[
    NAME,
    text("AddressType", |o, _| string(o, "/addressType").into()),
    text("Ports", |o, _| {
        let ports: Vec<String> = list(o, "/ports")
            .iter()
            .map(|p| number(p, "/port").to_string())
            .collect();
        if ports.is_empty() {
            "<unset>".into()
        } else {
            ports.join(",").into()
        }
    }),
    text("Endpoints", |o, _| {
        let all: Vec<String> = list(o, "/endpoints")
            .iter()
            .flat_map(|e| {
                list(e, "/addresses")
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
            })
            .collect();
        if all.is_empty() {
            "<unset>".into()
        } else {
            all.join(",").into()
        }
    }),
    AGE,
];
pub(in crate::builtin) const DEPLOYMENT: &[Column] = &[
    NAME,
    text("Ready", |o, _| {
        format!(
            "{}/{}",
            number(o, "/status/readyReplicas"),
            number(o, "/spec/replicas")
        )
        .into()
    }),
    text("Up-to-date", |o, _| number(o, "/status/updatedReplicas").into()),
    text("Available", |o, _| number(o, "/status/availableReplicas").into()),
    AGE,
    CONTAINERS,
    IMAGES,
    // Of nothing it is nothing, where other kinds say so.
    wide(text("Selector", |o, _| {
        selector(o.pointer("/spec/selector")).into()
    })),
];
pub(in crate::builtin) const REPLICA_SET: &[Column] = &[
    NAME,
    integer("Desired", |o, _| number(o, "/spec/replicas").into()),
    integer("Current", |o, _| number(o, "/status/replicas").into()),
    integer("Ready", |o, _| number(o, "/status/readyReplicas").into()),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(in crate::builtin) const REPLICATION_CONTROLLER: &[Column] = &[
    NAME,
    integer("Desired", |o, _| number(o, "/spec/replicas").into()),
    integer("Current", |o, _| number(o, "/status/replicas").into()),
    integer("Ready", |o, _| number(o, "/status/readyReplicas").into()),
    AGE,
    CONTAINERS,
    IMAGES,
    wide(text("Selector", |o, _| {
        or_none(labels(o.pointer("/spec/selector")))
    })),
];
pub(in crate::builtin) const STATEFUL_SET: &[Column] = &[
    NAME,
    text("Ready", |o, _| {
        format!(
            "{}/{}",
            number(o, "/status/readyReplicas"),
            number(o, "/spec/replicas")
        )
        .into()
    }),
    AGE,
    CONTAINERS,
    IMAGES,
];
pub(in crate::builtin) const DAEMON_SET: &[Column] = &[
    NAME,
    integer("Desired", |o, _| {
        number(o, "/status/desiredNumberScheduled").into()
    }),
    integer("Current", |o, _| {
        number(o, "/status/currentNumberScheduled").into()
    }),
    integer("Ready", |o, _| number(o, "/status/numberReady").into()),
    integer("Up-to-date", |o, _| {
        number(o, "/status/updatedNumberScheduled").into()
    }),
    integer("Available", |o, _| number(o, "/status/numberAvailable").into()),
    text("Node Selector", |o, _| {
        or_none(labels(o.pointer("/spec/template/spec/nodeSelector")))
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(in crate::builtin) const JOB: &[Column] = &[
    NAME,
    text("Status", |o, _| {
        let is = |ty: &str| {
            list(o, "/status/conditions")
                .iter()
                .any(|c| string(c, "/type") == ty && string(c, "/status") == "True")
        };
        let words = ["Complete", "Failed", "Suspended"];
        words.iter().find(|w| is(w)).map_or("Running", |w| *w).into()
    }),
    text("Completions", |o, _| {
        let completions = o
            .pointer("/spec/completions")
            .and_then(Value::as_i64)
            .unwrap_or(1);
        format!("{}/{completions}", number(o, "/status/succeeded")).into()
    }),
    text("Duration", |o, now| {
        match o.pointer("/status/startTime").and_then(Value::as_str) {
            None => "".into(),
            Some(start) => {
                let end = o
                    .pointer("/status/completionTime")
                    .and_then(Value::as_str)
                    .and_then(|t| t.parse().ok());
                age(Some(start), end.unwrap_or(now)).into()
            }
        }
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(in crate::builtin) const CRON_JOB: &[Column] = &[
    NAME,
    text("Schedule", |o, _| string(o, "/spec/schedule").into()),
    text("Timezone", |o, _| or_none(string(o, "/spec/timeZone"))),
    boolean("Suspend", |o, _| {
        match o.pointer("/spec/suspend").and_then(Value::as_bool) {
            Some(true) => "True".into(),
            Some(false) => "False".into(),
            None => "<unset>".into(),
        }
    }),
    integer("Active", |o, _| size(o, "/status/active").into()),
    text("Last Schedule", |o, now| {
        match o.pointer("/status/lastScheduleTime").and_then(Value::as_str) {
            None => "<none>".into(),
            some => age(some, now).into(),
        }
    }),
    AGE,
    wide(text("Containers", |o, _| {
        containers(o, "/spec/jobTemplate/spec/template/spec/containers", "/name")
    })),
    wide(text("Images", |o, _| {
        containers(o, "/spec/jobTemplate/spec/template/spec/containers", "/image")
    })),
    wide(text("Selector", |o, _| {
        or_none(selector(o.pointer("/spec/jobTemplate/spec/selector")))
    })),
];
