//! One grant (subject, role, namespace), and how it is added to and removed from a ClusterPermission. Pure, no I/O.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::rbac::v1::{RoleRef, Subject};
use writ_api::rbac::cluster_permission::{
    BindingRoleRef, ClusterPermissionSpec, ClusterRoleBinding, MANAGED_SERVICE_ACCOUNT_GROUP,
    MANAGED_SERVICE_ACCOUNT_KIND, RBAC_GROUP, RoleBinding,
};

/// A role for a subject, in one namespace or in all.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The subject that gets the role.
    pub subject: Subject,
    /// `Role` or `ClusterRole`.
    pub role_kind: &'static str,
    /// The role's name on the managed cluster.
    pub role: String,
    /// The namespace; all if there is none.
    pub namespace: Option<String>,
}

/// `user:NAME`, `group:NAME`, `serviceaccount:NAMESPACE/NAME`, `account:NAME` (a ManagedServiceAccount).
pub fn parse_subject(text: &str) -> Result<Subject> {
    let (kind, name) = text.split_once(':').with_context(|| {
        format!("{text:?} is not a subject: write user:NAME, group:NAME, serviceaccount:NAMESPACE/NAME or account:NAME (a ManagedServiceAccount)")
    })?;
    if name.is_empty() {
        bail!("{text:?} names no subject");
    }
    let of = |kind: &str, group: Option<&str>, namespace: Option<&str>, name: &str| Subject {
        kind: kind.into(),
        api_group: group.map(Into::into),
        namespace: namespace.map(Into::into),
        name: name.into(),
    };
    Ok(match kind {
        "user" => of("User", Some(RBAC_GROUP), None, name),
        "group" => of("Group", Some(RBAC_GROUP), None, name),
        "serviceaccount" | "sa" => {
            let (namespace, name) = name.split_once('/').with_context(|| {
                format!("{text:?}: a ServiceAccount is written serviceaccount:NAMESPACE/NAME")
            })?;
            if namespace.is_empty() || name.is_empty() {
                bail!("{text:?}: a ServiceAccount is written serviceaccount:NAMESPACE/NAME");
            }
            of("ServiceAccount", None, Some(namespace), name)
        }
        "account" => of(
            MANAGED_SERVICE_ACCOUNT_KIND,
            Some(MANAGED_SERVICE_ACCOUNT_GROUP),
            None,
            name,
        ),
        _ => bail!("{text:?}: {kind:?} is none of user, group, serviceaccount, account"),
    })
}

/// The name, if the subject is a ManagedServiceAccount.
pub fn account(subject: &Subject) -> Option<&str> {
    (subject.kind == MANAGED_SERVICE_ACCOUNT_KIND).then_some(&*subject.name)
}

/// `NAME` or `clusterrole:NAME`, `role:NAME`.
pub fn parse_role(text: &str) -> (&'static str, &str) {
    match text.split_once(':') {
        Some(("role", name)) => ("Role", name),
        Some(("clusterrole", name)) => ("ClusterRole", name),
        // Roles of the system have colons in their names.
        _ => ("ClusterRole", text),
    }
}

/// The usual name of the permission of a subject: `user-alice`.
pub fn permission_name(subject: &Subject) -> String {
    let kind = match subject.kind.as_str() {
        MANAGED_SERVICE_ACCOUNT_KIND => "account".to_owned(),
        kind => kind.to_lowercase(),
    };
    let parts = [Some(kind), subject.namespace.clone(), Some(subject.name.clone())];
    let text = parts.into_iter().flatten().collect::<Vec<_>>().join("-");
    slug(&text)
}

fn slug(text: &str) -> String {
    let plain: String = text
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(200)
        .collect();
    plain.trim_matches('-').to_owned()
}

fn subjects(one: Option<&Subject>, many: Option<&Vec<Subject>>) -> Vec<Subject> {
    match many {
        Some(many) if !many.is_empty() => many.clone(),
        _ => one.into_iter().cloned().collect(),
    }
}

