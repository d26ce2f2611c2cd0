//! Sends management commands to a running router and reads its datasets. Errors include advice.

use anyhow::{Context, bail};
use weir_base::Instant;
use weir_client::{Client, ClientError, CommandError, ExpressError};
use weir_face::FaceUri;
use weir_manage::commands::Command;
use weir_manage::{ControlParameters, ControlResponse, Element, GeneralStatus};
use weir_store::{HoldingsStatus, ObjectList, ObjectQuery};
use weir_wire::{NackReason, Name};

use crate::exit::Exit;
use crate::help::OUTPUT;
use crate::transfer::RouterArgs;

/// The options `--router` and `--json` of management commands.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ManagementArgs {
    #[command(flatten)]
    router: RouterArgs,
    /// Print one JSON value
    #[arg(long, global = true, help_heading = OUTPUT)]
    pub(crate) json: bool,
}

impl ManagementArgs {
    pub(crate) fn router(&self) -> &RouterArgs {
        &self.router
    }

    pub(crate) fn connect(&self) -> anyhow::Result<ManagementClient> {
        ManagementClient::connect(&self.router)
    }
}

/// A connection to a router. It sends one request at a time.
pub(crate) struct ManagementClient(Client);

impl ManagementClient {
    pub(crate) fn connect(router: &RouterArgs) -> anyhow::Result<Self> {
        match router.uri()? {
            FaceUri::Unix(_) | FaceUri::Tcp(_) => router.connect().map(Self),
            other => bail!(
                "a router does not accept commands over {other}; use its Unix socket (--router \
                 unix:///PATH), or TCP on the same machine for read-only commands (--router \
                 tcp://127.0.0.1)"
            ),
        }
    }

    pub(crate) fn connect_to(uri: &FaceUri) -> Result<Self, ClientError> {
        Client::connect(uri).map(Self)
    }

    /// Sends a command and returns the response, including an error response.
    pub(crate) fn send_command(
        &mut self,
        command: Command,
        parameters: &ControlParameters,
    ) -> anyhow::Result<ControlResponse> {
        let answer = self.0.request_command(command, parameters);
        answer.map_err(|error| self.explain_error(error, &command_path(command)))
    }

    /// Sends a command that must succeed, and returns the effective parameters.
    pub(crate) fn command(
        &mut self,
        command: Command,
        parameters: &ControlParameters,
    ) -> anyhow::Result<ControlParameters> {
        let effective = self.0.command(command, parameters);
        effective.map_err(|error| self.explain_error(error, &command_path(command)))
    }

    /// Requests a dataset, such as `rib/list`. The error may be a [`MissingDataset`].
    pub(crate) fn dataset<E: Element>(&mut self, dataset: &str) -> anyhow::Result<Vec<E>> {
        self.0.dataset(dataset).map_err(|error| self.explain_dataset_error(error, dataset))
    }

    /// Requests the holdings of an object.
    pub(crate) fn holdings(&mut self, object: &Name) -> anyhow::Result<HoldingsStatus> {
        self.0.holdings(object).map_err(|error| self.explain_error(error, "cs/holdings"))
    }

    /// Requests the objects in the store. Their times count from `now`. The error may be a
    /// [`MissingDataset`].
    pub(crate) fn objects(
        &mut self,
        query: &ObjectQuery,
        now: Instant,
    ) -> anyhow::Result<ObjectList> {
        self.0.objects(query, now).map_err(|error| self.explain_dataset_error(error, "cs/list"))
    }

    /// Requests the general status.
    pub(crate) fn general_status(&mut self) -> anyhow::Result<GeneralStatus> {
        let dataset = "status/general";
        let content = self.0.dataset_content(dataset);
        let content = content.map_err(|error| self.explain_dataset_error(error, dataset))?;
        GeneralStatus::decode_content(&content).context("the router sent an invalid status")
    }

    fn explain_dataset_error(&self, error: CommandError, dataset: &str) -> anyhow::Error {
        let is_refused = matches!(error, CommandError::Refused(_));
        let is_missing =
            is_refused || matches!(error, CommandError::Express(ExpressError::Timeout));
        let error = self.explain_error(error, dataset);
        if !is_missing {
            return error;
        }
        let exit = Exit::of(&error);
        MissingDataset { is_refused, exit, reason: format!("{error:#}") }.into()
    }

