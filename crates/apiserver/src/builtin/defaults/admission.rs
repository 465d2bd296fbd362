//! Defaults of webhook configurations and admission policies.

use serde_json::{Value, json};

use super::{each, set};

pub(super) fn webhooks(object: &mut Value, kind: &str) {
    each(object, "/webhooks", |webhook| {
        set(webhook, "/failurePolicy", "Fail");
        set(webhook, "/matchPolicy", "Equivalent");
        set(webhook, "/namespaceSelector", json!({}));
        set(webhook, "/objectSelector", json!({}));
        set(webhook, "/timeoutSeconds", 10);
        if kind.starts_with("Mutating") {
            set(webhook, "/reinvocationPolicy", "Never");
        }
        if webhook
            .pointer("/clientConfig/service")
            .is_some_and(Value::is_object)
        {
            set(webhook, "/clientConfig/service/port", 443);
        }
        each(webhook, "/rules", |rule| set(rule, "/scope", "*"));
    });
}

fn match_resources(resources: &mut Value) {
    set(resources, "/matchPolicy", "Equivalent");
    set(resources, "/namespaceSelector", json!({}));
    set(resources, "/objectSelector", json!({}));
    for rules in ["/resourceRules", "/excludeResourceRules"] {
        each(resources, rules, |rule| set(rule, "/scope", "*"));
    }
}

pub(super) fn policy(object: &mut Value) {
    set(object, "/spec/failurePolicy", "Fail");
    if let Some(resources) = object
        .pointer_mut("/spec/matchConstraints")
        .filter(|r| r.is_object())
    {
        match_resources(resources);
    }
}

pub(super) fn policy_binding(object: &mut Value) {
    if let Some(resources) = object
        .pointer_mut("/spec/matchResources")
        .filter(|r| r.is_object())
    {
        match_resources(resources);
    }
}
