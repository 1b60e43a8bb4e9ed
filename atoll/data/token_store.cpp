#include "atoll/data/token_store.h"

#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "atoll/base/bytes.h"
#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/data/document_table.h"
#include "atoll/data/store_files.h"

namespace atl::data {
namespace {

/// Calls `use` with the tokens as a span of their own type.
template <typename Use>
void with_tokens(TokenType type, std::span<const std::byte> bytes, const Use& use) {
  if (type == TokenType::kU16) {
    use(std::span(reinterpret_cast<const uint16_t*>(bytes.data()), bytes.size() / 2));
  } else {
    use(std::span(reinterpret_cast<const uint32_t*>(bytes.data()), bytes.size() / 4));
  }
}

MappedFile map_tokens(const std::filesystem::path& folder, const StoreInfo& info, Split split) {
  const std::filesystem::path path = folder / tokens_file_name(split);
  MappedFile file(path);
  const auto expected = static_cast<size_t>(info.split(split).num_tokens) * token_bytes(info.type);
  if (file.bytes().size() != expected) {
    throw InputError(fmt::format(
        "'{}' has {} bytes, but store.json promises {}: the file was {}; pack the data again",
        path.string(), file.bytes().size(), expected,
        file.bytes().size() < expected ? "truncated" : "written to"));
  }
  return file;
}

/// Throws unless every id in tokens [begin, end) is below the vocabulary.
void check_ids(const std::filesystem::path& folder, const StoreInfo& info, Split split,
               std::span<const std::byte> bytes, size_t begin, size_t end) {
  with_tokens(info.type, bytes, [&](auto tokens) {
    const auto largest = std::max_element(tokens.begin() + static_cast<ptrdiff_t>(begin),
                                          tokens.begin() + static_cast<ptrdiff_t>(end));
    if (begin == end || int64_t{*largest} < info.vocab_size) return;
    throw InputError(
        fmt::format("'{}' token {} is {}, but the vocabulary has {}: the file is damaged",
                    (folder / tokens_file_name(split)).string(), largest - tokens.begin(), *largest,
                    info.vocab_size));
  });
}

}  // namespace

std::string tokens_file_name(Split split) { return "tokens-" + split_name(split) + ".npy"; }
std::string documents_file_name(Split split) { return "tokens-" + split_name(split) + ".csv.gz"; }
size_t token_bytes(TokenType type) { return type == TokenType::kU16 ? 2 : 4; }

Split split_of(std::string_view text, double validation_share) {
  uint64_t bits = 0;
  const Digest digest = atl::sha256(as_byte_span(text));
  std::memcpy(&bits, digest.data(), sizeof(bits));
  // 53 bits, as many as a double holds: 1.0 is never reached.
  const double share = std::ldexp(static_cast<double>(bits >> 11), -53);
  return share < validation_share ? Split::kValidation : Split::kTrain;
}

TokenStore::TokenStore(std::filesystem::path folder, StoreInfo info, MappedFile train,
                       MappedFile validation)
    : folder_(std::move(folder)),
      info_(std::move(info)),
      train_(std::move(train)),
      validation_(std::move(validation)) {}

TokenStore TokenStore::open(const std::filesystem::path& folder) {
  const std::filesystem::path description = folder / kStoreFileName;
  if (std::filesystem::exists(folder / kMixtureFileName)) {
    throw InputError(
        fmt::format("'{}' is a mixture of token stores; name one of them here", folder.string()));
  }
  if (!std::filesystem::exists(description)) {
    throw InputError(
        fmt::format("'{}' is not a token store: it has no {}; make one with 'atoll data pack'",
                    folder.string(), kStoreFileName));
  }
  StoreInfo info = parse_store_info(read_file(description), description.string());
  MappedFile train = map_tokens(folder, info, Split::kTrain);
  MappedFile validation = map_tokens(folder, info, Split::kValidation);
  TokenStore store(folder, std::move(info), std::move(train), std::move(validation));

  constexpr size_t kSample = 4096;  // A cheap look at both ends; verify() reads everything.
  for (const Split split : kSplits) {
    const auto count = static_cast<size_t>(store.num_tokens(split));
    const std::span<const std::byte> bytes = store.bytes(split);
    check_ids(folder, store.info_, split, bytes, 0, std::min(kSample, count));
    check_ids(folder, store.info_, split, bytes, count - std::min(kSample, count), count);
    if (!std::filesystem::exists(folder / documents_file_name(split))) {
      throw InputError(
          fmt::format("'{}' is missing", (folder / documents_file_name(split)).string()));
    }
  }
  const std::string tokenizer = read_file(store.tokenizer_file());
  if (hex(sha256(as_byte_span(tokenizer))) != store.info_.tokenizer_sha256) {
    throw InputError(fmt::format("'{}' is not the tokenizer this store was packed with",
                                 store.tokenizer_file().string()));
  }
  return store;
}

void TokenStore::require_tokenizer(const tokenizer::Tokenizer& tokenizer) const {
  if (tokenizer.sha256() == info_.tokenizer_sha256) return;
  throw InputError(
      fmt::format("the token store '{}' was packed with another tokenizer (sha256 {}..., not "
                  "{}...): pack the data again or use the store's own '{}'",
                  folder_.string(), info_.tokenizer_sha256.substr(0, 12),
                  tokenizer.sha256().substr(0, 12), tokenizer_file().string()));
}

std::span<const std::byte> TokenStore::bytes(Split split) const {
  return (split == Split::kTrain ? train_ : validation_).bytes();
}

void TokenStore::will_read(Split split, int64_t begin, int64_t count) const {
  const auto all = bytes(split);
  const size_t size = info_.type == TokenType::kU16 ? sizeof(uint16_t) : sizeof(uint32_t);
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(all.data()) + static_cast<size_t>(begin) * size;
  const uintptr_t aligned = first / page * page;
  // A hint: where it cannot be taken nothing is lost.
  ::madvise(reinterpret_cast<void*>(aligned), first - aligned + static_cast<size_t>(count) * size,
            MADV_WILLNEED);
}

void TokenStore::read(Split split, int64_t begin, std::span<int64_t> ids) const {
  ATOLL_CHECK(begin >= 0 && begin + std::ssize(ids) <= num_tokens(split));
  const auto first = static_cast<size_t>(begin);
  check_ids(folder_, info_, split, bytes(split), first, first + ids.size());
  with_tokens(info_.type, bytes(split),
              [&](auto tokens) { std::copy_n(tokens.begin() + begin, ids.size(), ids.begin()); });
}

std::vector<Document> TokenStore::documents(Split split) const {
  std::vector<Document> documents;
  for_each_document(split, [&](const Document& document) { documents.push_back(document); });
  return documents;
}

void TokenStore::for_each_document(Split split,
                                   const std::function<void(const Document&)>& visit) const {
  const std::filesystem::path path = folder_ / documents_file_name(split);
  const SplitInfo& info = info_.split(split);
  DocumentReader rows(ByteSource(path), info.num_tokens);
  while (const auto document = rows.next()) visit(*document);
  if (rows.num_documents() != info.num_documents || rows.sha256() != info.documents_sha256) {
    throw InputError(
        fmt::format("'{}' is damaged: its SHA-256 is not store.json's", path.string()));
  }
}

void TokenStore::require_tokens_intact(Split split) const {
  if (hex(sha256(bytes(split))) == info_.split(split).tokens_sha256) return;
  throw InputError(fmt::format("'{}' is damaged: its SHA-256 is not store.json's",
                               (folder_ / tokens_file_name(split)).string()));
}

/// The bytes of the texts that the tokens were made from.
int64_t TokenStore::verify_documents(Split split, const tokenizer::Tokenizer& tokenizer) const {
  const std::string tokens = (folder_ / tokens_file_name(split)).string();
  int64_t text_bytes = 0;
  std::vector<int64_t> ids;
  for_each_document(split, [&](const Document& document) {
    ids.resize(static_cast<size_t>(document.end - document.begin));
    read(split, document.begin, ids);
    if (ids.back() != info_.end_of_text) {
      throw InputError(
          fmt::format("'{}': document '{}' does not end with end-of-text", tokens, document.id));
    }
    ids.pop_back();
    if (!tokenizer.keeps_text()) return;
    const std::string text = tokenizer.decode_part(ids);
    text_bytes += std::ssize(text);
    if (split_of(text, info_.validation_share) != split) {
      throw InputError(fmt::format(
          "'{}': document '{}' does not belong to this part at a validation share of {}", tokens,
          document.id, info_.validation_share));
    }
  });
  return text_bytes;
}

void TokenStore::verify() const {
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(tokenizer_file());
  const std::string description = (folder_ / kStoreFileName).string();
  if (tokenizer.end_of_text() != info_.end_of_text || tokenizer.vocab_size() != info_.vocab_size) {
    throw InputError(fmt::format(
        "'{}' was edited: its end_of_text is {} and its vocab_size {}, the tokenizer's {} and {}",
        description, info_.end_of_text, info_.vocab_size, tokenizer.end_of_text(),
        tokenizer.vocab_size()));
  }
  for (const Split split : kSplits) {
    const SplitInfo& info = info_.split(split);
    require_tokens_intact(split);
    const int64_t text_bytes = verify_documents(split, tokenizer);
    if (!tokenizer.keeps_text() || text_bytes == info.text_bytes) continue;
    throw InputError(fmt::format("'{}' was edited: {}.text_bytes is {}, and the documents have {}",
                                 description, split_name(split), info.text_bytes, text_bytes));
  }
}

}  // namespace atl::data
