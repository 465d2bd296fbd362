//! An object of the older group that was stored before its definition knew the bounds.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::PostParams,
    runtime::{conditions, wait::await_condition},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use writ_api::{authentication::ManagedServiceAccount, proxy};
use writ_apiserver::Server;
use writ_controller::{Name, Next, Queue, condition, health::Health};

use super::super::{foreign_secrets::ForeignSecrets, model::Key, observe::Caches, reconcile::Reconciler};
use crate::{Context, Options, caches as shared};

fn without_rules(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove("x-kubernetes-validations");
            map.values_mut().for_each(without_rules);
        }
        Value::Array(list) => list.iter_mut().for_each(without_rules),
        _ => {}
    }
}

#[tokio::test]
async fn refused_account_of_the_older_group_says_why_in_its_status() {
    let server = Server::builder().start().await.unwrap();
    let client = server.client();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut older = serde_json::to_value(proxy::crds()).unwrap();
    without_rules(&mut older);
    let older: Vec<CustomResourceDefinition> = serde_json::from_value(older).unwrap();
    for crd in older.into_iter().chain(writ_api::authentication::crds()) {
        crds.create(&PostParams::default(), &crd).await.unwrap();
        await_condition(crds.clone(), &crd.name_any(), conditions::is_crd_established())
            .await
            .unwrap();
    }
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "c1"}})).unwrap();
    Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let owners: Api<proxy::ManagedServiceAccount> = Api::namespaced(client.clone(), "c1");
    let accounts: Api<ManagedServiceAccount> = Api::namespaced(client.clone(), "c1");
    let stored = serde_json::from_value(json!({
        "apiVersion": "proxy.open-cluster-management.io/v1alpha1", "kind": "ManagedServiceAccount",
        "metadata": {"name": "robot"}, "spec": {"rotation": {"enabled": true, "validity": "30d"}},
    }))
    .unwrap();
    let stored = owners.create(&PostParams::default(), &stored).await.unwrap();

    let shutdown = CancellationToken::new();
    let context = Context {
        client: client.clone(),
        options: Arc::new(Options::default()),
        caches: Arc::new(shared::Caches::new(client.clone(), shutdown.clone())),
        health: Health::default(),
        shutdown: shutdown.clone(),
    };
    let caches = Arc::new(Caches::start(&context));
    let foreign = ForeignSecrets::new(client.clone(), Queue::default(), shutdown);
    let reconciler = Reconciler::new(&context, caches.clone(), Arc::default(), foreign);
    caches.owners.record(stored).unwrap();
    let key = Key::Owner(Name::new("c1", "robot"));
    assert_eq!(
        reconciler.reconcile(&key).await.unwrap(),
        Next::Wait,
        "trying again cannot help"
    );
    let told = owners.get("robot").await.unwrap();
    for type_ in ["AllServiceAccountPresent", "TokenReported"] {
        let conditions = &told.status.as_ref().unwrap().conditions;
        let said = condition::find(conditions, type_).unwrap();
        assert_eq!((said.status.as_str(), said.reason.as_str()), ("False", "Refused"));
        assert!(said.message.contains("30d"), "{}", said.message);
    }
    // A valid change heals it.
    let mut better = told;
    better.spec.rotation.validity = "720h".into();
    let better = owners
        .replace("robot", &PostParams::default(), &better)
        .await
        .unwrap();
    caches.owners.record(better).unwrap();
    reconciler.reconcile(&key).await.unwrap();
    assert_eq!(
        accounts.get("robot").await.unwrap().spec.rotation.validity,
        "720h"
    );
}
