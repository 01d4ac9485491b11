// SPDX-License-Identifier: Apache-2.0
// ConfigFile reports each save once and complete, whichever way the file is saved.
#include <fcntl.h>
#include <unistd.h>

#include <thread>

#include "control/config/config_file.h"
#include "control/config/json_text.h"
#include "tests/control/config/scratch_directory.h"
#include "tests/support/catch.h"
#include "tests/support/scale.h"

namespace gradmon {
namespace {

using namespace testing;

// A text that holds its number twice. In a mix of two versions the two numbers differ.
std::string numbered_text(int n, int padding = 2000) {
  const auto digits = std::to_string(1'000'000 + n);
  return "{\"first\": " + digits + ", \"pad\": \"" + std::string(static_cast<std::size_t>(padding), 'x') +
         "\", \"last\": " + digits + "}\n";
}
int number_of(std::string_view text) {
  const auto first = value_at(text, "/first");
  const auto last = value_at(text, "/last");
  return first && last && *first == *last ? std::stoi(std::string(*first)) - 1'000'000 : -1;
}

std::string shell_quoted(const fs::path& path) { return "'" + path.string() + "'"; }

void run(const std::string& command) {
  const int status = std::system(command.c_str());
  if (status != 0) throw std::runtime_error(command);
}

void write_slowly(const fs::path& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  for (std::size_t at = 0; at < text.size(); at += 500) {
    const auto part = text.substr(at, 500);
    if (::write(fd, part.data(), part.size()) < 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(120));  // longer than the settle time of 100 ms
  }
  ::close(fd);
}

// Overwrites without truncation, in two halves. Between them the file is a mix of
// two versions.
void overwrite_in_halves(const fs::path& path, const std::string& text, std::chrono::milliseconds between) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  const auto half = text.size() / 2;
  if (::pwrite(fd, text.data(), half, 0) >= 0) {
    std::this_thread::sleep_for(between);
    if (::pwrite(fd, text.data() + half, text.size() - half, static_cast<off_t>(half)) < 0) std::abort();
  }
  if (::ftruncate(fd, static_cast<off_t>(text.size())) != 0) std::abort();
  ::close(fd);
}

struct SaveMethod {
  const char* name;
  std::function<void(const fs::path&, const std::string&)> save;
};

const std::vector<SaveMethod>& save_methods() {
  static const std::vector<SaveMethod> all{
      {"in place", [](const fs::path& path, const std::string& text) { save_in_place(path, text); }},
      {"slowly", write_slowly},
      {"overwritten",
       [](const fs::path& path, const std::string& text) {
         overwrite_in_halves(path, text, std::chrono::milliseconds(150));
       }},
      {"rename", [](const fs::path& path, const std::string& text) { save_by_rename(path, text); }},
      {"sed -i",
       [](const fs::path& path, const std::string& text) {
         const auto old = std::to_string(1'000'000 + number_of(read_text(path)));
         run("sed -i s/" + old + "/" + std::to_string(1'000'000 + number_of(text)) + "/g " +
             shell_quoted(path));
       }},
      {"backup and rename, as vim",
       [](const fs::path& path, const std::string& text) {
         fs::rename(path, path.string() + "~");
         save_in_place(path, text);
         fs::permissions(path, fs::perms(0644));
         fs::remove(path.string() + "~");
       }},
      {"cp",
       [](const fs::path& path, const std::string& text) {
         save_in_place(path.string() + ".other", text);
         run("cp " + shell_quoted(path.string() + ".other") + " " + shell_quoted(path));
       }},
      {"mv",
       [](const fs::path& path, const std::string& text) {
         save_in_place(path.string() + ".other", text);
         run("mv " + shell_quoted(path.string() + ".other") + " " + shell_quoted(path));
       }},
      {"removed and made again",
       [](const fs::path& path, const std::string& text) {
         fs::remove(path);
         save_in_place(path, text);
       }},
  };
  return all;
}

}  // namespace

