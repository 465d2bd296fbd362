//! What to do where the hub's own namespace, or the right to write there, is missing.

use writ_controller::Error;

/// The advice where something in the namespace of the hub cannot be written.
pub const NAMESPACE_MISSING: &str = "is the namespace open-cluster-management-hub missing? `writ install hub | kubectl apply \
     --server-side -f -` makes it, with the kinds and the rights of the hub; `kubectl create namespace \
     open-cluster-management-hub` makes the namespace alone";

/// The error, with the advice where that helps.
pub fn with_advice(error: Error) -> Error {
    if error.is_code(404) || error.is_code(403) {
        return Error::Invalid(format!("{error}; {NAMESPACE_MISSING}"));
    }
    error
}

#[cfg(test)]
mod tests {
    use std::{
        fmt::{Debug, Write as _},
        sync::{Arc, Mutex},
        time::Duration,
    };

    use tokio_util::sync::CancellationToken;
    use tracing::{Event, Metadata, Subscriber, field, span, subscriber};
    use writ_apiserver::Server;
    use writ_controller::health::Health;

    use crate::{NAMESPACE, Options};

    /// What was logged, a line per event.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl field::Visit for Line {
        fn record_debug(&mut self, field: &field::Field, value: &dyn Debug) {
            write!(self.0, "{}={value:?} ", field.name()).unwrap();
        }
    }

    impl Subscriber for Log {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut line = Line(String::new());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[tokio::test]
    async fn hub_without_its_namespace_says_how_to_create_it() {
        let log = Log::default();
        let _guard = subscriber::set_default(log.clone());
        let server = Server::builder().start().await.unwrap();
        let mut options = Options {
            leader_election: Some("one".into()),
            ..Options::default()
        };
        options.admission.webhooks = true;
        options.admission.server.listen = ([127, 0, 0, 1], 0).into();
        let shutdown = CancellationToken::new();
        let hub = crate::run(server.client(), options, Health::default(), shutdown.clone());
        let told = async {
            loop {
                let lines = log.0.lock().unwrap().clone();
                let advised = |about: &str| {
                    let mut about = lines.iter().filter(|line| line.contains(about));
                    about.any(|line| line.contains(NAMESPACE) && line.contains("`writ install hub"))
                };
                if advised("cannot write the lease") && advised("Secret open-cluster-management-hub/") {
                    shutdown.cancel();
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let both = Box::pin(async { futures::join!(hub, told).0 });
        let ended = tokio::time::timeout(Duration::from_mins(1), both).await;
        assert!(ended.is_ok(), "{:#?}", log.0.lock().unwrap());
    }
}