    fn explain_error(&self, error: CommandError, what: &str) -> anyhow::Error {
        let uri = self.0.uri();
        match error {
            CommandError::Refused(response) => explain_response(&response),
            CommandError::TooLong(_)
            | CommandError::NoManagement(_)
            | CommandError::NotRegistered(_) => anyhow::anyhow!("{what}: {error}"),
            CommandError::Malformed => {
                anyhow::anyhow!(
                    "the router at {uri} sent an invalid answer to {what}; check its version with \
                     `weir status general`"
                )
            }
            CommandError::Express(ExpressError::Timeout) => Exit::TryAgain.error(format!(
                "the router at {uri} did not answer {what} in time; it may be starting, not \
                 support this command, or accept commands only from its own machine"
            )),
            CommandError::Express(ExpressError::Nack(NackReason::Congestion)) => Exit::TryAgain
                .error(format!(
                    "the router at {uri} rejected {what} (Congestion): it has too many pending \
                     Interests; try again, and check their number with `weir status general`"
                )),
            CommandError::Express(ExpressError::Nack(reason)) => anyhow::anyhow!(
                "the router at {uri} rejected {what} ({reason:?}): its management is not running"
            ),
            CommandError::Express(ExpressError::Client(error)) => {
                Exit::TryAgain.error(format!("cannot send {what} to {uri}: {error}"))
            }
        }
    }
}

/// The router refuses a dataset, or does not answer.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct MissingDataset {
    /// Whether it refused: then it is there, and may have other datasets.
    pub(crate) is_refused: bool,
    pub(crate) exit: Exit,
    reason: String,
}

fn command_path(command: Command) -> String {
    let (module, verb) = command.module_and_verb();
    format!("{module}/{verb}")
}

