//! The consumer socket.

use std::ops::Range;

use weir_base::Packet;
use weir_client::random_u64;
use weir_security::trust::{Trust, TrustDecision};
use weir_security::verify_data;
use weir_transport::{Metadata, Target};
use weir_wire::{DataView, Interest, InterestView, Name, tlv};

use super::express::ExpressRequest;
use super::fetcher::Fetcher;
use super::fetches::SharedTrust;
use super::offer::Offer;
use super::pending::pending;
use super::{ConsumerOptions, Pending, Reader, Session, SocketError, check_below, check_packet};

/// Fetches and verifies objects below a prefix. A clone has the same trust.
#[derive(Clone)]
pub struct Consumer {
    session: Session,
    prefix: Name,
    options: ConsumerOptions,
    trust: SharedTrust,
}

impl Consumer {
    /// A socket for names below `prefix` that accepts the signers trusted by `trust`.
    pub fn bind(session: &Session, prefix: Name, trust: impl Trust + Send + 'static) -> Self {
        let options = ConsumerOptions::default();
        Self { session: session.clone(), prefix, options, trust: SharedTrust::new(trust) }
    }

    pub fn prefix(&self) -> &Name {
        &self.prefix
    }

    /// The options of fetches that start from now on.
    pub fn options(&self) -> &ConsumerOptions {
        &self.options
    }

    /// Sets the options.
    ///
    /// # Errors
    /// [`SocketError::Option`]: a value is out of its bounds. All options keep their values.
    pub fn set_options(&mut self, options: ConsumerOptions) -> Result<(), SocketError> {
        options.check()?;
        self.options = options;
        Ok(())
    }

    /// Sets one option by name.
    ///
    /// # Errors
    /// [`SocketError::Option`].
    pub fn set(&mut self, option: &str, value: &str) -> Result<(), SocketError> {
        self.options.set(option, value)
    }

    /// A consumer with the same options, for which `trust` decides about signers.
    pub fn with_trust(&self, trust: impl Trust + Send + 'static) -> Self {
        Self { trust: SharedTrust::new(trust), ..self.clone() }
    }

    /// Starts to fetch an object: the latest version, or the one at the end of the name. Does not
    /// wait; the reader reports later errors.
    ///
    /// # Errors
    /// [`SocketError::OutsidePrefix`].
    pub fn fetch(&self, name: &Name) -> Result<Reader, SocketError> {
        self.fetch_range(name, 0..u64::MAX)
    }

    /// Follows an object that [grows](super::Producer::publish_live), from its newest segment to
    /// the end. [`behind`](ConsumerOptions::behind) decides whether a slow reader continues in
    /// order or with the newest segment. [`Consumer::fetch`] reads such an object from its first
    /// segment. If the object does not grow, its last segment is fetched.
    ///
    /// # Errors
    /// [`SocketError::OutsidePrefix`], or the name ends in a version.
    pub fn fetch_newest(&self, name: &Name) -> Result<Reader, SocketError> {
        if has_version(name) {
            return Err(SocketError::Invalid(format!(
                "{name} ends in a version; fetch_newest needs the name of the object"
            )));
        }
        self.begin(name, 0..u64::MAX, true)
    }

    /// Starts to fetch a range of bytes of an object, as far as it exists. If the metadata do not
    /// state the segment size, everything before the range is fetched too.
    ///
    /// # Errors
    /// [`SocketError::OutsidePrefix`].
    pub fn fetch_range(&self, name: &Name, octets: Range<u64>) -> Result<Reader, SocketError> {
        self.begin(name, octets, false)
    }

    fn begin(
        &self,
        name: &Name,
        octets: Range<u64>,
        from_newest: bool,
    ) -> Result<Reader, SocketError> {
        self.check(name)?;
        let target = match has_version(name) {
            true => Target::Version { versioned: name.clone() },
            false => Target::Latest { object: name.clone(), allow_stored: self.options.stored },
        };
        Ok(Reader::new(self.fetcher(from_newest), target, octets))
    }

    /// As [`Consumer::fetch_range`], for a version whose metadata came from a [`Reader`] of this
    /// consumer. They are not requested again, and reads at different times return the same
    /// version. The metadata must have been verified there, because their digest verifies a sole
    /// segment.
    ///
    /// # Errors
    /// [`SocketError::OutsidePrefix`].
    pub fn fetch_found(
        &self,
        metadata: &Metadata,
        octets: Range<u64>,
    ) -> Result<Reader, SocketError> {
        self.check(&metadata.versioned)?;
        Ok(Reader::new(
            self.fetcher(false),
            Target::KnownMetadata { metadata: metadata.clone() },
            octets,
        ))
    }

