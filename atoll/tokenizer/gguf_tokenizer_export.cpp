// tokenizer.json -> the values of a GGUF file. The format has few ways to say how text is prepared
// and cut, and none to say which of them is meant but a name: so each is tried.
#include "atoll/tokenizer/gguf_tokenizer_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "atoll/base/base64.h"
#include "atoll/base/bytes.h"
#include "atoll/base/error.h"
#include "atoll/tokenizer/chat_template.h"
#include "atoll/tokenizer/gguf_words.h"
#include "atoll/tokenizer/other_formats.h"
#include "atoll/tokenizer/same_ids.h"

namespace atl::tokenizer {
namespace {

using codec::GgufWriter;
using Json = nlohmann::json;

/// A way to say it.
struct Attempt {
  std::string name;
  std::function<void(GgufWriter&)> put;
};

class Exporter {
 public:
  Exporter(const Tokenizer& tokenizer, GgufIds ids, int64_t vocab_size)
      : tokenizer_(tokenizer),
        json_(Json::parse(tokenizer.json())),
        ids_(std::move(ids)),
        vocab_size_(vocab_size) {
    const std::vector<TokenId> around = tokenizer.with_special_tokens({0});
    if (around.size() == 2 && around[1] == 0) {
      ids_["bos"] = around[0];
      adds_begin_ = true;
    } else if (around.size() != 1) {
      refuse("puts other tokens around a text than one before it");
    }
    read_tokens();
  }

  std::string put(GgufWriter& file) {
    for (const Attempt& attempt : attempts()) {
      GgufWriter probe;
      attempt.put(probe);
      if (!is_faithful(probe.head())) continue;
      attempt.put(file);
      return attempt.name;
    }
    refuse("prepares text or cuts words as nothing that such files can say");
  }

 private:
  [[noreturn]] static void refuse(const std::string& what) {
    throw InputError(
        fmt::format("the tokenizer {}: it cannot be part of a GGUF file; write a folder", what));
  }

  const Json& model() const { return json_.at("model"); }

  void set(size_t id, const std::string& text, int type) {
    if (id >= static_cast<size_t>(vocab_size_)) {
      refuse(fmt::format("has more than the model's {} tokens", vocab_size_));
    }
    tokens_[id] = text;
    types_[id] = type;
  }

  /// Those that only the model has are named, and nothing makes them.
  void read_tokens() {
    tokens_.resize(static_cast<size_t>(vocab_size_));
    types_.resize(tokens_.size());
    const bool is_unigram = model().value("type", "BPE") == "Unigram";
    const bool has_bytes = model().value("byte_fallback", false);
    const auto type_of = [&](const std::string& text) {
      return has_bytes && text.size() == 6 && text.starts_with("<0x") ? kByte : kNormal;
    };
    size_t next = 0;
    for (const auto& [text, value] : model().at("vocab").items()) {
      const std::string& token = is_unigram ? value.at(0).get_ref<const std::string&>() : text;
      set(is_unigram ? next++ : value.get<size_t>(), token, type_of(token));
    }
    for (const Json& token : json_.value("added_tokens", Json::array())) {
      if (token.at("id").get<int64_t>() >= vocab_size_) continue;  // No text may have it: fits().
      set(token.at("id").get<size_t>(), token.at("content").get<std::string>(),
          token.value("special", false) ? kControl : kUserDefined);
    }
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (types_[id] != 0) continue;
      tokens_[id] = fmt::format("[PAD{}]", id);
      types_[id] = kUnused;
    }
  }

  std::vector<Attempt> attempts() {
    const bool is_unigram = model().value("type", "BPE") == "Unigram";
    const bool is_byte_level =
        json_.value("pre_tokenizer", Json()).dump().find("\"ByteLevel\"") != std::string::npos;
    std::vector<Attempt> all;
    if (is_byte_level) {
      for (const GgufWords& words : kGgufWords) {
        const auto* const first = std::ranges::find_if(
            kGgufWords, [&](const GgufWords& one) { return one.is_like(words); });
        if (first->name != words.name) continue;
        all.push_back({std::string(words.name),
                       [this, &words](GgufWriter& file) { put_byte_level(file, words.name); }});
      }
      return all;
    }
    name_unknown();
    for (const bool has_prefix : {true, false}) {
      for (const bool is_trimmed : {false, true}) {
        if (!is_unigram && is_trimmed) continue;
        all.push_back({is_unigram ? "t5" : "llama", [=, this](GgufWriter& file) {
                         put_pieces(file, is_unigram, has_prefix, is_trimmed);
                       }});
      }
    }
    return all;
  }

  void put_common(GgufWriter& file, std::string_view kind) const {
    file.text("tokenizer.ggml.model", kind);
    file.texts("tokenizer.ggml.tokens", tokens_);
    file.wholes("tokenizer.ggml.token_type", types_);
    for (const auto& [what, id] : ids_) {
      file.whole(fmt::format("tokenizer.ggml.{}_token_id", what), static_cast<uint32_t>(id));
    }
    file.flag("tokenizer.ggml.add_bos_token", adds_begin_);
  }

