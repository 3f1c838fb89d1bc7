//! Buffered writes of the WAL file. SQLite writes each page of a commit and each page's header separately; on a
//! journalling file system a small write costs several microseconds regardless of its size, and a commit of ten pages
//! makes twenty. Here they are buffered and written together before the sync, which takes no longer than for one
//! page.
//!
//! SQLite opens files through a *VFS*. This one forwards every request to the system's VFS, except for the WAL
//! (`-wal`), whose consecutive writes it buffers until that file is synced, read, measured, truncated or closed
//! through the same connection. Other connections never see buffered bytes, and never miss them: a commit is
//! published to them, by the index in shared memory, after its sync has returned. That holds only with `synchronous =
//! full` (or `extra`), which [`super::open`] sets on every connection that it opens by this name.
//!
//! A crash loses the buffer, all of it unacknowledged. A write that fails late, in the sync, fails the same commit:
//! SQLite treats both alike, and writes the log again from the start of that commit.

#![allow(
    unsafe_code,
    reason = "SQLite's interface for files is made of C functions; each use says why it is sound"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use rusqlite::ffi;

/// Name of this VFS in SQLite.
const NAME: &CStr = c"shipshape-log";
/// Size of the buffer. The system's VFS writes less than 128 KiB at once, whatever it is given.
const GATHERED_MAX: usize = 120 * 1024;

/// Name to open connections with; none where SQLite rejects the registration, and then the system's VFS is used.
pub(super) fn vfs() -> Option<&'static CStr> {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    REGISTERED.get_or_init(register).then_some(NAME)
}

/// The system's VFS with another function to open files.
#[repr(C)]
struct Vfs {
    /// The part that SQLite sees; first, so that a pointer to it is a pointer to the whole.
    face: ffi::sqlite3_vfs,
    system: *mut ffi::sqlite3_vfs,
}

fn register() -> bool {
    // SAFETY: finding the default VFS initialises SQLite if needed, and the system's VFS lives as long as the
    // process.
    let system = unsafe { ffi::sqlite3_vfs_find(null()) };
    if system.is_null() {
        return false;
    }
    // SAFETY: not null, and SQLite changes nothing of a registered VFS but its link to the next one, which is not
    // used here.
    let mut face = unsafe { *system };
    let Ok(bytes) = c_int::try_from(size_of::<LogFile>()) else { return false };
    // All other functions are the system's own; they use nothing of the VFS but the fields copied here.
    face.pNext = null_mut();
    face.zName = NAME.as_ptr();
    face.szOsFile += bytes;
    face.xOpen = Some(open);
    let vfs = Box::leak(Box::new(Vfs { face, system }));
    // SAFETY: leaked, so it lives as long as the process, and nobody else has a reference to it.
    unsafe { ffi::sqlite3_vfs_register(&raw mut vfs.face, 0) == ffi::SQLITE_OK }
}

/// The WAL file. SQLite allocates it, with space for the system's file behind it, and uses it from one thread at a
/// time: that of its connection.
#[repr(C)]
struct LogFile {
    /// The part that SQLite sees; first, so that a pointer to it is a pointer to the whole.
    face: ffi::sqlite3_file,
    /// Offset of the buffered bytes in the file.
    at: i64,
    gathered: Vec<u8>,
}

// The system's file stands right behind, and must be aligned there.
const _: () = assert!(
    size_of::<LogFile>().is_multiple_of(8) && offset_of!(LogFile, face) == 0 && offset_of!(Vfs, face) == 0
);

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    // Version 1: later versions add methods for the database file only.
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// Opens a file. Any file but the WAL is the system's from the first byte on: SQLite then calls the system's methods
/// directly.
///
/// # Safety
/// Called by SQLite: `vfs` is the registered one, `file` has the requested size and is aligned for pointers.
unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: it was registered as the first field of a `Vfs`.
    let system = unsafe { (*vfs.cast::<Vfs>()).system };
    // SAFETY: the system's VFS lives as long as the process.
    let Some(open) = (unsafe { (*system).xOpen }) else { return ffi::SQLITE_CANTOPEN };
    if flags & ffi::SQLITE_OPEN_WAL == 0 {
        // SAFETY: SQLite's guarantees for the arguments hold for any VFS, and there is space for more than this file.
        return unsafe { open(system, name, file, flags, out_flags) };
    }
    // SAFETY: there is space for a WAL file and the system's file behind it. Nothing of the earlier content is read.
    unsafe {
        let inner = inner(file);
        let opened = open(system, name, inner, flags, out_flags);
        // SQLite closes whatever has methods, opened well or not; a file that the system has not opened must not be
        // closed.
        let methods = if (*inner).pMethods.is_null() { null() } else { &raw const METHODS };
        let face = ffi::sqlite3_file { pMethods: methods };
        file.cast::<LogFile>().write(LogFile { face, at: 0, gathered: Vec::new() });
        opened
    }
}

