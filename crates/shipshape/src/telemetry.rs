//! Logs to standard error, and traces to an OpenTelemetry collector when one is configured.
//!
//! Telemetry never harms the process: a slow or unreachable collector costs a bounded
//! queue, one log line when it fails and one when it recovers, and a bounded time at the end.

mod collector;

use std::time::Duration;

use anyhow::Context as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, fmt};

use crate::config::{Config, LogFormat, OtlpEndpoint, TelemetryConfig};
use crate::version::Version;
use collector::Collector;

/// Longest flush of traces at the end of the process.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(3);

/// Running logs and traces.
#[derive(Debug)]
pub(crate) struct Telemetry {
    traces: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Starts logs and traces by the configuration. Once per process, inside the runtime.
    pub(crate) fn start(config: &Config, colour: bool) -> anyhow::Result<Telemetry> {
        let traces = match &config.telemetry.otlp_endpoint {
            Some(endpoint) => Some(provider(&config.telemetry, endpoint)?),
            None => None,
        };
        let exported = traces.as_ref().map(|provider| {
            let tracer = provider.tracer("shipshape");
            tracing_opentelemetry::layer()
                .with_tracer(tracer)
                .with_threads(false)
                .with_filter(filter_fn(is_exported))
        });
        // The level applies to the log only: traces are always complete.
        let lines = lines(config.log.format, colour).with_filter(config.log.level.filter());
        let subscriber = tracing_subscriber::registry().with(lines).with(exported);
        subscriber.try_init().context("logging is already initialised")?;
        Ok(Telemetry { traces })
    }

    /// Flushes traces within a bounded time.
    pub(crate) async fn finish(self) {
        let Some(traces) = self.traces else { return };
        // The flush blocks its thread and needs the runtime to carry the request, so it gets a thread
        // of its own; the second limit is for a thread that does not keep to the first.
        let flush = tokio::task::spawn_blocking(move || traces.shutdown_with_timeout(FLUSH_TIME_MAX));
        if !matches!(tokio::time::timeout(FLUSH_TIME_MAX * 2, flush).await, Ok(Ok(Ok(())))) {
            tracing::info!("The last traces could not be sent in time");
        }
    }
}

/// The layer that writes log lines.
fn lines<S>(format: LogFormat, colour: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    // A closed standard error must not turn into a panic inside the logger.
    let lines = fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    match format {
        LogFormat::Text => lines.with_ansi(colour).boxed(),
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed()
        }
    }
}

/// Whether a span is exported. Spans of the export itself would cause further exports forever.
fn is_exported(metadata: &Metadata<'_>) -> bool {
    if *metadata.level() > Level::INFO {
        return false;
    }
    let machinery = ["hyper", "rustls", "tokio", "tower", "opentelemetry", "h2"];
    !machinery.iter().any(|name| metadata.target().starts_with(name))
}

fn provider(config: &TelemetryConfig, endpoint: &OtlpEndpoint) -> anyhow::Result<SdkTracerProvider> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Collector::new(endpoint)?)
        .with_endpoint(endpoint.traces_url())
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(collector::REQUEST_TIME_MAX)
        .build()
        .with_context(|| format!("telemetry.otlp_endpoint {endpoint}"))?;
    let resource = Resource::builder()
        .with_service_name(config.service_name.as_str().to_owned())
        .with_attribute(opentelemetry::KeyValue::new("service.version", Version::current().version))
        .build();
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(config.sample_ratio))))
        .with_resource(resource)
        .build())
}
