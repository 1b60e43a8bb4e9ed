#include "atoll/data/megatron.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/data/draft_file.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr uint64_t kVersion = 1;
constexpr size_t kHeaderBytes = 34;
constexpr size_t kBufferBytes = size_t{1} << 20;

struct TypeCode {
  NumberType type;
  uint8_t code;
};
// 6 and 7 are floats, which one takes for which differs between Megatron's descendants.
constexpr std::array kTypeCodes = {
    TypeCode{NumberType::kU8, 1},  TypeCode{NumberType::kI8, 2},  TypeCode{NumberType::kI16, 3},
    TypeCode{NumberType::kI32, 4}, TypeCode{NumberType::kI64, 5}, TypeCode{NumberType::kU16, 8},
};

NumberType type_of(uint8_t code, const std::string& name) {
  for (const TypeCode& known : kTypeCodes) {
    if (known.code == code) return known.type;
  }
  throw InputError(fmt::format(
      "'{}' has tokens of the type {}; read are the whole numbers 1 to 5 and 8", name, code));
}

uint8_t code_of(NumberType type) {
  const auto* known = std::find_if(kTypeCodes.begin(), kTypeCodes.end(),
                                   [&](const TypeCode& entry) { return entry.type == type; });
  ATOLL_CHECK(known != kTypeCodes.end());
  return known->code;
}

/// Checks that the sequences tile the .bin; sums up their tokens.
void check_places(MegatronIndex& index, size_t bin_bytes, const std::string& name) {
  const auto item_bytes = static_cast<int64_t>(number_bytes(index.type));
  const auto end = static_cast<int64_t>(bin_bytes);
  int64_t place = 0;
  for (size_t i = 0; i < index.sizes.size(); ++i) {
    const int64_t size = index.sizes[i];
    const int64_t pointer = index.pointers[i];
    if (size < 0) throw InputError(fmt::format("'{}': sequence {} has size {}", name, i, size));
    if (pointer < 0 || pointer > end || size > (end - pointer) / item_bytes) {
      throw InputError(
          fmt::format("'{}': sequence {} has {} tokens from byte {} on, past the end of the .bin "
                      "with {} bytes: the files do not belong together or the .bin is truncated",
                      name, i, size, pointer, end));
    }
    if (pointer != place) {
      throw InputError(
          fmt::format("'{}': sequence {} begins at byte {}, not where the one before it ends, {}",
                      name, i, pointer, place));
    }
    place += size * item_bytes;
    index.num_tokens += size;
  }
  if (place != end) {
    throw InputError(fmt::format(
        "'{}' describes {} bytes of tokens, but the .bin has {}: the files do not belong together",
        name, place, end));
  }
}

void check_document_starts(const MegatronIndex& index, const std::string& name) {
  int64_t last = 0;
  for (size_t i = 0; i < index.document_starts.size(); ++i) {
    const int64_t start = index.document_starts[i];
    const bool in_order = i == 0 ? start == 0 : start >= last && start <= index.num_sequences();
    if (!in_order) {
      throw InputError(fmt::format(
          "'{}': doc_idx[{}] is {}; it must begin with 0 and ascend to at most the {} sequences",
          name, i, start, index.num_sequences()));
    }
    last = start;
  }
}

std::string without_ending(const fs::path& path) {
  const bool has_ending = path.extension() == ".idx" || path.extension() == ".bin";
  return has_ending ? fs::path(path).replace_extension().string() : path.string();
}

}  // namespace

