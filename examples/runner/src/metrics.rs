//! What the server counts, for Prometheus.

use std::time::Instant;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

type Seconds = Counter<f64, std::sync::atomic::AtomicU64>;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Answer {
    route: &'static str,
    status: u32,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct End {
    reason: &'static str,
}

/// Counters and gauges of one server. `/metrics` shows them under `warpsmith_`.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    answers: Family<Answer, Counter>,
    ends: Family<End, Counter>,
    first_token: Histogram,
    request: Histogram,
    /// Connections that are open.
    pub connections: Gauge,
    /// Requests that wait for the engine.
    pub queued: Gauge,
    /// Sequences that are decoded.
    pub sequences: Gauge,
    /// Pages of the pool that sequences have.
    pub pages_used: Gauge,
    /// Pages of the pool that are kept for texts that begin alike.
    pub pages_kept: Gauge,
    /// Tokens of prompts that were not fed, as the pool had them.
    pub reused_tokens: Counter,
    /// Tokens of prompts that were fed.
    pub prompt_tokens: Counter,
    /// Tokens that were generated.
    pub generated_tokens: Counter,
    /// Guesses that were verified.
    pub drafted_tokens: Counter,
    /// Guesses that were right.
    pub accepted_tokens: Counter,
    /// Steps.
    pub steps: Counter,
    /// Time of steps.
    pub step_seconds: Seconds,
    /// Requests that gave their memory to others and began anew.
    pub set_aside: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        // From a millisecond to nine minutes.
        let histogram = || Histogram::new(exponential_buckets(1e-3, 3.0, 13));
        let mut metrics = Metrics {
            registry: Registry::with_prefix("warpsmith"),
            answers: Family::default(),
            ends: Family::default(),
            first_token: histogram(),
            request: histogram(),
            connections: Gauge::default(),
            queued: Gauge::default(),
            sequences: Gauge::default(),
            pages_used: Gauge::default(),
            pages_kept: Gauge::default(),
            reused_tokens: Counter::default(),
            prompt_tokens: Counter::default(),
            generated_tokens: Counter::default(),
            drafted_tokens: Counter::default(),
            accepted_tokens: Counter::default(),
            steps: Counter::default(),
            step_seconds: Seconds::default(),
            set_aside: Counter::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("http_requests", "Answers, by route and status", self.answers.clone());
        r.register("connections", "Open connections", self.connections.clone());
        r.register("requests_queued", "Requests that wait for the engine", self.queued.clone());
        r.register("requests_ended", "Requests that the engine is done with, by reason", self.ends.clone());
        r.register("requests_set_aside", "Requests that gave their memory to others", self.set_aside.clone());
        r.register("sequences", "Sequences that are decoded together", self.sequences.clone());
        r.register("pages_used", "Pages of the pool that sequences have", self.pages_used.clone());
        r.register("pages_kept", "Pages of the pool that are kept for texts that begin alike", self.pages_kept.clone());
        r.register("reused_tokens", "Tokens of prompts that the pool had", self.reused_tokens.clone());
        r.register("prompt_tokens", "Tokens of prompts that were fed", self.prompt_tokens.clone());
        r.register("generated_tokens", "Tokens that were generated", self.generated_tokens.clone());
        r.register("drafted_tokens", "Guesses of tokens that were verified", self.drafted_tokens.clone());
        r.register("accepted_tokens", "Guesses of tokens that were right", self.accepted_tokens.clone());
        r.register("steps", "Steps", self.steps.clone());
        r.register_with_unit("step", "Time of steps", Unit::Seconds, self.step_seconds.clone());
        r.register_with_unit("first_token", "From queue to first token", Unit::Seconds, self.first_token.clone());
        r.register_with_unit("request", "From queue to last token", Unit::Seconds, self.request.clone());
    }

    /// Counts an answer.
    pub fn answered(&self, route: &'static str, status: u16) {
        self.answers.get_or_create(&Answer { route, status: status.into() }).inc();
    }

    /// Counts the end of a request that was queued `since` then.
    pub fn ended(&self, reason: &'static str, since: Instant) {
        self.ends.get_or_create(&End { reason }).inc();
        self.request.observe(since.elapsed().as_secs_f64());
    }

    /// Counts the first token of a request that was queued `since` then.
    pub fn first_token(&self, since: Instant) {
        self.first_token.observe(since.elapsed().as_secs_f64());
    }

    /// All of them as OpenMetrics text, which Prometheus reads.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }
}
