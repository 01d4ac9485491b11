// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/convert/commands/conversion_request.h"
#include "tools/gradmonctl/parse/subcommand.h"

namespace gradmon {

// The parts shared by csv2tb and csv2db: options, choice of input, and the course of the conversion.
class CsvConversion : public SubcommandFor<ConversionRequest> {
 public:
  Arguments arguments() override { return conversion_arguments(request()); }
  std::string complete() override;
  int perform(const Console& console) override;

 protected:
  // Sets target, earlier and write() of the conversion. The tasks live until write() has returned. The error
  // is the reason why the output cannot be made there.
  virtual tl::expected<void, std::string> choose_output(const ConversionTasks& tasks,
                                                        Conversion& conversion) = 0;

 private:
  InputChoice input_;
};

}  // namespace gradmon
