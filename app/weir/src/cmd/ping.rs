//! `weir ping`.

/// Measure the round trip to a name, or answer such pings.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> anyhow::Result<()> {
    anyhow::bail!("not built yet")
}
