#pragma once
// What TensorBoard reads (it says event files): scalars by step. A file is a sequence of TFRecord
// frames
//   u64 length | u32 masked CRC-32C of the length | bytes | u32 masked CRC-32C of the bytes
// around protobuf messages of type tensorflow.Event. LibTorch-free. One owner thread.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace atl::run {

class TensorboardFile {
 public:
  /// Creates events.out.tfevents.<seconds>.atoll in `folder`.
  explicit TensorboardFile(const std::filesystem::path& folder);
  void add(int64_t step, const std::map<std::string, double>& scalars);

 private:
  void write_record(const std::string& bytes);

  std::ofstream out_;
};

}  // namespace atl::run
