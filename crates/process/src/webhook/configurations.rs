//! Keeps the webhook configurations in the API server as they shall be.

use futures::{
    StreamExt,
    stream::{BoxStream, select_all},
};
use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MutatingWebhook, RuleWithOperations, ServiceReference, ValidatingWebhook, WebhookClientConfig,
    },
};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::ClusterResourceScope,
    runtime::{WatchStreamExt, watcher},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{Configurations, Target};
use writ_controller::{Error, error::Context as _, write};

/// The field manager of the configurations.
const MANAGER: &str = "writ-webhook";

/// The configurations with everything filled in but the CA.
#[derive(Clone)]
pub struct Wanted {
    configurations: Configurations,
}

impl Wanted {
    /// Points the webhooks at the target, and sets what the API server would default, so that comparing works.
    pub fn new(mut configurations: Configurations, target: &Target, base: Option<&str>) -> Self {
        for hook in configurations
            .validating
            .iter_mut()
            .flat_map(|c| c.webhooks.iter_mut().flatten())
        {
            point(&mut hook.client_config, target, base);
            default_validating(hook);
        }
        for hook in configurations
            .mutating
            .iter_mut()
            .flat_map(|c| c.webhooks.iter_mut().flatten())
        {
            point(&mut hook.client_config, target, base);
            default_mutating(hook);
        }
        Self { configurations }
    }

    /// Writes what differs.
    pub async fn install(&self, client: &Client, bundle: &str) -> Result<(), Error> {
        let bundle = ByteString(bundle.as_bytes().to_vec());
        for configuration in &self.configurations.validating {
            let mut wanted = configuration.clone();
            for hook in wanted.webhooks.iter_mut().flatten() {
                hook.client_config.ca_bundle = Some(bundle.clone());
            }
            ensure(client, &wanted).await?;
        }
        for configuration in &self.configurations.mutating {
            let mut wanted = configuration.clone();
            for hook in wanted.webhooks.iter_mut().flatten() {
                hook.client_config.ca_bundle = Some(bundle.clone());
            }
            ensure(client, &wanted).await?;
        }
        Ok(())
    }

    /// A change of one of the configurations.
    pub fn changes(&self, client: &Client) -> BoxStream<'static, ()> {
        let validating = self
            .configurations
            .validating
            .iter()
            .map(|wanted| watch(client, wanted));
        let mutating = self
            .configurations
            .mutating
            .iter()
            .map(|wanted| watch(client, wanted));
        select_all(validating.chain(mutating)).boxed()
    }
}

async fn ensure<K>(client: &Client, wanted: &K) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let name = wanted.name_any();
    let current = api
        .get_opt(&name)
        .await
        .context(|| format!("get {} {name}", K::kind(&())))?;
    match write::ensure(&api, current.as_ref(), wanted, MANAGER).await {
        // Another replica created it meanwhile, with the same content.
        Err(error) if error.is_code(409) => Ok(()),
        result => result.map(drop),
    }
}

fn watch<K>(client: &Client, wanted: &K) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={}", wanted.name_any()));
    watcher(Api::<K>::all(client.clone()), config)
        .default_backoff()
        .filter_map(|event| async move { event.is_ok().then_some(()) })
        .boxed()
}

fn point(config: &mut WebhookClientConfig, target: &Target, base: Option<&str>) {
    let path = config
        .service
        .take()
        .and_then(|service| service.path)
        .unwrap_or_else(|| "/".into());
    match (target, base) {
        (Target::Service { namespace, name }, _) => {
            config.service = Some(ServiceReference {
                namespace: namespace.clone(),
                name: name.clone(),
                path: Some(path),
                port: Some(443),
            });
        }
        (Target::Url(_), base) => config.url = Some(format!("{}{path}", base.unwrap_or_default())),
    }
}

fn default_validating(hook: &mut ValidatingWebhook) {
    hook.failure_policy.get_or_insert_with(|| "Fail".into());
    hook.match_policy.get_or_insert_with(|| "Equivalent".into());
    hook.namespace_selector.get_or_insert_default();
    hook.object_selector.get_or_insert_default();
    hook.timeout_seconds.get_or_insert(10);
    default_rules(hook.rules.as_mut());
}

fn default_mutating(hook: &mut MutatingWebhook) {
    hook.failure_policy.get_or_insert_with(|| "Fail".into());
    hook.match_policy.get_or_insert_with(|| "Equivalent".into());
    hook.namespace_selector.get_or_insert_default();
    hook.object_selector.get_or_insert_default();
    hook.reinvocation_policy.get_or_insert_with(|| "Never".into());
    hook.timeout_seconds.get_or_insert(10);
    default_rules(hook.rules.as_mut());
}

fn default_rules(rules: Option<&mut Vec<RuleWithOperations>>) {
    for rule in rules.into_iter().flatten() {
        rule.scope.get_or_insert_with(|| "*".into());
    }
}
