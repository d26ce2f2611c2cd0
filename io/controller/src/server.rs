//! A running controller, from its configuration to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use weir_http::tls_config;

use crate::app::App;
use crate::config::{Config, StartError};
use crate::connections;
use crate::database::Database;
use crate::follow;
use crate::routes;
use crate::spans;
use crate::tokens::Tokens;

/// Time between two ticks, which handle silent routers, routes and plans.
const TICK: Duration = Duration::from_millis(200);
/// Ticks between two reads of the tokens. A removed token is valid for this long.
const TICKS_PER_REFRESH: u64 = 10;
/// Ticks between two reads of other controllers' changes.
const TICKS_PER_SYNC: u64 = 5;

/// A controller that runs in threads of its own, until it is stopped or dropped.
pub struct Server {
    address: SocketAddr,
    has_tls: bool,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a controller. When this returns, its database is open and it listens.
    ///
    /// # Errors
    /// The configuration, the database or the address cannot be used.
    pub fn start(config: Config) -> Result<Self, StartError> {
        if config.tls.is_none() && !config.insecure && !config.listen.ip().is_loopback() {
            return Err(StartError::NoTls(config.listen));
        }
        let tls = config.tls.as_ref().map(|files| tls_config(files, &[b"http/1.1"])).transpose()?;
        let tls = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        let runtime = Builder::new_multi_thread()
            .worker_threads(config.threads.max(1))
            .thread_name("controller")
            .enable_all()
            .build()
            .map_err(StartError::Threads)?;
        let (stop, stopping) = watch::channel(false);
        let (app, listener) = runtime.block_on(prepare(&config, stopping.clone()))?;
        let listening = |error| StartError::Listen { address: config.listen, error };
        let address = listener.local_addr().map_err(listening)?;
        let has_tls = tls.is_some();
        let thread = thread::Builder::new()
            .name("controller".to_owned())
            .spawn(move || run(&runtime, &config, app, listener, tls, stopping))
            .map_err(StartError::Threads)?;
        Ok(Self { address, has_tls, stop, thread: Some(thread) })
    }

    /// Its address for browsers and agents.
    pub fn url(&self) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Stops it. Requests in progress are answered, and queued records are written if the database
    /// works.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the controller's thread panicked");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

async fn prepare(
    config: &Config,
    stopping: watch::Receiver<bool>,
) -> Result<(Arc<App>, TcpListener), StartError> {
    let of_database = |error| StartError::Database { place: config.database.clone(), error };
    let opened = Database::open(&config.database, config.database_bytes_max).await;
    let database = opened.map_err(of_database)?;
    let tokens = Tokens::new(config.requests_per_second_max, config.wall_clock.clone());
    tokens.refresh(&database).await.map_err(of_database)?;
    let listening = |error| StartError::Listen { address: config.listen, error };
    let listener = TcpListener::bind(config.listen).await.map_err(listening)?;
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    // Other controllers and operators see this address, so it must work from other machines.
    let url = format!("{scheme}://{}", public_address(listener.local_addr().map_err(listening)?));
    let loaded = follow::load(config, &database, url).await.map_err(of_database)?;
    let (follower, known) = loaded;
    Ok((Arc::new(App::new(known, database, tokens, follower, config, stopping)), listener))
}

/// An address for other machines. The unspecified address means nothing there, so the hostname
/// replaces it.
fn public_address(address: SocketAddr) -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        name if address.ip().is_unspecified() && !name.is_empty() => {
            format!("{name}:{}", address.port())
        }
        _ => address.to_string(),
    }
}

fn run(
    runtime: &Runtime,
    config: &Config,
    app: Arc<App>,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    stopping: watch::Receiver<bool>,
) {
    let routes = routes::all(app.clone());
    runtime.block_on(async {
        // The journal stops after the last request.
        let (end_journal, journal_stopping) = watch::channel(false);
        let (kept, of_journal) = (config.rows_kept, app.clone());
        let journal = tokio::spawn(async move {
            let App { journal, database, run, .. } = &*of_journal;
            journal.run(database, run, kept, journal_stopping).await;
        });
        let ticking = tokio::spawn(tick(app.clone()));
        let following = tokio::spawn(follow(app.clone()));
        let places = Arc::clone(&app.slots);
        connections::serve(listener, tls, routes, places, stopping).await;
        ticking.abort();
        following.abort();
        end_journal.send_replace(true);
        let _ = journal.await;
        // The missing row shows other controllers that this one has stopped cleanly.
        let _ = app.database.remove_controller(app.run.load(Ordering::Relaxed)).await;
        app.database.close().await;
    });
}

async fn tick(app: Arc<App>) {
    loop {
        tokio::time::sleep(TICK).await;
        let now = app.clock.now();
        let now_ms = app.wall_clock.now_ms();
        spans::epoch(|| {
            let ((), changes) = app.with_count(|known| {
                known.controller.tick(now);
                known.sample(now_ms);
            });
            changes
        });
    }
}

/// Reads changes from the database. It is separate from the ticks, which must not wait for a
/// database.
async fn follow(app: Arc<App>) {
    let mut ticks = 0_u64;
    loop {
        tokio::time::sleep(TICK).await;
        ticks += 1;
        if ticks.is_multiple_of(TICKS_PER_SYNC) {
            follow::tick(&app).await;
        }
        if ticks.is_multiple_of(TICKS_PER_REFRESH)
            && let Err(error) = app.tokens.refresh(&app.database).await
        {
            tracing::debug!(%error, "tokens cannot be read from the database; the known ones stay");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_address_becomes_the_hostname() {
        assert_eq!(public_address("192.0.2.1:8636".parse().unwrap()), "192.0.2.1:8636");
        assert_eq!(public_address("[::1]:1".parse().unwrap()), "[::1]:1");
        for all in ["0.0.0.0:8636", "[::]:8636"] {
            let address = public_address(all.parse().unwrap());
            assert!(address.ends_with(":8636") && !address.contains("::"), "{address}");
            assert!(!address.starts_with("0.0.0.0"), "{address}");
        }
    }
}
