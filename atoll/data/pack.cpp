#include "atoll/data/pack.h"

#include <sched.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "atoll/base/interrupt.h"
#include "atoll/data/ordered_work.h"
#include "atoll/data/store_writer.h"

namespace atl::data {
namespace {

constexpr int64_t kBatchBytes = 512 << 10;
constexpr int64_t kBatchesPerThread = 3;

/// Records that are encoded together; their bytes, one behind the other, are `text`.
struct Batch {
  std::string text;
  std::vector<CorpusRecord> records;
  std::vector<size_t> ends;  // Of each record in `text`.
  int64_t bytes_done = 0;

  /// In memory: many records may be empty.
  int64_t num_bytes() const {
    return std::ssize(text) + std::ssize(records) * static_cast<int64_t>(sizeof(CorpusRecord) + 8);
  }
  void add(const CorpusRecord& record) {
    text += record.bytes;
    records.push_back(record);
    ends.push_back(text.size());
    bytes_done = record.bytes_done;
  }
};

struct EncodedBatch {
  std::vector<NewDocument> documents;
  std::vector<size_t> ends;  // Of each document in `ids`.
  std::vector<tokenizer::TokenId> ids;
  int64_t num_replaced = 0;
  int64_t num_without_token = 0;
  LeftOut left_out;
  int64_t bytes_done = 0;
};

using Work = OrderedWork<Batch, EncodedBatch>;

/// The cores that this process may use: fewer than the machine's in a Slurm job.
int64_t num_cores() {
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof(cores), &cores) == 0) return CPU_COUNT(&cores);
  return std::max<int64_t>(1, std::thread::hardware_concurrency());
}

void make_batches(const Corpus& corpus, const Shard& shard, const Work::Push& push) {
  struct Stop {};
  Batch batch;
  const auto push_batch = [&] {
    const int64_t size = batch.num_bytes();
    if (!push(std::exchange(batch, {}), size)) throw Stop();
  };
  try {
    corpus.for_each_record(shard, [&](const CorpusRecord& record) {
      batch.add(record);
      if (batch.num_bytes() >= kBatchBytes) push_batch();
    });
    if (!batch.records.empty()) push_batch();
  } catch (const Stop&) {  // The caller has failed, and wants no more.
  }
}

EncodedBatch encode(const Corpus& corpus, const tokenizer::Tokenizer& tokenizer,
                    double validation_share, tokenizer::Encoder& encoder, const Batch& batch) {
  EncodedBatch encoded{.bytes_done = batch.bytes_done};
  const int64_t before = encoder.num_without_token();
  const auto special = corpus.is_of_chats() ? tokenizer::SpecialText::kToken  // The template's.
                                            : tokenizer::SpecialText::kPlain;
  size_t begin = 0;
  for (size_t i = 0; i < batch.records.size(); ++i) {
    CorpusRecord record = batch.records[i];
    record.bytes = std::string_view(batch.text).substr(begin, batch.ends[i] - begin);
    begin = batch.ends[i];
    auto document = corpus.parse(record);
    if (!document) continue;
    if (!document->fault.empty()) {
      encoded.left_out.add(corpus.left_out(record, *document));
      continue;
    }
    encoded.num_replaced += document->num_replaced;
    encoder.encode(document->text, special, encoded.ids);
    encoded.ids.push_back(tokenizer.end_of_text());
    encoded.ends.push_back(encoded.ids.size());
    encoded.documents.push_back({.split = split_of(document->text, validation_share),
                                 .text_bytes = std::ssize(document->text),
                                 .id = std::move(document->id),
                                 .source = std::move(document->source),
                                 .location = document->location});
  }
  encoded.num_without_token = encoder.num_without_token() - before;
  return encoded;
}

}  // namespace

PackReport pack(const Corpus& corpus, const tokenizer::Tokenizer& tokenizer,
                const std::filesystem::path& target, const PackOptions& options,
                const std::function<void(const PackProgress&)>& progress) {
  const bool is_narrow = tokenizer.vocab_size() <= (1 << 16);
  const Shard shard = options.shard.value_or(Shard{});
  StoreInfo info{.type = is_narrow ? TokenType::kU16 : TokenType::kU32,
                 .validation_share = options.validation_share,
                 .sources = corpus.sources()};
  if (options.shard) {
    info.shard = ShardInfo{
        .index = shard.index, .count = shard.count, .corpus_sha256 = corpus.fingerprint()};
  }
  StoreWriter writer({.folder = target, .overwrite = options.overwrite}, tokenizer, info);
  const int64_t num_threads = options.num_threads > 0 ? options.num_threads : num_cores();
  Work work(
      num_threads, num_threads * kBatchesPerThread * kBatchBytes,
      [&](const Work::Push& push) { make_batches(corpus, shard, push); },
      [&]() -> Work::Worker {
        const auto encoder = std::make_shared<tokenizer::Encoder>(tokenizer);
        return [&, encoder](const Batch& batch) {
          return encode(corpus, tokenizer, options.validation_share, *encoder, batch);
        };
      });
  PackReport report{.num_threads = num_threads};
  PackProgress done;
  while (const auto batch = work.next()) {
    size_t begin = 0;
    for (size_t i = 0; i < batch->documents.size(); ++i) {
      writer.add(batch->documents[i], std::span(batch->ids).subspan(begin, batch->ends[i] - begin));
      begin = batch->ends[i];
    }
    report.num_replaced += batch->num_replaced;
    report.num_without_token += batch->num_without_token;
    for (const LeftOut::File& file : batch->left_out.files) report.left_out.add(file);
    done.bytes_done = batch->bytes_done;
    done.num_tokens += std::ssize(batch->ids);
    progress(done);
    throw_if_interrupted();  // The draft goes.
  }
  const bool is_empty = done.num_tokens == 0 && !options.shard;
  if (is_empty && !report.left_out.files.empty()) {
    throw InputError("nothing is left to pack: " + report.left_out.files.front().first_fault);
  }
  report.info = writer.finish();
  return report;
}

}  // namespace atl::data
