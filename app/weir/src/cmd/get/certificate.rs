//! The certificate that `--certificate` names.

use anyhow::Context;
use weir_base::Packet;
use weir_client::{Client, ExpressError};
use weir_crypto::packet_in_file;
use weir_security::Certificate;
use weir_wire::{DataView, Interest, NackReason, Name, tlv};

use crate::exit::Exit;

/// How long to wait for the certificate, and how often to request it.
const LIFETIME_MS: u64 = 2000;
const TRIES: u32 = 2;

/// Fetches the certificate at `name`. Its signature is not checked here.
pub(super) fn fetch(client: &mut Client, name: &Name) -> anyhow::Result<Certificate> {
    let packet = express(client, name).map_err(|error| match error {
        ExpressError::Timeout => Exit::TryAgain.error(format!(
            "no answer for the certificate {name}. Check the name, and that its producer runs"
        )),
        ExpressError::Nack(NackReason::NoRoute) => Exit::NoRoute.error(format!(
            "the router has no route to the certificate {name}. Check the name, or add a route \
             (`weir route add`)"
        )),
        error => Exit::TryAgain.error(format!("cannot get the certificate {name}: {error}")),
    })?;
    let data = DataView::decode(&packet)?;
    certificate_in(&data).with_context(|| {
        format!("{} is not a certificate and does not contain one; check the name", data.name)
    })
}

fn express(client: &mut Client, name: &Name) -> Result<Packet, ExpressError> {
    let mut answer = Err(ExpressError::Timeout);
    for _ in 0..TRIES {
        let interest = Interest::new(name.clone())
            .can_be_prefix(true)
            .lifetime_ms(LIFETIME_MS)
            .nonce(client.random_u64() as u32);
        answer = client.express(&interest.encode());
        if !matches!(answer, Err(ExpressError::Timeout)) {
            break;
        }
    }
    Ok(answer?.packet)
}

/// A certificate is a Data packet of its own. As a file, it is the Content of another one.
fn certificate_in(data: &DataView<'_>) -> Option<Certificate> {
    Certificate::decode(data.wire).ok().or_else(|| {
        let packet = packet_in_file(data.content, &[tlv::DATA as u8])?;
        Certificate::decode(&packet).ok()
    })
}

#[cfg(test)]
mod tests {
    use weir_crypto::{KeyChain, KeyType, to_base64_lines};
    use weir_wire::Data;

    use super::*;

    #[test]
    fn finds_certificate_and_file_with_one() {
        let dir = tempfile::tempdir().unwrap();
        let chain = KeyChain::at(dir.path());
        let key = chain.generate(&"/a".parse().unwrap(), KeyType::Ecdsa, None).unwrap();
        let certificate = chain.certificate_for(&key.name).unwrap().unwrap();
        let file = |content: &[u8]| {
            Data::new("/file".parse().unwrap()).content(content).encode_with_digest()
        };
        for packet in [
            certificate.wire().to_vec(),
            file(certificate.wire()),
            file(to_base64_lines(certificate.wire()).as_bytes()),
        ] {
            let found = certificate_in(&DataView::decode(&packet).unwrap());
            assert_eq!(found.as_ref(), Some(&certificate));
        }
        assert_eq!(certificate_in(&DataView::decode(&file(b"text")).unwrap()), None);
    }
}
