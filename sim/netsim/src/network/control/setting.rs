//! Settings that the controller changes in a router.

use weir_forward::strategy::Strategy;
use weir_forward::{Command, NextHop, StoreCommand};
use weir_store::Rules;
use weir_wire::Name;

/// One setting, applied in every shard.
#[derive(Clone)]
pub(in crate::network) enum RouterSetting {
    Rules(Rules),
    NextHops(Name, Vec<NextHop>),
    Strategy(Name, Option<Strategy>),
}

impl From<RouterSetting> for Command {
    fn from(setting: RouterSetting) -> Self {
        match setting {
            RouterSetting::Rules(rules) => {
                Self::Store(StoreCommand::SetRules { transaction: 0, rules })
            }
            RouterSetting::NextHops(prefix, next_hops) => Self::SetNextHops { prefix, next_hops },
            RouterSetting::Strategy(prefix, strategy) => Self::SetStrategy { prefix, strategy },
        }
    }
}
