use weir_base::Rng;
use weir_face::unix_time_ms;
use weir_manage::ControlParameters;
use weir_manage::commands::{self, Command, Scope};
use weir_security::DigestSigner;

/// Signs the commands of a client with DigestSha256. The times of the commands always grow, as
/// routers require.
pub(crate) struct CommandSigner {
    pub(crate) rng: Rng,
    time_ms: u64,
}

impl CommandSigner {
    pub(crate) fn new(rng: Rng) -> Self {
        Self { rng, time_ms: 0 }
    }

    /// The signed Interest. `is_local`: to a router of this host.
    pub(crate) fn sign(
        &mut self,
        is_local: bool,
        command: Command,
        parameters: &ControlParameters,
    ) -> Vec<u8> {
        let scope = if is_local { Scope::Localhost } else { Scope::Localhop };
        self.time_ms = unix_time_ms().max(self.time_ms + 1);
        let nonce = self.rng.next_u64().to_be_bytes();
        commands::build_command(scope, command, parameters, &DigestSigner, nonce, self.time_ms)
            .expect("a digest signer does not fail")
    }
}
