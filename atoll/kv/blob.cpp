#include "atoll/kv/blob.h"

#include <fmt/format.h>

#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/base/name.h"
#include "atoll/kv/exact_coder.h"

namespace atl::kv {
namespace {

constexpr uint32_t kMagic = 0x564b5441;
constexpr uint16_t kVersion = 1;
constexpr size_t kMaxModelName = 256;
// What a head can say that is no error by itself: whoever expects a blob has bounds of its own.
constexpr int32_t kMaxLayers = 1 << 16;
constexpr uint32_t kMaxChannels = 1 << 20;
constexpr uint32_t kMaxTokens = 1 << 20;
constexpr int64_t kMaxPosition = int64_t{1} << 40;

bool is_possible(const BlobHead& head) {
  return head.model.size() <= kMaxModelName && head.first_layer >= 0 &&
         head.end_layer > head.first_layer && head.end_layer <= kMaxLayers &&
         head.num_channels > 0 && head.num_channels <= kMaxChannels && head.begin >= 0 &&
         head.begin <= kMaxPosition && head.num_tokens > 0 && head.num_tokens <= kMaxTokens;
}

struct Opened {
  BlobHead head;
  uint64_t tables = 0;
  ByteReader body;
};

Opened open(std::span<const std::byte> blob) {
  if (blob.size() < sizeof(uint64_t)) throw InputError("it is cut short");
  const auto said = blob.first(blob.size() - sizeof(uint64_t));
  ByteReader in(said);
  if (in.get<uint32_t>() != kMagic) throw InputError("it does not begin as one");
  if (const auto version = in.get<uint16_t>(); version != kVersion) {
    throw InputError(
        fmt::format("it is of version {}, and this Atoll reads {}", version, kVersion));
  }
  if (ByteReader(blob.subspan(said.size())).get<uint64_t>() != xxh3(said.data(), said.size())) {
    throw InputError("its checksum is not that of its bytes");
  }
  BlobHead head;
  const auto level = in.get<uint8_t>();
  head.step = in.get<uint8_t>();
  if (level > static_cast<uint8_t>(Level::kTransform) || (level == 0 && head.step != 0)) {
    throw InputError(fmt::format("it is of level {}, which this Atoll does not know", level));
  }
  head.level = Level{level};
  head.model = in.get_string(kMaxModelName);
  head.first_layer = in.get<int32_t>();
  head.end_layer = in.get<int32_t>();
  head.num_channels = in.get<uint32_t>();
  head.begin = in.get<int64_t>();
  head.num_tokens = in.get<uint32_t>();
  const auto tables = in.get<uint64_t>();
  if (!is_possible(head)) throw InputError("it is of impossible layers, channels or tokens");
  return {std::move(head), tables, in};
}

std::string text_of(const BlobHead& head) {
  return fmt::format("level {}.{} of layers {}:{} of '{}', {} channels, tokens {} to {}",
                     static_cast<int>(head.level), head.step, head.first_layer, head.end_layer,
                     printable(head.model), head.num_channels, head.begin,
                     head.begin + head.num_tokens);
}

Bytes begun(const BlobHead& head, uint64_t tables) {
  ByteWriter writer;
  writer.put(kMagic).put(kVersion).put(head.level).put(head.step).put_string(head.model);
  writer.put(head.first_layer).put(head.end_layer).put(head.num_channels);
  writer.put(head.begin).put(head.num_tokens).put(tables);
  return writer.take();
}

void finish(Bytes& blob) {
  const uint64_t checksum = xxh3(blob.data(), blob.size());
  const auto bytes = std::as_bytes(std::span(&checksum, 1));
  blob.insert(blob.end(), bytes.begin(), bytes.end());
}

Opened open_expected(std::span<const std::byte> blob, const BlobHead& expected) {
  Opened opened = open(blob);
  if (opened.head != expected) {
    throw InputError(fmt::format("it is {}, and not {}", text_of(opened.head), text_of(expected)));
  }
  return opened;
}

template <typename F>
auto named(const F& read) {
  try {
    return read();
  } catch (const InputError& error) {
    throw InputError(fmt::format("a blob of keys and values: {}", error.what()));
  }
}

}  // namespace

ModelTables::ModelTables(std::span<const std::byte> bytes)
    : id_(bytes.empty() ? 0 : xxh3(bytes.data(), bytes.size())) {
  ByteReader in(bytes);
  while (in.remaining() > 0) tables_PC_.push_back(ValueTable::read(in));
}

std::span<const ValueTable> ModelTables::of(const BlobHead& head) const {
  if (tables_PC_.empty()) return {};
  const size_t begin = 2 * static_cast<size_t>(head.first_layer) * head.num_channels;
  const size_t count = head.num_planes() * head.num_channels;
  ATOLL_CHECK(begin + count <= tables_PC_.size(), "tables are of the model's layers");
  return std::span(tables_PC_).subspan(begin, count);
}

Bytes encode_blob(const BlobHead& head, std::span<const uint16_t> kv_PCT,
                  const ModelTables& tables) {
  ATOLL_CHECK(is_possible(head) && kv_PCT.size() == head.num_values());
  ATOLL_CHECK(head.level == Level::kExact && head.step == 0);
  Bytes blob = begun(head, tables.id());
  encode_exact(kv_PCT, head.num_planes(), head.num_channels, tables.of(head), blob);
  finish(blob);
  return blob;
}

Bytes encode_blob(const BlobHead& head, std::span<const uint16_t> kv_PCT, const Lossy& lossy,
                  ExactEnds ends) {
  ATOLL_CHECK(is_possible(head) && kv_PCT.size() == head.num_values());
  Bytes blob = begun(head, lossy.profile_id);
  encode_lossy(head, kv_PCT, lossy, ends, blob);
  finish(blob);
  return blob;
}

BlobHead read_blob_head(std::span<const std::byte> blob) {
  return named([&] { return open(blob).head; });
}

std::vector<uint16_t> decode_blob(std::span<const std::byte> blob, const BlobHead& expected,
                                  const ModelTables& tables) {
  return named([&] {
    Opened opened = open_expected(blob, expected);
    ATOLL_CHECK(expected.level == Level::kExact);
    if (opened.tables != 0 && opened.tables != tables.id()) {
      throw InputError("it was made with tables of the model that are not these");
    }
    // Each value has a byte at least: there is no memory for what is not there.
    if (opened.body.remaining() < expected.num_values()) throw InputError("it is too short");
    std::vector<uint16_t> kv_PCT(expected.num_values());
    decode_exact(opened.body, expected.num_planes(), expected.num_channels,
                 opened.tables == 0 ? std::span<const ValueTable>() : tables.of(expected), kv_PCT);
    opened.body.expect_end();
    return kv_PCT;
  });
}

std::vector<uint16_t> decode_blob(std::span<const std::byte> blob, const BlobHead& expected,
                                  const Lossy& lossy) {
  return named([&] {
    Opened opened = open_expected(blob, expected);
    if (opened.tables != lossy.profile_id) {
      throw InputError("it was made with another profile of the model than this one");
    }
    std::vector<uint16_t> kv_PCT(expected.num_values());
    decode_lossy(opened.body, expected, lossy, kv_PCT);
    opened.body.expect_end();
    return kv_PCT;
  });
}

}  // namespace atl::kv
