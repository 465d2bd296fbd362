//! Nodes: what keeps pods away from them, and which machines they are.

use serde_json::Value;

use super::{list, text};
use crate::schema::{Cause, child, index, names};

pub(super) fn node(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = taints(new);
    let machine = |node: &Value| text(node, "/spec/providerID").to_owned();
    if let Some(before) = old.map(machine).filter(|before| !before.is_empty())
        && before != machine(new)
    {
        let detail = "node updates may not change providerID except from \"\" to valid";
        causes.push(Cause::forbidden("spec.providerID", detail));
    }
    causes
}

fn taints(node: &Value) -> Vec<Cause> {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let mut causes = Vec::new();
    let mut seen = Vec::new();
    for (i, taint) in list(node, "/spec/taints").iter().enumerate() {
        let path = index("metadata.taints", i);
        let (key, value, effect) = (text(taint, "/key"), text(taint, "/value"), text(taint, "/effect"));
        for problem in names::qualified_name(key) {
            causes.push(Cause::invalid(child(&path, "key"), &key.into(), &problem));
        }
        let problems = names::label_value(value);
        if !problems.is_empty() {
            let detail = problems.join(";");
            causes.push(Cause::invalid(child(&path, "value"), &value.into(), &detail));
        }
        if effect.is_empty() {
            causes.push(Cause::required(child(&path, "effect"), ""));
        } else if !EFFECTS.contains(&effect) {
            causes.push(Cause::not_supported(
                child(&path, "effect"),
                &effect.into(),
                &EFFECTS,
            ));
        }
        if seen.contains(&(key, effect)) {
            causes.push(Cause::duplicate(path, taint));
        }
        seen.push((key, effect));
    }
    causes
}