/// The system's file behind this one.
///
/// # Safety
/// `file` is the first field of a `LogFile`, or space for one, that `open` was called with.
unsafe fn inner(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: this VFS requests that many bytes more than the system's file needs.
    unsafe { file.byte_add(size_of::<LogFile>()) }
}

/// Calls a method of the system's file.
macro_rules! system {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        // SAFETY: the caller got from SQLite a file that `open` has opened; the system's file stands behind it, with
        // the methods of the system's VFS, and the arguments are those of SQLite for the same method.
        unsafe {
            let inner = inner($file);
            match (*(*inner).pMethods).$method {
                Some(method) => method(inner $(, $argument)*),
                None => ffi::SQLITE_IOERR,
            }
        }
    }};
}

/// Writes the buffer. On failure the buffer is discarded: the commit that it belongs to fails with it.
///
/// # Safety
/// `file` was opened by `open`, and nobody else uses it now.
unsafe fn flush(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: it is the first field of a `LogFile` that `open` has written, used by this thread alone.
    let log = unsafe { &mut *file.cast::<LogFile>() };
    if log.gathered.is_empty() {
        return ffi::SQLITE_OK;
    }
    let bytes = c_int::try_from(log.gathered.len()).unwrap_or(c_int::MAX);
    let (from, at) = (log.gathered.as_ptr().cast::<c_void>(), log.at);
    let written = system!(file, xWrite, from, bytes, at);
    log.gathered.clear();
    written
}

