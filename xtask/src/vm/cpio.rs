//! The archive format of an initial ramdisk: cpio "newc" (kernel: Documentation/driver-api/early-userspace/buffer-format.rst).

/// An archive being written.
#[derive(Default)]
pub(crate) struct Cpio {
    bytes: Vec<u8>,
    inode: usize,
}

impl Cpio {
    pub(crate) fn dir(&mut self, path: &str) {
        self.entry(path, 0o040_755, &[]);
    }

    pub(crate) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, 0o100_755, content);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.inode += 1;
        let (inode, size, name_size) = (self.inode, content.len(), path.len() + 1);
        // magic, inode, mode, uid, gid, links, mtime, size, device (4 numbers), length of the name, checksum
        let header = format!(
            "070701{inode:08x}{mode:08x}{0:08x}{0:08x}{1:08x}{0:08x}{size:08x}{0:08x}{0:08x}{0:08x}{0:08x}{name_size:08x}{0:08x}",
            0, 1
        );
        for part in [header.as_bytes(), path.as_bytes(), &[0]] {
            self.bytes.extend_from_slice(part);
        }
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
