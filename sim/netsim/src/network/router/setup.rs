//! The parameters that create a router, at the start and after a crash.

use std::sync::Arc;

use weir_base::FaceId;
use weir_forward::{
    Command, Extension, FaceAttributes, FaceScope, MissReports, NextHop, StoreCommand,
    strategy::Strategy,
};
use weir_plan::{RouterPlan, filler_prefix};
use weir_store::HoldingsConfig;
use weir_wire::Name;

pub(in crate::network) struct RouterSetup {
    pub(in crate::network) node: u32,
    pub(in crate::network) seed: u64,
    pub(in crate::network) plan: RouterPlan,
    pub(in crate::network) extension: Option<Arc<dyn Extension>>,
    pub(in crate::network) strategy: Strategy,
    pub(in crate::network) pool_bytes_max: usize,
    pub(in crate::network) faces: Vec<(FaceId, FaceScope)>,
    pub(in crate::network) routes: Vec<(Name, Vec<NextHop>)>,
    /// Whether the router queries a controller about missing objects.
    pub(in crate::network) watches_misses: bool,
    /// Whether a consumer queries the router's holdings.
    pub(in crate::network) reports_holdings: bool,
}

impl RouterSetup {
    /// The commands that configure a shard at the start.
    pub(super) fn commands(&self) -> Vec<Command> {
        let face = |&(face, scope): &(FaceId, FaceScope)| {
            let attributes = FaceAttributes::point_to_point(scope);
            Command::AddFace { face, attributes }
        };
        let mut commands: Vec<Command> = self.faces.iter().map(face).collect();
        // Consumers are not local in a simulation: they may be behind links, like routers.
        let watches = if self.watches_misses { MissReports::All } else { MissReports::Off };
        commands.push(Command::ReportMisses(watches));
        if self.reports_holdings {
            let track = StoreCommand::Track(Some(HoldingsConfig::default()));
            commands.push(Command::Store(track));
        }
        let strategy = Some(self.strategy.clone());
        commands.push(Command::SetStrategy { prefix: Name::new(), strategy });
        for (prefix, next_hops) in &self.routes {
            let (prefix, next_hops) = (prefix.clone(), next_hops.clone());
            commands.push(Command::SetNextHops { prefix, next_hops });
        }
        let filler = |number| Command::SetNextHops {
            prefix: filler_prefix(number),
            next_hops: vec![NextHop { face: FaceId::NULL, cost: 0 }],
        };
        commands.extend((0..self.plan.fib_filler).map(filler));
        commands
    }

    /// The next hops of the longest matching prefix among the routes.
    pub(super) fn next_hops_of(&self, name: &[u8]) -> &[NextHop] {
        let is_prefix = |prefix: &Name| name.starts_with(prefix.as_view().value());
        let matching = self.routes.iter().filter(|(prefix, _)| is_prefix(prefix));
        let longest = matching.max_by_key(|(prefix, _)| prefix.as_view().value().len());
        longest.map_or(&[], |(_, next_hops)| next_hops)
    }
}

/// One incarnation of a router: the time between two crashes. Events of an earlier one are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::network) struct Incarnation {
    pub(in crate::network) node: u32,
    /// Counted from 1.
    pub(in crate::network) number: u64,
}
