//! `weir key`.

use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};
use weir_crypto::{
    ISSUED_VALIDITY_S, Imported, KeyChain, KeyEntry, KeyType, PassphraseSource, default_identity,
    packet_in_file, to_base64_lines,
};
use weir_security::{Certificate, Validity};
use weir_wire::Name;

use crate::table::{Align, Table, out, outln};
use crate::transfer::{cannot_read, warn_about_clock};

/// Largest file that is imported, in octets.
const IMPORT_LEN_MAX: u64 = 256 * 1024;

const DATA_OCTET: u8 = 6;

/// Make, list, import, export and trust keys.
///
/// A NAME is that of an identity (/local/alice), a key (/local/alice/KEY/1f..) or a certificate.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where keys and trust are kept [default: $WEIR_HOME, $XDG_CONFIG_HOME/weir or ~/.config/weir]
    #[arg(long, value_name = "DIR", global = true)]
    home: Option<PathBuf>,
    /// Take the passphrase from the first line of FILE, not from $WEIR_PASSPHRASE or the terminal
    #[arg(long, value_name = "FILE", global = true)]
    passphrase_file: Option<PathBuf>,
    /// Print JSON for machines
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a key, and the certificate it signs for itself
    New {
        /// Whose key it is [default: /local/<user>]
        name: Option<Name>,
        /// The algorithm
        #[arg(long = "type", value_enum, default_value_t = TypeArg::Ecdsa)]
        key_type: TypeArg,
        /// Encrypt it with a passphrase
        #[arg(long)]
        passphrase: bool,
        /// Sign with it from now on unless told otherwise
        #[arg(long)]
        default: bool,
    },
    /// List the keys
    List,
    /// Sign with this key unless told otherwise; without a name, tell which it is
    Default {
        /// The key or its identity
        name: Option<Name>,
    },
    /// Sign a new certificate with the key itself, valid from now on: the one before has expired,
    /// or was made while the clock was wrong
    Renew {
        /// The key or its identity [default: the default key]
        name: Option<Name>,
    },
    /// Show a key and its certificates
    Show {
        /// The key or its identity [default: the default key]
        name: Option<Name>,
    },
    /// Write a certificate, or with --private a private key, to standard output or a file
    Export {
        /// The key, its identity, or a certificate [default: the default key]
        name: Option<Name>,
        /// The private key, encrypted with a passphrase
        #[arg(long)]
        private: bool,
        /// Form of a private key
        #[arg(long, value_enum, default_value_t = Form::SafeBag, requires = "private")]
        form: Form,
        /// Do not encrypt the private key; for --form pem
        #[arg(long, requires = "private")]
        unencrypted: bool,
        /// The file, which must not exist yet
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Take in a certificate, a SafeBag or a PKCS#8 PEM key
    Import {
        /// The file; - is standard input
        file: PathBuf,
        /// Whose key it is, if the file does not say
        #[arg(long)]
        name: Option<Name>,
        /// Encrypt an unencrypted key with a passphrase
        #[arg(long)]
        passphrase: bool,
    },
    /// Delete a key and its certificates
    #[command(aliases = ["remove", "rm", "del"])]
    Delete {
        /// The key or its identity
        name: Name,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Trust what a certificate's owner signs
    #[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
    Trust {
        /// The certificate; - is standard input
        file: Option<PathBuf>,
        #[command(subcommand)]
        command: Option<TrustCommand>,
    },
    /// Issue a certificate for another's key
    Sign {
        /// A certificate of that key, as `weir key export` writes it; - is standard input
        file: PathBuf,
        /// The key that issues it [default: the default key]
        #[arg(long, value_name = "NAME")]
        by: Option<Name>,
        /// The issuer's part of the certificate's name
        #[arg(long, default_value = "NA")]
        issuer: String,
        /// How long it is valid
        #[arg(long, default_value_t = (ISSUED_VALIDITY_S / 86_400) as u32)]
        days: u32,
        /// The file, which must not exist yet
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

#[derive(Subcommand)]
enum TrustCommand {
    /// List the trust anchors, and the signers noted at first use
    List,
    /// Trust a certificate, a key or an identity no more
    #[command(aliases = ["delete", "rm", "del"])]
    Remove {
        /// The certificate, its key or its identity
        name: Name,
    },
    /// Accept a new signer below this name, where another was noted at first use
    Forget {
        /// The name as `weir key trust list` shows it
        name: Name,
    },
}

#[derive(Copy, Clone, ValueEnum)]
enum TypeArg {
    /// ECDSA P-256
    Ecdsa,
    /// Ed25519
    Ed25519,
    /// RSA of 2048 bit
    Rsa,
    /// HMAC-SHA256: one secret for signing and verifying
    Hmac,
}

impl From<TypeArg> for KeyType {
    fn from(arg: TypeArg) -> Self {
        match arg {
            TypeArg::Ecdsa => Self::Ecdsa,
            TypeArg::Ed25519 => Self::Ed25519,
            TypeArg::Rsa => Self::Rsa,
            TypeArg::Hmac => Self::Hmac,
        }
    }
}

#[derive(Copy, Clone, Eq, PartialEq, ValueEnum)]
enum Form {
    /// Certificate and key, base64, as ndnsec
    SafeBag,
    /// PKCS#8 PEM
    Pem,
}

/// What the subcommands share.
struct KeyContext {
    chain: KeyChain,
    passphrases: PassphraseSource,
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let passphrases = PassphraseSource::from_option(args.passphrase_file);
    let chain = match args.home {
        Some(dir) => KeyChain::at(dir),
        None => KeyChain::open()?,
    };
    let chain = chain.with_passphrases(passphrases.clone());
    let session = KeyContext { chain, passphrases, json: args.json };
    match args.command {
        Command::New { name, key_type, passphrase, default } => {
            session.new_key(name, key_type.into(), passphrase, default)
        }
        Command::List => session.list(),
        Command::Default { name } => session.default_key(name),
        Command::Renew { name } => session.renew(name),
        Command::Show { name } => session.show(name),
        Command::Export { name, private: false, output, .. } => {
            session.export_certificate(name, output.as_deref())
        }
        Command::Export { name, form, unencrypted, output, .. } => {
            session.export_private(name, form, unencrypted, output.as_deref())
        }
        Command::Import { file, name, passphrase } => session.import(&file, name, passphrase),
        Command::Delete { name, yes } => session.delete(&name, yes),
        Command::Trust { file: Some(file), .. } => session.trust(&file),
        Command::Trust { command: Some(TrustCommand::Remove { name }), .. } => {
            session.trust_remove(&name)
        }
        Command::Trust { command: Some(TrustCommand::Forget { name }), .. } => {
            session.trust_forget(&name)
        }
        Command::Trust { .. } => session.trust_list(),
        Command::Sign { file, by, issuer, days, output } => {
            session.sign(&file, by, &issuer, days, output.as_deref())
        }
    }
}

impl KeyContext {
    fn new_key(
        &self,
        name: Option<Name>,
        key_type: KeyType,
        encrypt: bool,
        make_default: bool,
    ) -> anyhow::Result<()> {
        warn_about_clock();
        let identity = name.unwrap_or_else(default_identity);
        ensure!(!identity.is_empty(), "the name of an identity has at least one component");
        let passphrase = match encrypt {
            true => Some(self.passphrases.for_encryption("the new key")?),
            false => None,
        };
        let passphrase = passphrase.as_ref().map(|text| text.as_str());
        let key = self.chain.generate(&identity, key_type, passphrase)?;
        if make_default {
            self.chain.set_default(&key.name)?;
        }
        let is_default = self.is_default(&key)?;
        self.print_result(self.key_json(&key)?, || {
            let note = if is_default { " (the default)" } else { "" };
            format!("{}{note}\nkept in {}", key.name, key.path.display())
        })
    }

    fn list(&self) -> anyhow::Result<()> {
        let keys = self.chain.keys()?;
        if self.json {
            let keys: Vec<Value> =
                keys.iter().map(|key| self.key_json(key)).collect::<Result<_, _>>()?;
            return print_json(&json!({ "keys": keys }));
        }
        if keys.is_empty() {
            outln!("no keys in {}; `weir key new` makes one", self.chain.dir().display())?;
            return Ok(());
        }
        let columns = ["DEFAULT", "TYPE", "ENCRYPTED", "NAME"].map(|name| (name, Align::Left));
        let mut table = Table::new(&columns);
        for key in &keys {
            table.row(vec![
                yes_no(self.is_default(key)?).to_owned(),
                key.key_type.to_string(),
                yes_no(key.is_encrypted).to_owned(),
                key.name.to_string(),
            ]);
        }
        Ok(out!("{}", table.render("no keys"))?)
    }

    fn default_key(&self, name: Option<Name>) -> anyhow::Result<()> {
        let key = match name {
            Some(name) => self.chain.set_default(&name)?,
            None => self.key_or_default(None)?,
        };
        self.print_result(self.key_json(&key)?, || key.name.to_string())
    }

    fn renew(&self, name: Option<Name>) -> anyhow::Result<()> {
        warn_about_clock();
        let key = self.key_or_default(name)?;
        let certificate = self.chain.renew(&key.name)?;
        self.print_result(certificate_json(&certificate), || certificate_text(&certificate))
    }

    fn show(&self, name: Option<Name>) -> anyhow::Result<()> {
        let key = self.key_or_default(name)?;
        let certificates = self.chain.certificates_of(key.name.as_view())?;
        let mut value = self.key_json(&key)?;
        value["certificates"] = certificates.iter().map(certificate_json).collect();
        let is_default = self.is_default(&key)?;
        self.print_result(value, || {
            let mut text = format!(
                "key        {}\nidentity   {}\ntype       {}\n\
                 encrypted  {}\ndefault    {}\nfile       {}",
                key.name,
                key.identity(),
                key.key_type,
                yes_no(key.is_encrypted),
                yes_no(is_default),
                key.path.display(),
            );
            if let Some(first) = certificates.first() {
                text += &format!("\npublic key {}", digest_text(first));
            }
            for certificate in &certificates {
                text += &format!("\n\n{}", certificate_text(certificate));
            }
            text
        })
    }

    fn export_certificate(&self, name: Option<Name>, output: Option<&Path>) -> anyhow::Result<()> {
        let certificate = match &name {
            Some(name) if weir_security::is_certificate_name(name.as_view()) => {
                self.chain.certificate(name)?
            }
            _ => {
                let key = self.key_or_default(name)?;
                self.chain.certificate_for(&key.name)?.with_context(|| {
                    format!("{} has no certificate; --private exports the key itself", key.name)
                })?
            }
        };
        self.emit_certificate(&certificate, output)
    }

    fn export_private(
        &self,
        name: Option<Name>,
        form: Form,
        unencrypted: bool,
        output: Option<&Path>,
    ) -> anyhow::Result<()> {
        ensure!(
            !unencrypted || form == Form::Pem,
            "a SafeBag is always encrypted; add `--form pem` for an unencrypted key"
        );
        let key = self.key_or_default(name)?;
        let passphrase = match unencrypted {
            true => None,
            false => Some(self.passphrases.for_encryption("the exported key")?),
        };
        let passphrase = passphrase.as_ref().map(|text| text.as_str());
        match (form, passphrase) {
            (Form::SafeBag, Some(passphrase)) => {
                ensure!(
                    self.chain.certificate_for(&key.name)?.is_some(),
                    "{} has no certificate to go into a SafeBag; `--form pem` exports it without",
                    key.name
                );
                let text = self.chain.export_safe_bag(&key.name, passphrase)?;
                write_new(output, text.as_bytes(), 0o600)
            }
            // No copy of the text: it is wiped from memory, as the key may be unencrypted.
            _ => write_new(output, self.chain.export_pem(&key.name, passphrase)?.as_bytes(), 0o600),
        }
    }

    fn import(&self, file: &Path, name: Option<Name>, encrypt: bool) -> anyhow::Result<()> {
        let octets = read_file(file)?;
        let protect = match encrypt {
            true => Some(self.passphrases.for_encryption("the imported key")?),
            false => None,
        };
        let protect = protect.as_ref().map(|text| text.as_str());
        let imported = self
            .chain
            .import(&octets, name.as_ref(), protect)
            .with_context(|| format!("cannot import {}", file.display()))?;
        match imported {
            Imported::Key(key) => {
                self.print_result(self.key_json(&key)?, || format!("key {}", key.name))
            }
            Imported::Certificate(name) => {
                let value = json!({ "certificate": name.to_string() });
                self.print_result(value, || format!("certificate {name}"))
            }
        }
    }

    fn delete(&self, name: &Name, yes: bool) -> anyhow::Result<()> {
        let key = self.chain.find(name)?;
        if !yes && !confirm(&format!("Delete {} for good?", key.name))? {
            bail!("nothing was deleted");
        }
        let key = self.chain.delete(&key.name)?;
        self.print_result(json!({ "deleted": key.name.to_string() }), || {
            format!("deleted {}", key.name)
        })
    }

    fn trust(&self, file: &Path) -> anyhow::Result<()> {
        let certificate = read_certificate(file)?;
        let now = weir_crypto::unix_time_s();
        ensure!(
            certificate.validity().contains(now),
            "{} is valid {}, not now",
            certificate.name(),
            validity_text(certificate.validity())
        );
        self.chain.add_anchor(&certificate)?;
        self.print_result(certificate_json(&certificate), || {
            format!(
                "trusting what {} signs below {}\npublic key {}",
                certificate.name(),
                certificate.identity(),
                digest_text(&certificate)
            )
        })
    }

    fn trust_list(&self) -> anyhow::Result<()> {
        let anchors = self.chain.anchors()?;
        let known = self.chain.known_signer_entries()?;
        if self.json {
            let anchors: Vec<Value> = anchors.anchors().map(certificate_json).collect();
            return print_json(&json!({ "anchors": anchors, "knownSigners": known }));
        }
        if anchors.is_empty() && known.is_empty() {
            outln!("nobody is trusted yet; `weir key trust FILE` adds a certificate")?;
            return Ok(());
        }
        let columns = ["TRUSTED", "NAME", "WHEN", "KEY"].map(|name| (name, Align::Left));
        let mut table = Table::new(&columns);
        for certificate in anchors.anchors() {
            let (name, valid) = (certificate.name(), validity_text(certificate.validity()));
            table.row(vec!["anchor".into(), name.to_string(), valid, String::new()]);
        }
        for entry in &known {
            let since = format!("since {}", entry.since);
            let (name, key) = (entry.name.to_string(), entry.sha256.to_string());
            table.row(vec!["signer".into(), name, since, key]);
        }
        Ok(out!("{}", table.render("nobody"))?)
    }

    fn trust_remove(&self, name: &Name) -> anyhow::Result<()> {
        let removed = self.chain.remove_anchors(name)?;
        let names: Vec<String> = removed.iter().map(Name::to_string).collect();
        self.print_result(json!({ "removed": names }), || {
            names
                .iter()
                .map(|name| format!("no longer trusted: {name}"))
                .collect::<Vec<_>>()
                .join("\n")
        })
    }

    fn trust_forget(&self, name: &Name) -> anyhow::Result<()> {
        ensure!(
            self.chain.forget_signer(name)?,
            "no signer is noted for exactly {name}; `weir key trust list` shows those noted"
        );
        self.print_result(json!({ "forgotten": name.to_string() }), || format!("forgotten: {name}"))
    }

    fn sign(
        &self,
        file: &Path,
        by: Option<Name>,
        issuer_id: &str,
        days: u32,
        output: Option<&Path>,
    ) -> anyhow::Result<()> {
        let request = read_certificate(file)?;
        let by = match by {
            Some(name) => name,
            None => self.key_or_default(None)?.name,
        };
        let issuer = self.chain.signer(&by)?;
        let own =
            issuer.certificate().with_context(|| format!("{by} cannot issue certificates"))?;
        ensure!(
            own.identity().is_prefix_of(request.identity()),
            "{} is not below the issuer's identity {}, so nobody would accept the certificate",
            request.identity(),
            own.identity()
        );
        let certificate =
            self.chain.issue(&request, &issuer, issuer_id.as_bytes(), i64::from(days) * 86_400)?;
        self.emit_certificate(&certificate, output)
    }

    fn emit_certificate(
        &self,
        certificate: &Certificate,
        output: Option<&Path>,
    ) -> anyhow::Result<()> {
        if self.json && output.is_none() {
            return print_json(&certificate_json(certificate));
        }
        write_new(output, to_base64_lines(certificate.wire()).as_bytes(), 0o644)?;
        if self.json { print_json(&certificate_json(certificate)) } else { Ok(()) }
    }

    fn key_or_default(&self, name: Option<Name>) -> anyhow::Result<KeyEntry> {
        let name = match name {
            Some(name) => Some(name),
            None => self.chain.default_name()?,
        };
        let name = name.context(
            "no key is the default; `weir key new` makes one, `weir key default NAME` chooses one",
        )?;
        Ok(self.chain.find(&name)?)
    }

    fn is_default(&self, key: &KeyEntry) -> anyhow::Result<bool> {
        Ok(self.chain.default_name()?.as_ref() == Some(&key.name))
    }

    fn key_json(&self, key: &KeyEntry) -> anyhow::Result<Value> {
        Ok(json!({
            "name": key.name.to_string(),
            "identity": key.identity().to_string(),
            "type": key.key_type.to_string(),
            "encrypted": key.is_encrypted,
            "default": self.is_default(key)?,
            "path": key.path,
        }))
    }

    /// Prints the value for machines or the text for people.
    fn print_result(&self, value: Value, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        if self.json {
            print_json(&value)
        } else {
            outln!("{}", text())?;
            Ok(())
        }
    }
}

fn print_json(value: &Value) -> anyhow::Result<()> {
    outln!("{}", serde_json::to_string_pretty(value)?)?;
    Ok(())
}

fn certificate_json(certificate: &Certificate) -> Value {
    let validity = certificate.validity();
    json!({
        "name": certificate.name().to_string(),
        "key": certificate.key_name().to_string(),
        "identity": certificate.identity().to_string(),
        "publicKeySha256": digest_text(certificate),
        "notBefore": ascii(&validity.not_before()),
        "notAfter": ascii(&validity.not_after()),
        "selfIssued": certificate.is_self_issued(),
        "base64": to_base64_lines(certificate.wire()).replace('\n', ""),
    })
}

fn certificate_text(certificate: &Certificate) -> String {
    let issuer = match certificate.is_self_issued() {
        true => "itself".to_owned(),
        false => match certificate.data().signature_info().key_locator {
            Some(weir_wire::KeyLocatorView::Name(name)) => name.to_string(),
            _ => "an unnamed key".to_owned(),
        },
    };
    format!(
        "certificate {}\nissued by   {issuer}\nvalid       {}",
        certificate.name(),
        validity_text(certificate.validity())
    )
}

fn validity_text(validity: Validity) -> String {
    format!("from {} to {} UTC", ascii(&validity.not_before()), ascii(&validity.not_after()))
}

fn digest_text(certificate: &Certificate) -> String {
    certificate.public_key_digest().iter().map(|octet| format!("{octet:02x}")).collect()
}

fn ascii(octets: &[u8]) -> String {
    octets.iter().copied().map(char::from).collect()
}

fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

fn confirm(question: &str) -> anyhow::Result<bool> {
    ensure!(std::io::stdin().is_terminal(), "not a terminal to ask on; add --yes if you are sure");
    eprint!("{question} [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn read_file(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut octets = Vec::new();
    let read = match file == Path::new("-") {
        true => std::io::stdin().take(IMPORT_LEN_MAX).read_to_end(&mut octets),
        false => File::open(file).and_then(|f| f.take(IMPORT_LEN_MAX).read_to_end(&mut octets)),
    };
    read.map_err(|error| cannot_read(file, &error))?;
    Ok(octets)
}

fn read_certificate(file: &Path) -> anyhow::Result<Certificate> {
    let packet = packet_in_file(&read_file(file)?, &[DATA_OCTET]).with_context(|| {
        format!("{} is not a certificate as `weir key export` or ndnsec writes it", file.display())
    })?;
    Certificate::decode(&packet).with_context(|| {
        format!("{} is not a certificate as `weir key export` or ndnsec writes it", file.display())
    })
}

/// Writes to standard output, or to a file that must not exist yet.
fn write_new(output: Option<&Path>, octets: &[u8], mode: u32) -> anyhow::Result<()> {
    let Some(path) = output else {
        return Ok(crate::table::standard_output()?.write_all(octets)?);
    };
    let mut file =
        File::options().write(true).create_new(true).mode(mode).open(path).map_err(|error| {
            let path = path.display();
            anyhow::anyhow!(
                "cannot create {path}: {error}; name another file, or none to see it here"
            )
        })?;
    let written = file.write_all(octets).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half a key is of no use, and would be in the way of the next attempt.
        let _ = std::fs::remove_file(path);
    }
    written.with_context(|| format!("cannot write {}", path.display()))?;
    // The file is whole; without its folder on disk a power failure may still take it.
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}
