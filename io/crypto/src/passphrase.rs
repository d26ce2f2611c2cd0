//! The source of the passphrase of an encrypted key.

use std::fmt;
use std::path::PathBuf;

use zeroize::Zeroizing;

/// Environment variable with the passphrase of encrypted keys.
pub(crate) const PASSPHRASE_VARIABLE: &str = "WEIR_PASSPHRASE";

/// Size limit of a passphrase file, in bytes.
const FILE_LEN_MAX: u64 = 4096;

/// Why there is no passphrase.
#[derive(Debug, thiserror::Error)]
pub enum PassphraseError {
    /// None is configured, and there is no terminal for a prompt.
    #[error(
        "{what} needs a passphrase and there is no terminal to ask on; set {PASSPHRASE_VARIABLE} \
         or give --passphrase-file FILE"
    )]
    NoTerminal { what: String },
    /// The file cannot be read or is not text.
    #[error("cannot read the passphrase file {path}", path = path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the passphrase is empty; enter at least one character")]
    Empty,
    /// The two answers to the prompt differ.
    #[error("the two passphrases differ; nothing was changed")]
    Differ,
}

/// The source of the passphrase of an encrypted key.
#[derive(Clone, Default)]
pub enum PassphraseSource {
    /// `WEIR_PASSPHRASE` if it is set, else a prompt on the terminal.
    #[default]
    Standard,
    /// The first line of this file.
    File(PathBuf),
    Fixed(Zeroizing<String>),
}

impl fmt::Debug for PassphraseSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Standard => "Standard",
            Self::File(_) => "File",
            Self::Fixed(_) => "Fixed",
        })
    }
}

impl PassphraseSource {
    /// The file of `--passphrase-file`, if given; else [`Self::Standard`].
    pub fn from_option(file: Option<PathBuf>) -> Self {
        file.map_or(Self::Standard, Self::File)
    }

    /// The passphrase, if it is available without a prompt.
    ///
    /// # Errors
    /// [`PassphraseError::File`] and [`PassphraseError::Empty`].
    pub(crate) fn without_prompt(&self) -> Result<Option<Zeroizing<String>>, PassphraseError> {
        let passphrase = match self {
            Self::Fixed(passphrase) => passphrase.clone(),
            Self::File(path) => read_first_line(path)?,
            Self::Standard => match std::env::var(PASSPHRASE_VARIABLE) {
                Ok(passphrase) => Zeroizing::new(passphrase),
                Err(_) => return Ok(None),
            },
        };
        if passphrase.is_empty() { Err(PassphraseError::Empty) } else { Ok(Some(passphrase)) }
    }

    /// The passphrase that decrypts `what`. Prompts if necessary.
    pub(crate) fn for_decryption(&self, what: &str) -> Result<Zeroizing<String>, PassphraseError> {
        match self.without_prompt()? {
            Some(passphrase) => Ok(passphrase),
            None => ask_on_terminal(&format!("Passphrase of {what}: "), what),
        }
    }

    /// The passphrase that will protect `what`. Prompts for it twice if necessary.
    pub fn for_encryption(&self, what: &str) -> Result<Zeroizing<String>, PassphraseError> {
        if let Some(passphrase) = self.without_prompt()? {
            return Ok(passphrase);
        }
        let passphrase = ask_on_terminal(&format!("New passphrase for {what}: "), what)?;
        let again = ask_on_terminal("The same again: ", what)?;
        if passphrase == again { Ok(passphrase) } else { Err(PassphraseError::Differ) }
    }
}

fn ask_on_terminal(prompt: &str, what: &str) -> Result<Zeroizing<String>, PassphraseError> {
    use std::io::IsTerminal;
    let no_terminal = || PassphraseError::NoTerminal { what: what.to_owned() };
    // A script with both input and messages redirected would wait forever on its user's terminal.
    if !std::io::stdin().is_terminal() && !std::io::stderr().is_terminal() {
        return Err(no_terminal());
    }
    let answer = rpassword::prompt_password(prompt).map_err(|_| no_terminal())?;
    if answer.is_empty() { Err(PassphraseError::Empty) } else { Ok(Zeroizing::new(answer)) }
}

fn read_first_line(path: &std::path::Path) -> Result<Zeroizing<String>, PassphraseError> {
    use std::io::Read;
    let mut text = Zeroizing::new(String::new());
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_LEN_MAX).read_to_string(&mut text))
        .map_err(|source| PassphraseError::File { path: path.to_owned(), source })?;
    Ok(Zeroizing::new(text.lines().next().unwrap_or_default().to_owned()))
}
