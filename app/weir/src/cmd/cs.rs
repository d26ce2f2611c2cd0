//! `weir cs`.

/// Show, configure and erase the content store of a running router.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> anyhow::Result<()> {
    anyhow::bail!("not built yet")
}