  /// "left right".
  std::vector<std::string> merges() const {
    std::vector<std::string> all;
    for (const Json& merge : model().value("merges", Json::array())) {
      all.push_back(merge.is_string()
                        ? merge.get<std::string>()
                        : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
    }
    return all;
  }

  void put_byte_level(GgufWriter& file, std::string_view words) const {
    put_common(file, "gpt2");
    file.text("tokenizer.ggml.pre", words);
    file.texts("tokenizer.ggml.merges", merges());
  }

  void put_pieces(GgufWriter& file, bool is_unigram, bool has_prefix, bool is_trimmed) const {
    put_common(file, is_unigram ? "t5" : "llama");
    if (!is_unigram) file.text("tokenizer.ggml.pre", "default");
    file.reals("tokenizer.ggml.scores", is_unigram ? unigram_scores() : merge_scores());
    file.flag("tokenizer.ggml.add_space_prefix", has_prefix);
    if (!is_unigram) return;
    file.flag("tokenizer.ggml.remove_extra_whitespaces", is_trimmed);
    if (const std::string table = table_of_characters(json_.value("normalizer", Json()));
        !table.empty()) {
      file.bytes("tokenizer.ggml.precompiled_charsmap", from_base64(table).value_or(""));
    }
  }

  void name_unknown() {
    std::optional<size_t> id;
    if (const Json& place = model().value("unk_id", Json()); place.is_number()) {
      id = place.get<size_t>();
    } else if (const Json& token = model().value("unk_token", Json()); token.is_string()) {
      const auto found = std::ranges::find(tokens_, token.get<std::string>());
      if (found != tokens_.end()) id = static_cast<size_t>(found - tokens_.begin());
    }
    if (!id || *id >= types_.size()) return;
    types_[*id] = kUnknown;
    ids_["unknown"] = static_cast<int64_t>(*id);
  }

  std::vector<float> unigram_scores() const {
    std::vector<float> scores(tokens_.size());
    size_t id = 0;
    for (const Json& piece : model().at("vocab")) scores[id++] = piece.at(1).get<float>();
    return scores;
  }

  /// What is made first has the higher one; what nothing makes has the lowest.
  std::vector<float> merge_scores() const {
    std::map<std::string, float> scores;
    for (const std::string& merge : merges()) {
      std::string token = merge;
      token.erase(token.find(' '), 1);
      scores.emplace(std::move(token), -static_cast<float>(scores.size()));
    }
    const float lowest = -static_cast<float>(scores.size());
    std::vector<float> all;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const auto found = scores.find(tokens_[id]);
      const bool is_made = found != scores.end();
      all.push_back(is_made ? found->second : types_[id] == kNormal ? lowest : 0);
    }
    return all;
  }

  static std::string table_of_characters(const Json& normalizer) {
    if (!normalizer.is_object()) return "";
    if (normalizer.value("type", "") == "Precompiled") {
      return normalizer.value("precompiled_charsmap", "");
    }
    for (const Json& one : normalizer.value("normalizers", Json::array())) {
      if (const std::string found = table_of_characters(one); !found.empty()) return found;
    }
    return "";
  }

  /// Whether the file, read again, gives the same ids.
  bool is_faithful(const std::string& bytes) const {
    try {
      const codec::GgufFile file(as_byte_span(bytes), "the file to be written");
      const Tokenizer again = Tokenizer::from_json(json_of_gguf(file), file.path().string());
      return give_same_ids(tokenizer_, again, vocab_size_);
    } catch (const InputError&) {
      return false;
    }
  }

  // Of a token, as the format numbers it.
  enum Type { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

  const Tokenizer& tokenizer_;
  Json json_;
  GgufIds ids_;
  int64_t vocab_size_;
  bool adds_begin_ = false;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
};

}  // namespace

GgufIds gguf_ids(const std::filesystem::path& model, const Tokenizer* tokenizer, int64_t begin,
                 const std::vector<int64_t>& ends, int64_t padding) {
  GgufIds ids;
  const auto put = [&](const char* what, int64_t id) {
    if (id >= 0) ids.emplace(what, id);  // The first one stays.
  };
  const nlohmann::ordered_json named = special_tokens_of(model);
  const auto put_named = [&](const char* what, const char* key) {
    if (tokenizer == nullptr || !named.contains(key)) return;
    put(what, tokenizer->id_of(named[key].get<std::string>()).value_or(-1));
  };
  put_named("bos", "bos_token");
  put_named("eos", "eos_token");
  put_named("unknown", "unk_token");
  put_named("padding", "pad_token");
  put("bos", begin);
  put("padding", padding);
  // What ends a text, a turn, a message: there is room for three.
  for (const int64_t end : ends) {
    const auto is_it = [&](const auto& entry) {
      return entry.first.starts_with("eo") && entry.second == end;
    };
    if (std::ranges::any_of(ids, is_it)) continue;
    const char* const free = !ids.contains("eos") ? "eos" : !ids.contains("eot") ? "eot" : "eom";
    put(free, end);
  }
  return ids;
}

std::string put_gguf_tokenizer(GgufWriter& file, const Tokenizer& tokenizer, GgufIds ids,
                               int64_t vocab_size) {
  try {
    return Exporter(tokenizer, std::move(ids), vocab_size).put(file);
  } catch (const Json::exception&) {
    throw InputError(
        "the tokenizer's model is of a kind that cannot be part of a GGUF file; write a folder");
  }
}

void put_no_gguf_tokenizer(GgufWriter& file, const GgufIds& ids) {
  file.text("tokenizer.ggml.model", "none");
  for (const auto& [what, id] : ids) {
    file.whole(fmt::format("tokenizer.ggml.{}_token_id", what), static_cast<uint32_t>(id));
  }
}

void put_gguf_template(GgufWriter& file, const std::filesystem::path& model) {
  const auto sources = template_sources_of(model);
  if (sources.empty()) return;
  file.text("tokenizer.chat_template", sources.at("default").text);
  const auto other = sources.find("tool_use");
  if (other == sources.end()) return;
  file.texts("tokenizer.chat_templates", {"tool_use"});
  file.text("tokenizer.chat_template.tool_use", other->second.text);
}

}  // namespace atl::tokenizer
