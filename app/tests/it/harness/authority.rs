//! A private authority for one test, and certificates of it, made by `openssl`.

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

pub struct Authority {
    dir: TempDir,
}

/// A certificate and its key.
pub struct Pair {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// What every certificate of these tests is good for, unless it is to be bad.
pub const HERE: &str = "DNS:localhost,IP:127.0.0.1";

impl Authority {
    pub fn new() -> Self {
        let made = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let settings = "[ca]\ndefault_ca = it\n[it]\ndatabase = index.txt\nnew_certs_dir = .\nrand_serial = yes\n\
             default_md = sha256\npolicy = any\nunique_subject = no\n[any]\ncommonName = optional\n";
        std::fs::write(made.path("ca.cnf"), settings).unwrap();
        std::fs::write(made.path("index.txt"), "").unwrap();
        let own = ["-x509", "-days", "3650", "-subj", "/CN=Test authority"];
        made.openssl(
            &[
                &["req"],
                &KEY[..],
                &own,
                &["-keyout", "ca.key", "-out", "ca.pem"],
            ]
            .concat(),
        );
        made
    }

    /// The authority's own certificate.
    pub fn file(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// A certificate for these names that is good for years.
    pub fn certificate(&self, file: &str, names: &str) -> Pair {
        self.signed(file, names, "20240101000000Z", "20990101000000Z")
    }

    /// One whose time is over.
    pub fn expired(&self, file: &str, names: &str) -> Pair {
        self.signed(file, names, "20240101000000Z", "20240201000000Z")
    }

    fn signed(&self, file: &str, names: &str, from: &str, to: &str) -> Pair {
        let (key, csr, cert) = (
            format!("{file}.key"),
            format!("{file}.csr"),
            format!("{file}.pem"),
        );
        let extensions = format!("subjectAltName={names}\nbasicConstraints=CA:FALSE\n");
        std::fs::write(self.path("extensions"), extensions).unwrap();
        let subject = ["-subj", "/CN=prism", "-keyout", &key, "-out", &csr];
        self.openssl(&[&["req"], &KEY[..], &subject].concat());
        self.openssl(&[
            "ca",
            "-batch",
            "-notext",
            "-config",
            "ca.cnf",
            "-cert",
            "ca.pem",
            "-keyfile",
            "ca.key",
            "-extfile",
            "extensions",
            "-startdate",
            from,
            "-enddate",
            to,
            "-in",
            &csr,
            "-out",
            &cert,
        ]);
        Pair {
            cert: self.path(&cert),
            key: self.path(&key),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn openssl(&self, args: &[&str]) {
        let ran = Command::new("openssl")
            .args(args)
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "openssl {args:?}: {said}");
    }
}

/// A fresh key of a kind that is made quickly.
const KEY: [&str; 5] = [
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:P-256",
    "-nodes",
];

impl Pair {
    /// Puts another pair in the place of this one.
    pub fn become_like(&self, cert: &Path, key: &Path) {
        std::fs::copy(cert, &self.cert).unwrap();
        std::fs::copy(key, &self.key).unwrap();
    }

    pub fn arguments(&self) -> [&str; 4] {
        [
            "--tls-cert",
            self.cert.to_str().unwrap(),
            "--tls-key",
            self.key.to_str().unwrap(),
        ]
    }
}
