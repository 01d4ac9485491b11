// SPDX-License-Identifier: Apache-2.0
#include "tests/layout/layers.h"

#include "tests/layout/seeded_tree.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

LayerTable layer_table() { return parse_layers(read_file(GRADMON_SOURCE_DIR "/tests/layout/layers.txt")); }

std::vector<std::string> violations_of(const SourceTree& files) {
  const SeededTree seeded(files);
  return layer_violations(read_tree(seeded.root()), layer_table());
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("the table allows every include of this repository", "[layers]") {
  const auto tree = read_tree(GRADMON_SOURCE_DIR);
  CHECK(tree.count("control/log.cc") == 1);
  for (const auto& line : layer_violations(tree, layer_table())) FAIL_CHECK(line);
}

TEST_CASE("every room of the table is a folder and every library of it is used", "[layers]") {
  for (const auto& line : unused_lines(read_tree(GRADMON_SOURCE_DIR), layer_table())) FAIL_CHECK(line);
}

TEST_CASE("a room without a file and a library without a room are reported", "[layers]") {
  const SourceTree tree{{"control/a.cc", ""}, {"controls/b.cc", ""}};
  const LayerTable table = parse_layers("room control | used\nroom con |\nlibrary used u\nlibrary free f\n");
  CHECK(unused_lines(tree, table) ==
        Lines{"room con: no file of the tree lies in it", "library free: no room may include it"});
}

TEST_CASE("includes that follow the table are no violation", "[layers]") {
  CHECK(violations_of({{"control/hub/transport/bus.cc",
                        "#include \"control/hub/transport/bus.h\"\n#include <zmq.hpp>\n#include <vector>\n"
                        "#include <sys/stat.h>\n#include \"control/files/descriptor.h\"\n"},
                       {"hooks/a.cc", "#include \"writers/queue/record.h\"\n#include <ATen/core/Tensor.h>\n"},
                       {"tests/hooks/a_test.cc", "#include \"runtime/monitor.h\"\n"}})
            .empty());
}

TEST_CASE("an include against the direction is reported with file and line", "[layers]") {
  CHECK(violations_of({{"control/agree/a.cc", "\n  #  include \"control/hub/transport/bus.h\"\n"}}) ==
        Lines{"control/agree/a.cc:2: control/agree may not include control/hub/transport/bus.h"});
  CHECK(violations_of({{"writers/a.h", "#include \"control/config/config.h\"\n"}}) ==
        Lines{"writers/a.h:1: writers may not include control/config/config.h"});
  CHECK(violations_of({{"hooks/a.h", "#include \"writers/sinks/csv_sink.h\"\n"}}) ==
        Lines{"hooks/a.h:1: hooks may not include writers/sinks/csv_sink.h"});
  CHECK(violations_of({{"tools/gradmonctl/cli/a.cc", "#include \"runtime/monitor.h\"\n"}}).size() == 1);
}

TEST_CASE("the rank's side includes neither hub nor client and only the hub's transport ZeroMQ", "[layers]") {
  CHECK(violations_of({{"runtime/a.cc", "#include \"control/link/agent.h\"\n"}}).empty());
  for (const char* folder : {"runtime", "control/link", "control/host", "control/wire"}) {
    const std::string file = std::string(folder) + "/a.cc";
    CHECK(violations_of({{file, "#include \"control/hub/hub.h\"\n"}}).size() == 1);
    CHECK(violations_of({{file, "#include \"control/hub/transport/bus.h\"\n"}}).size() == 1);
    CHECK(violations_of({{file, "#include \"control/hub/transport/command_client.h\"\n"}}).size() == 1);
    CHECK(violations_of({{file, "#include <zmq.hpp>\n"}}).size() == 1);
  }
  CHECK(violations_of({{"control/host/a.cc", "#include \"control/wire/messages.h\"\n"}}).size() == 1);
  CHECK(violations_of({{"control/hub/transport/a.cc", "#include \"control/hub/hub.h\"\n"}}).size() == 1);
  CHECK(violations_of({{"control/hub/a.cc", "#include <zmq.hpp>\n"}}).size() == 1);
  CHECK(violations_of({{"control/hub/a.cc", "#include \"control/link/agent.h\"\n"}}).size() == 1);
}

TEST_CASE("a library outside its folder is a violation", "[layers]") {
  CHECK(violations_of({{"control/a.h", "#include <torch/torch.h>\n"}}) ==
        Lines{"control/a.h:1: control may not know torch (<torch/torch.h>)"});
  CHECK(violations_of({{"writers/a.cc", "#include <c10/core/Device.h>\n"}}).size() == 1);
  CHECK(violations_of({{"control/config/a.cc", "#include \"zmq.h\"\n"}}).size() == 1);
}

TEST_CASE("a library with a single user is refused to the rest of its folder", "[layers]") {
  CHECK(violations_of({{"control/config/json_text.cc", "#include <simdjson.h>\n"},
                       {"control/config/json_edit.cc", "#include <simdjson.h>\n"}}) ==
        Lines{"control/config/json_edit.cc:1: <simdjson.h>: simdjson is for "
              "control/config/json_text.cc only"});
}

TEST_CASE("the agreement includes no thread and no file and no socket and reads no clock", "[layers]") {
  CHECK(violations_of({{"control/agree/a.cc",
                        "#include <chrono>\n#include <thread>\n#include <fstream>\n#include <filesystem>\n"
                        "#include <sys/socket.h>\nauto t = std::chrono::steady_clock::now();\n"}}) ==
        Lines{"control/agree/a.cc:2: <thread> is banned in control/agree",
              "control/agree/a.cc:3: <fstream> is banned in control/agree",
              "control/agree/a.cc:4: <filesystem> is banned in control/agree",
              "control/agree/a.cc:5: control/agree may not know posix (<sys/socket.h>)",
              "control/agree/a.cc:6: `_clock::now` is not written in control/agree"});
}

TEST_CASE("an include or a folder that the table does not list is a violation", "[layers]") {
  CHECK(violations_of({{"writers/a.cc", "#include <boost/asio.hpp>\n"}}) ==
        Lines{"writers/a.cc:1: <boost/asio.hpp> is of a library that the table does not know"});
  CHECK(violations_of({{"writers/a.cc", "#include \"record.h\"\n"}}) ==
        Lines{"writers/a.cc:1: record.h is in no room: include paths begin at the repository root"});
  CHECK(violations_of({{"hooks/a.cc", "#include SOME_HEADER\n"}}) ==
        Lines{"hooks/a.cc:1: the table cannot see what SOME_HEADER includes"});
  CHECK(violations_of({{"tools/new/a.cc", ""}}) ==
        Lines{"tools/new/a.cc:1: its folder has no line in layers.txt"});
  CHECK_THROWS(parse_layers("rom control | spdlog\n"));
}

}  // namespace gradmon
