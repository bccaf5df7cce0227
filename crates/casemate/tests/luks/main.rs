//! LUKS volumes that cryptsetup made and the kernel wrote, opened.

mod changes;
mod images;
mod reencrypt;
mod verdicts;
