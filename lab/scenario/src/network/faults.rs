//! The faults of a run.

use serde::Deserialize;
use weir_base::units::{Fraction, Time};
use weir_plan::{Fault, FaultPlan, Role};

use super::Builder;
use crate::document::{ScenarioError, texts};
use crate::times::Times;

/// `[[fault]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct FaultTable {
    at: Time,
    kind: FaultWord,
    link: Option<(String, String)>,
    node: Option<String>,
    /// Routers that crash, selected like `at` elsewhere.
    nodes: Option<FaultTargets>,
    #[serde(default)]
    disk: u8,
    #[serde(rename = "for")]
    lasts: Time,
    probability: Option<Fraction>,
    share: Option<Fraction>,
}

/// A word or several.
#[derive(Clone, Debug, Deserialize)]
struct FaultTargets(#[serde(deserialize_with = "texts")] Vec<String>);

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FaultWord {
    LinkDown,
    LinkSlow,
    Crash,
    StoreStall,
    WrongBytes,
    DiskStall,
    DiskErrors,
    DiskFull,
}

impl Builder<'_> {
    pub(crate) fn faults(
        &self,
        tables: &[FaultTable],
        times: Times,
    ) -> Result<Vec<FaultPlan>, ScenarioError> {
        let mut faults = Vec::new();
        for (at, table) in tables.iter().enumerate() {
            let path = format!("fault[{at}]");
            if table.at.ns > times.duration_ns {
                let message = "the fault begins after the end of the run; write an earlier time";
                return Err(self.tree.error(&format!("{path}.at"), message));
            }
            let at_ns = table.at.ns;
            match &table.nodes {
                None => faults.push(FaultPlan { at_ns, fault: self.fault(&path, table)? }),
                Some(FaultTargets(words)) => {
                    let for_ns = table.lasts.ns;
                    for node in self.crashes(&path, table, words)? {
                        faults.push(FaultPlan { at_ns, fault: Fault::Crash { node, for_ns } });
                    }
                }
            }
        }
        Ok(faults)
    }

    fn crashes(
        &self,
        path: &str,
        table: &FaultTable,
        words: &[String],
    ) -> Result<Vec<usize>, ScenarioError> {
        if table.kind != FaultWord::Crash || table.node.is_some() {
            let message = "`nodes` is for `crash`, instead of `node`";
            return Err(self.tree.error(path, message));
        }
        let places = self.select(&format!("{path}.nodes"), words)?;
        Ok(places.into_iter().filter_map(|place| self.router_of[place]).collect())
    }

    fn fault(&self, path: &str, table: &FaultTable) -> Result<Fault, ScenarioError> {
        let for_ns = table.lasts.ns;
        let probability = || match table.probability {
            Some(share) => Ok(share.value),
            None => Err(self.tree.error(path, "lacks `probability`; write for example 0.01")),
        };
        Ok(match table.kind {
            FaultWord::LinkDown => Fault::LinkDown { link: self.fault_link(path, table)?, for_ns },
            FaultWord::LinkSlow => Fault::LinkSlow {
                link: self.fault_link(path, table)?,
                for_ns,
                share: table.share.map(|share| share.value).ok_or_else(|| {
                    self.tree.error(path, "lacks `share`; write for example \"50%\"")
                })?,
            },
            FaultWord::Crash => Fault::Crash { node: self.fault_router(path, table)?, for_ns },
            FaultWord::StoreStall => {
                Fault::StoreStall { node: self.fault_router(path, table)?, for_ns }
            }
            FaultWord::WrongBytes => Fault::WrongBytes {
                link: self.fault_link(path, table)?,
                for_ns,
                probability: probability()?,
            },
            FaultWord::DiskStall | FaultWord::DiskErrors | FaultWord::DiskFull => {
                let (node, disk) = self.fault_disk(path, table)?;
                match table.kind {
                    FaultWord::DiskStall => Fault::DiskStall { node, disk, for_ns },
                    FaultWord::DiskFull => Fault::DiskFull { node, disk, for_ns },
                    _ => Fault::DiskErrors { node, disk, for_ns, probability: probability()? },
                }
            }
        })
    }

    fn fault_router(&self, path: &str, table: &FaultTable) -> Result<usize, ScenarioError> {
        let name = table.node.as_deref();
        let name = name.ok_or_else(|| self.tree.error(path, "lacks `node`; name a router"))?;
        let path = format!("{path}.node");
        let node = self.plan_node(&path, name)?;
        if matches!(self.nodes[node].role, Role::Router(_)) {
            return Ok(node);
        }
        let message = format!("\"{name}\" is not a router; this fault needs one");
        Err(self.tree.error(&path, message))
    }

    /// A router and one of its disks.
    fn fault_disk(&self, path: &str, table: &FaultTable) -> Result<(usize, u8), ScenarioError> {
        let node = self.fault_router(path, table)?;
        let disks = match &self.nodes[node].role {
            Role::Router(plan) => plan.disk.as_ref().map_or(0, |disk| disk.disks),
            Role::Consumer(_) | Role::Producer(_) => 0,
        };
        if table.disk < disks {
            return Ok((node, table.disk));
        }
        let message = format!("\"{}\" has {disks} disks, counted from 0", self.nodes[node].name);
        Err(self.tree.error(&format!("{path}.disk"), message))
    }

    fn fault_link(&self, path: &str, table: &FaultTable) -> Result<usize, ScenarioError> {
        let Some((a, b)) = &table.link else {
            let message = "lacks `link`; name its two ends, such as [\"a\", \"b\"]";
            return Err(self.tree.error(path, message));
        };
        let path = format!("{path}.link");
        let (a, b) = (self.plan_node(&path, a)?, self.plan_node(&path, b)?);
        self.link_between(a, b).ok_or_else(|| {
            self.tree.error(&path, "no link connects these two nodes; name two neighbours")
        })
    }
}
