//! Connections: how many, how long they may take, and how they end.
//!
//! A connection is a task, and so costs memory and no thread. What a client can hold is bounded by [`Limits`]: a header has a size
//! and a time to arrive, which also ends connections that are idle; a body has both too; a client that does not read what is
//! sent to it is left. Connections over the limit wait in the listener's backlog.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;

use crate::metrics::Metrics;

/// What connections may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections that are served at once.
    pub connections: usize,
    /// Bytes of a request's header, at least 8192.
    pub header: usize,
    /// Time for a header to arrive, from when the connection begins or the answer before it ends.
    pub header_timeout: Duration,
    /// Time for a client to take something of what is sent to it.
    pub write_timeout: Duration,
    /// Time for requests to end once the server is asked to.
    pub shutdown_timeout: Duration,
}

/// Serves until `stop` is done, then lets what has begun end. `false`: not all of it did in time.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: &Limits,
    metrics: &Arc<Metrics>,
    stop: impl Future<Output = ()>,
) -> bool {
    let graceful = GracefulShutdown::new();
    tokio::select! {
        () = stop => {}
        () = accept(&listener, &router, limits, metrics, &graceful) => {}
    }
    // Nobody else gets in, and whoever waits in the backlog is told at once.
    drop(listener);
    drop(router);
    tokio::time::timeout(limits.shutdown_timeout, graceful.shutdown()).await.is_ok()
}

async fn accept(
    listener: &TcpListener,
    router: &Router,
    limits: &Limits,
    metrics: &Arc<Metrics>,
    graceful: &GracefulShutdown,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    // The semaphore is never closed.
    while let Ok(place) = places.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let open = Open::new(place, metrics);
                tokio::spawn(connection(stream, router.clone(), limits.clone(), graceful.watcher(), open));
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                // Most likely there are no more file descriptors, which takes a while to change.
                eprintln!("warning: cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// A connection's place, and its count.
struct Open {
    _place: OwnedSemaphorePermit,
    metrics: Arc<Metrics>,
}

impl Open {
    fn new(place: OwnedSemaphorePermit, metrics: &Arc<Metrics>) -> Open {
        metrics.connections.inc();
        Open { _place: place, metrics: metrics.clone() }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.metrics.connections.dec();
    }
}

async fn connection(stream: TcpStream, router: Router, limits: Limits, watcher: Watcher, _open: Open) {
    // Tokens are small and are to be sent at once. Where that cannot be set, they come late.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write_timeout));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.header_timeout).max_buf_size(limits.header);
    let connection = http.serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router));
    // What goes wrong on a connection is its client's to know, who has been told if that was possible.
    let _ = watcher.watch(connection).await;
}

/// A signal that asks the server to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    name: &'static str,
    /// The number that a shell adds to 128 for a program that it ended.
    pub number: u8,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

const INTERRUPT: Signal = Signal { name: "SIGINT", number: 2 };

/// The signals that end the server, one after the other.
#[cfg(unix)]
pub struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// From here on they are taken note of, and end nothing by themselves.
    pub fn new() -> io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The next one.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPT,
            _ = self.terminate.recv() => Signal { name: "SIGTERM", number: 15 },
        }
    }
}

/// The signals that end the server, one after the other.
#[cfg(not(unix))]
pub struct Signals(());

#[cfg(not(unix))]
impl Signals {
    /// Ctrl-C, where there is one.
    pub fn new() -> io::Result<Signals> {
        Ok(Signals(()))
    }

    /// The next one.
    pub async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        INTERRUPT
    }
}
