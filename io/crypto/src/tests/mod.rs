mod algorithms;
mod keychain;
