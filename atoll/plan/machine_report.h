#pragma once
// What `atoll bench` found on a machine, and the table that people read of it. Pure.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/fields.h"
#include "atoll/swarm/link_measurement.h"

namespace atl::plan {

/// The fastest product of matrices in one type: the largest of some shapes.
struct ProductPeak {
  std::string precision;  // As train.precision has it: "fp32", "bf16".
  double flops_per_s = 0;
  std::string by;                         // Whose function was the fastest: "atoll", "libtorch".
  std::map<std::string, double> fastest;  // Of each function.
  std::string shape;                      // "2048x512x1408": rows, inner, columns.

  void visit(auto&& field) {
    field("precision", precision), field("flops_per_s", flops_per_s), field("by", by);
    field("fastest", fastest), field("shape", shape);
  }
};

/// What the half with LibTorch measures: the device without a model.
struct MachinePeak {
  std::string device;
  int64_t threads = 0;
  double memory_bytes = 0;      // Of the device, or the machine.
  double copy_bytes_per_s = 0;  // Read and written ones together, of one large copy.
  std::vector<ProductPeak> products;

  /// Null where that precision was not measured.
  const ProductPeak* product(const std::string& precision) const;
  void visit(auto&& field) {
    field("device", device), field("threads", threads), field("memory_bytes", memory_bytes);
    field("copy_bytes_per_s", copy_bytes_per_s), field("products", products);
  }
};

/// Whole training steps of one model.
struct MeasuredStep {
  std::string model;
  std::string precision;
  int64_t parameters = 0;
  int64_t rows = 0;
  int64_t sequence_length = 0;
  double tokens_per_s = 0;
  double step_ms = 0;
  double peak_memory_bytes = 0;     // Of the process, or what the device's allocator held.
  double operations_per_token = 0;  // token_operations().
  double share_of_peak = 0;         // Of the same precision's fastest product.
  std::string left_out;             // Why it was not measured; empty: it was.

  void visit(auto&& field) {
    field("model", model), field("precision", precision), field("parameters", parameters);
    field("rows", rows), field("sequence_length", sequence_length);
    field("tokens_per_s", tokens_per_s), field("step_ms", step_ms);
    field("peak_memory_bytes", peak_memory_bytes);
    field("operations_per_token", operations_per_token), field("share_of_peak", share_of_peak);
    field("left_out", left_out, NullWhenEmpty{});
  }
};

/// Frames of Atoll's transport between two ends in this machine: no line can be faster.
struct LoopbackRates {
  double plain_bytes_per_s = 0;
  double encrypted_bytes_per_s = 0;
  double round_trip_s = 0;  // Of a short frame, in the clear.

  void visit(auto&& field) {
    field("plain_bytes_per_s", plain_bytes_per_s);
    field("encrypted_bytes_per_s", encrypted_bytes_per_s), field("round_trip_s", round_trip_s);
  }
};

struct MachineReport {
  std::string name;  // Of the processor or the card; empty where the system does not say.
  MachinePeak peak;
  std::vector<MeasuredStep> steps;
  LoopbackRates loopback;
  std::optional<swarm::MeasuredLink> line;  // To a coordinator, where one was named.
};

/// Fills in what follows from the rest: `share_of_peak`.
void add_share(MeasuredStep& step, const MachinePeak& peak);

/// The device, its memory and products; `name` is the processor's or the card's, or empty.
std::string peak_text(const MachinePeak& peak, const std::string& name);
/// All of it. Both end with a line break.
std::string report_text(const MachineReport& report);

/// Of /proc/cpuinfo, or of what NVIDIA's driver says of a card ("Model:" ...): the value of the
/// first line of that key; empty where there is none.
std::string value_of_key(const std::string& text, const std::string& key);

}  // namespace atl::plan
