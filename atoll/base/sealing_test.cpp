#include "atoll/base/sealing.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "atoll/base/error.h"

namespace atl {
namespace {

std::span<const std::byte> about(std::string_view text) { return as_byte_span(text); }

TEST(Sealing, IsOpenedByItsKeyAloneAndChangedByNobody) {
  const Digest key = random_key();
  for (const std::string_view text : {"", "a", "what others may keep"}) {
    const Bytes bytes = sealed(as_byte_span(text), key, about("mine"));
    EXPECT_EQ(bytes.size(), text.size() + 28);
    EXPECT_EQ(as_text(unsealed(bytes, key, about("mine"))), text);
    EXPECT_NE(sealed(as_byte_span(text), key, about("mine")), bytes);
    EXPECT_THROW(unsealed(bytes, random_key(), about("mine")), InputError);
    EXPECT_THROW(unsealed(bytes, key, about("yours")), InputError);
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      Bytes changed = bytes;
      changed[bit / 8] ^= std::byte{1} << (bit % 8);
      EXPECT_THROW(unsealed(changed, key, about("mine")), InputError);
    }
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_THROW(unsealed(std::span(bytes).first(size), key, about("mine")), InputError);
    }
  }
}

// The answer is that of RFC 4231, section 4.3.
TEST(Sealing, KeyedDigestIsHmacSha256) {
  Digest key{};
  std::ranges::copy(as_byte_span("Jefe"), key.begin());  // Behind a key HMAC puts zeros.
  EXPECT_EQ(hex(keyed_digest(key, as_byte_span("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

}  // namespace
}  // namespace atl
