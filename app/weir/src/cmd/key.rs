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

use crate::exit::Exit;
use crate::help::{KEYS, OUTPUT};
use crate::table::{Align, Table, out, outln};
use crate::transfer::{cannot_read, warn_about_clock};

/// Largest file that is imported, in bytes.
const IMPORT_LEN_MAX: u64 = 256 * 1024;

/// The TLV type of Data, with which a certificate begins.
const DATA_OCTET: u8 = 6;

/// Create, list, import, export and trust keys.
///
/// NAME is an identity (/local/alice), a key (/local/alice/KEY/1f..) or a certificate. An identity
/// stands for its key.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  weir key new /local/alice --default\n  weir key list")]
pub(crate) struct Args {
    /// Directory of keys and trust anchors [default: $WEIR_HOME, $XDG_CONFIG_HOME/weir or
    /// ~/.config/weir]
    #[arg(long, value_name = "DIR", global = true, help_heading = KEYS)]
    home: Option<PathBuf>,
    /// Read the passphrase from the first line of FILE [default: $WEIR_PASSPHRASE, or the terminal]
    #[arg(long, value_name = "FILE", global = true, help_heading = KEYS)]
    passphrase_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true, help_heading = OUTPUT)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a key and a self-signed certificate
    #[command(
        after_help = "Examples:\n  weir key new /local/alice --type ed25519\n  weir key new \
                      /local/bob --default"
    )]
    New {
        /// The identity that owns the key [default: /local/<user>]
        name: Option<Name>,
        /// The algorithm
        #[arg(long = "type", value_enum, default_value_t = TypeArg::Ecdsa)]
        key_type: TypeArg,
        /// Encrypt the key with a passphrase [default: not encrypted]
        #[arg(long)]
        passphrase: bool,
        /// Make it the default key. The first key always becomes the default
        #[arg(long)]
        default: bool,
    },
    /// List all keys
    #[command(after_help = "Examples:\n  weir key list\n  weir key list --json")]
    List,
    /// Set the default key for signing, or show it
    #[command(after_help = "Examples:\n  weir key default\n  weir key default /local/alice")]
    Default {
        /// The key or its identity [default: show the default key]
        name: Option<Name>,
    },
    /// Create a new self-signed certificate for a key, valid from now
    ///
    /// Use it when the certificate has expired or was created while the clock was wrong.
    #[command(after_help = "Examples:\n  weir key renew\n  weir key renew /local/alice")]
    Renew {
        /// The key or its identity [default: the default key]
        name: Option<Name>,
    },
    /// Show a key and its certificates
    #[command(after_help = "Examples:\n  weir key show\n  weir key show /local/alice --json")]
    Show {
        /// The key or its identity [default: the default key]
        name: Option<Name>,
    },
    /// Export a certificate, or a private key with --private
    #[command(
        after_help = "Examples:\n  weir key export /local/alice -o alice.cert\n  weir key export \
                      /local/alice --private -o alice.key"
    )]
    Export {
        /// The key, its identity, or a certificate [default: the default key]
        name: Option<Name>,
        /// Export the private key, encrypted with a passphrase
        #[arg(long)]
        private: bool,
        /// File format of a private key
        #[arg(long, value_enum, default_value_t = Form::SafeBag, requires = "private")]
        form: Form,
        /// Do not encrypt the private key (only with --form pem)
        #[arg(long, requires = "private")]
        unencrypted: bool,
        /// Write to this new file. An existing file is not replaced [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Import a certificate, a SafeBag or a PEM key, as Weir, ndnsec, ndnd and OpenSSL write them
    #[command(after_help = "Examples:\n  weir key import alice.cert\n  weir key import alice.key \
                      --passphrase-file passphrase.txt")]
    Import {
        /// The file, or - for standard input
        file: PathBuf,
        /// The identity that owns the key [default: the one in the file]
        #[arg(long)]
        name: Option<Name>,
        /// Encrypt an unencrypted key with a passphrase [default: not encrypted]
        #[arg(long)]
        passphrase: bool,
    },
    /// Delete a key and its certificates
    #[command(
        aliases = ["remove", "rm", "del"],
        after_help = "Examples:\n  weir key delete /local/alice\n  weir key delete /local/bob --yes"
    )]
    Delete {
        /// The key or its identity
        name: Name,
        /// Delete without confirmation
        #[arg(short, long)]
        yes: bool,
    },
    /// Trust the owner of a certificate
    ///
    /// Data signed by this key is then accepted for all names below its identity.
    #[command(
        args_conflicts_with_subcommands = true,
        arg_required_else_help = true,
        after_help = "Examples:\n  weir key trust alice.cert\n  weir key trust list"
    )]
    Trust {
        /// The file of the certificate, or - for standard input
        file: Option<PathBuf>,
        #[command(subcommand)]
        command: Option<TrustCommand>,
    },
    /// Issue a certificate for another key
    ///
    /// The identity of the other key must be below the identity of the issuer.
    #[command(after_help = "Examples:\n  weir key sign alice.cert --by /local\n  weir key sign \
                      alice.cert --by /local --days 30 -o alice-30.cert")]
    Sign {
        /// A certificate of the other key, as written by `weir key export`; - for standard input
        file: PathBuf,
        /// The key of the issuer [default: the default key]
        #[arg(long, value_name = "NAME")]
        by: Option<Name>,
        /// The issuer component in the name of the certificate
        #[arg(long, default_value = "NA")]
        issuer: String,
        /// Validity in days
        #[arg(long, default_value_t = (ISSUED_VALIDITY_S / 86_400) as u32)]
        days: u32,
        /// Write to this new file. An existing file is not replaced [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

#[derive(Subcommand)]
enum TrustCommand {
    /// List the trust anchors and the signers recorded at first use
    #[command(after_help = "Examples:\n  weir key trust list\n  weir key trust list --json")]
    List,
    /// Remove a trust anchor
    #[command(
        aliases = ["delete", "rm", "del"],
        after_help = "Examples:\n  weir key trust remove /local/alice\n  weir key trust remove \
                      /local/bob --json"
    )]
    Remove {
        /// The certificate, its key or its identity
        name: Name,
    },
    /// Forget the signer recorded for a name, so that the next download accepts another one
    #[command(
        after_help = "Examples:\n  weir key trust forget /demo/services\n  weir key trust forget \
                      /demo/folder --json"
    )]
    Forget {
        /// The name, as `weir key trust list` shows it
        name: Name,
    },
}

