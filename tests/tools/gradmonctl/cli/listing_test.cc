// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/listing.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

Listing animals(std::size_t count) {
  Listing listing;
  listing.noun = "animal";
  listing.before = "many animals of all kinds\n";
  listing.titles = {"number  name"};
  for (std::size_t i = 1; i <= count; ++i) listing.entries.push_back(std::to_string(i) + "  a tall giraffe");
  listing.after = "\nzoo /z\n";
  return listing;
}

TEST_CASE("without a screen nothing is omitted") {
  CHECK(fit_to_screen({}, animals(2)) == full_text(animals(2)));
  CHECK(full_text(animals(2)) ==
        "many animals of all kinds\nnumber  name\n1  a tall giraffe\n2  a tall giraffe\n\nzoo /z\n");
}

TEST_CASE("on a large screen nothing is omitted") {
  CHECK(fit_to_screen(Screen{80, 7}, animals(2)) == full_text(animals(2)));
}

TEST_CASE("wide entries are cut and wide prose is wrapped") {
  CHECK(fit_to_screen(Screen{13, 20}, animals(1)) ==
        "many animals\n  of all\n  kinds\nnumber  name\n1  a tall gi…\n\nzoo /z\n");
  CHECK(folded_to_width("see /a/long/way/down", 10) == "see\n  /a/long\n/way/down\n");
}

TEST_CASE("a list longer than the screen tells the number of omitted entries") {
  CHECK(fit_to_screen(Screen{80, 8}, animals(9)) ==
        "many animals of all kinds\nnumber  name\n1  a tall giraffe\n2  a tall giraffe\n"
        "… and 7 more animals (--all shows all)\n\nzoo /z\n");
  Listing newest = animals(9);
  newest.keep = Listing::Keep::last;
  CHECK(fit_to_screen(Screen{80, 8}, newest) ==
        "many animals of all kinds\nnumber  name\n… and 7 more animals (--all shows all)\n"
        "8  a tall giraffe\n9  a tall giraffe\n\nzoo /z\n");
}

TEST_CASE("a screen with room for one line of the list shows the number of entries") {
  CHECK(fit_to_screen(Screen{80, 6}, animals(9)) ==
        "many animals of all kinds\nnumber  name\n… and 9 more animals (--all shows all)\n\nzoo /z\n");
}

TEST_CASE("prose longer than the screen is cut") {
  CHECK(fit_to_screen(Screen{80, 4}, animals(9)) ==
        "many animals of all kinds\nnumber  name\n… and 3 more lines (--all shows all)\n");
}

}  // namespace
}  // namespace gradmon
