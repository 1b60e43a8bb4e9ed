#include "atoll/data/store_writer.h"

#include <fmt/format.h>

#include <utility>

#include "atoll/base/bytes.h"
#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/data/document_table.h"
#include "atoll/data/draft_file.h"
#include "atoll/data/draft_folder.h"
#include "atoll/data/store_files.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;

/// One split while it is written.
class SplitWriter {
 public:
  SplitWriter(const fs::path& folder, Split split, TokenType type)
      : tokens_(folder / tokens_file_name(split)),
        table_(folder / documents_file_name(split)),
        type_(type) {}

  void add(const NewDocument& document, std::span<const tokenizer::TokenId> ids) {
    const int64_t begin = info_.num_tokens;
    info_.num_tokens += std::ssize(ids);
    info_.num_documents += 1;
    info_.text_bytes += document.text_bytes;
    table_.add({.begin = begin,
                .end = info_.num_tokens,
                .id = shortened(document.id),
                .source = shortened(document.source),
                .location = document.location});
    for (const tokenizer::TokenId id : ids) {
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
    info_.documents_sha256 = table_.finish();
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
  DocumentWriter table_;
  TokenType type_;
  ByteWriter buffer_;
  size_t buffered_ = 0;
  SplitInfo info_;
};

fs::path checked_target(fs::path target, bool overwrite) {
  target = without_slash(target);
  if (fs::is_symlink(target)) {  // The store is where the link leads; the link stays.
    std::error_code error;
    const fs::path real = fs::canonical(target, error);
    if (error) {
      throw UsageError(
          fmt::format("'{}' is a link that leads nowhere: {}; remove it or choose another name",
                      target.string(), error.message()));
    }
    target = real;
  }
  if (!fs::exists(target)) return target;
  if (!overwrite) {
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

struct StoreWriter::Draft {
  Draft(const fs::path& target, TokenType type)
      : folder(target),
        train(folder.path(), Split::kTrain, type),
        validation(folder.path(), Split::kValidation, type) {}
  DraftFolder folder;
  SplitWriter train;
  SplitWriter validation;
};

StoreWriter::StoreWriter(const StoreTarget& target, const tokenizer::Tokenizer& tokenizer,
                         StoreInfo info)
    : tokenizer_(tokenizer), info_(std::move(info)) {
  if (!(info_.validation_share >= 0 && info_.validation_share < 1)) {
    throw UsageError(
        fmt::format("the validation share must be in [0, 1), not {}", info_.validation_share));
  }
  info_.vocab_size = tokenizer.vocab_size();
  info_.tokenizer_sha256 = tokenizer.sha256();
  info_.end_of_text = tokenizer.end_of_text();
  target_ = checked_target(target.folder, target.overwrite);
  draft_ = naming(target_, [&] { return std::make_unique<Draft>(target_, info_.type); });
}

StoreWriter::~StoreWriter() = default;

void StoreWriter::add(const NewDocument& document, std::span<const tokenizer::TokenId> ids) {
  (document.split == Split::kTrain ? draft_->train : draft_->validation).add(document, ids);
}

void StoreWriter::append(const TokenStore& store,
                         const std::function<void(int64_t tokens_done)>& progress) {
  std::vector<int64_t> wide;
  std::vector<tokenizer::TokenId> ids;
  int64_t tokens_done = 0;
  for (const Split split : kSplits) {
    store.require_tokens_intact(split);
    int64_t text_bytes = store.info().split(split).text_bytes;
    store.for_each_document(split, [&](const Document& document) {
      wide.resize(static_cast<size_t>(document.end - document.begin));
      store.read(split, document.begin, wide);
      ids.assign(wide.begin(), wide.end());
      // A store knows the bytes of all its texts together: the first one brings them.
      add({.split = split,
           .text_bytes = std::exchange(text_bytes, 0),
           .id = document.id,
           .source = document.source,
           .location = document.location},
          ids);
      tokens_done += std::ssize(ids);
      progress(tokens_done);
      throw_if_interrupted();  // The draft goes.
    });
  }
}

StoreInfo StoreWriter::finish() {
  return naming(target_, [&] {
    info_.train = draft_->train.finish();
    info_.validation = draft_->validation.finish();
    if (info_.train.num_documents == 0 && !info_.shard) {
      throw InputError(
          info_.validation.num_documents == 0
              ? fmt::format("the corpus is empty: no text in '{}'", info_.sources.front())
              : "every document fell to validation: lower the validation share");
    }
    write_file_atomically(draft_->folder.path() / "tokenizer.json", tokenizer_.json());
    write_file_atomically(draft_->folder.path() / kStoreFileName, format_store_info(info_));
    throw_if_interrupted();
    draft_->folder.publish();
    return info_;
  });
}

}  // namespace atl::data
