//! Live playlists and segments: what does not exist yet is waited for.
//!
//! - A playlist with `_HLS_msn` waits until it has that segment (RFC 8216bis, section 6.2.5.2). If
//!   the server cannot block, it is asked a few times a second.
//! - A file that is missing near a live playlist is probably its next segment, and is waited for.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::{Instant, sleep};

use super::context::Context;
use super::find::{Found, Question, find};
use super::playlist::{Playlist, Reload};
use super::response::Problem;

/// How often the server is asked for what does not exist yet.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How long a reload blocks, in target durations.
const RELOAD_TARGETS: u32 = 3;

/// As [`find`], for live content.
pub(super) async fn find_live(context: &Context, question: &Question) -> Result<Found, Problem> {
    let found = match Reload::of(&question.target.url) {
        Some((reload, url)) => {
            let target = Arc::new(question.target.with_url(url));
            find_reloaded(context, question, &Question { target, ..question.clone() }, reload)
                .await?
        }
        None => find_or_wait(context, question).await?,
    };
    if let Some(playlist) = &found.known.version.playlist {
        context.playlists.add(&question.target.url, playlist.target);
    }
    Ok(found)
}

/// Finds a playlist that has a segment, or, if it takes too long, the latest one. `plain` is the
/// question for the playlist as it is now.
async fn find_reloaded(
    context: &Context,
    question: &Question,
    plain: &Question,
    reload: Reload,
) -> Result<Found, Problem> {
    let begin = Instant::now();
    loop {
        let found = find(context, plain).await?;
        let Some(playlist) = &found.known.version.playlist else { return Ok(found) };
        let time_max = playlist.target * RELOAD_TARGETS;
        if playlist.contains(reload) || begin.elapsed() >= time_max {
            return Ok(found);
        }
        if playlist.is_far_from(reload) {
            return Err(Problem {
                status: StatusCode::BAD_REQUEST,
                ..Problem::bad_gateway("The playlist is far behind the requested segment.")
            });
        }
        if playlist.can_block {
            let target = Arc::new(question.target.with_patience(time_max));
            return find(context, &Question { target, ..question.clone() }).await;
        }
        sleep(POLL_INTERVAL).await;
    }
}

async fn find_or_wait(context: &Context, question: &Question) -> Result<Found, Problem> {
    let begin = Instant::now();
    loop {
        let found = find(context, question).await?;
        let url = &question.target.url;
        if found.known.head.status != StatusCode::NOT_FOUND || Playlist::has_extension(url) {
            return Ok(found);
        }
        match context.playlists.target_near(url) {
            Some(target) if begin.elapsed() < target => sleep(POLL_INTERVAL).await,
            _ => return Ok(found),
        }
    }
}
