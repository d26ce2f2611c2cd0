//! Commands and datasets of a running router, over its Unix socket or a TCP connection.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use weir_crypto::random_octets;
use weir_face::{FaceUri, client_transport};
use weir_manage::commands::{self, Command, Scope};
use weir_manage::{
    ControlParameters, ControlResponse, DatasetError, DatasetFetch, Element, GeneralStatus,
};
use weir_security::DigestSigner;
use weir_wire::{DataView, InterestView, LpView, Name, peek_frame, tlv};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_millis(commands::COMMAND_LIFETIME_MS);

/// Which router, and how to print.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RouterArgs {
    /// The router to talk to, such as unix:///run/nfd/nfd.sock or tcp://127.0.0.1
    ///
    /// By default the one that NDN_CLIENT_TRANSPORT or client.conf names, else the one that runs on
    /// this machine.
    #[arg(long, visible_alias = "face", value_name = "URI", global = true)]
    pub(crate) router: Option<String>,
    /// Print one JSON value, for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl RouterArgs {
    pub(crate) fn connect(&self) -> anyhow::Result<ManagementClient> {
        ManagementClient::connect(self.router.as_deref())
    }
}

trait Stream: Read + Write {
    fn set_deadline(&self, left: Duration) -> std::io::Result<()>;
}

