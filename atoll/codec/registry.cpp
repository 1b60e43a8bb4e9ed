// Which codecs there are, and how compositions are written:
//
//   codec = [mask "+"] [selection "+"] form | alias
//   mask = "rolling(" share ")" | "random(" share ")"
//   selection = "topk(" share ")" | "chunk_topk(" kept "/" chunk ")"
//
// A codec's name() is this text with its numbers written in one way and aliases replaced, so that
// equal names, whose hash encodings carry, mean equal bytes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/nearest.h"
#include "atoll/base/number.h"
#include "atoll/codec/codec.h"
#include "atoll/codec/e3m0.h"
#include "atoll/codec/integer_codecs.h"
#include "atoll/codec/magnitude_codecs.h"
#include "atoll/codec/masks.h"
#include "atoll/codec/plain_codecs.h"
#include "atoll/codec/topk.h"

namespace atl::codec {
namespace {

/// The form in which values that are sent travel. A new one is a new file and a line here.
struct Form {
  std::string_view name;
  std::unique_ptr<Codec> (*make)();
};
constexpr Form kForms[] = {
    {"bf16", make_bf16_codec},   {"e3m0", make_e3m0_codec},   {"fp16", make_fp16_codec},
    {"fp32", make_fp32_codec},   {"int4", make_int4_codec},   {"int8", make_int8_codec},
    {"sign3", make_sign3_codec}, {"stat2", make_stat2_codec},
};

struct Alias {
  std::string_view name;
  std::string_view meaning;
};
constexpr Alias kAliases[] = {
    {"cocktail", "rolling(0.1)+topk(0.2)+int4"},
    {"sparse_loco", "chunk_topk(64/4096)+stat2"},
};

constexpr std::string_view kGrammar =
    "before one of these (but cocktail and sparse_loco) may stand rolling(P)+ or random(P)+, and "
    "then topk(F)+ or chunk_topk(K/C)+, as in rolling(0.1)+topk(0.2)+sign3";
constexpr size_t kMaxNameLength = 100;
constexpr size_t kMaxChunk = size_t{1} << 18;

double share_of(std::string_view stage, std::string_view argument) {
  const auto share = number_in<double>(argument);
  if (share && *share >= kMinShare && *share <= 1) return *share;
  throw UsageError(fmt::format("codec {}({}): the share must be a number from {} to 1", stage,
                               argument, kMinShare));
}

size_t stride_of(std::string_view argument) {
  const double share = share_of("rolling", argument);
  const double stride = std::round(1 / share);
  if (stride >= 2 && std::abs(stride * share - 1) <= 0.02) return static_cast<size_t>(stride);
  throw UsageError(fmt::format(
      "codec rolling({}): the share must be one over a whole number from 2 on, as 0.5, 0.33 or 0.1",
      argument));
}

std::unique_ptr<Codec> make_chunk_topk(std::string_view argument, std::unique_ptr<Codec> inner) {
  const size_t slash = argument.find('/');
  if (slash != std::string_view::npos) {
    const auto kept = number_in<size_t>(argument.substr(0, slash));
    const auto chunk = number_in<size_t>(argument.substr(slash + 1));
    if (kept && chunk && *kept >= 1 && *kept <= *chunk && *chunk <= kMaxChunk) {
      return make_chunk_topk_codec(fmt::format("chunk_topk({}/{})", *kept, *chunk), *kept, *chunk,
                                   std::move(inner));
    }
  }
  throw UsageError(
      fmt::format("codec chunk_topk({}): write how many are kept of how many, 1 <= K <= C <= {}, "
                  "as chunk_topk(64/4096)",
                  argument, kMaxChunk));
}

[[noreturn]] void refuse(std::string_view name) {
  const std::string near = nearest(name, codec_names());
  throw UsageError(fmt::format("unknown codec '{}'{}; known are {}; {}",
                               name.substr(0, kMaxNameLength),
                               near.empty() ? "" : fmt::format("; did you mean '{}'?", near),
                               fmt::join(codec_names(), ", "), kGrammar));
}

enum class Stage { kMask, kSelection, kForm };

/// The codec of `rest`, of which `next` is the first stage that may come.
std::unique_ptr<Codec> parse(std::string_view name, std::string_view rest, Stage next) {
  for (const Form& form : kForms) {
    if (form.name == rest) return form.make();
  }
  const size_t end = rest.find(")+");
  const size_t open = rest.find('(');
  if (end == std::string_view::npos || open > end) refuse(name);
  const std::string_view stage = rest.substr(0, open);
  const std::string_view argument = rest.substr(open + 1, end - open - 1);
  const bool is_mask = stage == "rolling" || stage == "random";
  const bool is_selection = stage == "topk" || stage == "chunk_topk";
  if (!is_mask && !is_selection) refuse(name);
  if (next == Stage::kForm || (is_mask && next == Stage::kSelection)) {
    throw UsageError(
        fmt::format("codec '{}': {} is one stage too many; {}", name, stage, kGrammar));
  }
  auto inner = parse(name, rest.substr(end + 2), is_mask ? Stage::kSelection : Stage::kForm);
  if (stage == "chunk_topk") return make_chunk_topk(argument, std::move(inner));
  const double share = share_of(stage, argument);
  const std::string canonical = fmt::format("{}({})", stage, share);
  if (stage == "topk") return make_topk_codec(canonical, share, std::move(inner));
  if (stage == "random") return make_random_codec(canonical, share, std::move(inner));
  return make_rolling_codec(canonical, stride_of(argument), std::move(inner));
}

}  // namespace

std::unique_ptr<Codec> make_codec(std::string_view name) {
  if (name.size() > kMaxNameLength) refuse(name);
  for (const Alias& alias : kAliases) {
    if (alias.name == name) return parse(name, alias.meaning, Stage::kMask);
  }
  return parse(name, name, Stage::kMask);
}

std::vector<std::string> codec_names() {
  std::vector<std::string> names;
  for (const Form& form : kForms) names.emplace_back(form.name);
  for (const Alias& alias : kAliases) names.emplace_back(alias.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace atl::codec
