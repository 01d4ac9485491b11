// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/listing.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

Listing animals(std::size_t count) {
  Listing listing;
  listing.noun = "animal";
  listing.before = "many animals of all kinds\n";
  listing.table = TextTable({"number", "<name"});
  for (std::size_t i = 1; i <= count; ++i) listing.table->add({std::to_string(i), "a tall giraffe"});
  listing.after = "\nzoo /z\n";
  return listing;
}

TEST_CASE("without a screen nothing is omitted") {
  CHECK(fit_to_screen({}, animals(2)) == full_text(animals(2)));
  CHECK(
      full_text(animals(2)) ==
      "many animals of all kinds\nnumber  name\n     1  a tall giraffe\n     2  a tall giraffe\n\nzoo /z\n");
}

TEST_CASE("on a large screen nothing is omitted") {
  CHECK(fit_to_screen(Screen{80, 7}, animals(2)) == full_text(animals(2)));
}

TEST_CASE("wide entries and wide prose are wrapped") {
  CHECK(fit_to_screen(Screen{13, 20}, animals(1)) ==
        "many animals\n  of all\n  kinds\nnumber\n    name\n     1\n    a tall\n      giraffe\n\nzoo /z\n");
  Listing lines{"line"};
  lines.entries = {"  a line of its own"};
  CHECK(fit_to_screen(Screen{12, 20}, lines) == "  a line of\n  its own\n");
  lines.entries = {"see /a/long/way/down"};
  CHECK(fit_to_screen(Screen{10, 20}, lines) == "see\n  /a/long\n/way/down\n");
}

TEST_CASE("a list longer than the screen tells the number of omitted entries") {
  CHECK(fit_to_screen(Screen{80, 8}, animals(9)) ==
        "many animals of all kinds\nnumber  name\n     1  a tall giraffe\n     2  a tall giraffe\n"
        "… and 7 more animals (--all shows all)\n\nzoo /z\n");
  Listing newest = animals(9);
  newest.keep = Listing::Keep::last;
  CHECK(fit_to_screen(Screen{80, 8}, newest) ==
        "many animals of all kinds\nnumber  name\n… and 7 more animals (--all shows all)\n"
        "     8  a tall giraffe\n     9  a tall giraffe\n\nzoo /z\n");
}

TEST_CASE("a screen with room for one line of the list shows the number of entries") {
  CHECK(fit_to_screen(Screen{80, 6}, animals(9)) ==
        "many animals of all kinds\nnumber  name\n… and 9 more animals (--all shows all)\n\nzoo /z\n");
}

TEST_CASE("prose longer than the screen is cut") {
  CHECK(fit_to_screen(Screen{80, 4}, animals(9)) ==
        "many animals of all kinds\nnumber  name\n… and 3 more lines (--all shows all)\n");
}

Listing ranks() {
  TextTable table({"rank", "<host", "<state", "records", "<note"});
  table.add({"0", "node-a", "collecting", "420", ""});
  table.add({"1", "节点-b", "absent", "-", "never connected, although it has been asked for a minute"});
  Listing listing{"rank"};
  listing.table = table;
  return listing;
}

TEST_CASE("columns that do not fit beside the others are below them, and no cell loses its end") {
  CHECK(fit_to_screen(Screen{60, 20}, ranks()) ==
        "rank  host    state       records  note\n"
        "   0  node-a  collecting      420\n"
        "   1  节点-b  absent            -  never connected, although\n"
        "                                     it has been asked for a\n"
        "                                     minute\n");
  CHECK(fit_to_screen(Screen{30, 20}, ranks()) ==
        "rank  host    state\n"
        "    records\n"
        "    note\n"
        "   0  node-a  collecting\n"
        "        420\n"
        "   1  节点-b  absent\n"
        "          -\n"
        "    never connected, although\n"
        "      it has been asked for a\n"
        "      minute\n");
}

TEST_CASE("an entry of several lines is shown whole or not at all") {
  const std::string titles = "rank  host    state       records  note\n";
  CHECK(fit_to_screen(Screen{60, 5}, ranks()) ==
        titles + "   0  node-a  collecting      420\n… and 1 more rank (--all shows all)\n");
  Listing newest = ranks();
  newest.keep = Listing::Keep::last;
  newest.table->add({"2", "node-c", "left", "7", ""});
  CHECK(fit_to_screen(Screen{60, 6}, newest) ==
        titles + "… and 2 more ranks (--all shows all)\n   2  node-c  left              7\n");
}

}  // namespace
}  // namespace gradmon
