// SPDX-License-Identifier: Apache-2.0
#include "hone/core/file/file_io.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "hone/core/check.h"
#include "hone/core/file/sha256.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMarker = ".hone-tmp-";
constexpr std::size_t kPendingBytes = std::size_t{1} << 20;
constexpr std::size_t kPartBytes = std::size_t{16} << 20;
constexpr int kMaxLinks = 40;  // the kernel's own limit

// The path as the user knows it: the temporary part of a name is removed.
std::string final_name(const fs::path& path) {
  fs::path name;
  for (const fs::path& part : path) {
    const std::string text = part.string();
    name /= text.substr(0, text.find(kMarker));
  }
  return name.string();
}

[[noreturn]] void fail_io(const fs::path& path, std::string_view action) {
  const std::string problem = std::strerror(errno);
  fail(ErrorCategory::Io, final_name(path), concat("Could not ", action, ": ", problem));
}

// "<name>.hone-tmp-<pid>-<n>": unique in the folder, and names the process that wrote it.
fs::path temporary_name(const fs::path& path) {
  static std::atomic<int> counter{0};
  fs::path name = path;
  name += concat(kMarker, static_cast<Index>(::getpid()), "-", counter++);
  return name;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

void sync_path(const fs::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
  if (descriptor < 0) fail_io(path, "open it to sync it");
  const int status = ::fsync(descriptor);
  ::close(descriptor);
  // Some file systems cannot sync a folder; how durable the rename is depends on them.
  if (status != 0 && errno != EINVAL) fail_io(path, "sync it");
}

void rename_synced(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_io(to, "rename the finished file into place");
  sync_path(folder_of(to), O_RDONLY | O_DIRECTORY);
}

// Returns false, with errno, if the name is in use or the file cannot have it.
bool rename_if_new(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;  // not every file system has it
  std::error_code error;
  if (!fs::exists(fs::symlink_status(to, error))) return ::rename(from.c_str(), to.c_str()) == 0;
  errno = EEXIST;
  return false;
}

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  return S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

// The file or folder that writing this name replaces: the target of a symbolic link, which need not
// exist yet.
fs::path follow_link(fs::path path) {
  std::error_code error;
  for (int link = 0; link < kMaxLinks && fs::is_symlink(path, error); ++link) {
    const fs::path target = fs::read_symlink(path, error);
    if (error) return path;
    // As the kernel does it: ".." leads out of what a linked folder is, not out of the link.
    const fs::path folder = fs::canonical(folder_of(path), error);
    if (error) return path;
    path = folder / target;  // an absolute target replaces the folder
    if (!path.has_filename()) path = path.parent_path();
  }
  if (fs::is_symlink(path, error)) {
    fail(ErrorCategory::Io, path.string(), "This symbolic link does not lead anywhere.");
  }
  return path;
}

bool is_within(const fs::path& inner, const fs::path& outer) {
  const auto [end, rest] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return end == outer.end() && rest != inner.end();
}

// Marks a temporary as in use until the descriptor is closed. Not every file system can.
void mark_in_use(int descriptor) { ::flock(descriptor, LOCK_EX | LOCK_NB); }

// A process of another container or machine has an id that means nothing here, but holds the lock.
bool is_in_use(const fs::path& path) {
  std::error_code ignored;
  const int flags = fs::is_directory(path, ignored) ? O_RDONLY | O_DIRECTORY : O_RDWR;
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return true;
  const bool locked = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  ::close(descriptor);
  return !locked;
}

bool is_stale(const fs::path& path) {
  const std::string file_name = path.filename().string();
  const auto at = file_name.rfind(kMarker);
  if (at == std::string::npos) return false;
  const long pid = std::strtol(file_name.c_str() + at + kMarker.size(), nullptr, 10);
  if (pid <= 0 || pid == ::getpid()) return false;
  const bool gone = ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
  return gone && !is_in_use(path);
}

// Devices such as /dev/zero never end; terminals and /dev/null do.
void reject_device(int descriptor, const fs::path& path) {
  struct stat status {};
  struct stat null {};
  if (::fstat(descriptor, &status) != 0) return;
  const bool device = S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode);
  const bool is_null = ::stat("/dev/null", &null) == 0 && status.st_rdev == null.st_rdev;
  if (!device || is_null || ::isatty(descriptor) == 1) return;
  ::close(descriptor);
  fail_corrupt(path.string(), "a file or a pipe", "a device");
}

}  // namespace

