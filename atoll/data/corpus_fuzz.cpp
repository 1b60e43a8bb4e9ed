// Files of strangers, as text and as lines of JSON: documents of valid UTF-8, or an InputError;
// with `strict` nothing is repaired. The shards of a file give its documents, each once.
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/data/corpus.h"
#include "atoll/text/utf8.h"

namespace atl::data {
namespace {

std::vector<std::string> texts_of(const Corpus& corpus, const Shard& shard) {
  std::vector<std::string> texts;
  corpus.for_each_record(shard, [&](const CorpusRecord& record) {
    const auto document = corpus.parse(record);
    if (!document) return;
    ATOLL_CHECK(!document->text.empty());
    ATOLL_CHECK(text::valid_utf8_prefix(document->text) == document->text.size());
    texts.push_back(document->text);
  });
  return texts;
}

void try_file(const std::filesystem::path& file, std::string_view contents) {
  std::ofstream(file, std::ios::binary) << contents;
  for (const bool strict : {false, true}) {
    try {
      const Corpus corpus({.inputs = {file.string()},
                           .document_bytes = 20,
                           .max_document_bytes = 400,
                           .strict = strict});
      const std::vector<std::string> whole = texts_of(corpus, {});
      std::vector<std::string> parts;
      for (int64_t i = 0; i < 3; ++i) {
        for (std::string& text : texts_of(corpus, {.index = i, .count = 3})) {
          parts.push_back(std::move(text));
        }
      }
      ATOLL_CHECK(parts == whole);
    } catch (const InputError&) {
    }
  }
}

}  // namespace
}  // namespace atl::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string name =
      (std::filesystem::temp_directory_path() / ("atoll-fuzz-" + std::to_string(::getpid())))
          .string();
  for (const char* end : {".txt", ".jsonl", ".jsonl.zst"}) {
    atl::data::try_file(name + end, text);
  }
  atl::data::try_file(name + ".jsonl", "{\"text\": \"" + std::string(text) + "\"}\n{\"text\": 1}");
  for (const char* end : {".txt", ".jsonl", ".jsonl.zst"}) std::filesystem::remove(name + end);
  return 0;
}
