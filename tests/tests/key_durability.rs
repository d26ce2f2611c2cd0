//! Keys that `weir key` has acknowledged are on disk, and earlier keys stay
//! (docs/durability/keys.md).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use weir_base::Rng;
use weir_crypto::{KeyChain, packet_in_file, verifier_from_certificate};
use weir_security::{Certificate, sign_data, verify_data};
use weir_tests::{Host, Process, SmallDisk, weir_binary};
use weir_wire::{Data, DataView, Name};

const DATA_OCTET: u8 = 6;

fn process(mut command: Command, arguments: &[&str]) -> Process {
    command.args(arguments);
    Process::start(&format!("weir {}", arguments.join(" ")), command)
}

/// Checks that the certificate of a key verifies the signatures of the key.
fn check_key(home: &Path, name: &str) {
    let name: Name = name.parse().expect("a name");
    let signer = KeyChain::at(home).signer(&name).unwrap_or_else(|error| panic!("{error}"));
    let certificate = signer.certificate().unwrap_or_else(|| panic!("{name} has no certificate"));
    let verifier = verifier_from_certificate(certificate).expect("a verifier");
    let wire = sign_data(&Data::new(name).content(b"x"), &signer).expect("a signature");
    verify_data(&DataView::decode(&wire).expect("Data"), &*verifier).expect("its own signature");
}

/// The trusted certificates, read without Weir's key chain.
fn anchors(home: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(home.join("anchors")).into_iter().flatten();
    let paths = files.map(|entry| entry.expect("entry").path());
    let whole = paths.filter(|path| path.extension().is_some_and(|kind| kind == "cert"));
    let name = |path: PathBuf| {
        let octets = fs::read(&path).expect("a certificate");
        let packet = packet_in_file(&octets, &[DATA_OCTET]).expect("a certificate");
        Certificate::decode(&packet).expect("a certificate").name().to_string()
    };
    whole.map(name).collect()
}

/// All files of keys and certificates, with their contents.
fn contents(home: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let folders = ["keys", "certificates", "anchors"].map(|name| home.join(name));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
    let paths = entries.map(|entry| entry.expect("entry").path());
    let whole = paths.filter(|path| path.extension().is_some());
    whole.map(|path| (path.clone(), fs::read(path).expect("a file"))).collect()
}

/// Kills commands at random moments. Acknowledged changes survive, and nothing else is lost.
fn kill_at_random_moments(runs: u32) {
    let host = Host::new();
    let home = host.path("home/weir");
    let weir = |arguments: &[&str]| process(host.command(weir_binary()), arguments);
    let mut random = Rng::from_seed(2);
    let old = weir(&["key", "new", "/old", "--json"]).finish().success().json();
    let old = old["name"].as_str().expect("a name").to_owned();
    let (mut keys, mut trusted, mut count) = (BTreeSet::from([old.clone()]), BTreeSet::new(), 0);
    let mut default = old.clone();
    for run in 0..runs {
        let name = format!("/run/{run}");
        let certificate = host.path("certificate");
        let _ = fs::remove_file(&certificate);
        let commands: [Vec<&str>; 4] = [
            vec!["key", "new", &name, "--json"],
            vec!["key", "export", &old, "-o", "certificate"],
            vec!["key", "trust", "certificate", "--json"],
            vec!["key", "default", &old, "--json"],
        ];
        let before = contents(&home);
        for (which, arguments) in commands.iter().enumerate() {
            let mut command = weir(arguments);
            // The command works during the first two thirds of this time.
            thread::sleep(Duration::from_micros(random.below(30_000).into()));
            command.signal(Signal::SIGKILL);
            let ended = command.finish();
            if !ended.status.success() {
                continue;
            }
            count += 1;
            match which {
                0 => drop(keys.insert(ended.json()["name"].as_str().expect("a name").to_owned())),
                1 => drop(Certificate::decode(
                    &packet_in_file(&fs::read(&certificate).expect("a file"), &[DATA_OCTET])
                        .expect("a certificate"),
                )),
                2 => drop(trusted.insert(ended.json()["name"].as_str().expect("name").to_owned())),
                _ => default.clone_from(&old),
            }
        }
        let now = contents(&home);
        for (path, octets) in before {
            assert_eq!(now.get(&path), Some(&octets), "{} has changed", path.display());
        }
    }
    keys.iter().for_each(|name| check_key(&home, name));
    let found = anchors(&home);
    assert!(trusted.is_subset(&found), "{trusted:?} {found:?}");
    let chosen = KeyChain::at(&home).default_name().expect("it can be read");
    assert_eq!(chosen.map(|name| name.to_string()), Some(default));
    eprintln!("{count} commands were acknowledged, {} keys", keys.len());
    // Afterwards commands succeed, and no incomplete file is left.
    weir(&["key", "new", "/last"]).finish().success();
    let left = host.list("home/weir/keys");
    assert!(!left.iter().any(|name| name.starts_with('.')), "{left:?}");
}