fn same(a: &Subject, b: &Subject) -> bool {
    (&a.kind, &a.name, &a.namespace) == (&b.kind, &b.name, &b.namespace)
}

impl Grant {
    /// In words: `view in namespace web`.
    pub fn words(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} in namespace {namespace}", self.role),
            None => format!("{} in all namespaces", self.role),
        }
    }

    fn is_role(&self, kind: &str, name: Option<&str>) -> bool {
        kind == self.role_kind && name == Some(&self.role)
    }

    fn is_role_binding(&self, binding: &RoleBinding) -> bool {
        binding.namespace_selector.is_none()
            && binding.namespace == self.namespace
            && self.is_role(&binding.role_ref.kind, binding.role_ref.name.as_deref())
    }

    fn is_cluster_role_binding(&self, binding: &ClusterRoleBinding) -> bool {
        let role = binding.role_ref.as_ref();
        role.is_some_and(|role| self.is_role(&role.kind, Some(&role.name)))
    }

    /// Adds the grant to a permission; returns false if it was there already.
    pub fn add(&self, permission: &str, spec: &mut ClusterPermissionSpec) -> Result<bool> {
        if self.namespace.is_none() && self.role_kind == "Role" {
            bail!("a Role is bound in a namespace: add --namespace");
        }
        // The singular field is ignored once the plural one has entries: if it is in effect now, it moves to the list.
        if self.namespace.is_none() && spec.cluster_role_bindings.is_empty() {
            spec.cluster_role_bindings
                .extend(spec.cluster_role_binding.take());
        }
        let name = self.binding_name(permission, spec);
        let (one, many) = if self.namespace.is_some() {
            let bindings = &mut spec.role_bindings;
            let found = bindings.iter().position(|binding| self.is_role_binding(binding));
            let at = found.unwrap_or(bindings.len());
            if found.is_none() {
                bindings.push(self.role_binding(name));
            }
            let binding = bindings.get_mut(at).context("the binding")?;
            (&mut binding.subject, &mut binding.subjects)
        } else {
            let bindings = &mut spec.cluster_role_bindings;
            let found = bindings
                .iter()
                .position(|binding| self.is_cluster_role_binding(binding));
            let at = found.unwrap_or(bindings.len());
            if found.is_none() {
                bindings.push(self.cluster_role_binding(name));
            }
            let binding = bindings.get_mut(at).context("the binding")?;
            (&mut binding.subject, &mut binding.subjects)
        };
        let mut all = subjects(one.as_ref(), many.as_ref());
        if all.iter().any(|subject| same(subject, &self.subject)) {
            return Ok(false);
        }
        all.push(self.subject.clone());
        (*one, *many) = (None, Some(all));
        Ok(true)
    }

    fn role_binding(&self, name: String) -> RoleBinding {
        RoleBinding {
            name: Some(name),
            namespace: self.namespace.clone(),
            role_ref: BindingRoleRef {
                api_group: Some(RBAC_GROUP.into()),
                kind: self.role_kind.into(),
                name: Some(self.role.clone()),
            },
            ..RoleBinding::default()
        }
    }

    fn cluster_role_binding(&self, name: String) -> ClusterRoleBinding {
        ClusterRoleBinding {
            name: Some(name),
            role_ref: Some(RoleRef {
                api_group: Some(RBAC_GROUP.into()),
                kind: self.role_kind.into(),
                name: self.role.clone(),
            }),
            ..ClusterRoleBinding::default()
        }
    }

    /// Removes the grant; returns false if it was not there.
    pub fn remove(&self, spec: &mut ClusterPermissionSpec) -> bool {
        let mut removed = false;
        let mut take = |one: &mut Option<Subject>, many: &mut Option<Vec<Subject>>| {
            let mut all = subjects(one.as_ref(), many.as_ref());
            let before = all.len();
            all.retain(|subject| !same(subject, &self.subject));
            if all.len() < before {
                removed = true;
                let left = !all.is_empty();
                (*one, *many) = (None, Some(all));
                return left;
            }
            true
        };
        if self.namespace.is_some() {
            spec.role_bindings.retain_mut(|binding| {
                !self.is_role_binding(binding) || take(&mut binding.subject, &mut binding.subjects)
            });
        } else {
            let ignored = !spec.cluster_role_bindings.is_empty();
            spec.cluster_role_bindings.retain_mut(|binding| {
                !self.is_cluster_role_binding(binding) || take(&mut binding.subject, &mut binding.subjects)
            });
            if ignored && spec.cluster_role_bindings.is_empty() {
                // It was ignored beside the list; an empty list must not put it into effect.
                spec.cluster_role_binding = None;
            } else if let Some(binding) = &mut spec.cluster_role_binding
                && !ignored
                && self.is_cluster_role_binding(binding)
                && !take(&mut binding.subject, &mut binding.subjects)
            {
                spec.cluster_role_binding = None;
            }
        }
        removed
    }

    /// A name that no binding of the permission has.
    fn binding_name(&self, permission: &str, spec: &ClusterPermissionSpec) -> String {
        let taken: Vec<&str> = spec
            .role_bindings
            .iter()
            .filter_map(|binding| binding.name.as_deref())
            .chain(
                spec.cluster_role_bindings
                    .iter()
                    .filter_map(|binding| binding.name.as_deref()),
            )
            .collect();
        let first = format!("{permission}-{}", slug(&self.role));
        let mut name = first.clone();
        let mut number = 1;
        while taken.contains(&name.as_str()) {
            number += 1;
            name = format!("{first}-{number}");
        }
        name
    }
}