// Where ".." has led out of folders that do not exist, there may be links again.
fs::path output_target(const fs::path& path) {
  fs::path target = path.has_filename() ? path : path.parent_path();
  std::error_code error;
  for (int round = 0; round < kMaxLinks; ++round) {
    const fs::path followed = fs::absolute(follow_link(target), error);
    fs::path resolved = fs::weakly_canonical(followed, error);
    if (!resolved.has_filename() && resolved.has_relative_path()) resolved = resolved.parent_path();
    if (error || resolved == target) return followed;
    target = resolved;
  }
  return target;
}

AtomicFile::AtomicFile(const fs::path& path) : name_(path), path_(output_target(path)) {
  struct stat status {};
  if (!path.has_filename()) fail(ErrorCategory::Io, name_.string(), "a file", "a folder");
  if (::stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    fail(ErrorCategory::Io, name_.string(), "a file or a new name", kind_of(status.st_mode));
  }
  do {  // A killed run may have left this name: in a container, process ids repeat.
    temporary_ = temporary_name(path_);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) fail_io(name_, "create the file");
  mark_in_use(descriptor_);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  write(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

void AtomicFile::write(std::string_view text) {
  written_ += static_cast<Index>(text.size());
  if (pending_.size() + text.size() < kPendingBytes) {
    if (hash_ != nullptr) hash_->add(std::as_bytes(std::span(text)));
    pending_.append(text);
    return;
  }
  flush();
  for (; !text.empty(); text.remove_prefix(std::min(kPartBytes, text.size()))) {
    const std::string_view part = text.substr(0, kPartBytes);
    write_out(part);
    if (hash_ != nullptr) hash_->add(std::as_bytes(std::span(part)));
  }
}

void AtomicFile::flush() {
  write_out(pending_);
  pending_.clear();
}

// Has the kernel begin to store the bytes, so that commit() has less to wait for.
void AtomicFile::write_out(std::string_view text) {
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t count = ::write(descriptor_, left.data(), left.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_io(name_, concat("write ", left.size(), " bytes"));
    left.remove_prefix(static_cast<std::size_t>(count));
  }
  ::sync_file_range(descriptor_, 0, 0, SYNC_FILE_RANGE_WRITE);
}

void AtomicFile::commit() {
  flush();
  if (::fsync(descriptor_) != 0) fail_io(name_, "sync it");
  rename_synced(temporary_, path_);
  temporary_.clear();
  ::close(descriptor_);
  descriptor_ = -1;
}

AtomicFolder::AtomicFolder(const fs::path& path, Check check_in)
    : name_(path), path_(output_target(path)), check_(std::move(check_in)) {
  std::error_code error;
  check_output_spares_current(path);
  if (fs::exists(path_, error)) check(path_);
  fs::create_directories(folder_of(path_), error);
  int status = 0;
  do {
    staging_ = temporary_name(path_);
    status = ::mkdir(staging_.c_str(), 0755);
  } while (status != 0 && errno == EEXIST);
  if (status != 0) fail_io(name_, "create the folder");
  descriptor_ = ::open(staging_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ >= 0) mark_in_use(descriptor_);
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(staging_, ignored);
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AtomicFolder::commit() {
  std::error_code ignored;  // sync_path() below fails if the folder cannot be read
  for (const auto& entry : fs::recursive_directory_iterator(staging_, ignored)) {
    sync_path(entry.path(), entry.is_directory() ? O_RDONLY | O_DIRECTORY : O_RDONLY);
  }
  sync_path(staging_, O_RDONLY | O_DIRECTORY);
  if (rename_if_new(staging_, path_)) {
    sync_path(folder_of(path_), O_RDONLY | O_DIRECTORY);
  } else if (errno == EEXIST || errno == ENOTEMPTY) {
    replace();
  } else {
    fail_io(name_, "rename the finished folder into place");
  }
  committed_ = true;
}

// What is at `folder`, by which name the user does not know it.
void AtomicFolder::check(const fs::path& folder) const {
  std::error_code error;
  try {
    if (check_) check_(folder);
    if (!fs::is_directory(folder, error)) {
      fail(ErrorCategory::Io, folder.string(), "a folder or a new name", "an existing file");
    }
  } catch (const Error& refusal) {
    std::string message = refusal.what();
    const std::size_t at = message.find(folder.string());
    if (at != std::string::npos) message.replace(at, folder.string().size(), name_.string());
    throw Error(refusal.category(), message);
  }
}

// An atomic exchange, so that a folder of this name exists at every moment. staging_ then names the
// old one. It is checked again, because somebody may have changed it since the first check.
void AtomicFolder::replace() {
  const auto exchange = [this] {
    return ::renameat2(AT_FDCWD, staging_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0;
  };
  check(path_);
  if (!exchange()) fail_io(name_, "replace the folder");
  try {
    check(staging_);
    sync_path(folder_of(path_), O_RDONLY | O_DIRECTORY);
  } catch (...) {
    if (!exchange()) {  // rather a folder too many than one too few
      fs::path kept = path_;
      kept += ".kept";
      rename_if_new(staging_, kept);
      staging_.clear();
    }
    throw;
  }
  std::error_code ignored;
  fs::remove_all(staging_, ignored);
}

void check_output_spares_current(const fs::path& out) {
  std::error_code error;
  HONE_REQUIRE(!is_within(fs::current_path(error) / "", output_target(out)), out.string(),
               "The output must not be or contain the folder in which the program runs.");
}

void check_output_excludes(const fs::path& out, const fs::path& input) {
  std::error_code error;
  const fs::path to = output_target(out);
  if (input.empty() || !fs::exists(to, error) || !fs::exists(input, error)) return;
  const fs::path from = fs::canonical(input, error);
  const bool same = fs::equivalent(to, input, error);
  HONE_REQUIRE(!same, out.string(), "The output must not be the input.");
  HONE_REQUIRE(!is_within(from, to), out.string(),
               concat("The output must not contain the input ", input.string(), "."));
}

void check_output_spares(const fs::path& out, const fs::path& input) {
  check_output_excludes(out, input);
  std::error_code error;
  const fs::path to = output_target(out);
  if (!fs::exists(to, error) || !fs::is_directory(input, error)) return;
  check_output_outside(out, input);
  const fs::path from = fs::canonical(input, error);
  for (fs::recursive_directory_iterator entry(from, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code broken;
    if (!entry->is_symlink(broken)) continue;
    const fs::path target = fs::canonical(entry->path(), broken);
    HONE_REQUIRE(broken || !(target == to || is_within(target, to)), out.string(),
                 concat("The output must not contain the input ", entry->path().string(), "."));
  }
}

void check_output_outside(const fs::path& out, const fs::path& input) {
  std::error_code error;
  const fs::path from = fs::canonical(input, error);
  if (error || !fs::is_directory(from, error)) return;
  HONE_REQUIRE(!is_within(output_target(out) / "", from), out.string(),
               concat("The output must not lie within the input ", input.string(), "."));
}

void remove_stale_temporaries(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (is_stale(entry.path())) fs::remove_all(entry.path(), ignored);
  }
}

void fail_to_open(const fs::path& path) {
  const int problem = errno;
  const bool exhausted = problem == EMFILE || problem == ENFILE || problem == ENOMEM;
  fail(exhausted ? ErrorCategory::Resource : ErrorCategory::NotFound, path.string(),
       concat("Could not open the file: ", std::strerror(problem)));
}

int open_regular_file(const fs::path& path) {
  // O_NONBLOCK, because opening a pipe would wait for a writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail_to_open(path);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    fail_corrupt(path.string(), "a file", kind_of(status.st_mode));
  }
  return descriptor;
}

int open_text_stream(const fs::path& path) {
  // The shell's streams (/dev/stdin, /dev/fd/63, …) may be pipes.
  const bool stream = path.string().starts_with("/dev/") || path.string().starts_with("/proc/");
  const int descriptor =
      stream ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC) : open_regular_file(path);
  if (descriptor < 0) fail_to_open(path);
  reject_device(descriptor, path);
  return descriptor;
}

void rename_to_new(const fs::path& from, const fs::path& to) {
  if (!rename_if_new(from, to)) fail_io(to, "rename the finished file into place");
  sync_path(folder_of(to), O_RDONLY | O_DIRECTORY);
}

Index most_text_bytes() {
  return static_cast<Index>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE) / 4;
}

std::string read_text_file(const fs::path& path, Index max_bytes) {
  const int descriptor = open_text_stream(path);
  std::string text;
  std::string block(kPendingBytes, '\0');
  ssize_t count = 0;
  while ((count = ::read(descriptor, block.data(), block.size())) != 0) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 || static_cast<Index>(text.size()) + count > max_bytes) break;
    text.append(block, 0, static_cast<std::size_t>(count));
  }
  const int problem = count < 0 ? errno : 0;
  ::close(descriptor);
  if (problem == EISDIR) fail_corrupt(path.string(), "a file", "a folder");
  if (count < 0)
    fail(ErrorCategory::Io, path.string(),
         concat("Could not read the file: ", std::strerror(problem)));
  if (count > 0) fail_corrupt(path.string(), concat("at most ", max_bytes, " bytes"), "more");
  return text;
}

void write_text_file(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace hone