impl Stream for UnixStream {
    fn set_deadline(&self, left: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

impl Stream for TcpStream {
    fn set_deadline(&self, left: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

/// A connection to a router, one request at a time.
pub(crate) struct ManagementClient {
    stream: Box<dyn Stream>,
    /// Received and not yet used.
    received: Vec<u8>,
    uri: FaceUri,
    last_time_ms: u64,
}

impl ManagementClient {
    fn connect(router: Option<&str>) -> anyhow::Result<Self> {
        let uri = match router {
            Some(text) if text.starts_with('/') => FaceUri::Unix(text.into()),
            // These errors tell their causes themselves.
            Some(text) => FaceUri::resolve(text).map_err(|error| anyhow::anyhow!("{error}"))?,
            None => client_transport().map_err(|error| anyhow::anyhow!("{error}"))?.uri,
        };
        let connected: std::io::Result<Box<dyn Stream>> = match &uri {
            FaceUri::Unix(path) => UnixStream::connect(path).map(|stream| Box::new(stream) as _),
            FaceUri::Tcp(address) => {
                TcpStream::connect_timeout(address, TIMEOUT).map(|stream| Box::new(stream) as _)
            }
            other => bail!(
                "a router takes commands over its Unix socket, or over TCP from the same machine, \
                 not over {other}; give --router unix:///PATH or --router tcp://127.0.0.1"
            ),
        };
        let stream = connected.map_err(|error| unreachable_router(&uri, &error))?;
        Ok(Self { stream, received: Vec::new(), uri, last_time_ms: 0 })
    }

    /// Sends a command; its answer, whatever its code.
    pub(crate) fn respond(
        &mut self,
        command: Command,
        parameters: &ControlParameters,
    ) -> anyhow::Result<ControlResponse> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.last_time_ms = now_ms.max(self.last_time_ms + 1);
        let interest = commands::build_command(
            Scope::Localhost,
            command,
            parameters,
            &DigestSigner,
            random_octets(),
            self.last_time_ms,
        )?;
        let (module, verb) = command.module_and_verb();
        let wire = self.request(&interest).with_context(|| format!("{module}/{verb}"))?;
        let data = DataView::decode(&wire)?;
        commands::parse_response(&data)
            .with_context(|| format!("the router's answer to {module}/{verb} makes no sense"))
    }

    /// Sends a command that has to succeed; the effective values.
    pub(crate) fn command(
        &mut self,
        command: Command,
        parameters: &ControlParameters,
    ) -> anyhow::Result<ControlParameters> {
        let response = self.respond(command, parameters)?;
        if response.code != 200 {
            return Err(refused(&response));
        }
        Ok(response.body.map(|body| *body).unwrap_or_default())
    }

    /// The items of a dataset, for example `rib/list`.
    pub(crate) fn dataset<E: Element>(&mut self, dataset: &str) -> anyhow::Result<Vec<E>> {
        let content = self.content(dataset)?;
        E::decode_all(&content).with_context(|| format!("the router's {dataset} makes no sense"))
    }

    /// The router's general status.
    pub(crate) fn general_status(&mut self) -> anyhow::Result<GeneralStatus> {
        let content = self.content("status/general")?;
        GeneralStatus::decode_content(&content).context("the router's status makes no sense")
    }

    fn content(&mut self, dataset: &str) -> anyhow::Result<Vec<u8>> {
        let mut name = Scope::Localhost.prefix();
        dataset.split('/').for_each(|component| {
            name.append_str(component);
        });
        let mut fetch = DatasetFetch::new(name);
        loop {
            let interest = fetch.interest(u32::from_be_bytes(random_octets()));
            let wire = self.request(&interest).with_context(|| dataset.to_owned())?;
            match fetch.on_data(&DataView::decode(&wire)?) {
                Ok(true) => return Ok(fetch.into_content()),
                Ok(false) => {}
                Err(DatasetError::Refused(response)) => return Err(refused(&response)),
                Err(error) => return Err(error).with_context(|| dataset.to_owned()),
            }
        }
    }

    /// Sends an Interest and waits for its Data.
    fn request(&mut self, interest: &[u8]) -> anyhow::Result<Vec<u8>> {
        let name = InterestView::decode(interest)?.name.to_name();
        let deadline = Instant::now() + TIMEOUT;
        self.stream.set_deadline(TIMEOUT)?;
        let sent = self.stream.write_all(interest);
        sent.with_context(|| format!("the router at {} went away", self.uri))?;
        loop {
            let frame = self.next_frame(deadline)?;
            if let Some(data) = answer(&frame, &name)? {
                return Ok(data);
            }
        }
    }

    fn next_frame(&mut self, deadline: Instant) -> anyhow::Result<Vec<u8>> {
        loop {
            let framed = peek_frame(&self.received)
                .with_context(|| format!("what listens at {} is not a router", self.uri))?;
            if let Some(length) = framed.filter(|length| *length <= self.received.len()) {
                let rest = self.received.split_off(length);
                return Ok(std::mem::replace(&mut self.received, rest));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!(self.timed_out());
            }
            self.stream.set_deadline(left)?;
            let mut chunk = [0; 16384];
            match self.stream.read(&mut chunk) {
                Ok(0) => bail!("the router at {} closed the connection", self.uri),
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    bail!(self.timed_out());
                }
                Err(error) => {
                    let text = format!("the router at {} went away", self.uri);
                    return Err(error).context(text);
                }
            }
        }
    }

    fn timed_out(&self) -> String {
        format!(
            "the router at {} did not answer within {} s; it takes commands only from its own \
             machine, and may know no such command",
            self.uri,
            TIMEOUT.as_secs()
        )
    }
}

/// The Data in a frame when it answers the Interest of that name.
fn answer(frame: &[u8], name: &Name) -> anyhow::Result<Option<Vec<u8>>> {
    let Ok(packet) = LpView::decode(frame) else { return Ok(None) };
    let Some(fragment) = packet.fragment else { return Ok(None) };
    if let Some(reason) = packet.header.nack {
        let is_ours =
            InterestView::decode(fragment).is_ok_and(|interest| interest.name == name.as_view());
        if is_ours {
            bail!("the router refused the request ({reason:?}): its management is not running");
        }
        return Ok(None);
    }
    let is_data = fragment.first().is_some_and(|octet| u32::from(*octet) == tlv::DATA);
    let matching = DataView::decode(fragment)
        .ok()
        .filter(|data| is_data && name.as_view().is_prefix_of(data.name));
    Ok(matching.map(|_| fragment.to_vec()))
}

fn unreachable_router(uri: &FaceUri, error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => anyhow::anyhow!(
            "no router answers at {uri} ({error}); start one with `weir router`, or name another \
             with --router URI"
        ),
        ErrorKind::PermissionDenied => anyhow::anyhow!(
            "no permission to use {uri}; ask its owner for access, or start a router of your own \
             with `weir router`"
        ),
        _ => anyhow::anyhow!("cannot connect to the router at {uri}: {error}"),
    }
}

/// What a refusal means, and what to do.
fn refused(response: &ControlResponse) -> anyhow::Error {
    let hint = match response.code {
        400 => "; the router does not take these arguments",
        403 => "; the router obeys only commands signed with a key that it trusts",
        404 | 410 => "; see what there is with `weir status`",
        406 => "; this router cannot do that",
        504 => "; is the other side up, and the address right?",
        _ => "",
    };
    anyhow::anyhow!("the router answered {} {}{hint}", response.code, response.text)
}

#[cfg(test)]
mod tests {
    use std::thread::JoinHandle;