/// The message for an error response, with advice.
pub(crate) fn explain_response(response: &ControlResponse) -> anyhow::Error {
    let hint = match response.code {
        400 => "; the router does not accept these arguments",
        // The text of NFD does not say who has permission.
        403 if response.text == "authorization rejected" => {
            "; the router accepts only commands signed with a key that it trusts"
        }
        403 if response.text.starts_with("only root") => "; try with `sudo`",
        404 | 410 => "; check the current state with `weir status`",
        // NFD answers 406, ndnd 501.
        406 | 501 => "; this router does not support it",
        // A TUN device belongs to no other router, and the text names its problem.
        504 if response.text.contains("hicn+tun://") => "",
        504 => "; check the address, and that the other router runs",
        _ => "",
    };
    let exit = match response.code {
        404 | 410 => Exit::NotFound,
        504 => Exit::TryAgain,
        _ => Exit::Failure,
    };
    exit.error(format!("the router answered {} {}{hint}", response.code, response.text))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;
    use weir_base::Packet;
    use weir_manage::{
        Manager, ManagerConfig, ManagerInput, ManagerOutbox, RibEntry, Sender, StrategyChoice,
    };
    use weir_wire::InterestView;

    fn args(uri: &str) -> ManagementArgs {
        ManagementArgs { router: RouterArgs::of(uri), json: false }
    }

    /// A client connected to a fake router. `serve` maps received bytes to the reply.
    fn client_of_fake_router(
        mut serve: impl FnMut(&[u8]) -> Vec<u8> + Send + 'static,
    ) -> ManagementClient {
        let site = tempfile::tempdir().unwrap();
        let path = site.path().join("nfd.sock");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = vec![0; 9000];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                let answer = serve(&buffer[..count]);
                if answer.is_empty() || stream.write_all(&answer).is_err() {
                    break;
                }
            }
        });
        args(path.to_str().unwrap()).connect().unwrap()
    }

    #[test]
    fn hints_at_peers_only_if_there_is_one() {
        let explain = |uri: &str| {
            let text = format!("cannot connect to {uri}: refused");
            explain_response(&ControlResponse::new(504, text)).to_string()
        };
        assert!(explain("tcp4://127.0.0.1:1").ends_with("that the other router runs"));
        assert!(explain("hicn+tun://hicn0").ends_with("hicn0: refused"));
    }

    /// A client connected to a manager without a router. The reply starts with an unsolicited Data
    /// packet, which the client must ignore.
    fn client_of_manager() -> ManagementClient {
        client_of_manager_without("none")
    }

    /// The manager refuses the datasets of this module, as ndnd does.
    pub(crate) fn client_of_manager_without(module: &'static str) -> ManagementClient {
        let mut out = ManagerOutbox::default();
        let mut manager = Manager::new(ManagerConfig::default(), &mut out);
        let now = weir_base::Instant::from_ns(1);
        let stray = weir_wire::Data::new("/stray".parse().unwrap()).encode_with_digest();
        client_of_fake_router(move |interest| {
            let mut out = ManagerOutbox::default();
            let packet = Packet::from(interest);
            let name = InterestView::decode(interest).unwrap().name;
            if name.component(2).unwrap().value == module.as_bytes() {
                let refusal = ControlResponse::new(501, "Unknown verb").encode();
                return weir_wire::Data::new(name.to_name()).content(refusal).encode_with_digest();
            }
            let ingress = weir_base::FaceId(256);
            let input = ManagerInput::Interest { ingress, sender: Sender::Operator, packet };
            manager.handle(now, 1, input, &mut out);
            let mut wire = stray.clone();
            for data in out.data {
                let header = weir_wire::LpHeader { congestion_mark: 1, ..Default::default() };
                wire.extend(header.encode(&weir_wire::LpFraming::BARE, &[], Some(&data.packet)));
            }
            wire
        })
    }

    #[test]
    fn sends_commands_reads_datasets() {
        let mut client = client_of_manager();
        let prefix: Name = "/p".parse().unwrap();
        let strategy: Name = "/localhost/nfd/strategy/multicast".parse().unwrap();
        let parameters = ControlParameters {
            name: Some(prefix.clone()),
            strategy: Some(strategy),
            ..ControlParameters::default()
        };
        let body = client.command(Command::StrategyChoiceSet, &parameters).unwrap();
        assert_eq!(body.strategy.unwrap().to_string(), "/localhost/nfd/strategy/multicast/v=5");
        let choices = client.dataset::<StrategyChoice>("strategy-choice/list").unwrap();
        assert!(choices.iter().any(|choice| choice.name == prefix));
        let routes = client.dataset::<RibEntry>("rib/list").unwrap();
        assert_eq!(routes.len(), 2, "the router's own, for /localhost and /localhost/nfd");
        let refused = client.command(Command::StrategyChoiceUnset, &ControlParameters::default());
        let text = refused.unwrap_err().to_string();
        assert!(text.starts_with("the router answered 400 "), "{text}");
    }

    #[test]
    fn explains_answers_of_non_routers() {
        let mut client = client_of_fake_router(|_| b"HTTP/1.1 400 Bad Request".to_vec());
        let error = client.dataset::<RibEntry>("rib/list").unwrap_err();
        assert!(format!("{error:#}").contains("is not a router"), "{error:#}");

        let mut client = client_of_fake_router(|_| Vec::new());
        let error = client.general_status().unwrap_err();
        assert!(format!("{error:#}").contains("the router closed it"), "{error:#}");

        for (reason, expected) in [
            (NackReason::NoRoute, "(NoRoute): its management is not running"),
            (NackReason::Congestion, "(Congestion): it has too many pending Interests"),
        ] {
            let mut client = client_of_fake_router(move |interest| {
                weir_wire::LpHeader { nack: Some(reason), ..Default::default() }.encode(
                    &weir_wire::LpFraming::BARE,
                    &[],
                    Some(interest),
                )
            });
            let error = client.general_status().unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }

    #[test]
    fn refuses_addresses_without_management() {
        let refuse = |uri: &str| match args(uri).connect() {
            Ok(_) => panic!("connected to {uri}"),
            Err(error) => format!("{error:#}"),
        };
        assert!(refuse("udp://127.0.0.1").contains("use its Unix socket"));
        assert!(refuse("/nonexistent/nfd.sock").contains("start one with `weir router`"));
        assert!(refuse("nonsense").contains("nonsense"));
    }
}