TEST_CASE("each save is reported once and complete whichever way it is made") {
  ScratchDirectory directory;
  const auto path = directory / "config.json";
  save_in_place(path, numbered_text(0));
  make_old(path);
  ConfigFile file(path);
  REQUIRE(next_text(file) == numbered_text(0));
  int n = 0;
  for (int round = 0; round < (full_scale() ? 10 : 3); ++round) {
    for (const auto& method : save_methods()) {
      INFO(method.name);
      ++n;
      std::thread user([&] { method.save(path, numbered_text(n)); });
      const auto seen = next_text(file);
      user.join();
      CHECK(number_of(seen) == n);
      CHECK(seen == numbered_text(n));
    }
  }
}

TEST_CASE("a changed symbolic link is reported as a save") {
  ScratchDirectory directory;
  const auto path = directory / "config.json";
  save_in_place(directory / "a.json", numbered_text(1));
  save_in_place(directory / "b.json", numbered_text(2));
  make_old(directory / "a.json");
  make_old(directory / "b.json");
  fs::create_symlink("a.json", path);
  ConfigFile file(path);
  REQUIRE(next_text(file) == numbered_text(1));
  run("ln -sfn b.json " + shell_quoted(path));
  CHECK(next_text(file) == numbered_text(2));
  save_in_place(directory / "b.json", numbered_text(3));
  CHECK(next_text(file) == numbered_text(3));
  fs::create_symlink("a.json", directory / "link");
  fs::rename(directory / "link", path);
  CHECK(next_text(file) == numbered_text(1));
}

TEST_CASE("an update of a Kubernetes config map is reported as a save") {
  ScratchDirectory directory;
  const auto update = [&](int n) {
    const auto stamp = "..2026_0" + std::to_string(n);
    fs::create_directory(directory / stamp);
    save_in_place(directory / stamp / "config.json", numbered_text(n));
    fs::create_symlink(stamp, directory / "..data_tmp");
    fs::rename(directory / "..data_tmp", directory / "..data");
  };
  update(1);
  fs::create_symlink("..data/config.json", directory / "config.json");
  ConfigFile file(directory / "config.json");
  REQUIRE(next_text(file) == numbered_text(1));
  for (int n = 2; n < 6; ++n) {
    update(n);
    CHECK(next_text(file) == numbered_text(n));
    fs::remove_all(directory / ("..2026_0" + std::to_string(n - 1)));
  }
}

TEST_CASE("rapid mixed saves are never reported in part and the last one is reported") {
  ScratchDirectory directory;
  const auto path = directory / "config.json";
  save_in_place(path, numbered_text(0));
  ConfigFile file(path);
  const int last = full_scale() ? 10'000 : 500;
  std::thread user([&] {
    for (int n = 1; n <= last; ++n) {
      const auto text = numbered_text(n, n % 3 == 0 ? 2000 : 60'000);
      switch (n % 4) {
        case 0:
          save_by_rename(path, text);
          break;
        case 1:
          save_in_place(path, text);
          break;
        default:
          overwrite_in_halves(path, text, std::chrono::milliseconds(n % 50 == 2 ? 150 : 0));
      }
      if (n % 97 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(n % 300));  // let some settle
    }
  });
  int seen = -1;
  std::vector<std::string> broken;
  while (seen != last) {
    const auto text = next_text(file);
    const int n = number_of(text);
    if (n < 0 || n < seen) broken.push_back(text.substr(0, 200));
    if (text == "(nothing)") break;
    seen = n;
  }
  user.join();
  CHECK(seen == last);
  CHECK(broken == std::vector<std::string>{});
}

TEST_CASE("saves every millisecond are reported at most four times a second and at the end") {
  ScratchDirectory directory;
  const auto path = directory / "config.json";
  save_in_place(path, numbered_text(0));
  make_old(path);
  ConfigFile file(path);
  REQUIRE(next_text(file) == numbered_text(0));
  const auto start = std::chrono::steady_clock::now();
  std::thread user([&] {
    for (int n = 1; n <= 1000; ++n) {
      save_by_rename(path, numbered_text(n));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  int reports = 0;
  std::string text;
  for (; number_of(text) != 1000 && text != "(nothing)"; ++reports) text = next_text(file);
  user.join();
  CHECK(number_of(text) == 1000);
  const auto quarters = (std::chrono::steady_clock::now() - start) / std::chrono::milliseconds(250);
  CHECK(reports <= quarters + 2);
}

}  // namespace gradmon
