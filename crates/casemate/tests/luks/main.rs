//! LUKS volumes that cryptsetup made and the kernel wrote, opened.

mod changes;
mod images;
mod protected;
mod reencrypt;
mod verdicts;
