#include "atoll/tokenizer/same_ids.h"

#include <algorithm>
#include <string>
#include <vector>

namespace atl::tokenizer {
namespace {

/// In which tokenizers differ.
constexpr std::string_view kTexts[] = {
    "Hello, world! It's 1,234.5 km",
    "I'll don't we've THEY'RE I'M he'd IT'S you'Ve 'tis o'clock ' s 's",
    "0 12 345 6789 01234567890 1e-05 0x1F \u0663\u0664 \u00bd\u00b2 \u2167 1st 3x4",
    "  two   three    four     spaces ",
    "\n",
    "\n\n",
    " \n \n\n\t\n",
    "a\nb\r\nc\n\n\nd \n e\t\tf  \n  g\r\r\n",
    "\t\tx = 1;\n\n    }\n\n\n",
    "for (int i=0; i<10; ++i) { a[i] += \"x\\n\"; } // ok?!\n#define X(y) ((y)->z_1)\n",
    "https://example.org/a/b?c=d&e=%20#f user@host.tld C:\\dir\\file.txt //// ---- ==== ...",
    "camelCase XMLHttpRequest snake_case McDonald\u2019s \u201cquoted\u201d na\u00efve",
    "e\u0301 A\u030a n\u0303 \u1e9b\u0323 \u00e9 \u0065\u0302\u0323 \ufb01 \u212b \u2126 "
    "\uff21\uff22",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05b8\u05dc\u05d5\u05b9\u05dd "
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002 \u3053\u3093\u306b\u3061\u306f \uc548\ub155 "
    "\u1112\u1161\u11ab \u0417\u0434\u0440\u0430\u0432\u0441\u0442\u0432\u0443\u0439",
    "\U0001f600\U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f "
    "\U0001f1e9\U0001f1ea \U0001d54f",
    "\u00a0\u2003x\u200b\u3000y\u2028z\u0085\ufeff\u00ad \u01c5 \u02b0 \u2581 a\u2581b",
    "\xff\xc3("};

std::vector<TokenId> ids_of(Encoder& encoder, std::string_view text) {
  std::vector<TokenId> ids;
  encoder.encode(text, SpecialText::kToken, ids);
  encoder.encode(text, SpecialText::kPlain, ids);
  return ids;
}

}  // namespace

bool give_same_ids(const Tokenizer& a, const Tokenizer& b, int64_t num_ids) {
  if (a.with_special_tokens({0}) != b.with_special_tokens({0})) return false;
  Encoder one(a);
  Encoder other(b);
  const auto is_same = [&](std::string_view text) {
    return ids_of(one, text) == ids_of(other, text);
  };
  if (!std::ranges::all_of(kTexts, is_same)) return false;
  for (int64_t id = 0; id < std::min(num_ids, a.vocab_size()); ++id) {
    const std::string token(a.bytes_or_none(id));
    if (token.empty()) continue;  // A gap, in which `b` may have what it likes.
    if (b.bytes_or_none(id) != token || !is_same(token)) return false;
    // Special ones take white space around them, or do not.
    if (a.id_of(token) && !is_same("a" + token + "b  " + token + "  1\n" + token + "\n")) {
      return false;
    }
  }
  return true;
}

}  // namespace atl::tokenizer
