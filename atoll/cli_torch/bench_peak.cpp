#include "atoll/cli_torch/bench_peak.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/fields_json.h"
#include "atoll/cli/whole_number.h"
#include "atoll/cli_torch/bench_device.h"
#include "atoll/model/matmul.h"
#include "atoll/plan/machine_report.h"

namespace atl::cli {
namespace {

struct PeakArguments {
  std::string device = "cpu";
  int64_t threads = 0;
  bool quick = false;
  bool json = false;
};

constexpr const char* kFooter = R"(
Products of matrices in FP32 and BF16, square ones and such as models of some sizes have, by
LibTorch's function and by Atoll's own choice; of each the best of five slices of time, and of all
shapes the best. The copy is of up to 1 GiB; bytes read and bytes written both count.

Example:
  atoll bench peak --threads 1 --json)";

/// out_MN = a_MK b_KN.
struct Shape {
  int64_t rows = 0;
  int64_t inner = 0;
  int64_t columns = 0;

  double operations() const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(inner) *
           static_cast<double>(columns);
  }
  std::string text() const { return fmt::format("{}x{}x{}", rows, inner, columns); }
};

/// A GPU is filled by larger ones.
std::vector<Shape> shapes_for(at::Device device) {
  if (device.is_cpu()) {
    return {{1024, 1024, 1024}, {2048, 2048, 2048}, {2048, 512, 2816}, {2048, 768, 4096}};
  }
  return {{4096, 4096, 4096}, {8192, 8192, 8192}, {16384, 2048, 8192}, {16384, 4096, 4096}};
}

/// How long `work` takes, in seconds: the best of five slices, each as many times as fill it.
double best_seconds(const std::function<void()>& work, at::Device device, double slice_s,
                    const Clock& clock) {
  const auto time = [&](int64_t count) {
    const Time begin = clock.now();
    for (int64_t i = 0; i < count; ++i) work();
    finish_work(device);
    return seconds(clock.now() - begin) / static_cast<double>(count);
  };
  time(1);  // Memory and kernels are new.
  double best = time(1);
  const auto count = static_cast<int64_t>(std::clamp(slice_s / std::max(best, 1e-9), 1.0, 1e5));
  for (int slice = 0; slice < 5; ++slice) best = std::min(best, time(count));
  return best;
}

class PeakMeasurement {
 public:
  explicit PeakMeasurement(const PeakArguments& arguments)
      : device_(numbered_device(arguments.device, "--device")),
        slice_s_(arguments.quick ? 0.03 : 0.2) {}

  plan::MachinePeak measure() {
    plan::MachinePeak peak{.device = device_.str(),
                           .threads = at::get_num_threads(),
                           .memory_bytes = memory_bytes(device_)};
    peak.products = {product("fp32", at::kFloat), product("bf16", at::kBFloat16)};
    peak.copy_bytes_per_s = copy();
    return peak;
  }

 private:
  plan::ProductPeak product(const std::string& precision, at::ScalarType type) {
    plan::ProductPeak peak{.precision = precision};
    for (const Shape& shape : shapes_for(device_)) {
      if (4 * shape.operations() / static_cast<double>(shape.inner) > memory_bytes(device_))
        continue;
      const auto options = at::TensorOptions().device(device_);
      const at::Tensor a_MK = at::randn({shape.rows, shape.inner}, options).to(type);
      // As a layer has it: (outputs, inputs).
      const at::Tensor b_KN = at::randn({shape.columns, shape.inner}, options).to(type).t();
      at::Tensor out_MN = at::empty({shape.rows, shape.columns}, options.dtype(type));
      const auto try_function = [&](const std::string& name, const std::function<void()>& work) {
        const double rate = shape.operations() / best_seconds(work, device_, slice_s_, clock_);
        peak.fastest[name] = std::max(peak.fastest[name], rate);
        if (rate <= peak.flops_per_s) return;
        peak.flops_per_s = rate;
        peak.by = name;
        peak.shape = shape.text();
      };
      try_function("libtorch", [&] { at::mm_out(out_MN, a_MK, b_KN); });
      try_function("atoll", [&] { model::matmul(out_MN, a_MK, b_KN); });
    }
    return peak;
  }

  double copy() {
    constexpr double kMost = 1 << 30;
    const double bytes = std::min(kMost, memory_bytes(device_) / 16);
    const auto num_floats = static_cast<int64_t>(bytes / sizeof(float));
    const auto options = at::TensorOptions().dtype(at::kFloat).device(device_);
    const at::Tensor from = at::ones({num_floats}, options);
    const at::Tensor to = at::empty_like(from);
    const double one_s = best_seconds([&] { to.copy_(from); }, device_, slice_s_, clock_);
    return 2 * static_cast<double>(num_floats) * sizeof(float) / one_s;
  }

  at::Device device_;
  double slice_s_;
  SystemClock clock_;
};

void bench_peak(const PeakArguments& arguments) {
  if (arguments.threads > 0) at::set_num_threads(static_cast<int>(arguments.threads));
  const plan::MachinePeak peak = PeakMeasurement(arguments).measure();
  if (arguments.json) {
    fmt::print("{}\n", json_of<nlohmann::ordered_json>(peak).dump());
  } else {
    fmt::print("{}", plan::peak_text(peak, ""));
  }
}

}  // namespace

void add_bench_peak(CLI::App& bench) {
  auto* command = bench.add_subcommand("peak", "Products of matrices and copies, without a model");
  const auto arguments = std::make_shared<PeakArguments>();
  command->add_option("--device", arguments->device, "cpu, cuda, cuda:1, ... (default: cpu)");
  command->add_option("--threads", arguments->threads, "CPU threads (default: all cores)")
      ->check(whole_number<int64_t>(1, 4096));
  command->add_flag("--quick", arguments->quick, "less exact, in a fifth of the time");
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->footer(kFooter);
  command->callback([arguments] { bench_peak(*arguments); });
}

}  // namespace atl::cli
