//! An object of the older group that was stored before its definition knew the bounds.

use std::sync::Arc;

use futures::channel::mpsc;
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::PostParams,
    core::DeserializeGuard,
    runtime::{conditions, wait::await_condition, watcher::Event},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use writ_api::{authentication::ManagedServiceAccount, proxy};
use writ_apiserver::Server;
use writ_controller::condition;

use super::super::{
    controller::{Key, Shared},
    foreign_secrets::Strangers,
    reconcile::Worker,
};
use crate::options::{AccountOptions, RegistrationDriver};

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
async fn is_told_why_it_has_no_account() {
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

    let world = Shared::default();
    let see = |owner: proxy::ManagedServiceAccount| {
        let event = Event::Apply(DeserializeGuard(Ok(owner)));
        world.write().unwrap().owners.take(event, |owner| owner);
    };
    see(stored.clone());
    let (wake, _woken) = mpsc::channel(1);
    let worker = Arc::new(Worker::new(
        client.clone(),
        world.clone(),
        AccountOptions::default(),
        false,
        RegistrationDriver::Csr,
        Strangers::new(wake, CancellationToken::new()),
    ));
    let key = Key::Owner(("c1".into(), "robot".into()));
    assert_eq!(worker.work(&key).await.unwrap(), None, "trying again cannot help");
    let told = owners.get("robot").await.unwrap();
    for type_ in ["AllServiceAccountPresent", "TokenReported"] {
        let conditions = &told.status.as_ref().unwrap().conditions;
        let said = condition::find(conditions, type_).unwrap();
        assert_eq!((said.status.as_str(), said.reason.as_str()), ("False", "Refused"));
        assert!(said.message.contains("30d"), "{}", said.message);
    }
    // It heals when it is changed.
    let mut better = told;
    better.spec.rotation.validity = "720h".into();
    let better = owners
        .replace("robot", &PostParams::default(), &better)
        .await
        .unwrap();
    see(better);
    worker.work(&key).await.unwrap();
    assert_eq!(
        accounts.get("robot").await.unwrap().spec.rotation.validity,
        "720h"
    );
}
