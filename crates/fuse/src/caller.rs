//! Rights of the program that asks, as far as files keep their set-user-ID and set-group-ID bits by them.
//!
//! A request tells the user, the group and the thread that asks. What Linux looks at besides, the thread's other groups and its
//! capability, is read of the thread in /proc: it waits for the answer meanwhile. A thread that can't be seen there has none.

use fuser::Request;

/// `CAP_FSETID`.
const SET_ID: u32 = 4;

/// A program that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    groups: Vec<u32>,
    may_set_id: bool,
}

impl Caller {
    /// The program that a request is of.
    pub fn of(request: &Request) -> Caller {
        let status = std::fs::read_to_string(format!("/proc/{}/status", request.pid())).unwrap_or_default();
        let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/user")).ok();
        let is_ours =
            || namespace("self").is_some_and(|own| namespace(&request.pid().to_string()) == Some(own));
        Caller::new(&status, request.uid(), request.gid(), is_ours)
    }

    /// A program of a user and a group, with what /proc says of its thread. Capabilities count in this user namespace alone: in one
    /// of its own every user has all of them.
    fn new(status: &str, user: u32, group: u32, is_in_namespace: impl FnOnce() -> bool) -> Caller {
        let words = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().split_whitespace()
        };
        // Behind the real, the effective and the saved one.
        let own = |name| words(name).nth(3).and_then(|word| word.parse::<u32>().ok());
        let mut caller = Caller { groups: vec![group], may_set_id: user == 0 };
        // Another thread may have the number by now.
        if own("Uid") == Some(user) && own("Gid") == Some(group) {
            caller.groups.extend(words("Groups").filter_map(|word| word.parse::<u32>().ok()));
            let capabilities = words("CapEff").next().and_then(|word| u64::from_str_radix(word, 16).ok());
            caller.may_set_id = capabilities.is_some_and(|all| all >> SET_ID & 1 != 0) && is_in_namespace();
        }
        caller
    }

    /// Whether files that it changes keep these rights.
    pub fn may_set_id(&self) -> bool {
        self.may_set_id
    }

    /// Whether a file of this group keeps set-group-ID where the group may not run it.
    pub fn is_in(&self, group: u32) -> bool {
        self.may_set_id || self.groups.contains(&group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_capabilities_are_the_threads() {
        let status =
            "Name:\tx\nUid:\t1\t1\t1\t1000\nGid:\t1\t1\t1\t100\nGroups:\t7 8 \nCapEff:\t0000000000000010\n";
        let caller = Caller::new(status, 1000, 100, || true);
        assert!(caller.may_set_id() && caller.is_in(9));
        let caller = Caller::new(status, 1000, 100, || false);
        assert!(!caller.may_set_id() && caller.is_in(8) && !caller.is_in(9));
        let caller = Caller::new(&status.replace("10\n", "00\n"), 1000, 100, || true);
        assert!(!caller.may_set_id() && caller.is_in(100) && caller.is_in(8) && !caller.is_in(9));
        // Of somebody else, or nobody.
        for status in [status, ""] {
            let others = Caller { groups: vec![100], may_set_id: false };
            assert_eq!(Caller::new(status, 1001, 100, || true), others);
            assert!(Caller::new(status, 0, 100, || true).may_set_id());
        }
        let powerless = status.replace("1000\n", "0\n").replace("10\n", "00\n");
        assert!(!Caller::new(&powerless, 0, 100, || true).may_set_id());
    }
}
