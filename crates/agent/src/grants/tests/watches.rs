//! What brings namespaces and grants to be reconciled, on an embedded server.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use tokio_util::sync::CancellationToken;
use writ_apiserver::Server;
use writ_controller::{Next, Queue, health::Health};

use super::{
    super::{
        controller::watch,
        definition,
        model::Key,
        observe::{Caches, OwnObjects},
        reconcile::Outcomes,
    },
    *,
};
use crate::{Context, RecreateLock, caches as shared};

struct Env {
    client: Client,
    caches: Arc<Caches>,
    outcomes: Arc<Outcomes>,
    queue: Queue<Key>,
    _controller: writ_controller::Controller<Key>,
    _server: Server,
}

async fn start() -> Env {
    let server = Server::builder().start().await.unwrap();
    let client = server.client();
    definition::install(&client).await.unwrap();
    let shutdown = CancellationToken::new();
    let context = Context {
        hub: client.clone(),
        spoke: client.clone(),
        options: Arc::default(),
        caches: Arc::new(shared::Caches::new(client.clone(), shutdown.clone())),
        recreate_lock: RecreateLock::default(),
        health: Health::default(),
        shutdown,
    };
    let caches = Arc::new(Caches::start(&context));
    let outcomes = Arc::new(Outcomes::default());
    let controller = watch(&context, &caches, &Arc::new(OwnObjects::default()), &outcomes);
    Env {
        client,
        caches,
        outcomes,
        queue: controller.queue(),
        _controller: controller,
        _server: server,
    }
}

impl Env {
    /// Waits for these keys; returns all that came meanwhile.
    async fn keys(&self, wanted: &[Key]) -> BTreeSet<Key> {
        let mut keys = BTreeSet::new();
        for _ in 0..2000 {
            while let Some(key) = self.queue.take() {
                self.queue.finish(key.clone(), Next::Wait);
                keys.insert(key);
            }
            if wanted.iter().all(|key| keys.contains(key)) {
                return keys;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{wanted:?} did not come, but {keys:?}");
    }

    async fn create_grant(&self) -> NamespaceGrant {
        let mut grant = role_grant("g", "get").grant;
        grant.metadata = kube::api::ObjectMeta {
            name: Some("g".into()),
            ..Default::default()
        };
        let api: Api<NamespaceGrant> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &grant).await.unwrap()
    }
}

#[tokio::test]
async fn recreated_grant_is_planned_anew_in_every_namespace() {
    let env = start().await;
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    Api::all(env.client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let all = [Key::Namespace("n".into()), Key::Grant("g".into())];
    let first = env.create_grant().await;
    env.keys(&all).await;
    let outcome = Outcome {
        generation: first.metadata.generation,
        failure: None,
        roleless: false,
    };
    env.outcomes.record(&"g".into(), "n", Some(&outcome));
    let api: Api<NamespaceGrant> = Api::all(env.client.clone());
    let status = Patch::Merge(json!({"status": {"selected": 1}}));
    api.patch_status("g", &PatchParams::default(), &status)
        .await
        .unwrap();
    let keys = env.keys(&[Key::Grant("g".into())]).await;
    assert_eq!(keys.len(), 1, "only its status has changed: {keys:?}");
    assert_eq!(env.outcomes.of("g").len(), 1);
    // Another grant of the same name and generation.
    api.delete("g", &DeleteParams::default()).await.unwrap();
    env.keys(&all).await;
    env.create_grant().await;
    env.keys(&all).await;
    assert!(env.outcomes.of("g").is_empty(), "they are the former grant's");
}

#[tokio::test]
async fn deleted_grant_is_reconciled_when_the_last_of_its_objects_is_gone() {
    let env = start().await;
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    Api::all(env.client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let grant = env.create_grant().await;
    let role: Role = serde_json::from_value(json!({"metadata": {"name": "p", "ownerReferences": [{
        "apiVersion": "writ.dev/v1alpha1", "kind": "NamespaceGrant", "name": "g", "uid": grant.metadata.uid,
        "blockOwnerDeletion": true}], "finalizers": ["example.com/hold"]}}))
    .unwrap();
    let roles: Api<Role> = Api::namespaced(env.client.clone(), "n");
    roles.create(&PostParams::default(), &role).await.unwrap();
    let both = [Key::Namespace("n".into()), Key::Grant("g".into())];
    while env.caches.is_empty_of(&grant) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    env.keys(&both).await;
    let api: Api<NamespaceGrant> = Api::all(env.client.clone());
    api.delete("g", &DeleteParams::foreground()).await.unwrap();
    env.keys(&both).await;
    roles.delete("p", &DeleteParams::default()).await.unwrap();
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    roles.patch("p", &PatchParams::default(), &release).await.unwrap();
    env.keys(&both).await;
    assert!(env.caches.is_empty_of(&grant));
}
