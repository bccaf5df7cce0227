//! LUKS volumes that cryptsetup made and the kernel wrote, opened.

mod changes;
mod hostile;
mod images;
mod protected;
mod reencrypt;
mod verdicts;