#[derive(Copy, Clone, ValueEnum)]
enum TypeArg {
    /// ECDSA P-256
    Ecdsa,
    /// Ed25519
    Ed25519,
    /// RSA with 2048 bits
    Rsa,
    /// HMAC-SHA256, a shared secret for signing and verifying
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
    /// Certificate and key in base64, compatible with ndnsec
    SafeBag,
    /// PKCS#8 PEM
    Pem,
}

/// The keys and options that all subcommands share.
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
        ensure!(!identity.is_empty(), "an identity needs at least one component, such as /alice");
        let passphrase =
            if encrypt { Some(self.passphrases.for_encryption("the new key")?) } else { None };
        let passphrase = passphrase.as_ref().map(|text| text.as_str());
        let key = self.chain.generate(&identity, key_type, passphrase)?;
        if make_default {
            self.chain.set_default(&key.name)?;
        }
        let is_default = self.is_default(&key)?;
        self.print_result(self.key_json(&key)?, || {
            let note = if is_default { " (the default)" } else { "" };
            format!("{}{note}\nstored in {}", key.name, key.path.display())
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
            outln!("no keys in {}; create one with `weir key new`", self.chain.dir().display())?;
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
            // All certificates of a key contain the same public key.
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
        // The name of a certificate selects exactly this one. Other names select a key.
        let certificate = match &name {
            Some(name) if weir_security::is_certificate_name(name.as_view()) => {
                self.chain.certificate(name)?
            }
            _ => {
                let key = self.key_or_default(name)?;
                self.chain.certificate_for(&key.name)?.with_context(|| {
                    format!("{} has no certificate; export the key with --private", key.name)
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
            "a SafeBag is always encrypted; use --form pem for an unencrypted key"
        );
        let key = self.key_or_default(name)?;
        let passphrase = if unencrypted {
            None
        } else {
            Some(self.passphrases.for_encryption("the exported key")?)
        };
        let passphrase = passphrase.as_ref().map(|text| text.as_str());
        match (form, passphrase) {
            (Form::SafeBag, Some(passphrase)) => {
                ensure!(
                    self.chain.certificate_for(&key.name)?.is_some(),
                    "{} has no certificate, which a SafeBag needs; export it with --form pem",
                    key.name
                );
                let text = self.chain.export_safe_bag(&key.name, passphrase)?;
                write_new(output, text.as_bytes(), 0o600)
            }
            // Do not copy the text: the key may be unencrypted, and this buffer is wiped on drop.
            _ => write_new(output, self.chain.export_pem(&key.name, passphrase)?.as_bytes(), 0o600),
        }
    }

    fn import(&self, file: &Path, name: Option<Name>, encrypt: bool) -> anyhow::Result<()> {
        let octets = read_file(file)?;
        let protect =
            if encrypt { Some(self.passphrases.for_encryption("the imported key")?) } else { None };
        let protect = protect.as_ref().map(|text| text.as_str());
        let imported = self
            .chain
            .import(&octets, name.as_ref(), protect)
            .with_context(|| format!("cannot import {}", file.display()))?;
        let values = imported.iter().map(|imported| match imported {
            Imported::Key(key) => self.key_json(key),
            Imported::Certificate(name) => Ok(json!({ "certificate": name.to_string() })),
        });
        let mut values = values.collect::<anyhow::Result<Vec<Value>>>()?;
        let value = match values.len() {
            1 => values.remove(0),
            _ => json!({ "imported": values }),
        };
        self.print_result(value, || {
            let lines = imported.iter().map(|imported| match imported {
                Imported::Key(key) => format!("key {}", key.name),
                Imported::Certificate(name) => format!("certificate {name}"),
            });
            lines.collect::<Vec<_>>().join("\n")
        })
    }

    fn delete(&self, name: &Name, yes: bool) -> anyhow::Result<()> {
        // The name may be that of an identity. The question must show the key.
        let key = self.chain.find(name)?;
        if !yes && !confirm(&format!("Delete {} permanently?", key.name))? {
            bail!("the key was not deleted");
        }
        let key = self.chain.delete(&key.name)?;
        self.print_result(json!({ "deleted": key.name.to_string() }), || {
            format!("deleted {}", key.name)
        })
    }

    fn trust(&self, file: &Path) -> anyhow::Result<()> {
        let certificate = read_certificate(file)?;
        // An anchor that is not valid now would verify nothing.
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
                "trusting {} for names below {}\npublic key {}",
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
            return print_json(&json!({ "anchors": anchors, "known_signers": known }));
        }
        if anchors.is_empty() && known.is_empty() {
            outln!("no trust anchors; add one with `weir key trust FILE`")?;
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
        Ok(out!("{}", table.render("no trust anchors"))?)
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
        if !self.chain.forget_signer(name)? {
            return Err(Exit::NotFound.error(format!(
                "no signer is recorded for exactly {name}; list them with `weir key trust list`"
            )));
        }
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
            "{} is not below the issuer's identity {}, so no one would accept the certificate; \
             choose another issuer with --by",
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
        // The JSON object contains the certificate, so do not print it twice.
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
            "there is no default key; create one with `weir key new`, or choose one with `weir key \
             default NAME`",
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

    /// Prints the value with `--json`, otherwise the text.
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
        "public_key_sha256": digest_text(certificate),
        "not_before": ascii(&validity.not_before()),
        "not_after": ascii(&validity.not_after()),
        "self_issued": certificate.is_self_issued(),
        "base64": to_base64_lines(certificate.wire()).replace('\n', ""),
    })
}

fn certificate_text(certificate: &Certificate) -> String {
    let issuer = if certificate.is_self_issued() {
        "itself".to_owned()
    } else {
        match certificate.data().signature_info().key_locator {
            Some(weir_wire::KeyLocatorView::Name(name)) => name.to_string(),
            _ => "an unnamed key".to_owned(),
        }
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
    ensure!(
        std::io::stdin().is_terminal(),
        "no terminal for the confirmation; use --yes to delete the key without it"
    );
    // Not on standard output, which may be a pipe.
    eprint!("{question} [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn read_file(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut octets = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().take(IMPORT_LEN_MAX).read_to_end(&mut octets)
    } else {
        File::open(file).and_then(|f| f.take(IMPORT_LEN_MAX).read_to_end(&mut octets))
    };
    read.map_err(|error| cannot_read(file, &error))?;
    Ok(octets)
}

fn read_certificate(file: &Path) -> anyhow::Result<Certificate> {
    let packet = packet_in_file(&read_file(file)?, &[DATA_OCTET]).with_context(|| {
        format!(
            "{} is not a certificate as written by `weir key export`, ndnsec or ndnd",
            file.display()
        )
    })?;
    Certificate::decode(&packet).with_context(|| {
        format!(
            "{} is not a certificate as written by `weir key export`, ndnsec or ndnd",
            file.display()
        )
    })
}

/// Writes to standard output, or to a new file. Fails if the file exists.
fn write_new(output: Option<&Path>, octets: &[u8], mode: u32) -> anyhow::Result<()> {
    let Some(path) = output else {
        return Ok(crate::table::standard_output()?.write_all(octets)?);
    };
    let mut file =
        File::options().write(true).create_new(true).mode(mode).open(path).map_err(|error| {
            let path = path.display();
            anyhow::anyhow!(
                "cannot create {path}: {error}; choose another file, or leave -o out to print it"
            )
        })?;
    let written = file.write_all(octets).and_then(|()| file.sync_all());
    if written.is_err() {
        // Remove the incomplete key, which would block the next attempt.
        let _ = std::fs::remove_file(path);
    }
    written.with_context(|| format!("cannot write {}", path.display()))?;
    // Sync the folder too, otherwise a power failure may lose the file. Errors are ignored, as the
    // file itself is complete.
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}
