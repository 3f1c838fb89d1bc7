//! Small disks that tests can fill: a mounted tmpfs of a few megabytes.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::scratch::ScratchDirectory;

/// A file system of limited size. It is unmounted on drop or when this process ends.
///
/// It is unmounted lazily: files that are still open stay readable until they are closed.
#[derive(Debug)]
pub struct SmallDisk {
    path: PathBuf,
    _scratch: ScratchDirectory,
}

impl SmallDisk {
    /// Mounts a disk of `size_bytes` (rounded up to whole memory pages), which every user may write to.
    ///
    /// `None` if this process may not mount, which requires root. A user namespace would let anyone mount, but a
    /// process with several threads, such as a test, cannot enter one; and from outside the disk is visible only
    /// through a link in `/proc` that SQLite resolves to the wrong path.
    pub fn new(size_bytes: u64) -> Option<SmallDisk> {
        let scratch = ScratchDirectory::new("disk").ok()?;
        let path = scratch.path().join("disk");
        std::fs::create_dir(&path).ok()?;
        let settings = CString::new(format!("size={size_bytes},mode=1777")).ok()?;
        mount("tmpfs", &path, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, settings.as_c_str()).ok()?;
        // Other users reach the disk through the directory that holds it.
        std::fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).ok()?;
        Some(SmallDisk { path, _scratch: scratch })
    }

    /// The root of the disk.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The guardian of the scratch directory unmounts it too, so a failure here is no problem.
        let _ = unmount(&self.path, UnmountFlags::DETACH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prerequisites;

    #[test]
    fn a_small_disk_is_limited_to_its_size_and_removed_on_drop() {
        let Some(disk) = SmallDisk::new(1 << 20) else {
            return prerequisites::skip(prerequisites::SMALL_DISK, "this user may not mount a tmpfs");
        };
        let path = disk.path().to_owned();
        std::fs::write(path.join("fits"), vec![1; 900 << 10]).unwrap();
        let error = std::fs::write(path.join("does not fit"), vec![1; 900 << 10]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        drop(disk);
        assert!(!path.exists());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(path.to_str().unwrap()), "{mounts}");
    }
}
