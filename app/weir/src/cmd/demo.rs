//! `weir demo`.

/// Move a real file through two routers, cold and warm, and verify it.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> anyhow::Result<()> {
    anyhow::bail!("not built yet")
}
