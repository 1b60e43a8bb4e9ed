#include "atoll/weights/part_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "atoll/base/descriptor.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"

namespace atl::weights {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest";

std::optional<std::string> text_of(const fs::path& path) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return std::nullopt;
  return read_file(path);
}

}  // namespace

std::optional<ModelManifest> PartStore::manifest_in(const fs::path& folder,
                                                    const std::string& digest) {
  const auto text = text_of(folder / kManifest);
  if (!text || digest_of(as_byte_span(*text)) != digest) return std::nullopt;
  return decode_manifest(as_byte_span(*text));
}

std::string PartStore::digest_in(const fs::path& folder) {
  return digest_of(as_byte_span(read_file(folder / kManifest)));
}

PartStore::PartStore(fs::path folder, ModelManifest manifest)
    : folder_(std::move(folder)),
      manifest_(std::move(manifest)),
      tensors_(tensors_by_part(manifest_.config)) {
  std::error_code failed;
  fs::create_directories(folder_, failed);
  if (failed) {
    throw InputError(fmt::format("cannot make '{}': {}", folder_.string(), failed.message()));
  }
  const Bytes encoded = encode(manifest_);
  const auto known = text_of(folder_ / kManifest);
  if (known != as_text(encoded)) write_file_atomically(folder_ / kManifest, as_text(encoded));
}

fs::path PartStore::file(int32_t part) const {
  const bool is_layer = part + 1 < manifest_.num_parts();
  return folder_ / (is_layer ? fmt::format("layer-{:05}", part) : "rest");
}

fs::path PartStore::unfinished(int32_t part) const { return file(part) += ".part"; }

uint64_t PartStore::num_bytes(int32_t part) const {
  return part_bytes(manifest_.tensors, tensors_.at(static_cast<size_t>(part)));
}

const std::vector<Digest>& PartStore::hashes(int32_t part) {
  std::vector<Digest>& hashes = hashes_[part];
  if (!hashes.empty()) return hashes;
  const auto text = text_of(file(part) += ".hashes");
  if (!text || text->size() != num_pieces(num_bytes(part)) * sizeof(Digest)) return hashes;
  hashes = digests_in(as_byte_span(*text));
  if (tree_digest(hashes) != manifest_.parts.at(static_cast<size_t>(part))) hashes.clear();
  return hashes;
}

void PartStore::keep_hashes(int32_t part, std::span<const std::byte> hashes) {
  write_file_atomically(file(part) += ".hashes", as_text(hashes));
  hashes_.erase(part);
}

std::shared_ptr<const ModelFiles> PartStore::files(std::span<const int32_t> parts) const {
  const auto mapped = std::make_shared<std::vector<MappedFile>>();
  std::vector<StoredTensor> tensors = manifest_.tensors;
  for (const int32_t part : parts) {
    std::span<const std::byte> rest = mapped->emplace_back(file(part)).bytes();
    if (rest.size() != num_bytes(part)) {
      throw InputError(fmt::format("'{}' has {} bytes, not {}", file(part).string(), rest.size(),
                                   num_bytes(part)));
    }
    for (const size_t index : tensors_[static_cast<size_t>(part)]) {
      const auto size = static_cast<size_t>(weights::num_bytes(tensors[index]));
      tensors[index].bytes = rest.first(size);
      rest = rest.subspan(size);
    }
  }
  return std::make_shared<const ModelFiles>(manifest_.config, std::move(tensors), mapped);
}

std::vector<uint32_t> PartStore::missing(int32_t part) {
  const std::vector<Digest>& known = hashes(part);
  const uint64_t size = num_bytes(part);
  std::error_code none;
  const bool is_finished = fs::exists(file(part), none);
  const Descriptor in(is_finished ? file(part) : unfinished(part), O_RDONLY);
  std::vector<uint32_t> missing;
  Bytes piece;
  for (uint32_t i = 0; i < known.size(); ++i) {
    piece.resize(piece_bytes(size, i));
    const auto offset = static_cast<off_t>(uint64_t{i} * kTreeChunkBytes);
    const ssize_t got = in.get() < 0 ? -1 : ::pread(in.get(), piece.data(), piece.size(), offset);
    if (got != std::ssize(piece) || sha256(piece) != known[i]) missing.push_back(i);
  }
  if (is_finished && fs::file_size(file(part), none) != size) {
    fs::resize_file(file(part), size, none);  // What lies behind its end is nobody's.
  }
  if (is_finished && !missing.empty()) fs::rename(file(part), unfinished(part), none);
  return missing;
}

void PartStore::write(int32_t part, uint32_t piece, std::span<const std::byte> bytes) {
  const fs::path path = unfinished(part);
  const Descriptor out(path, O_WRONLY | O_CREAT);
  if (out.get() < 0) fail_at("write", path);
  uint64_t offset = uint64_t{piece} * kTreeChunkBytes;
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(out.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_at("write", path);
    bytes = bytes.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
}

void PartStore::finish(int32_t part) {
  const fs::path path = unfinished(part);
  std::error_code failed;
  if (fs::exists(file(part), failed)) {
    fs::remove(path, failed);  // Of another process, which has begun when the part had its name.
    return;
  }
  const Descriptor whole(path, O_RDONLY);
  if (whole.get() < 0 || ::fsync(whole.get()) != 0) fail_at("sync", path);
  fs::resize_file(path, num_bytes(part), failed);
  if (!failed) fs::rename(path, file(part), failed);
  if (failed) {
    throw InputError(fmt::format("cannot rename '{}': {}", path.string(), failed.message()));
  }
  sync_folder(folder_);
}

}  // namespace atl::weights
