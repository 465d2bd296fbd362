//! Serves an empty cluster: `cargo run -p writ-apiserver --example serve -- [PORT] [KUBECONFIG] [DATA]`.

use writ_apiserver::{Options, serve};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let options = Options {
        port: arguments
            .next()
            .map(|port| port.parse())
            .transpose()?
            .unwrap_or(0),
        kubeconfig_out: arguments.next().map(Into::into),
        data: arguments.next().map(Into::into),
    };
    let stop = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    serve(options, |url, _| println!("{url}"), stop).await?;
    Ok(())
}
