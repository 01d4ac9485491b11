// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/output/curve_directories.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <vector>

#include "control/files/make_directories.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEventFile = "events.out.tfevents.";

struct Move {
  fs::path from;
  fs::path to;
  bool replaces = false;  // exchanges both
};

tl::unexpected<std::string> failure(const fs::path& path, const std::error_code& error) {
  return tl::unexpected(path.string() + ": " + error.message());
}

tl::expected<std::vector<fs::path>, std::string> entries_of(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    entries.push_back(entry->path());
  if (error) return failure(directory, error);
  std::sort(entries.begin(), entries.end());
  return entries;
}

// The error: it is not a directory of event files alone.
tl::expected<void, std::string> may_be_replaced(const fs::path& directory) {
  std::error_code error;
  if (fs::symlink_status(directory, error).type() != fs::file_type::directory)
    return tl::unexpected(directory.string() + " is there already; expected a directory of event files");
  const auto entries = entries_of(directory);
  if (!entries) return tl::unexpected(entries.error());
  for (const fs::path& entry : *entries) {
    const bool file = fs::symlink_status(entry, error).type() == fs::file_type::regular;
    if (!file || entry.filename().string().rfind(kEventFile, 0) != 0)
      return tl::unexpected(entry.string() +
                            " is no event file; expected nothing else in a directory that is replaced");
  }
  return {};
}

tl::expected<std::vector<Move>, std::string> moves_between(const fs::path& from, const fs::path& to) {
  std::vector<Move> moves;
  const auto ranks = entries_of(from);
  if (!ranks) return tl::unexpected(ranks.error());
  for (const fs::path& rank : *ranks) {
    const auto kinds = entries_of(rank);
    if (!kinds) return tl::unexpected(kinds.error());
    for (const fs::path& kind : *kinds) {
      Move move{kind, to / rank.filename() / kind.filename()};
      std::error_code error;
      move.replaces = fs::exists(fs::symlink_status(move.to, error));
      if (move.replaces) {
        if (auto checked = may_be_replaced(move.to); !checked) return tl::unexpected(checked.error());
      }
      moves.push_back(std::move(move));
    }
  }
  return moves;
}

int rename_with(const fs::path& from, const fs::path& to, unsigned flags) {
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags);
}

// Some file systems cannot exchange: then moves the old one away first.
bool exchange(const fs::path& from, const fs::path& to) {
  if (rename_with(from, to, RENAME_EXCHANGE) == 0) return true;
  if (errno != EINVAL) return false;
  const fs::path aside = from.string() + ".old";
  if (::rename(to.c_str(), aside.c_str()) != 0) return false;
  const bool moved = ::rename(from.c_str(), to.c_str()) == 0;
  if (moved && ::rename(aside.c_str(), from.c_str()) == 0) return true;
  const int error = errno;
  if (moved) static_cast<void>(::rename(to.c_str(), from.c_str()));
  static_cast<void>(::rename(aside.c_str(), to.c_str()));
  errno = error;
  return false;
}

bool carry_out(const Move& move) {
  if (move.replaces) return exchange(move.from, move.to);
  if (rename_with(move.from, move.to, RENAME_NOREPLACE) == 0) return true;
  // Plain rename() never replaces a directory that has files.
  return errno == EINVAL && ::rename(move.from.c_str(), move.to.c_str()) == 0;
}

void undo(const Move& move) {
  if (move.replaces) {
    static_cast<void>(exchange(move.to, move.from));
  } else {
    static_cast<void>(::rename(move.to.c_str(), move.from.c_str()));
  }
}

}  // namespace

tl::expected<std::size_t, std::string> move_curve_directories(const fs::path& from, const fs::path& to) {
  const auto moves = moves_between(from, to);
  if (!moves) return tl::unexpected(moves.error());
  std::size_t done = 0;
  std::string error;
  for (const Move& move : *moves) {
    if (auto made = make_directories(move.to.parent_path()); !made) {
      error = made.error();
      break;
    }
    if (!carry_out(move)) {
      error = "cannot give " + move.from.string() + " the name " + move.to.string() + ": " +
              std::system_category().message(errno);
      break;
    }
    ++done;
  }
  if (done == moves->size())
    return static_cast<std::size_t>(
        std::count_if(moves->begin(), moves->end(), [](const Move& move) { return move.replaces; }));
  while (done > 0) undo((*moves)[--done]);
  for (const Move& move : *moves)
    ::rmdir(move.to.parent_path().c_str());  // if it was made here, and is empty
  return tl::unexpected(error);
}

}  // namespace gradmon
