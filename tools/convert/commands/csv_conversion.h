// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/convert/commands/conversion_request.h"
#include "tools/gradmonctl/parse/subcommand.h"

namespace gradmon {

// What csv2tb and csv2db have in common: options, choice of input, and how the conversion goes.
class CsvConversion : public SubcommandFor<ConversionRequest> {
 public:
  Arguments arguments() override { return conversion_arguments(request()); }
  std::string complete() override;
  int perform(const Console& console) override;

 protected:
  // Sets target, earlier and write() of the conversion. The tasks live until write() has returned. The error
  // says why nothing can be made there.
  virtual tl::expected<void, std::string> choose_output(const ConversionTasks& tasks,
                                                        Conversion& conversion) = 0;

 private:
  InputChoice input_;
};

}  // namespace gradmon
