// SPDX-License-Identifier: Apache-2.0

#include "control/config/config_schema.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

namespace gradmon {
namespace {

constexpr std::string_view kHead = R"(# The config file

One JSON object; every key is optional. Names and meanings are those of msprobe's
`monitor_config.json`, so a file written for msprobe works unchanged. This page is made from
the option tables in [config_schema.cc](config_schema.cc), and a test compares the two.
`gradmonctl schema --text` prints the same list, and `gradmonctl schema` a JSON Schema for editors.

- A change takes effect at one agreed step on every rank, unless the table says otherwise.
- An unknown key is a warning that names the nearest key. It is never an error. A key that begins with `//` is
  a comment, with any value: `"// ops": "five numbers of each tensor"`.
- `gradmonctl init` writes a file to begin with.
- A value of the wrong type or range is an error that names file, line, column, key, value and
  what was expected. At the first load, static mode refuses to start and dynamic mode stays off.
  At a later load nothing changes, and what is being collected goes on. Only an unknown name in `ops` is
  a warning: it is ignored, and `norm` is used if no valid one is left.

)";

// "|" separates the cells of a Markdown table.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped;
}

template <typename Part>
void append_table(std::string& page, const std::vector<Option<Part>>& options_of_part = options<Part>()) {
  page += "| key | value | default | meaning |\n| --- | --- | --- | --- |\n";
  for (const Option<Part>& option : options_of_part) {
    page += "| `" + std::string(option.name) + "` | " + cell(option.expected) + " | `" +
            cell(option.default_text) + "` | " + cell(option.meaning);
    if (option.reload == Reload::restart) page += "; a change takes effect at the next start";
    page += " |\n";
  }
}

template <typename Part>
void append_part(std::string& page, std::string_view title, std::string_view text) {
  page.append("\n## ").append(title).append("\n\n").append(text).append("\n\n");
  append_table<Part>(page);
}

std::string config_page() {
  std::string page(kHead);
  append_table<Config>(page);
  append_part<Config::Target>(
      page, "`targets`",
      "Each key is the name of a module or a parameter; a module covers all parameters below it. The value "
      "selects\ntensors of a module: `tuple[N]:i` is element i of a tuple of N elements, and i is 0 where it "
      "is left out.");
  append_part<Config::CcDistribution>(page, "`cc_distribution`", "Collective communication.");
  append_part<Config::L2Targets>(page, "`l2_targets`", "Modules for the L2 features.");
  append_part<Config::Alert>(page, "`alert`",
                             "Each rule is `{\"rule_name\": ..., \"args\": {...}}`. "
                             "[ALERTS.md](../../writers/alerts/ALERTS.md) has the formulas.");
  for (const AlertRuleSchema& rule : alert_rule_schemas()) {
    page += "\n### `" + std::string(name_of(rule.anomaly)) + "`: " + std::string(rule.meaning) + "\n\n";
    append_table(page, rule.args);
  }
  append_part<Config::OnAlert>(page, "`on_alert`",
                               "What happens when an alert fires on any rank. "
                               "[ALERTS.md](../../writers/alerts/ALERTS.md) describes both actions.");
  return page;
}

// If this fails: run it with GRADMON_WRITE_GOLDEN=1, and read the diff of CONFIG.md.
TEST_CASE("CONFIG.md matches the option tables") {
  CHECK(golden_difference("CONFIG.md", config_page()) == "");
}

}  // namespace
}  // namespace gradmon
