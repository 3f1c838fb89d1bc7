//! Runs one verb in a process of its own, for tests that kill it.
//!
//! `verb KUBECONFIG NAMESPACE HOLD VERB ARGUMENTS` runs the verb and prints `done REQUESTS OUTCOME`, or `failed` and the error.
//! HOLD is `never`, `before:N` or `after:N`: at its N-th request, before it is sent or after the response, it prints
//! `held` and does nothing more. It exits when its input is closed, so it never outlives a killed test.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::clock::SystemClock;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use kubelink::apply::{ApplyOptions, ApplySetName, Documents, apply};
use kubelink::cordon::{Holder, cordon, uncordon};
use kubelink::drain::{DrainOptions, drain};
use kubelink::job::{JobRequest, run_job};
use kubelink::link::{ResponseBody, Transport};
use kubelink::rollout::{Workload, restart};
use kubelink::{AllowedRisks, Kubeconfig, Link, ProgressSink, Timeouts};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Layer, Service};

/// Longer than any test runs.
const LIMIT: Duration = Duration::from_secs(120);

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [kubeconfig, namespace, hold, verb @ ..] = arguments.as_slice() else {
        bail!("usage: verb KUBECONFIG NAMESPACE HOLD VERB ARGUMENTS")
    };
    let input = end_of_input();
    let text = std::fs::read_to_string(kubeconfig).with_context(|| format!("reading {kubeconfig}"))?;
    let kubeconfig = Kubeconfig::parse(&text, None, &AllowedRisks::nothing())?;
    let gate = Gate { hold: Hold::parse(hold)?, count: Arc::default() };
    let link = Link::open_through("test", &kubeconfig, Timeouts::default(), Arc::new(SystemClock), &gate)?;
    tokio::select! {
        _ = input => bail!("the input ended before the verb did"),
        end = run_verb(&link, namespace, verb) => match end {
            Ok(outcome) => print(&format!("done {} {outcome}", gate.count.load(Ordering::SeqCst))),
            Err(error) => print(&format!("failed {error:#}")),
        }
    }
    Ok(())
}

async fn run_verb(link: &Link, namespace: &str, verb: &[&str]) -> anyhow::Result<String> {
    let holder = Holder::new("manifest-1", "a test");
    let progress = ProgressSink::disabled();
    Ok(match verb {
        ["cordon", node] => cordon(link, node, &holder).await?.to_string(),
        ["uncordon", node] => format!("{:?}", uncordon(link, node, &holder.id).await?),
        ["drain", node] => {
            let options = DrainOptions::new(holder, LIMIT);
            let drained = drain(link, node, &options, &progress, &CancellationToken::new()).await?;
            drained.cordon.to_string()
        }
        ["apply", set, documents] => {
            let documents = Documents::parse(&std::fs::read_to_string(documents)?)?;
            let set = Some(ApplySetName { namespace: namespace.to_owned(), name: (*set).to_owned() });
            let options = ApplyOptions { namespace: namespace.to_owned(), set, ..ApplyOptions::default() };
            format!("{} objects", apply(link, &documents, &options, &progress).await?.objects.len())
        }
        ["restart", name, run] => {
            let did = restart(link, Workload::Deployment, namespace, name, run).await?;
            if did { "restarted" } else { "restarted before" }.to_owned()
        }
        ["job", run, node] => {
            let mut request = JobRequest::of_image(run, "check", namespace, "example.invalid/check", &[]);
            if let Some(pod) = &mut request.spec.template.spec {
                pod.node_name = Some((*node).to_owned());
            }
            let outcome = run_job(link, &request, LIMIT, &progress).await?;
            format!("{} {:?}", outcome.name, outcome.result)
        }
        other => bail!("{other:?} is no verb"),
    })
}

fn print(line: &str) {
    // The test is gone: the input is closed as well, and this process exits.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

fn end_of_input() -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let mut rest = Vec::new();
        let _ = std::io::stdin().lock().read_to_end(&mut rest);
        let _ = sender.send(());
    });
    receiver
}

/// Where to stop.
#[derive(Debug, Clone, Copy)]
enum Hold {
    Never,
    Before(usize),
    After(usize),
}

impl Hold {
    fn parse(text: &str) -> anyhow::Result<Hold> {
        match text.split_once(':') {
            None if text == "never" => Ok(Hold::Never),
            Some(("before", number)) => Ok(Hold::Before(number.parse()?)),
            Some(("after", number)) => Ok(Hold::After(number.parse()?)),
            _ => bail!("{text:?} is neither never nor before:N nor after:N"),
        }
    }
}

/// Counts the requests and blocks one of them for ever.
#[derive(Clone)]
struct Gate {
    hold: Hold,
    count: Arc<AtomicUsize>,
}

impl Layer<Transport> for Gate {
    type Service = Gated;

    fn layer(&self, wire: Transport) -> Gated {
        Gated { wire, gate: self.clone() }
    }
}

struct Gated {
    wire: Transport,
    gate: Gate,
}

impl Service<Request<Body>> for Gated {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.wire.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let number = self.gate.count.fetch_add(1, Ordering::SeqCst) + 1;
        let hold = self.gate.hold;
        // A request is sent when its future is first polled.
        let answer = self.wire.call(request);
        Box::pin(async move {
            if matches!(hold, Hold::Before(at) if at <= number) {
                for_ever(number).await;
            }
            let answer = answer.await;
            if matches!(hold, Hold::After(at) if at <= number) {
                for_ever(number).await;
            }
            answer
        })
    }
}

async fn for_ever(number: usize) {
    print(&format!("held {number}"));
    std::future::pending::<()>().await;
}