#[test]
fn kills_lose_no_stored_key() {
    kill_at_random_moments(10);
}

#[test]
#[ignore = "800 kills take minutes"]
fn many_kills_lose_no_key() {
    kill_at_random_moments(200);
}

/// Checks that every writing command fails, and that all files are unchanged.
fn check_refused(host: &Host, weir: &dyn Fn(&[&str]) -> Process, view: &Path, why: &str) {
    let before = contents(view);
    let chosen = fs::read(view.join("default")).expect("a default");
    let commands: [&[&str]; 5] = [
        &["key", "new", "/new"],
        &["key", "trust", "certificate"],
        &["key", "import", "certificate"],
        &["key", "default", "/second"],
        &["key", "export", "/second", "-o", "disk/exported"],
    ];
    for arguments in commands {
        let message = weir(arguments).finish().failure();
        assert!(message.contains(why), "{arguments:?}: {message}");
    }
    assert_eq!(contents(view), before);
    assert_eq!(fs::read(view.join("default")).expect("a default"), chosen);
    assert!(!view.join("exported").exists(), "half a file");
    weir(&["key", "list"]).finish().success();
    weir(&["key", "export", "/second"]).finish().success();
    let left = fs::read_dir(view.join("keys")).expect("keys");
    assert!(left.flatten().all(|entry| entry.path().extension().is_some()), "{host:?}");
}

#[test]
fn full_disk_and_read_only_disk_lose_no_key() {
    let host = Host::new();
    let Some(disk) = SmallDisk::mount(&host, "disk", "1m") else { return };
    let weir = |arguments: &[&str]| {
        let mut command = disk.command(&host, weir_binary());
        command.env("WEIR_HOME", disk.folder());
        process(command, arguments)
    };
    let view = disk.path_from_outside();
    weir(&["key", "new", "/first"]).finish().success();
    weir(&["key", "new", "/second"]).finish().success();
    let other = process(
        {
            let mut command = host.command(weir_binary());
            command.env("WEIR_HOME", host.path("other"));
            command
        },
        &["key", "new", "/other"],
    );
    other.finish().success();
    let mut export = host.command(weir_binary());
    export.env("WEIR_HOME", host.path("other"));
    process(export, &["key", "export", "/other", "-o", "certificate"]).finish().success();
    disk.fill();
    check_refused(&host, &weir, &view, "No space left on device");
    disk.remove_filler();
    disk.set_read_only(&host, true);
    check_refused(&host, &weir, &view, "Read-only file system");
    disk.set_read_only(&host, false);
    for arguments in [&["key", "new", "/new"][..], &["key", "trust", "certificate"]] {
        weir(arguments).finish().success();
    }
    for name in ["/first", "/second", "/new"] {
        check_key(&view, name);
    }
    assert_eq!(anchors(&view).len(), 1);
}

#[test]
fn concurrent_processes_lose_no_key() {
    let host = Host::new();
    let home = host.path("home/weir");
    let weir = |arguments: &[&str]| process(host.command(weir_binary()), arguments);
    for round in 0..3 {
        let same = format!("/same/KEY/{round}");
        let own: Vec<String> = (0..4).map(|which| format!("/own/{round}/{which}")).collect();
        let makers: Vec<Process> = own.iter().map(|name| weir(&["key", "new", name])).collect();
        let rivals: Vec<Process> = (0..4).map(|_| weir(&["key", "new", &same])).collect();
        for maker in makers {
            maker.finish().success();
        }
        let made = rivals.into_iter().map(Process::finish);
        assert_eq!(made.filter(|ended| ended.status.success()).count(), 1);
        check_key(&home, &same);
        own.iter().for_each(|name| check_key(&home, name));
    }
    // The first key became the default and still is.
    assert!(KeyChain::at(&home).default_name().expect("readable").is_some());
}
