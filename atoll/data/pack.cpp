#include "atoll/data/pack.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "atoll/base/bytes.h"
#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/base/interrupt.h"
#include "atoll/data/document_table.h"
#include "atoll/data/store_files.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;

/// A file written from front to back, hashed on the way, synced at the end.
class HashedFile {
 public:
  explicit HashedFile(fs::path path)
      : path_(std::move(path)),
        descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) fail("write");
  }
  ~HashedFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  HashedFile(const HashedFile&) = delete;
  HashedFile& operator=(const HashedFile&) = delete;

  void append(std::span<const std::byte> bytes) {
    hash_.update(bytes);
    while (!bytes.empty()) {
      const ssize_t put = ::write(descriptor_, bytes.data(), bytes.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) fail("write");
      bytes = bytes.subspan(static_cast<size_t>(put));
    }
  }
  /// Syncs; returns the SHA-256 of the contents.
  std::string finish() {
    if (::fsync(descriptor_) != 0) fail("sync");
    return hex(hash_.finish());
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw InputError(fmt::format("cannot {} '{}': {}", what, path_.string(), std::strerror(errno)));
  }
  fs::path path_;
  int descriptor_;
  Sha256 hash_;
};

/// One split while it is written.
class SplitWriter {
 public:
  SplitWriter(const fs::path& folder, Split split, TokenType type)
      : tokens_(folder / tokens_file_name(split)),
        table_file_(folder / documents_file_name(split)),
        type_(type) {}

  void add(const CorpusDocument& document, std::span<const TokenId> ids) {
    const int64_t begin = info_.num_tokens;
    info_.num_tokens += std::ssize(ids);
    info_.num_documents += 1;
    info_.text_bytes += std::ssize(document.text);
    table_ += format_document({.begin = begin,
                               .end = info_.num_tokens,
                               .id = shortened(document.id),
                               .source = shortened(document.source),
                               .location = document.location});
    for (const TokenId id : ids) {
      if (type_ == TokenType::kU16) {
        buffer_.put(static_cast<uint16_t>(id));
      } else {
        buffer_.put(static_cast<uint32_t>(id));
      }
    }
    buffered_ += ids.size();
    if (buffered_ >= kBufferTokens) flush();
  }

  SplitInfo finish() {
    flush();
    info_.tokens_sha256 = tokens_.finish();
    info_.documents_sha256 = hex(Sha256().update(table_).finish());
    write_gzip(table_file_, table_);
    return info_;
  }

 private:
  static constexpr size_t kBufferTokens = size_t{1} << 20;

  /// Readers bound a row of the table (quotes may double it).
  static std::string shortened(const std::string& name) { return name.substr(0, 1024); }

  void flush() {
    tokens_.append(buffer_.take());
    buffer_ = {};
    buffered_ = 0;
  }

  HashedFile tokens_;
  fs::path table_file_;
  TokenType type_;
  std::string table_;
  ByteWriter buffer_;
  size_t buffered_ = 0;
  SplitInfo info_;
};

/// The folder under its temporary name; removed unless it was published.
class DraftFolder {
 public:
  explicit DraftFolder(const fs::path& target) : target_(target), draft_(target) {
    draft_ += ".tmp";
    fs::remove_all(draft_);
    fs::create_directories(draft_);
  }
  ~DraftFolder() {
    std::error_code ignored;
    if (!published_) fs::remove_all(draft_, ignored);
  }
  DraftFolder(const DraftFolder&) = delete;
  DraftFolder& operator=(const DraftFolder&) = delete;
  const fs::path& path() const { return draft_; }

  void publish() {
    sync_folder(draft_);
    fs::path old = target_;
    old += ".old";
    fs::remove_all(old);
    if (fs::exists(target_)) fs::rename(target_, old);
    fs::rename(draft_, target_);
    published_ = true;
    sync_folder(target_.has_parent_path() ? target_.parent_path() : fs::path("."));
    fs::remove_all(old);
  }

 private:
  fs::path target_;
  fs::path draft_;
  bool published_ = false;
};

fs::path checked_target(fs::path target, const PackOptions& options) {
  if (!(options.validation_share >= 0 && options.validation_share < 1)) {
    throw UsageError(
        fmt::format("the validation share must be in [0, 1), not {}", options.validation_share));
  }
  if (!target.has_filename()) target = target.parent_path();  // "store/" means "store".
  if (fs::is_symlink(target)) {  // The store is where the link leads; the link stays.
    std::error_code error;
    const fs::path real = fs::canonical(target, error);
    if (error) {
      throw UsageError(
          fmt::format("'{}' is a link that leads nowhere: {}; remove it or choose "
                      "another name",
                      target.string(), error.message()));
    }
    target = real;
  }
  if (!fs::exists(target)) return target;
  if (!options.overwrite) {
    throw UsageError(fmt::format("'{}' already exists; choose another name or pass --overwrite",
                                 target.string()));
  }
  if (!fs::exists(target / kStoreFileName)) {  // Never delete what we did not make.
    throw UsageError(
        fmt::format("'{}' is not a token store, so it is not overwritten", target.string()));
  }
  return target;
}

}  // namespace

PackReport pack(const Corpus& corpus, const Tokenizer& tokenizer, const fs::path& target_as_given,
                const PackOptions& options,
                const std::function<void(int64_t bytes_done)>& progress) {
  const fs::path target = checked_target(target_as_given, options);
  PackReport report;
  StoreInfo& info = report.info;
  info.vocab_size = tokenizer.vocab_size();
  info.type = info.vocab_size <= (1 << 16) ? TokenType::kU16 : TokenType::kU32;
  info.tokenizer_sha256 = tokenizer.sha256();
  info.end_of_text = tokenizer.end_of_text();
  info.validation_share = options.validation_share;
  info.sources = corpus.sources();

  try {
    DraftFolder draft(target);
    SplitWriter train(draft.path(), Split::kTrain, info.type);
    SplitWriter validation(draft.path(), Split::kValidation, info.type);
    Encoder encoder(tokenizer);
    std::vector<TokenId> ids;
    corpus.for_each([&](const CorpusDocument& document) {
      ids.clear();
      encoder.encode(document.text, SpecialText::kPlain, ids);
      ids.push_back(static_cast<TokenId>(info.end_of_text));
      const bool trains = split_of(document.text, options.validation_share) == Split::kTrain;
      (trains ? train : validation).add(document, ids);
      progress(corpus.bytes_done());
      throw_if_interrupted();  // The draft goes.
    });
    info.train = train.finish();
    info.validation = validation.finish();
    report.num_replaced = encoder.num_replaced();
    if (info.train.num_documents == 0) {
      throw InputError(
          info.validation.num_documents == 0
              ? fmt::format("the corpus is empty: no text in '{}'", corpus.sources().front())
              : "every document fell to validation: lower the validation share");
    }
    write_file_atomically(draft.path() / "tokenizer.json", tokenizer.json());
    write_file_atomically(draft.path() / kStoreFileName, format_store_info(info));
    throw_if_interrupted();
    draft.publish();
  } catch (const fs::filesystem_error& error) {
    throw InputError(fmt::format("cannot write '{}': {}", target.string(), error.code().message()));
  }
  return report;
}

}  // namespace atl::data
