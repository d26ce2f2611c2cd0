//! TLS over a TCP connection, by rustls, without blocking.
//!
//! rustls keeps two buffers: records that are incomplete or not read, at most one record of each,
//! and encrypted bytes that the socket has not accepted. Bytes are accepted for sending only if all
//! earlier ones are sent, so the second buffer holds at most one batch of frames.

use std::fmt;
use std::io::{self, BufRead as _, IoSlice, Read as _, Write as _};

use rustls::Connection;
use weir_base::Pool;

use super::BATCH_BYTES;
use super::transport::Transport;
use crate::socket::socket_source;
use crate::status::RecvStatus;
use crate::stream::{READ_BYTES_MAX, ReadBlock, StreamSocket};

/// Encrypted bytes that one read takes at most, and those up to the end of the HTTP head together.
/// Records may be empty, so without this limit a peer could hold the thread in one read.
const ENCRYPTED_BYTES_MAX: usize = 4 * READ_BYTES_MAX;
/// Memory in bytes of an idle connection: keys, and the smallest buffer of rustls.
const SESSION_BYTES: usize = 8 * 1024;

pub(crate) struct TlsStream {
    tcp: StreamSocket,
    tls: Connection,
    /// Encrypted bytes that may still arrive before the end of the HTTP head.
    head_left: usize,
}

impl TlsStream {
    pub(super) fn new(tcp: StreamSocket, mut tls: Connection) -> Self {
        // `write` limits the buffer: it accepts nothing while the buffer is in use.
        tls.set_buffer_limit(None);
        Self { tcp, tls, head_left: ENCRYPTED_BYTES_MAX }
    }
}

impl Transport for TlsStream {
    fn tcp(&self) -> &StreamSocket {
        &self.tcp
    }

    fn tcp_mut(&mut self) -> &mut StreamSocket {
        &mut self.tcp
    }

    fn read_block(&mut self, pool: &mut Pool) -> io::Result<(Option<ReadBlock>, RecvStatus)> {
        let tls = &mut self.tls;
        let mut left = ENCRYPTED_BYTES_MAX;
        let (block, status) = self.tcp.read_block_with(pool, |tcp, octets| {
            loop {
                match tls.reader().read(octets) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return ended(read),
                }
                if left == 0 {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                left = left.saturating_sub(read_records(tls, tcp)?);
            }
        })?;
        // The socket may not be empty.
        let status =
            if left == 0 && status == RecvStatus::Drained { RecvStatus::More } else { status };
        Ok((block, status))
    }

    fn peek(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return ended(Err(error)),
                Ok(plain) => {
                    let count = plain.len().min(octets.len());
                    octets[..count].copy_from_slice(&plain[..count]);
                    return Ok(count);
                }
            }
            if self.head_left == 0 {
                let why = "TLS records with too little content";
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            let read = read_records(&mut self.tls, &mut self.tcp)?;
            self.head_left = self.head_left.saturating_sub(read);
            // The answer of the TLS handshake.
            self.flush()?;
        }
    }

    fn skip(&mut self, count: usize) -> io::Result<()> {
        self.tls.reader().consume(count);
        Ok(())
    }

    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        if !self.flush()? {
            return Ok(0);
        }
        let accepted = self.tls.writer().write(octets)?;
        self.flush()?;
        Ok(accepted)
    }

    fn flush(&mut self) -> io::Result<bool> {
        flush(&mut self.tls, &mut self.tcp)
    }

    fn has_unsent(&self) -> bool {
        self.tls.wants_write()
    }

    fn held_bytes(&self) -> usize {
        let unsent = if self.tls.wants_write() { BATCH_BYTES } else { 0 };
        SESSION_BYTES + unsent + self.tcp.held_bytes()
    }
}

/// Reads some encrypted bytes and decrypts complete records. Returns the number of bytes; 0 at the
/// end of the stream.
fn read_records(tls: &mut Connection, tcp: &mut StreamSocket) -> io::Result<usize> {
    let read = tls.read_tls(&mut Encrypted(tcp))?;
    if let Err(error) = tls.process_new_packets() {
        // The peer gets the reason as an alert, if the socket accepts it.
        let _ = flush(tls, tcp);
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    Ok(read)
}

fn flush(tls: &mut Connection, tcp: &mut StreamSocket) -> io::Result<bool> {
    while tls.wants_write() {
        match tls.write_tls(&mut Encrypted(tcp)) {
            Ok(_) => {}
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(false),
                io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            },
        }
    }
    Ok(true)
}

/// Browsers may close a connection without the alert of TLS. WebSocket has its own Close frame.
fn ended(read: io::Result<usize>) -> io::Result<usize> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        read => read,
    }
}

/// The socket, as rustls uses it.
struct Encrypted<'a>(&'a mut StreamSocket);

impl io::Read for Encrypted<'_> {
    fn read(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        self.0.read(octets)
    }
}

impl io::Write for Encrypted<'_> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(octets)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        self.tls.send_close_notify();
        let _ = self.flush();
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").field("tcp", &self.tcp).finish_non_exhaustive()
    }
}

socket_source!(TlsStream, tcp);

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::thread;

    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::ServerName;
    use rustls::{ClientConnection, ServerConnection, StreamOwned};
    use socket2::Socket;

    use super::super::{CertificateFiles, ServerCertificate, TlsTrust};
    use super::*;

    /// A client that sends each byte in a record of its own, without end.
    #[test]
    fn limits_encrypted_bytes_of_head() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let files = CertificateFiles { certificate: path("tls.pem"), key: path("tls.key") };
        std::fs::write(&files.certificate, params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        let server = ServerConnection::new(ServerCertificate::load(&files).unwrap().config());
        let trust = TlsTrust::new(Some(files.certificate)).unwrap().client_config().unwrap();
        let client = ClientConnection::new(trust, ServerName::try_from("localhost").unwrap());

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, peer) = listener.accept().unwrap();
        let tcp = StreamSocket::from_tcp(Socket::from(far), peer).unwrap();
        let mut stream = TlsStream::new(tcp, server.unwrap().into());
        let mut client = StreamOwned::new(client.unwrap(), near);
        let client = thread::spawn(move || while client.write_all(b"x").is_ok() {});

        let mut content_bytes = 0;
        let error = loop {
            assert!(content_bytes < ENCRYPTED_BYTES_MAX / 20, "a record has 22 bytes of overhead");
            match stream.peek(&mut [0; 100]) {
                Ok(count) => {
                    content_bytes += count;
                    stream.skip(count).unwrap();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        assert!(content_bytes > 8 * 1024, "a head of the maximum length fits");
        drop(stream);
        client.join().unwrap();
    }
}