/// Whether a permission grants nothing.
pub fn is_empty(spec: &ClusterPermissionSpec) -> bool {
    spec.role_bindings.is_empty()
        && spec.cluster_role_bindings.is_empty()
        && spec.cluster_role_binding.is_none()
        && spec.roles.is_empty()
        && spec.cluster_role.is_none()
        && spec.role_refs.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn grant(who: &str, role_text: &str, namespace: Option<&str>) -> Grant {
        let (role_kind, name) = parse_role(role_text);
        Grant {
            subject: parse_subject(who).unwrap(),
            role_kind,
            role: name.into(),
            namespace: namespace.map(Into::into),
        }
    }

    #[test]
    fn grant_is_added_extended_and_removed() {
        let mut spec = ClusterPermissionSpec::default();
        let alice = grant("user:alice", "view", Some("web"));
        assert!(alice.add("p", &mut spec).unwrap());
        assert!(!alice.add("p", &mut spec).unwrap(), "it is there already");
        assert!(
            grant("group:team", "view", Some("web"))
                .add("p", &mut spec)
                .unwrap()
        );
        assert!(
            grant("user:alice", "view", Some("shop"))
                .add("p", &mut spec)
                .unwrap()
        );
        assert!(grant("user:alice", "edit", None).add("p", &mut spec).unwrap());
        let text = serde_json::to_value(&spec).unwrap();
        let names: Vec<_> = [
            "/roleBindings/0/name",
            "/roleBindings/1/name",
            "/clusterRoleBindings/0/name",
        ]
        .map(|path| text.pointer(path).unwrap().clone())
        .into();
        assert_eq!(names, [json!("p-view"), json!("p-view-2"), json!("p-edit")]);
        assert_eq!(
            text.pointer("/roleBindings/0/subjects").unwrap(),
            &json!([
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"},
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "team"},
            ])
        );
        for one in [
            grant("user:alice", "view", Some("shop")),
            grant("user:alice", "edit", None),
            grant("group:team", "view", Some("web")),
        ] {
            assert!(one.remove(&mut spec) && !is_empty(&spec));
        }
        assert!(!grant("user:bob", "view", Some("web")).remove(&mut spec));
        assert!(alice.remove(&mut spec));
        assert!(is_empty(&spec));
    }

    #[test]
    fn binding_of_the_singular_field_stays_in_effect() {
        let mut spec: ClusterPermissionSpec = serde_json::from_value(json!({"clusterRoleBinding": {
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "view"},
            "subject": {"apiGroup": RBAC_GROUP, "kind": "User", "name": "bob"},
        }}))
        .unwrap();
        assert!(grant("user:alice", "edit", None).add("p", &mut spec).unwrap());
        assert!(spec.cluster_role_binding.is_none());
        assert_eq!(spec.cluster_role_bindings.len(), 2);
        assert!(grant("user:bob", "view", None).remove(&mut spec));
        assert_eq!(spec.cluster_role_bindings.len(), 1);
    }

    /// The grants in all namespaces as the hub reads them: the list, or the singular field if the list is empty.
    fn everywhere(spec: &ClusterPermissionSpec) -> Vec<String> {
        let single = spec.cluster_role_binding.iter();
        let single = single.filter(|_| spec.cluster_role_bindings.is_empty());
        spec.cluster_role_bindings
            .iter()
            .chain(single)
            .flat_map(|binding| {
                let role = &binding.role_ref.as_ref().unwrap().name;
                let all = subjects(binding.subject.as_ref(), binding.subjects.as_ref());
                all.into_iter()
                    .map(move |subject| format!("{} {role}", subject.name))
            })
            .collect()
    }

    #[test]
    fn change_of_one_grant_keeps_all_others() {
        let binding = |who: &str, role: &str| {
            json!({
                "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
                "subject": {"apiGroup": RBAC_GROUP, "kind": "User", "name": who},
            })
        };
        let singular = json!({"clusterRoleBinding": binding("bob", "admin")});
        let both = json!({
            "clusterRoleBinding": binding("bob", "admin"),
            "clusterRoleBindings": [binding("eve", "view")],
        });
        let alice = |namespace| grant("user:alice", "view", namespace);
        // The spec before, whether the grant is added or removed, and the grants in all namespaces afterwards.
        let rows: [(&str, &serde_json::Value, bool, Grant, &[&str]); 8] = [
            (
                "in a namespace",
                &singular,
                true,
                alice(Some("web")),
                &["bob admin"],
            ),
            (
                "everywhere",
                &singular,
                true,
                alice(None),
                &["bob admin", "alice view"],
            ),
            (
                "in a namespace beside a list",
                &both,
                true,
                alice(Some("web")),
                &["eve view"],
            ),
            (
                "everywhere beside a list",
                &both,
                true,
                alice(None),
                &["eve view", "alice view"],
            ),
            (
                "the last of the list",
                &both,
                false,
                grant("user:eve", "view", None),
                &[],
            ),
            (
                "what does not count",
                &both,
                false,
                grant("user:bob", "admin", None),
                &["eve view"],
            ),
            (
                "the single one",
                &singular,
                false,
                grant("user:bob", "admin", None),
                &[],
            ),
            (
                "another in a namespace",
                &singular,
                false,
                grant("user:bob", "admin", Some("web")),
                &["bob admin"],
            ),
        ];
        for (what, before, adds, change, after) in rows {
            let mut spec: ClusterPermissionSpec = serde_json::from_value(before.clone()).unwrap();
            if adds {
                assert!(change.add("p", &mut spec).unwrap(), "{what}");
            } else {
                change.remove(&mut spec);
            }
            assert_eq!(everywhere(&spec), after, "{what}");
        }
    }

    #[test]
    fn subject_of_unknown_form_is_refused() {
        let refused = |text: &str| parse_subject(text).unwrap_err().to_string();
        assert!(refused("alice").contains("write user:NAME"));
        assert!(refused("team:a").contains("none of user, group"));
        assert!(refused("sa:deployer").contains("serviceaccount:NAMESPACE/NAME"));
        let error = grant("user:alice", "role:local", None)
            .add("p", &mut ClusterPermissionSpec::default())
            .unwrap_err();
        assert!(error.to_string().contains("add --namespace"));
        assert_eq!(
            permission_name(&parse_subject("user:Alice@example.com").unwrap()),
            "user-alice-example-com"
        );
        assert_eq!(
            permission_name(&parse_subject("sa:web/deployer").unwrap()),
            "serviceaccount-web-deployer"
        );
        assert_eq!(parse_role("system:node"), ("ClusterRole", "system:node"));
    }
}
