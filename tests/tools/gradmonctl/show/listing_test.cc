// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/show/listing.h"

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

TEST_CASE("without a screen a listing is whole") {
  CHECK(fit_to_screen({}, animals(2)) == full_text(animals(2)));
  CHECK(full_text(animals(2)) ==
        "many animals of all kinds\nnumber  name\n1  a tall giraffe\n2  a tall giraffe\n\nzoo /z\n");
}

TEST_CASE("on a screen that is large enough nothing is left out") {
  CHECK(fit_to_screen(Screen{80, 7}, animals(2)) == full_text(animals(2)));
}

TEST_CASE("entries are cut, prose goes on in the next line") {
  CHECK(fit_to_screen(Screen{13, 20}, animals(1)) ==
        "many animals\n  of all\n  kinds\nnumber  name\n1  a tall gi…\n\nzoo /z\n");
}

TEST_CASE("a list that is longer than the screen says how many more there are") {
  CHECK(fit_to_screen(Screen{80, 8}, animals(9)) ==
        "many animals of all kinds\nnumber  name\n1  a tall giraffe\n2  a tall giraffe\n"
        "… and 7 more animals (--all shows all)\n\nzoo /z\n");
  Listing newest = animals(9);
  newest.keep = Listing::Keep::last;
  CHECK(fit_to_screen(Screen{80, 8}, newest) ==
        "many animals of all kinds\nnumber  name\n… and 7 more animals (--all shows all)\n"
        "8  a tall giraffe\n9  a tall giraffe\n\nzoo /z\n");
}

TEST_CASE("where there is room for one line alone it counts the entries") {
  CHECK(fit_to_screen(Screen{80, 6}, animals(9)) ==
        "many animals of all kinds\nnumber  name\n… and 9 more animals (--all shows all)\n\nzoo /z\n");
}

TEST_CASE("prose that is longer than the screen is cut, too") {
  CHECK(fit_to_screen(Screen{80, 4}, animals(9)) ==
        "many animals of all kinds\nnumber  name\n… and 3 more lines (--all shows all)\n");
}

}  // namespace
}  // namespace gradmon