bool MegatronIndex::is_one_to_one() const {
  if (num_documents() != num_sequences()) return false;
  for (size_t i = 0; i < document_starts.size(); ++i) {
    if (document_starts[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

MegatronIndex parse_megatron_index(std::span<const std::byte> idx, size_t bin_bytes,
                                   const std::string& name) {
  const std::span<const std::byte> magic = as_byte_span(kMagic);
  if (!std::equal(magic.begin(), magic.end(), idx.begin(),
                  idx.begin() + static_cast<ptrdiff_t>(std::min(idx.size(), magic.size())))) {
    throw InputError(fmt::format("'{}' is no Megatron index: it does not begin with MMIDIDX{}",
                                 name, idx.size() < magic.size() ? " (truncated)" : ""));
  }
  if (idx.size() < kHeaderBytes) throw InputError(fmt::format("'{}' is truncated", name));
  ByteReader reader(idx.subspan(magic.size()));
  const auto version = reader.get<uint64_t>();
  if (version != kVersion) {
    throw InputError(fmt::format("'{}' has version {}; read is version 1", name, version));
  }
  MegatronIndex index;
  index.type = type_of(reader.get<uint8_t>(), name);
  const auto num_sequences = reader.get<uint64_t>();
  const auto num_starts = reader.get<uint64_t>();
  const size_t rest = reader.remaining();
  // Bounded before they are multiplied.
  const bool fits = num_sequences <= rest / 12 && num_starts <= rest / 8;
  if (!fits || 12 * num_sequences + 8 * num_starts != rest) {
    throw InputError(
        fmt::format("'{}' promises {} sequences and {} entries of doc_idx, but {} bytes follow: it "
                    "was truncated or written to",
                    name, num_sequences, num_starts, rest));
  }
  if (num_starts == 0) throw InputError(fmt::format("'{}' has an empty doc_idx", name));
  index.sizes = PackedNumbers<int32_t>(reader.get_bytes(4 * num_sequences));
  index.pointers = PackedNumbers<int64_t>(reader.get_bytes(8 * num_sequences));
  index.document_starts = PackedNumbers<int64_t>(reader.get_bytes(8 * num_starts));
  check_places(index, bin_bytes, name);
  check_document_starts(index, name);
  return index;
}

MegatronStore::MegatronStore(std::string prefix, MappedFile idx, MappedFile bin)
    : prefix_(std::move(prefix)),
      idx_(std::move(idx)),
      bin_(std::move(bin)),
      index_(parse_megatron_index(idx_.bytes(), bin_.bytes().size(), idx_path().string())) {}

MegatronStore MegatronStore::open(const fs::path& path) {
  const std::string prefix = without_ending(path);
  return {prefix, MappedFile(prefix + ".idx"), MappedFile(prefix + ".bin")};
}

void MegatronStore::read(int64_t sequence, int64_t begin, std::span<int64_t> ids) const {
  ATOLL_CHECK(sequence >= 0 && sequence < index_.num_sequences());
  const auto at = static_cast<size_t>(sequence);
  ATOLL_CHECK(begin >= 0 && begin + std::ssize(ids) <= index_.sizes[at]);
  const auto pointer = static_cast<size_t>(index_.pointers[at]);
  with_numbers(index_.type, bin_.bytes().subspan(pointer), [&](const auto& tokens) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = tokens[static_cast<size_t>(begin) + i];
  });
}

void MegatronStore::require_ids_below(int64_t vocab_size) const {
  with_numbers(index_.type, bin_.bytes(), [&](const auto& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int64_t id = tokens[i];
      if (i % (size_t{1} << 24) == 0) throw_if_interrupted();
      if (id >= 0 && id < vocab_size) continue;
      throw InputError(
          fmt::format("'{}' token {} is {}, but the vocabulary has {}: it was made with another "
                      "tokenizer or is damaged",
                      bin_path().string(), i, id, vocab_size));
    }
  });
}

struct MegatronWriter::Draft {
  explicit Draft(const std::string& prefix) : bin(prefix + ".bin"), idx(prefix + ".idx") {}
  DraftFile bin;
  DraftFile idx;
  std::vector<int32_t> sizes;
  Bytes buffer;
};

MegatronWriter::MegatronWriter(const std::string& name, NumberType type, bool overwrite)
    : type_(type) {
  const std::string prefix = without_ending(name);
  if (fs::path(prefix).filename().empty()) {
    throw UsageError(fmt::format("'{}' names no files; give a name without .bin and .idx", name));
  }
  for (const char* ending : {".bin", ".idx"}) {
    if (overwrite || !fs::exists(prefix + ending)) continue;
    throw UsageError(fmt::format("'{}{}' already exists; choose another name or pass --overwrite",
                                 prefix, ending));
  }
  draft_ = std::make_unique<Draft>(prefix);
}

MegatronWriter::~MegatronWriter() = default;

void MegatronWriter::add(std::span<const int64_t> ids) {
  if (ids.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw InputError(fmt::format("document {} has {} tokens; Megatron's sizes end at 2^31 - 1",
                                 draft_->sizes.size(), ids.size()));
  }
  draft_->sizes.push_back(static_cast<int32_t>(ids.size()));
  with_numbers(type_, {}, [&](const auto& typed) {
    using Token = std::remove_cvref_t<decltype(typed[0])>;
    for (const int64_t id : ids) {
      const auto token = static_cast<Token>(id);
      if (int64_t{token} != id) {
        throw InputError(fmt::format("token {} of document {} does not fit {}", id,
                                     draft_->sizes.size() - 1, number_name(type_)));
      }
      const auto bytes = std::as_bytes(std::span(&token, 1));
      draft_->buffer.insert(draft_->buffer.end(), bytes.begin(), bytes.end());
    }
  });
  if (draft_->buffer.size() < kBufferBytes) return;
  draft_->bin.append(draft_->buffer);
  draft_->buffer.clear();
}

MegatronWriter::Hashes MegatronWriter::finish() {
  Draft& draft = *draft_;
  draft.bin.append(draft.buffer);
  const auto item_bytes = static_cast<int64_t>(number_bytes(type_));
  const auto num_documents = static_cast<int64_t>(draft.sizes.size());
  draft.idx.append(ByteWriter()
                       .put_bytes(as_byte_span(kMagic))
                       .put(kVersion)
                       .put(code_of(type_))
                       .put(static_cast<uint64_t>(num_documents))
                       .put(static_cast<uint64_t>(num_documents + 1))
                       .take());
  draft.idx.append(std::as_bytes(std::span(draft.sizes)));
  // Numbers of one kind, a block at a time.
  const auto put_all = [&](int64_t count, const auto& number) {
    std::vector<int64_t> block;
    for (int64_t i = 0; i < count; ++i) {
      block.push_back(number(i));
      if (block.size() * sizeof(int64_t) < kBufferBytes && i + 1 < count) continue;
      draft.idx.append(std::as_bytes(std::span(block)));
      block.clear();
    }
  };
  int64_t place = 0;
  put_all(num_documents, [&](int64_t i) {
    const int64_t begin = place;
    place += draft.sizes[static_cast<size_t>(i)] * item_bytes;
    return begin;
  });
  put_all(num_documents + 1, [](int64_t i) { return i; });
  const std::string bin_sha256 = draft.bin.publish();
  return {.idx_sha256 = draft.idx.publish(), .bin_sha256 = bin_sha256};
}

}  // namespace atl::data
