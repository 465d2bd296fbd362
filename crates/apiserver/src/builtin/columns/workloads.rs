//! Services, and what runs pods.

use serde_json::Value;

use super::{
    AGE, CONTAINERS, Column, IMAGES, NAME, SELECTOR, age, boolean, containers, few, integer, is_ending,
    labels, list, number, or_none, selector, size, string, text, wide,
};

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
        let mut all = Vec::new();
        for subset in list(o, "/subsets") {
            let addresses = || {
                list(subset, "/addresses")
                    .iter()
                    .map(|address| string(address, "/ip"))
            };
            let ports = list(subset, "/ports");
            if ports.is_empty() {
                all.extend(addresses());
            }
            for port in ports {
                let port = number(port, "/port");
                all.extend(addresses().map(|ip| {
                    if ip.contains(':') {
                        format!("[{ip}]:{port}")
                    } else {
                        format!("{ip}:{port}")
                    }
                }));
            }
        }
        let none = if list(o, "/subsets").is_empty() {
            "<none>"
        } else {
            ""
        };
        few(&all, none)
    }),
    AGE,
];
pub(in crate::builtin) const ENDPOINT_SLICE: &[Column] = &[
    NAME,
    text("AddressType", |o, _| string(o, "/addressType").into()),
    text("Ports", |o, _| {
        let ports = list(o, "/ports").iter();
        let ports = ports.map(
            |p| match (p.get("port").and_then(Value::as_i64), string(p, "/name")) {
                (Some(port), _) => port.to_string(),
                (None, name) if p.get("name").is_some() => name,
                (None, _) => "*".to_owned(),
            },
        );
        few(&ports.collect::<Vec<_>>(), "<unset>")
    }),
    text("Endpoints", |o, _| {
        let endpoints = list(o, "/endpoints").iter();
        let all = endpoints.flat_map(|endpoint| list(endpoint, "/addresses"));
        let all = all.filter_map(Value::as_str).map(str::to_owned);
        few(&all.collect::<Vec<_>>(), "<unset>")
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
        let first = |words: &[&'static str]| words.iter().copied().find(|word| is(word));
        first(&["Complete", "Failed"])
            .or_else(|| is_ending(o).then_some("Terminating"))
            .or_else(|| first(&["Suspended", "FailureTarget", "SuccessCriteriaMet"]))
            .unwrap_or("Running")
            .into()
    }),
    text("Completions", |o, _| {
        let done = number(o, "/status/succeeded");
        match (o.pointer("/spec/completions"), number(o, "/spec/parallelism")) {
            (Some(Value::Number(wanted)), _) => format!("{done}/{wanted}"),
            (_, ..=1) => format!("{done}/1"),
            (_, parallelism) => format!("{done}/1 of {parallelism}"),
        }
        .into()
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
