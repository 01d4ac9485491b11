// SPDX-License-Identifier: Apache-2.0
// hanging-disk MOUNT BACKING: a FUSE file system that shows BACKING at MOUNT.
// SIGUSR1: calls on it do not return. SIGHUP: it is read-only (Linux refuses a real
// read-only remount while files are open for writing). SIGUSR2: it works again.
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

namespace {

std::string backing;
std::mutex mutex;
std::condition_variable changed;
int disk_state = SIGUSR2;  // the newest signal; guarded by mutex

// Waits while the disk hangs. Returns the path below BACKING.
std::string backing_path(const char* path) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [] { return disk_state != SIGUSR1; });
  return backing + path;
}
void wait_while_it_hangs() { backing_path(""); }
bool read_only() {
  const std::lock_guard lock(mutex);
  return disk_state == SIGHUP;
}

int result(long value) { return value < 0 ? -errno : 0; }
int descriptor(const fuse_file_info* file) { return static_cast<int>(file->fh); }

int get_attributes(const char* path, struct stat* out, fuse_file_info*) {
  return result(lstat(backing_path(path).c_str(), out));
}
int read_link(const char* path, char* out, std::size_t size) {
  const ssize_t length = readlink(backing_path(path).c_str(), out, size - 1);
  if (length >= 0) out[length] = '\0';
  return result(length);
}
int make_directory(const char* path, mode_t mode) {
  if (read_only()) return -EROFS;
  return result(mkdir(backing_path(path).c_str(), mode));
}
int remove_file(const char* path) {
  if (read_only()) return -EROFS;
  return result(unlink(backing_path(path).c_str()));
}
int remove_directory(const char* path) {
  if (read_only()) return -EROFS;
  return result(rmdir(backing_path(path).c_str()));
}
int make_link(const char* target, const char* path) {
  if (read_only()) return -EROFS;
  return result(symlink(target, backing_path(path).c_str()));
}
int make_hard_link(const char* from, const char* to) {
  if (read_only()) return -EROFS;
  const std::string source = backing_path(from);
  return result(link(source.c_str(), backing_path(to).c_str()));
}
int rename_file(const char* from, const char* to, unsigned flags) {
  if (read_only()) return -EROFS;
  const std::string source = backing_path(from);
  return result(syscall(SYS_renameat2, AT_FDCWD, source.c_str(), AT_FDCWD, backing_path(to).c_str(), flags));
}
int change_mode(const char* path, mode_t mode, fuse_file_info*) {
  if (read_only()) return -EROFS;
  return result(chmod(backing_path(path).c_str(), mode));
}
int change_owner(const char* path, uid_t user, gid_t group, fuse_file_info*) {
  if (read_only()) return -EROFS;
  return result(lchown(backing_path(path).c_str(), user, group));
}
int change_size(const char* path, off_t size, fuse_file_info*) {
  if (read_only()) return -EROFS;
  return result(truncate(backing_path(path).c_str(), size));
}
int change_times(const char* path, const timespec* times, fuse_file_info*) {
  if (read_only()) return -EROFS;
  return result(utimensat(AT_FDCWD, backing_path(path).c_str(), times, AT_SYMLINK_NOFOLLOW));
}
int open_file(const char* path, fuse_file_info* file) {
  if ((file->flags & O_ACCMODE) != O_RDONLY && read_only()) return -EROFS;
  const int fd = open(backing_path(path).c_str(), file->flags & ~O_CREAT);
  file->fh = static_cast<std::uint64_t>(fd);
  return result(fd);
}
int create_file(const char* path, mode_t mode, fuse_file_info* file) {
  if (read_only()) return -EROFS;
  const int fd = open(backing_path(path).c_str(), file->flags | O_CREAT, mode);
  file->fh = static_cast<std::uint64_t>(fd);
  return result(fd);
}
int read_file(const char*, char* out, std::size_t size, off_t at, fuse_file_info* file) {
  wait_while_it_hangs();
  const ssize_t count = pread(descriptor(file), out, size, at);
  return count < 0 ? -errno : static_cast<int>(count);
}
int write_file(const char*, const char* in, std::size_t size, off_t at, fuse_file_info* file) {
  if (read_only()) return -EROFS;
  wait_while_it_hangs();
  const ssize_t count = pwrite(descriptor(file), in, size, at);
  return count < 0 ? -errno : static_cast<int>(count);
}
int file_system(const char* path, struct statvfs* out) {
  return result(statvfs(backing_path(path).c_str(), out));
}
int close_file(const char*, fuse_file_info* file) { return result(close(descriptor(file))); }
int sync_file(const char*, int, fuse_file_info* file) {
  wait_while_it_hangs();
  return result(fsync(descriptor(file)));
}
int list(const char* path, void* out, fuse_fill_dir_t fill, off_t, fuse_file_info*, fuse_readdir_flags) {
  DIR* directory = opendir(backing_path(path).c_str());
  if (directory == nullptr) return -errno;
  while (const dirent* entry = readdir(directory))
    fill(out, entry->d_name, nullptr, 0, fuse_fill_dir_flags{});
  closedir(directory);
  return 0;
}
void* begin(fuse_conn_info*, fuse_config* config) {
  config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;  // No caching.
  config->direct_io = 1;
  return nullptr;
}

fuse_operations operations() {
  fuse_operations made{};
  made.getattr = get_attributes;
  made.readlink = read_link;
  made.mkdir = make_directory;
  made.unlink = remove_file;
  made.rmdir = remove_directory;
  made.symlink = make_link;
  made.link = make_hard_link;
  made.rename = rename_file;
  made.chmod = change_mode;
  made.chown = change_owner;
  made.truncate = change_size;
  made.utimens = change_times;
  made.open = open_file;
  made.create = create_file;
  made.read = read_file;
  made.write = write_file;
  made.statfs = file_system;
  made.release = close_file;
  made.fsync = sync_file;
  made.readdir = list;
  made.init = begin;
  return made;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  backing = argv[2];
  umask(0);
  sigset_t switches;
  sigemptyset(&switches);
  sigaddset(&switches, SIGUSR1);
  sigaddset(&switches, SIGUSR2);
  sigaddset(&switches, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &switches, nullptr);
  std::thread([switches] {
    for (int number = 0; sigwait(&switches, &number) == 0;) {
      const std::lock_guard lock(mutex);
      disk_state = number;
      changed.notify_all();
    }
  }).detach();
  std::string name = argv[0], mount_point = argv[1], foreground = "-f", option = "-o",
              value = "allow_other,default_permissions";
  char* arguments[] = {name.data(),  foreground.data(),  option.data(),
                       value.data(), mount_point.data(), nullptr};
  const fuse_operations served = operations();
  return fuse_main(5, arguments, &served, nullptr);
}