    use weir_base::Packet;
    use weir_manage::{
        Manager, ManagerConfig, ManagerInput, ManagerOutbox, RibEntry, StrategyChoice,
    };

    use super::*;

    /// A client whose router is `serve`: octets received in, octets to send out.
    fn client_of(
        mut serve: impl FnMut(&[u8]) -> Vec<u8> + Send + 'static,
    ) -> (ManagementClient, JoinHandle<()>) {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
        let router = std::thread::spawn(move || {
            let mut buffer = vec![0; 9000];
            while let Ok(count @ 1..) = theirs.read(&mut buffer) {
                let answer = serve(&buffer[..count]);
                if answer.is_empty() || theirs.write_all(&answer).is_err() {
                    break;
                }
            }
        });
        let uri = FaceUri::Unix("/test".into());
        let stream = Box::new(ours);
        (ManagementClient { stream, received: Vec::new(), uri, last_time_ms: 0 }, router)
    }

    /// A manager without a router; its Data in link packets, after one that nobody asked for.
    fn managed() -> (ManagementClient, JoinHandle<()>) {
        let mut out = ManagerOutbox::default();
        let mut manager = Manager::new(ManagerConfig::default(), &mut out);
        let now = weir_base::Instant::from_ns(1);
        let stray = weir_wire::Data::new("/stray".parse().unwrap()).encode_with_digest();
        client_of(move |interest| {
            let mut out = ManagerOutbox::default();
            let packet = Packet::from(interest);
            let ingress = weir_base::FaceId(256);
            let input = ManagerInput::Interest { ingress, ingress_is_local: true, packet };
            manager.handle(now, 1, input, &mut out);
            let mut wire = stray.clone();
            for data in out.data {
                let header = weir_wire::LpHeader { congestion_mark: 1, ..Default::default() };
                wire.extend(header.encode(&[], Some(&data.packet)));
            }
            wire
        })
    }

    #[test]
    fn commands_and_datasets() {
        let (mut client, _router) = managed();
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
        assert_eq!(routes.len(), 1);
        let refused = client.command(Command::StrategyChoiceUnset, &ControlParameters::default());
        let text = refused.unwrap_err().to_string();
        assert!(text.starts_with("the router answered 400 "), "{text}");
    }

    #[test]
    fn routers_that_are_none() {
        let (mut client, _router) = client_of(|_| b"HTTP/1.1 400 Bad Request".to_vec());
        let error = client.dataset::<RibEntry>("rib/list").unwrap_err();
        assert!(format!("{error:#}").contains("is not a router"), "{error:#}");

        let (mut client, _router) = client_of(|_| Vec::new());
        let error = client.general_status().unwrap_err();
        assert!(format!("{error:#}").contains("closed the connection"), "{error:#}");

        let (mut client, _router) = client_of(|interest| {
            let nack = Some(weir_wire::NackReason::NoRoute);
            weir_wire::LpHeader { nack, ..Default::default() }.encode(&[], Some(interest))
        });
        let error = client.general_status().unwrap_err();
        assert!(format!("{error:#}").contains("NoRoute"), "{error:#}");
    }

    #[test]
    fn addresses_that_take_no_commands() {
        let refuse = |uri: &str| match ManagementClient::connect(Some(uri)) {
            Ok(_) => panic!("connected to {uri}"),
            Err(error) => format!("{error:#}"),
        };
        assert!(refuse("udp://127.0.0.1").contains("over its Unix socket"));
        assert!(refuse("/nonexistent/nfd.sock").contains("start one with `weir router`"));
        assert!(refuse("nonsense").contains("nonsense"));
    }
}
