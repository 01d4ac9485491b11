// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/tensorboard/text_event.h"

#include "control/debian_version.h"
#include "tests/writers/sinks/tensorboard/hex.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

TEST_CASE("the first record of a file has TensorBoard's version and the name of the writer") {
  CHECK(hex(file_version_record(1.5)) ==
        "2300000000000000b09f774309000000000000f83f1a0d627261696e2e4576656e743a3252090a0767726164"
        "6d6f6eb6bcb426");
}

TEST_CASE("a text is encoded as TensorBoard's own messages are") {
  CHECK(hex(text_record("config", "Revision 1\n\n    {}\n", Step{7}, 1.5)) ==
        "3c00000000000000c8b7a35209000000000000f83f10072a2f0a2d0a06636f6e66696742190807120042135265766973"
        "696f6e20310a0a202020207b7d0a4a080a060a0474657874b979ee25");
}

TEST_CASE("every line of a config is part of one block of code") {
  CHECK(config_markdown(Revision{3}, "{\n\n  \"a\": \"# b\"\n}") ==
        "Revision 3\n\n    {\n    \n      \"a\": \"# b\"\n    }\n");
  CHECK(config_markdown(Revision{3}, "{}\n") == "Revision 3\n\n    {}\n");
  CHECK(config_markdown(Revision{3}, "") == "Revision 3\n\n");
}
