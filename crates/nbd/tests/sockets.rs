//! Servers that want one socket at once.

use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Barrier;

use casemate_nbd::Listener;
use casemate_testkit::tempdir;

/// Of servers that all find what a dead one left, one takes its place, and clients reach that one.
#[test]
fn one_server_takes_a_dead_ones_place() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("socket");
    for round in 0..300 {
        drop(UnixListener::bind(&path).unwrap());
        let barrier = Barrier::new(6);
        let server = || {
            barrier.wait();
            Listener::unix(&path)
        };
        let listeners: Vec<_> = std::thread::scope(|scope| {
            let servers: Vec<_> = (0..6).map(|_| scope.spawn(server)).collect();
            servers.into_iter().filter_map(|server| server.join().unwrap().ok()).collect()
        });
        assert_eq!(listeners.len(), 1, "round {round}");
        assert!(UnixStream::connect(&path).is_ok(), "round {round}");
        drop(listeners);
        assert!(!path.exists(), "round {round}");
    }
}
