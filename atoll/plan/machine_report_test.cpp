#include "atoll/plan/machine_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::plan {
namespace {

using testing::HasSubstr;
using testing::Not;

MachineReport report() {
  MachineReport report;
  report.name = "A Processor";
  report.peak = {.device = "cpu",
                 .threads = 2,
                 .memory_bytes = 25.2e9,
                 .copy_bytes_per_s = 12e9,
                 .products = {{.precision = "fp32",
                               .flops_per_s = 200e9,
                               .by = "atoll",
                               .fastest = {{"atoll", 200e9}, {"libtorch", 95e9}},
                               .shape = "1024x1024x1024"}}};
  report.steps = {{.model = "demo",
                   .precision = "fp32",
                   .parameters = 3'300'000,
                   .rows = 8,
                   .sequence_length = 256,
                   .tokens_per_s = 5000,
                   .step_ms = 409.6,
                   .peak_memory_bytes = 310e6,
                   .operations_per_token = 20e6}};
  report.loopback = {1.67e9, 0.74e9, 42e-6};
  return report;
}

TEST(MachineReport, TheShareIsOfTheSamePrecisionsPeak) {
  MachineReport found = report();
  add_share(found.steps[0], found.peak);
  EXPECT_DOUBLE_EQ(found.steps[0].share_of_peak, 0.5);  // 5,000 x 20 M of 200 G.
  MeasuredStep other = report().steps[0];
  other.precision = "bf16";
  add_share(other, found.peak);
  EXPECT_EQ(other.share_of_peak, 0);
}

TEST(MachineReport, TheTableHasEveryFigure) {
  MachineReport found = report();
  add_share(found.steps[0], found.peak);
  const std::string text = report_text(found);
  for (const char* figure :
       {"cpu (A Processor), 2 threads", "25.2 GB, copies 12.0 GB/s", "200 GFLOP/s",
        "libtorch 95 GFLOP/s", "loopback    1.7 GB/s, encrypted 740.0 MB/s, there and back 42 us",
        "not measured", "5000", "409.6", "50 %", "310.0 MB"}) {
    EXPECT_THAT(text, HasSubstr(figure));
  }
}

TEST(MachineReport, WhatWasLeftOutSaysWhy) {
  MachineReport found = report();
  found.steps[0].left_out = "needs 3 GB, there are 2 GB";
  const std::string text = report_text(found);
  EXPECT_THAT(text, HasSubstr("3.30M  needs 3 GB, there are 2 GB\n"));
  EXPECT_THAT(text, Not(HasSubstr("5000")));
}

TEST(MachineReport, ALineThatCarriesMoreSaysSo) {
  MachineReport found = report();
  found.line = swarm::MeasuredLink{20e6, 100e6, 0.0305, true};
  EXPECT_THAT(
      report_text(found),
      HasSubstr("line        up 20 Mbit/s, down 100 Mbit/s or more, there and back 30.5 ms"));
}

TEST(MachineReport, KeysOfTheSystemsFiles) {
  const std::string text = "model\t\t: 17\nmodel name\t: AMD EPYC 9V74\nmodel name\t: another\n";
  EXPECT_EQ(value_of_key(text, "model name"), "AMD EPYC 9V74");
  EXPECT_EQ(value_of_key(text, "model"), "17");
  EXPECT_EQ(value_of_key("Model: \t\t NVIDIA H200\n", "Model"), "NVIDIA H200");
  EXPECT_EQ(value_of_key("Model:\n", "Model"), "");
  EXPECT_EQ(value_of_key(text, "vendor"), "");
}

}  // namespace
}  // namespace atl::plan
