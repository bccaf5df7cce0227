//! `casemate serve` with clients that nobody here wrote, and with a model.

mod background;
mod clients;
mod faults;
mod options;
mod overlays;

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use casemate_testkit::nbd::Client;
use casemate_testkit::{PATIENCE, Rng, TempDir, run, run_any, tempdir};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");
const CRYPT: &str = "--crypt aes-xts-plain64 --key-file key --key-size 512";
const SIZE: usize = 4 << 20;

/// A folder with a key, an image, the image encrypted, and its hash tree.
struct Folder {
    folder: TempDir,
    root: String,
}

/// A server that is killed when dropped.
struct Running {
    child: Child,
    folder: std::path::PathBuf,
}

impl Folder {
    fn new() -> Folder {
        let folder = tempdir().unwrap();
        let mut rng = Rng::new(8);
        let at = |name: &str| folder.path().join(name);
        fs::write(at("key"), rng.bytes(64)).unwrap();
        let mut image = rng.bytes(SIZE);
        // As gzip's, so that it is something when it is decrypted.
        image[..3].copy_from_slice(b"\x1f\x8b\x08");
        fs::write(at("image"), image).unwrap();
        let new = Folder { folder, root: String::new() };
        new.casemate("crypt encrypt image enc --key-file key --key-size 512");
        let made = new.casemate("verity format image tree");
        let root = made.lines().find_map(|line| line.strip_prefix("Root hash:")).unwrap().trim().to_owned();
        Folder { root, ..new }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(CASEMATE);
        command.args(line.split_whitespace()).current_dir(self.path()).stdin(Stdio::null());
        command
    }

    fn casemate(&self, line: &str) -> String {
        run(&mut self.command(line))
    }

    /// Serves while a shell command runs; gives what both said.
    fn with(&self, options: &str, script: &str) -> (i32, String, String) {
        let mut command = self.command(&format!("serve {options}{}", writable(options)));
        let output = run_any(command.arg("--exec").arg(script));
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// Output of a script that must succeed.
    fn expect(&self, options: &str, script: &str) -> String {
        let (status, stdout, stderr) = self.with(options, &format!("set -e\n{script}"));
        assert_eq!(status, 0, "{options}: {stdout}{stderr}");
        stdout
    }

    fn start(&self, options: &str) -> Running {
        let mut command = self.command(&format!("serve --socket sock {options}{}", writable(options)));
        let errors = fs::File::create(self.path().join("log")).unwrap();
        let child = command.stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        Running { child, folder: self.path().to_owned() }
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path().join(name)).unwrap()
    }

    fn log(&self) -> String {
        String::from_utf8(self.read("log")).unwrap()
    }
}

/// Option that lets clients write, where the options do not decide that.
fn writable(options: &str) -> &'static str {
    let says_otherwise =
        ["--read-only", "verity", "--overlay"].into_iter().any(|word| options.contains(word));
    if says_otherwise { "" } else { " --write" }
}

impl Running {
    fn client(&self) -> Client {
        let client = Client::connect_when_there(self.folder.join("sock"));
        client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    /// A connection that says nothing by itself.
    fn raw(&self) -> UnixStream {
        UnixStream::connect(self.folder.join("sock")).unwrap()
    }

    /// A number from what the system says about the server.
    fn status(&self, name: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    fn signal(&self, name: &str) {
        run(Command::new("kill").args(["-s", name, &self.child.id().to_string()]));
    }

    /// Ends it as service managers do; gives its exit status.
    fn end(mut self) -> i32 {
        self.signal("TERM");
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
