#include "atoll/swarm/wire.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::swarm {
namespace {

using testing::HasSubstr;

std::string hex_text(const Bytes& bytes) {
  std::string out;
  for (const std::byte byte : bytes) out += fmt::format("{:02x}", static_cast<int>(byte));
  return out;
}

std::string refusal(const Bytes& frame) {
  try {
    decode(frame);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

const Header kHeader{.run = "r1", .term = 2, .round = 3, .attempt = 1};

std::vector<Message> samples() {
  return {Hello{.version = "0.1.0", .name = "a", .address = "h:1", .settings = {{"k", "v"}}},
          Welcome{kHeader, "text"},
          Refused{kHeader, "why"},
          Ready{kHeader, {{"data", "d"}}, {{0, "x"}, {20, "y"}}},
          Start{kHeader, 1, 20, {{"a", "h:1"}, {"b", "h:2"}}},
          Begin{kHeader, 1, 20, 300, 4000, 4096, "fp32 scatter"},
          OpenAttempt{kHeader, 1, 0, 10, 2, {1, 2}, {3, 2}},
          Prepared{kHeader, sha256({})},
          Commit{kHeader, sha256({}), true},
          Heartbeat{kHeader, 20, 1.5, 1000, 7},
          Alive{kHeader, 30},
          Trouble{kHeader, "why"},
          StopRequest{kHeader},
          Leave{kHeader},
          Goodbye{kHeader},
          RunEnded{kHeader, "why"},
          PeerHello{kHeader, 1, 2},
          Part{kHeader, PartKind::kMean, 1, 2, 6, 9, Bytes(3, std::byte{7})}};
}

TEST(WireTest, EveryKindComesBack) {
  ASSERT_EQ(samples().size(), std::variant_size_v<Message>);
  for (size_t kind = 0; kind < samples().size(); ++kind) {
    const Message message = samples()[kind];
    ASSERT_EQ(message.index(), kind);
    const Bytes frame = encode(message);
    const Message again = decode(frame);
    EXPECT_EQ(again.index(), kind);
    EXPECT_EQ(encode(again), frame) << kind_name(message);
  }
  EXPECT_EQ(std::get<Part>(decode(encode(samples().back()))).total, 9U);
}

TEST(WireTest, GoldenBytes) {
  EXPECT_EQ(hex_text(encode(Commit{{.run = "r", .term = 1, .round = 2, .attempt = 0}, {}, true})),
            "41544c4c"  // magic
            "0400"      // version
            "08"        // kind
            "0100000072"
            "0100000000000000"
            "0200000000000000"
            "00000000"                                                          // header
            "0000000000000000000000000000000000000000000000000000000000000000"  // digest
            "01");                                                              // stop
  EXPECT_EQ(hex_text(encode(
                Hello{.version = "v", .name = "n", .address = "a", .settings = {{"k", "w"}}})),
            "41544c4c"
            "0400"
            "00"
            "00000000"
            "0000000000000000"
            "ffffffffffffffff"
            "ffffffff"
            "0400"
            "0100000076"
            "010000006e"
            "0100000061"
            "01000000"
            "010000006b"
            "0100000077");
}

TEST(WireTest, EveryTruncationAndExtensionIsRefused) {
  for (const Message& message : samples()) {
    const Bytes frame = encode(message);
    for (size_t size = 0; size < frame.size(); ++size) {
      EXPECT_NE(refusal({frame.begin(), frame.begin() + static_cast<ptrdiff_t>(size)}), "");
    }
    Bytes longer = frame;
    longer.push_back(std::byte{0});
    EXPECT_NE(refusal(longer), "");
  }
}

TEST(WireTest, OtherVersionsAreNamedButHelloAndRefusedAreRead) {
  Bytes frame = encode(Alive{kHeader});
  frame[4] = std::byte{9};
  EXPECT_THAT(refusal(frame), HasSubstr("protocol version 9, and this program speaks 4"));
  for (const Message& message : {Message(Hello{.protocol = 9}), Message(Refused{kHeader, "why"})}) {
    frame = encode(message);
    frame[4] = std::byte{9};
    EXPECT_EQ(refusal(frame), "");
  }
}

TEST(WireTest, HugeCountsAreRefusedBeforeAllocation) {
  Bytes frame = encode(OpenAttempt{.header = {.run = ""}});
  for (size_t i = frame.size() - 8; i < frame.size() - 4; ++i) frame[i] = std::byte{0xFF};
  EXPECT_THAT(refusal(frame), HasSubstr("a list of 4294967295 entries"));
}

}  // namespace
}  // namespace atl::swarm
