//! `[[face]]` and `[[route]]`: static faces, and routes over them.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use weir_base::units::Rate;
use weir_face::FaceUri;
use weir_runtime::{PitTokenChoice, StaticFace};
use weir_wire::Name;

use super::faces::{DisciplineText, MarkingText, PitTokenWord, ShapingText, face_mtu};
use super::text::{Prefix, UriText};

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct FaceSection {
    pub(crate) uri: UriText,
    #[serde(default)]
    pub(crate) persistency: PersistencyName,
    #[serde(default)]
    pub(crate) routes: Vec<Prefix>,
    #[serde(default)]
    pub(crate) routes_file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) cost: u64,
    #[serde(default)]
    pub(crate) rate: Option<Rate>,
    #[serde(default, deserialize_with = "face_mtu")]
    pub(crate) mtu: Option<usize>,
    #[serde(default)]
    pub(crate) congestion_marking: Option<bool>,
    #[serde(default)]
    pub(crate) reliability: Option<bool>,
    #[serde(default)]
    pub(crate) runs: Option<bool>,
    #[serde(default)]
    pub(crate) pit_token: Option<PitTokenWord>,
    #[serde(default)]
    pub(crate) marking: Option<MarkingText>,
    #[serde(default)]
    pub(crate) discipline: Option<DisciplineText>,
    #[serde(default)]
    pub(crate) shaping: Option<ShapingText>,
}

/// Whether a static face reconnects after an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PersistencyName {
    #[default]
    Permanent,
    Persistent,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct RouteSection {
    pub(crate) prefix: Prefix,
    pub(crate) face: toml::Spanned<UriText>,
    #[serde(default)]
    pub(crate) cost: u64,
}

impl FaceSection {
    /// The rate in bit/s, once for each URI that the face may have.
    pub(super) fn rates_bps(&self) -> Vec<(String, u64)> {
        let Some(rate) = self.rate else { return Vec::new() };
        let uris = FaceUri::resolve_all(&self.uri.0).inspect_err(|error| {
            tracing::warn!(uri = self.uri.0, %error, "cannot report the rate of this face");
        });
        uris.unwrap_or_default().iter().map(|uri| (uri.to_string(), rate.bps)).collect()
    }

    /// Converts the face, with its own routes and those of `[[route]]`. Reads `routes_file`.
    pub(super) fn to_runtime(&self, routes: &[RouteSection]) -> anyhow::Result<StaticFace> {
        let own = self.routes.iter().map(|prefix| (prefix.0.clone(), self.cost));
        let more = routes.iter().filter(|route| *route.face.get_ref() == self.uri);
        let mut routes: Vec<(Name, u64)> =
            own.chain(more.map(|r| (r.prefix.0.clone(), r.cost))).collect();
        if let Some(path) = &self.routes_file {
            routes.extend(read_routes(path)?.into_iter().map(|prefix| (prefix, self.cost)));
        }
        if self.uri.0.starts_with("hicn+") && self.pit_token == Some(PitTokenWord::Long) {
            bail!(
                "{}: hICN packets have no room for long tokens; write `pit_token = \"short\"`",
                self.uri.0
            );
        }
        if self.uri.0.starts_with("hicn+") && self.reliability == Some(true) {
            bail!("{}: hICN packets have no reliability; remove `reliability`", self.uri.0);
        }
        Ok(StaticFace {
            uri: self.uri.0.clone(),
            permanent: self.persistency == PersistencyName::Permanent,
            mtu: self.mtu,
            congestion_marking: self.congestion_marking,
            reliability: self.reliability,
            runs: self.runs,
            pit_token: self.pit_token.map(PitTokenChoice::from),
            marking: self.marking.as_ref().map(|text| text.0.clone()),
            discipline: self.discipline.as_ref().map(|text| text.0.clone()),
            shaping: self.shaping.map(|text| text.0),
            routes,
        })
    }
}

/// Reads prefixes from a file, one per line. Empty lines and lines with `#` are ignored.
fn read_routes(path: &Path) -> anyhow::Result<Vec<Name>> {
    let context = || format!("cannot read {}, the `routes_file` of a [[face]]", path.display());
    // Reject devices, which may have no end.
    let is_file = std::fs::metadata(path).with_context(context)?.is_file();
    ensure!(is_file, "{}: not a regular file", context());
    let text = std::fs::read_to_string(path).with_context(context)?;
    let lines = text.lines().map(str::trim).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(index, line)| {
            let prefix: Prefix = line.parse().map_err(|error: String| {
                anyhow::anyhow!("{}: line {}: {error}", path.display(), index + 1)
            })?;
            Ok(prefix.0)
        })
        .collect()
}
