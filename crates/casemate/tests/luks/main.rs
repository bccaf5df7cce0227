//! LUKS volumes that cryptsetup made and the kernel wrote, opened.

mod images;
mod verdicts;