    fn fetcher(&self, from_newest: bool) -> Fetcher {
        Fetcher {
            session: self.session.clone(),
            options: self.options.clone(),
            trust: self.trust.clone(),
            from_newest,
        }
    }

    /// Sends an offer in one Interest with the name `to`. Returns the answer of the receiver,
    /// perhaps after it has fetched the offered object, within the Interest lifetime of the
    /// options. The answer is **not verified**.
    ///
    /// # Errors
    /// [`SocketError::OutsidePrefix`]; [`SocketError::TooLong`] for a packet.
    pub fn send(&self, to: &Name, offer: &Offer) -> Result<Pending<Packet>, SocketError> {
        self.send_parameters(to, offer.packet())
    }

    /// As [`Consumer::send`], with other parameters for the receiver's application. Empty ones are
    /// left out.
    ///
    /// # Errors
    /// As [`Consumer::send`].
    pub fn send_parameters(
        &self,
        to: &Name,
        parameters: &[u8],
    ) -> Result<Pending<Packet>, SocketError> {
        self.check(to)?;
        let mapped = self.options.mapping.request(to.as_view(), parameters);
        let (name, payload) = mapped.unwrap_or_else(|| (to.clone(), Vec::new()));
        let mut interest = Interest::new(name)
            .nonce(random_u64()? as u32)
            .lifetime_ms(self.options.config().lifetime_ms);
        if payload.is_empty() && !parameters.is_empty() {
            interest = interest.application_parameters(parameters);
        }
        self.express(&with_element(interest.encode(), &payload))
    }

    /// Sends one Interest as it is: a complete TLV made with `weir_wire::Interest`, with a name of
    /// the network. Returns its Data as received, **not verified**. Waits for the Interest's
    /// lifetime.
    ///
    /// # Errors
    /// [`SocketError::OutsidePrefix`]; [`SocketError::TooLong`] for a packet; it is not an
    /// Interest.
    pub fn express(&self, interest: &[u8]) -> Result<Pending<Packet>, SocketError> {
        let view = InterestView::decode(interest)
            .map_err(|error| SocketError::Invalid(format!("no Interest: {error}")))?;
        let prefix = self.options.mapping.prefix(self.prefix.as_view());
        check_below(&prefix, &view.name.to_name())?;
        check_packet(interest, self.session.packet_bytes_max())?;
        let (data, answer) = pending();
        self.session.express(ExpressRequest { interest: interest.into(), data });
        Ok(answer)
    }

    /// Verifies the signature of a Data packet, such as the answer to an offer, with the trust of
    /// this consumer. Fetches nothing: the signer must be known, for example from metadata.
    ///
    /// # Errors
    /// [`SocketError::NotVerified`].
    pub fn verify(&self, packet: &[u8]) -> Result<(), SocketError> {
        let refused = |reason: String| SocketError::NotVerified(reason);
        let data = DataView::decode(packet).map_err(|error| refused(error.to_string()))?;
        let mut trust = self.trust.clone();
        match trust.decide(&data) {
            TrustDecision::Accept(verifier) => {
                verify_data(&data, &*verifier).map_err(|error| refused(error.to_string()))
            }
            TrustDecision::Refuse(refusal) => Err(refused(trust.explain(refusal))),
            TrustDecision::Fetch { .. } => Err(refused("its signer is not known yet".into())),
        }
    }

    fn check(&self, name: &Name) -> Result<(), SocketError> {
        check_below(&self.prefix, name)
    }
}

/// An Interest with one more element at its end, unless that is empty.
fn with_element(interest: Vec<u8>, element: &[u8]) -> Vec<u8> {
    if element.is_empty() {
        return interest;
    }
    let body = tlv::read_single_of(&interest, tlv::INTEREST).expect("it was just encoded");
    let mut writer = tlv::Writer::new();
    writer.tlv(tlv::INTEREST, &[body, element].concat());
    writer.into_vec()
}

fn has_version(name: &Name) -> bool {
    name.as_view().last().is_some_and(|last| last.as_version().is_some())
}
