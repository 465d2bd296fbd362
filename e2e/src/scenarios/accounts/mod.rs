//! Accounts on managed clusters, with exactly the rights that are shipped.

use anyhow::{Context, Result};
use futures::FutureExt;
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    core::v1::{Secret, ServiceAccount},
};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use writ_api::authentication::ManagedServiceAccount;
use writ_controller::condition;

use crate::{
    Fleet, Scenario,
    fleet::{AGENT_NAMESPACE, Running},
    wait::until,
};

mod addon;
mod addon_token;
mod input;
mod isolation;
mod lifecycle;
mod moved;
mod replaced;
mod sets;

/// The scenarios of this folder.
pub fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "accounts/a_token_works_heals_and_dies_with_its_account",
            clusters: 1,
            run: |fleet| lifecycle::a_token_works(fleet).boxed(),
        },
        Scenario {
            name: "accounts/an_agent_reaches_nothing_but_its_own_accounts",
            clusters: 2,
            run: |fleet| isolation::an_agent_reaches_nothing_else(fleet).boxed(),
        },
        Scenario {
            name: "accounts/a_foreign_secret_is_left_alone_until_it_goes",
            clusters: 1,
            run: |fleet| lifecycle::a_foreign_secret(fleet).boxed(),
        },
        Scenario {
            name: "accounts/accounts_of_the_system_are_not_adopted",
            clusters: 1,
            run: |fleet| lifecycle::names_of_the_system(fleet).boxed(),
        },
        Scenario {
            name: "accounts/an_agent_that_moves_leaves_no_token_behind",
            clusters: 1,
            run: |fleet| moved::moved(fleet).boxed(),
        },
        Scenario {
            name: "accounts/an_account_that_is_made_anew_shares_no_token",
            clusters: 1,
            run: |fleet| replaced::made_anew(fleet).boxed(),
        },
        Scenario {
            name: "accounts/an_add_on_that_takes_a_name_leaves_no_token_of_it",
            clusters: 1,
            run: |fleet| replaced::taken_by_an_add_on(fleet).boxed(),
        },
        Scenario {
            name: "accounts/clocks_that_differ_cost_no_token",
            clusters: 1,
            run: |fleet| lifecycle::clocks_differ(fleet).boxed(),
        },
        Scenario {
            name: "accounts/bad_input_is_refused_with_the_bound_named",
            clusters: 0,
            run: |fleet| input::refused(fleet).boxed(),
        },
        Scenario {
            name: "accounts/the_addon_is_delivered_where_no_agent_of_ours_keeps_accounts",
            clusters: 2,
            run: |fleet| addon::delivered(fleet).boxed(),
        },
        Scenario {
            name: "accounts/our_agent_without_tokens_registers_the_delivered_addon",
            clusters: 2,
            run: |fleet| addon::registered(fleet).boxed(),
        },
        Scenario {
            name: "accounts/a_hub_that_hands_out_tokens_gives_the_delivered_addon_its_own",
            clusters: 2,
            run: |fleet| addon_token::by_token(fleet).boxed(),
        },
        Scenario {
            name: "accounts/by_hand_a_cluster_has_accounts_from_when_it_has_the_addon",
            clusters: 1,
            run: |fleet| addon::by_hand(fleet).boxed(),
        },
        Scenario {
            name: "accounts/an_account_of_a_set_follows_its_clusters",
            clusters: 2,
            run: |fleet| sets::follows_its_clusters(fleet).boxed(),
        },
        Scenario {
            name: "accounts/a_namespace_is_a_clusters_when_the_cluster_is_accepted",
            clusters: 1,
            run: |fleet| sets::becomes_a_clusters(fleet).boxed(),
        },
        Scenario {
            name: "accounts/the_older_group_owns_an_account",
            clusters: 1,
            run: |fleet| sets::the_older_group(fleet).boxed(),
        },
    ]
}

/// A hub and agents with all their controllers, so that an agent has every right that it gets anywhere; the clusters
/// are accepted.
struct Stage {
    fleet: Fleet,
    admin: Client,
    running: Vec<Running>,
}

impl Stage {
    async fn set(fleet: Fleet) -> Result<Self> {
        let mut stage = Self::without_agents(fleet).await?;
        for number in 1..=stage.fleet.clusters.len() {
            let agent = stage
                .fleet
                .run_agent(number, writ_agent::Options::default())
                .await?;
            stage.running.push(agent);
        }
        Ok(stage)
    }

    /// The hub alone; the clusters are accepted.
    async fn without_agents(fleet: Fleet) -> Result<Self> {
        let admin = fleet.hub.admin().await?;
        let hub = fleet.run_hub(writ_hub::Options::default()).await?;
        for number in 1..=fleet.clusters.len() {
            fleet.accept(number).await?;
        }
        Ok(Self {
            fleet,
            admin,
            running: vec![hub],
        })
    }

    fn accounts(&self, namespace: &str) -> Api<ManagedServiceAccount> {
        Api::namespaced(self.admin.clone(), namespace)
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), namespace)
    }

    async fn service_accounts(&self, number: usize) -> Result<Api<ServiceAccount>> {
        let spoke = self.fleet.cluster(number)?.admin().await?;
        Ok(Api::namespaced(spoke, AGENT_NAMESPACE))
    }

    async fn create(&self, namespace: &str, name: &str, spec: Value) -> Result<ManagedServiceAccount> {
        let account = serde_json::from_value(json!({
            "apiVersion": "authentication.open-cluster-management.io/v1beta1",
            "kind": "ManagedServiceAccount",
            "metadata": { "name": name },
            "spec": spec,
        }))?;
        Ok(self
            .accounts(namespace)
            .create(&PostParams::default(), &account)
            .await?)
    }

    /// The token on the hub, once it is reported and other than these.
    async fn token(&self, cluster: &str, name: &str, not: &[&str]) -> Result<String> {
        until(&format!("the token of {cluster}/{name}"), || async {
            let account = self.accounts(cluster).get(name).await?;
            let status = account.status.unwrap_or_default();
            let reported =
                condition::is_true(&status.conditions, "TokenReported") && status.token_secret_ref.is_some();
            let secret = self.secrets(cluster).get(name).await?;
            let token = token_of(&secret).filter(|token| token.matches('.').count() == 2);
            Ok(token.filter(|token| reported && !not.contains(&token.as_str())))
        })
        .await
    }

    /// Whose token this is, on that cluster; none if it is refused.
    async fn user_of(&self, number: usize, token: &str) -> Result<Option<String>> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.into(),
                audiences: None,
            },
            ..TokenReview::default()
        };
        let spoke = self.fleet.cluster(number)?.admin().await?;
        let answer = Api::all(spoke).create(&PostParams::default(), &review).await?;
        let status = answer.status.context("no answer")?;
        Ok((status.authenticated == Some(true))
            .then(|| status.user.and_then(|user| user.username))
            .flatten())
    }
}

fn token_of(secret: &Secret) -> Option<String> {
    String::from_utf8(secret.data.as_ref()?.get("token")?.0.clone()).ok()
}

/// Fails unless the request was refused with 403.
fn forbidden<T>(what: &str, answer: Result<T, kube::Error>) -> Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
        Err(error) => Err(error).with_context(|| format!("{what}: not refused as expected")),
        Ok(_) => anyhow::bail!("{what}: was allowed"),
    }
}

async fn gone<K>(what: &str, api: &Api<K>, name: &str) -> Result<()>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    until(&format!("{what} {name} to go"), || async {
        Ok(api.get_opt(name).await?.is_none().then_some(()))
    })
    .await
}
