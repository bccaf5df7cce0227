//! Images that this machine makes.