/// Flushes, and returns from the method if that fails.
macro_rules! flush {
    ($file:expr) => {
        // SAFETY: SQLite passes a file that `open` has opened, and never the same one to two threads.
        match unsafe { flush($file) } {
            ffi::SQLITE_OK => {}
            failed => return failed,
        }
    };
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    bytes: c_int,
    at: i64,
) -> c_int {
    let Ok(count) = usize::try_from(bytes) else { return ffi::SQLITE_IOERR_WRITE };
    // SAFETY: SQLite passes a file that `open` has opened, and never the same one to two threads.
    let log = unsafe { &mut *file.cast::<LogFile>() };
    let end = log.at + log.gathered.len() as i64;
    if !log.gathered.is_empty() && (at != end || log.gathered.len() + count > GATHERED_MAX) {
        flush!(file);
    }
    if count > GATHERED_MAX {
        return system!(file, xWrite, from, bytes, at);
    }
    // SAFETY: as above; the earlier reference is not used any more.
    let log = unsafe { &mut *file.cast::<LogFile>() };
    if log.gathered.is_empty() {
        log.at = at;
    }
    // SAFETY: SQLite passes `bytes` readable bytes, which do not overlap the buffer.
    log.gathered.extend_from_slice(unsafe { std::slice::from_raw_parts(from.cast::<u8>(), count) });
    ffi::SQLITE_OK
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    flush!(file);
    system!(file, xSync, flags)
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, into: *mut c_void, bytes: c_int, at: i64) -> c_int {
    flush!(file);
    system!(file, xRead, into, bytes, at)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    flush!(file);
    system!(file, xTruncate, size)
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    flush!(file);
    system!(file, xFileSize, size)
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite passes a file that `open` has opened. Buffered bytes were not acknowledged to anybody, so nobody
    // misses what cannot be written any more.
    let _ = unsafe { flush(file) };
    let closed = system!(file, xClose);
    // SAFETY: `open` has written it, and SQLite does not use it afterwards: it is dropped once.
    unsafe { std::ptr::drop_in_place(file.cast::<LogFile>()) };
    closed
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    system!(file, xLock, level)
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    system!(file, xUnlock, level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, found: *mut c_int) -> c_int {
    system!(file, xCheckReservedLock, found)
}

unsafe extern "C" fn file_control(file: *mut ffi::sqlite3_file, what: c_int, argument: *mut c_void) -> c_int {
    flush!(file);
    system!(file, xFileControl, what, argument)
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    system!(file, xSectorSize)
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    system!(file, xDeviceCharacteristics)
}

#[cfg(test)]
mod tests {
    use rusqlite::{Connection, OpenFlags};

    use super::*;

    const TEXT: &str = "insert into notes (text) values (hex(randomblob(500)))";

    /// A writer through this VFS, and a reader through the system's.
    fn bed() -> (tempfile::TempDir, Connection, Connection) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let writer =
            Connection::open_with_flags_and_vfs(&path, OpenFlags::default(), vfs().expect("it is known"))
                .unwrap();
        writer
            .execute_batch(
                "pragma journal_mode = wal; pragma synchronous = full;
                 create table notes (id integer primary key, text text not null);",
            )
            .unwrap();
        let reader = Connection::open(&path).unwrap();
        (directory, writer, reader)
    }

    fn count(connection: &Connection) -> i64 {
        connection.query_row("select count(*) from notes", [], |row| row.get(0)).unwrap()
    }

    fn assert_whole(connection: &Connection) {
        let verdict: String = connection.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok");
    }

    fn write(writer: &Connection, rows: usize) {
        for _ in 0..rows {
            writer.execute(TEXT, []).unwrap();
        }
    }

    /// Number of writes that this thread has passed to the system.
    fn writes() -> u64 {
        let counters = std::fs::read_to_string("/proc/thread-self/io").expect("the system counts");
        let line = counters.lines().find_map(|line| line.strip_prefix("syscw: ")).expect("writes");
        line.parse().unwrap()
    }

    #[test]
    fn a_commit_of_many_pages_is_one_write() {
        let (_directory, writer, _reader) = bed();
        writer.execute_batch("begin immediate").unwrap();
        write(&writer, 60);
        let before = writes();
        writer.execute_batch("commit").unwrap();
        let made = writes() - before;
        assert!((1..=3).contains(&made), "{made} writes for one commit");
    }

    #[test]
    fn others_see_all_of_a_commit_at_once_and_nothing_before() {
        let (_directory, writer, reader) = bed();
        // So small that a transaction leaves pages in the log long before its end.
        writer.execute_batch("pragma cache_size = 5").unwrap();
        for round in 1..=5 {
            writer.execute_batch("begin immediate").unwrap();
            write(&writer, 400);
            writer.execute_batch("update notes set text = upper(text) || '.' where id % 7 = 0").unwrap();
            assert_eq!((count(&writer), count(&reader)), (400 * round, 400 * (round - 1)));
            writer.execute_batch("commit").unwrap();
            assert_eq!(count(&reader), 400 * round);
            assert_whole(&reader);
        }
    }

    #[test]
    fn a_rolled_back_transaction_leaves_nothing_in_the_wal() {
        let (directory, writer, reader) = bed();
        writer.execute_batch("pragma cache_size = 5").unwrap();
        for round in 0..5 {
            writer.execute_batch("begin immediate").unwrap();
            write(&writer, 300);
            writer.execute_batch("savepoint here").unwrap();
            write(&writer, 300);
            writer.execute_batch("rollback to here; release here").unwrap();
            writer.execute_batch(if round % 2 == 0 { "rollback" } else { "commit" }).unwrap();
            write(&writer, 1);
        }
        assert_eq!((count(&writer), count(&reader)), (605, 605));
        assert_whole(&reader);
        // As after a crash: the files as they are at this moment, opened by another connection.
        let copy = directory.path().join("copy.db");
        for ending in ["", "-wal"] {
            let from = directory.path().join(format!("store.db{ending}"));
            std::fs::copy(from, directory.path().join(format!("copy.db{ending}"))).unwrap();
        }
        let copy = Connection::open(copy).unwrap();
        assert_eq!(count(&copy), 605);
        assert_whole(&copy);
    }

    #[test]
    fn a_wal_that_is_checkpointed_and_restarted_continues() {
        let (_directory, writer, reader) = bed();
        for round in 1..=4 {
            write(&writer, 50);
            writer.query_row("pragma wal_checkpoint(restart)", [], |_| Ok(())).unwrap();
            assert_eq!(count(&reader), 50 * round);
        }
        drop(reader);
        assert_whole(&writer);
        writer.close().unwrap();
    }
}
