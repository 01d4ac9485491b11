// SPDX-License-Identifier: Apache-2.0
// SQLite's access to files, without memory that another process could take away, and with locks that report
// why they fail.
#pragma once

namespace gradmon {

// The name of a VFS for databases in a write-ahead log, made at the first call; null if this process may not
// use process_vm_readv(), as in some sandboxes. Any thread.
//
// A write-ahead log has an index that its users share: the file "-shm", mapped into each of them. If another
// process truncates that file, the next access to the mapping ends the process by SIGBUS. Under this VFS the
// index that SQLite works on is private memory. It is copied from and to the mapping where SQLite
// synchronises with other processes: at its locks and barriers. The copies are made by the kernel, which
// answers EFAULT where an access would be a SIGBUS. Then the lock fails with SQLITE_IOERR_SHMMAP, and stays
// so until the database is opened again: that rebuilds the index from the log. Other processes use the
// database as ever. With several connections to one file, each has an index of its own.
//
// Locks that fail four times in a row for another reason than another process's lock (EIO, ENOLCK, EACCES)
// are an error, SQLITE_IOERR_SHMLOCK or SQLITE_IOERR_LOCK, with its errno. SQLite's own VFS takes them for
// locks that are held, and tries again for up to 10 s.
//
// The rest is SQLite's own VFS. Set mmap_size to 0 for these databases: the file itself could be mapped too.
const char* unmapped_vfs();

}  // namespace gradmon
