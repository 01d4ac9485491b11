// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <streambuf>
#include <string_view>

#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/console.h"
#include "tools/gradmonctl/commands/commands.h"

namespace {

// If a standard stream is closed, a socket could get its descriptor number.
void open_closed_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0) static_cast<void>(open("/dev/null", O_RDWR));
  }
}

bool clears_screen() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

// Replaces the buffer of std::cout while it exists, and notes why the first write failed: errno changes until
// the command ends.
class WatchedOutput : public std::streambuf {
 public:
  WatchedOutput() : buffer_(std::cout.rdbuf(this)) {}
  ~WatchedOutput() override { std::cout.rdbuf(buffer_); }
  WatchedOutput(const WatchedOutput&) = delete;
  WatchedOutput& operator=(const WatchedOutput&) = delete;

  int error() const { return error_; }  // an errno; 0: every write succeeded

 protected:
  int_type overflow(int_type character) override {
    if (traits_type::eq_int_type(character, traits_type::eof())) return traits_type::not_eof(character);
    const int_type put = buffer_->sputc(traits_type::to_char_type(character));
    note(!traits_type::eq_int_type(put, traits_type::eof()));
    return put;
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    const std::streamsize put = buffer_->sputn(text, size);
    note(put == size);
    return put;
  }
  int sync() override {
    const int synced = buffer_->pubsync();
    note(synced == 0);
    return synced;
  }

 private:
  void note(bool written) {
    if (!written && error_ == 0) error_ = errno;
  }

  std::streambuf* const buffer_;
  int error_ = 0;
};

// A closed pipe is no error; a full disk is.
int after_last_output(int code, const WatchedOutput& out) {
  if (std::cout.flush() || out.error() == EPIPE) return code;
  std::cerr << "gradmonctl: cannot write: " << std::strerror(out.error()) << '\n';
  return code == gradmon::kExitDone ? gradmon::kExitFailed : code;
}

}  // namespace

int main(int argc, char** argv) {
  open_closed_streams();
  signal(SIGPIPE, SIG_IGN);
  WatchedOutput out;
  const auto subcommand = gradmon::parse_command_line(gradmon::all_subcommands(), argc, argv);
  if (!subcommand) {
    const gradmon::ParseExit& nothing = subcommand.error();
    (nothing.code == gradmon::kExitDone ? std::cout : std::cerr) << nothing.text;
    return after_last_output(nothing.code, out);
  }
  const gradmon::Console console{std::cout, std::cerr, clears_screen(),
                                 gradmon::terminal_size(STDOUT_FILENO)};
  return after_last_output(subcommand->perform(console), out);
}
