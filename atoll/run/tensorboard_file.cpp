#include "atoll/run/tensorboard_file.h"

#include <fmt/format.h>

#include "atoll/base/bytes.h"
#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "tensorboard_event.pb.h"

namespace atl::run {
namespace {

/// CRC-32C (Castagnoli), bit by bit: a few hundred bytes per log line need no table, and Debian 12
/// packages no library for it.
uint32_t crc32c(const char* data, size_t size) {
  uint32_t crc = ~0U;
  for (size_t i = 0; i < size; ++i) {
    crc ^= static_cast<uint8_t>(data[i]);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
  }
  return ~crc;
}

/// TFRecord stores checksums rotated and offset, so that a checksum of checksums stays strong.
uint32_t masked_crc(const char* data, size_t size) {
  const uint32_t crc = crc32c(data, size);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

}  // namespace

TensorboardFile::TensorboardFile(const std::filesystem::path& folder) {
  const double now = wall_time();
  const auto path = folder / fmt::format("events.out.tfevents.{:.0f}.atoll", now * 1000);
  out_.open(path, std::ios::binary);
  if (!out_) throw InputError(fmt::format("cannot write '{}'", path.string()));
  tensorboard::Event event;
  event.set_wall_time(now);
  event.set_file_version("brain.Event:2");
  write_record(event.SerializeAsString());
}

void TensorboardFile::add(int64_t step, const std::map<std::string, double>& scalars) {
  tensorboard::Event event;
  event.set_wall_time(wall_time());
  event.set_step(step);
  for (const auto& [tag, value] : scalars) {
    auto* entry = event.mutable_summary()->add_value();
    entry->set_tag(tag);
    entry->set_simple_value(static_cast<float>(value));
  }
  write_record(event.SerializeAsString());
}

void TensorboardFile::write_record(const std::string& bytes) {
  const uint64_t size = bytes.size();
  const auto* size_bytes = reinterpret_cast<const char*>(&size);
  const Bytes record = ByteWriter()
                           .put(size)
                           .put(masked_crc(size_bytes, sizeof(size)))
                           .put_bytes(as_byte_span(bytes))
                           .put(masked_crc(bytes.data(), bytes.size()))
                           .take();
  out_.write(reinterpret_cast<const char*>(record.data()),
             static_cast<std::streamsize>(record.size()));
  out_.flush();
}

}  // namespace atl::run
