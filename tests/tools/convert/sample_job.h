// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "tests/support/temporary_directory.h"

namespace gradmon {

// The output directory of a job of gradmon with ranks 0 and 3, and of a job of msprobe, started on another
// day, with rank 0; both have step 1 of actv. 12 rows with 31 values, of which a conversion of all leaves out
// one row with two values.
class SampleJob {
 public:
  static constexpr const char* kRank0 = "Nov24_12-04-37-rank0-1a2b3c4d";
  static constexpr const char* kRank3 = "Nov24_12-04-37-rank3-1a2b3c4d";
  static constexpr const char* kMsprobe = "Dec03_21-34-40-rank0-5e6f";

  SampleJob() {
    const std::string tensor = ",\"[16, 8]\",torch.float32\n";
    const std::string head = "vpp_stage,name,step,";
    write(kRank0, "actv_0-0.csv",
          head + "micro_step,norm,nans,shape,dtype\n" + "0,fc1.input,0,0,6.5,0" + tensor +
              "0,fc1.input,0,1,7.25,0" + tensor + "1,\"a,b\",0,0,nan,3" + tensor + "0,fc1.input,1,0,9,0" +
              tensor);
    write(kRank0, "grad_reduced_0-99.csv",
          head + "min,max,mean,norm,nans,zeros,absmax,shape,dtype\n" +
              "0,layers.0.fc.weight,0,-0.5,1e-09,0.125,2.5,0,0.0,0.5" + tensor +
              "0,layers.0.fc.weight,7,-inf,inf,0.25,3.5,0,0.5,inf" + tensor);
    write(kRank0, "scalar_0-0.csv", "name,step,samples,value\nloss,0,16777217,2.75\n");
    write(kRank0, "other_0-0.csv",
          head + "mg_direction,norm,shape,dtype\n0,fc1.weight,0,0.75,,\"[16, 8]\",torch.float32\n" +
              "0,all_reduce.pre_0@a.py[3],0,,4.5,[8],torch.bfloat16\n");
    write(kRank0, "attention_hook_0-0.csv", head + "micro_step,entropy,softmax_max\n0,core,0,0,0.5,0.25\n");
    write(kRank3, "grad_reduced_0-99.csv", head + "norm,shape,dtype\n0,layers.0.fc.weight,0,9.5" + tensor);
    write(kMsprobe, "actv_0-0.csv",
          head + "micro_step,norm,max,shape,dtype\n0,fc2.input,1,0,1.5,True," +
              "torch.Size([4]),torch.float32\n0,fc2.output,1,0,nan,nan,nan,nan\n");
  }

  std::filesystem::path path() const { return output_.path(); }
  void write(const std::string& directory, const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(output_ / directory);
    write_text(output_ / directory / file, text);
  }

 private:
  TemporaryDirectory output_;
};

}  // namespace gradmon
