//! The consumer socket.

use std::ops::Range;

use weir_base::Packet;
use weir_client::random_u64;
use weir_security::trust::Trust;
use weir_transport::{Metadata, Target};
use weir_wire::{Interest, InterestView, Name};

use super::express::ExpressRequest;
use super::fetcher::Fetcher;
use super::fetches::SharedTrust;
use super::offer::Offer;
use super::pending::pending;
use super::{ConsumerOptions, Pending, Reader, Session, SocketError, check_below, check_packet};

/// Gets what is below a prefix, and verifies it.
pub struct Consumer {
    session: Session,
    prefix: Name,
    options: ConsumerOptions,
    trust: SharedTrust,
}

impl Consumer {
    /// A socket for names below `prefix`, which believes whom `trust` believes.
    pub fn bind(session: &Session, prefix: Name, trust: impl Trust + Send + 'static) -> Self {
        let options = ConsumerOptions::default();
        Self { session: session.clone(), prefix, options, trust: SharedTrust::new(trust) }
    }

    pub fn prefix(&self) -> &Name {
        &self.prefix
    }

    /// The options of what is fetched from now on.
    pub fn options(&self) -> &ConsumerOptions {
        &self.options
    }

    /// Changes them.
    ///
    /// # Errors
    /// [`SocketError::Option`]: one is out of its bounds; all stay as they were.
    pub fn set_options(&mut self, options: ConsumerOptions) -> Result<(), SocketError> {
        options.check()?;
        self.options = options;
        Ok(())
    }

    /// Changes one, by name.
    ///
    /// # Errors
    /// [`SocketError::Option`].
    pub fn set(&mut self, option: &str, value: &str) -> Result<(), SocketError> {
        self.options.set(option, value)
    }

    /// Begins to fetch an object: the latest version, or the one that the name ends with. Does not
    /// wait: what goes wrong later, the reader tells.
    ///
    /// # Errors
    /// [`SocketError::OutsidePrefix`].
    pub fn fetch(&self, name: &Name) -> Result<Reader, SocketError> {
        self.fetch_range(name, 0..u64::MAX)
    }

    /// Begins to follow an object that [grows](super::Producer::publish_live), from the segment
    /// made last to the end. A reader that is too slow goes on in order or with the newest, as
    /// [`behind`](ConsumerOptions::behind) says. [`Consumer::fetch`] has such an object from its
    /// first segment on. Of one that does not grow, the last segment is fetched.
    ///
    /// # Errors
    /// [`SocketError::OutsidePrefix`]; the name ends in a version.
    pub fn fetch_newest(&self, name: &Name) -> Result<Reader, SocketError> {
        if has_version(name) {
            return Err(SocketError::Invalid(format!("{name} names a version already")));
        }
        self.begin(name, 0..u64::MAX, true)
    }

    /// Begins to fetch some octets of an object, as far as it has them. Of one whose metadata does
    /// not state the size of segments, all that comes before them is fetched too.
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

    /// As [`Consumer::fetch_range`], of a version whose metadata a [`Reader`] of this consumer has
    /// told: they are not asked for again, and what is read at different times belongs together.
    /// They must have been verified there: of a sole segment they tell what is right.
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

    /// Sends an offer in an Interest of the name `to`, once. What comes back is the answer of
    /// whoever takes it, perhaps after it has got what is offered, within the lifetime of Interests
    /// that options say: **not verified**.
    ///
    /// # Errors
    /// [`SocketError::OutsidePrefix`]; [`SocketError::TooLong`] for a packet.
    pub fn send(&self, to: &Name, offer: &Offer) -> Result<Pending<Packet>, SocketError> {
        let interest = Interest::new(to.clone())
            .nonce(random_u64()? as u32)
            .lifetime_ms(self.options.config().lifetime_ms)
            .application_parameters(&offer.packet()[..]);
        self.express(&interest.encode())
    }

    /// Sends one Interest, a whole TLV made with `weir_wire::Interest`, as it is, its name one of
    /// the network, and once. Its Data comes as it is, too: **not verified**. Its lifetime is the
    /// time that is waited.
    ///
    /// # Errors
    /// [`SocketError::OutsidePrefix`]; [`SocketError::TooLong`] for a packet; it is no Interest.
    pub fn express(&self, interest: &[u8]) -> Result<Pending<Packet>, SocketError> {
        let view = InterestView::decode(interest)
            .map_err(|error| SocketError::Invalid(format!("no Interest: {error}")))?;
        let prefix = self.options.mapping.prefix(self.prefix.as_view());
        check_below(&prefix, &view.name.to_name())?;
        check_packet(interest)?;
        let (data, answer) = pending();
        self.session.express(ExpressRequest { interest: interest.into(), data });
        Ok(answer)
    }

    fn check(&self, name: &Name) -> Result<(), SocketError> {
        check_below(&self.prefix, name)
    }
}

fn has_version(name: &Name) -> bool {
    name.as_view().last().is_some_and(|last| last.as_version().is_some())
}
