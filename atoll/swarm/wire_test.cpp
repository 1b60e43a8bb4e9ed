#include "atoll/swarm/wire.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/testing/temporary_folder.h"

namespace atl::swarm {
namespace {

using testing::HasSubstr;

std::string hex_text(const Bytes& bytes) {
  std::string out;
  for (const std::byte byte : bytes) out += fmt::format("{:02x}", static_cast<int>(byte));
  return out;
}

std::string refusal(const Bytes& frame) {
  return message_of([&] { decode(frame); });
}

const Header kHeader{.run = "r1", .term = 2, .round = 3, .attempt = 1};

std::vector<Message> samples() {
  const std::vector<Peer> peers = {{1, "a", "h:1"}, {3, "b", "h:2"}};
  const std::vector<Units> units = {{5, 2, 8}};
  const Held held{1, 3, 20, sha256({})};
  return {Hello{.version = "0.1.0", .name = "a", .address = "h:1", .settings = {{"k", "v"}}},
          Welcome{kHeader, "text"},
          Refused{kHeader, "why"},
          Ready{kHeader, {{"data", "d"}}, {{0, "x"}, {20, "y"}}, {3, 1, 40, {7, -1}}},
          Start{kHeader, 1, 3, 20, 40, 7, true, false, peers, {held}, units, 2, 5},
          View{kHeader, 2, peers, Bytes(3, std::byte{7})},
          Resume{kHeader, 3, "b", "h:2", 7, 4, 60},
          Resumed{kHeader, 2, peers, units},
          Begin{kHeader, 1, 20, 300, 4000, 4096, 30, 125000, "fp32 scatter"},
          OpenAttempt{kHeader, 1, 0, 10, 2, {1, 3, 4}, {3, 2, 1}, {3, 2, 0}},
          Prepared{kHeader, sha256({}), {{1.5, 0}, {2}}},
          Commit{kHeader, 7, held, 10, 2, {1, 3}, {3, 2}, true},
          Lease{kHeader, units},
          CaughtUp{kHeader, 7},
          Reinstated{kHeader, 4, 20},
          Due{kHeader, 1, 3, 20},
          Heartbeat{kHeader, 20, 1.5, 1000, 30, 7, 8},
          Alive{kHeader, 30, "1 of 2 islands are here"},
          LinkState{kHeader, 3, true, "why", net::Way::kRelayed},
          Trouble{kHeader, 3, "why"},
          StopRequest{kHeader},
          Leave{kHeader},
          Goodbye{kHeader},
          RunEnded{kHeader, "why", true},
          PeerHello{kHeader, 1, 2, 3},
          Part{kHeader, PartKind::kResult, 1, 3, 2, 6, 9, Bytes(3, std::byte{7})},
          Fetch{kHeader, PartKind::kState, 1, 6, 9},
          NotHeld{kHeader, PartKind::kResult, 1, true},
          Unusable{kHeader, 3, "why"},
          Probe{kHeader, 9, Bytes(2, std::byte{7})},
          ProbeReply{kHeader, Bytes(2, std::byte{7})},
          RelayHello{.version = "0.1.0", .name = "r", .address = "h:7"},
          AddressTried{kHeader, "h:1", "no answer"},
          Meet{kHeader, 3, "h:7", {std::byte{5}}, false},
          PassOn{kHeader, {std::byte{5}}}};
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
  EXPECT_EQ(std::get<Fetch>(decode(encode(samples()[26]))).end, 9U);
}

TEST(WireTest, GoldenBytes) {
  EXPECT_EQ(hex_text(encode(Commit{.header = {.run = "r", .term = 1, .round = 2, .attempt = 0},
                                   .index = 5,
                                   .held = {.fragment = 1, .round = 2, .step = 3},
                                   .count = 4,
                                   .segment_values = 6,
                                   .members = {7},
                                   .weights = {8},
                                   .stop = true})),
            "41544c4c"  // magic
            "0e00"      // version
            "0b"        // kind
            "0100000072"
            "0100000000000000"
            "0200000000000000"
            "00000000"                                                          // header
            "0500000000000000"                                                  // index
            "01000000"                                                          // fragment
            "0200000000000000"                                                  // round
            "0300000000000000"                                                  // step
            "0000000000000000000000000000000000000000000000000000000000000000"  // digest
            "0400000000000000"                                                  // count
            "0600000000000000"                                                  // segment
            "0100000007000000"                                                  // members
            "010000000800000000000000"                                          // weights
            "01");                                                              // stop
  EXPECT_EQ(hex_text(encode(
                Hello{.version = "v", .name = "n", .address = "a", .settings = {{"k", "w"}}})),
            "41544c4c"
            "0e00"
            "00"
            "00000000"
            "0000000000000000"
            "ffffffffffffffff"
            "ffffffff"
            "0e00"
            "0100000076"
            "010000006e"
            "0100000061"
            "01000000"
            "010000006b"
            "0100000077");
}

TEST(WireTest, GoldenBytesOfPrepared) {
  EXPECT_EQ(hex_text(encode(Prepared{.header = {.run = "r", .term = 1, .round = 2, .attempt = 0},
                                     .measures = {.squares = {0, 1}, .products = {-1}}})),
            "41544c4c"
            "0e00"
            "0a"
            "0100000072"
            "0100000000000000"
            "0200000000000000"
            "00000000"
            "0000000000000000000000000000000000000000000000000000000000000000"
            "02000000"
            "0000000000000000"
            "000000000000f03f"
            "01000000"
            "000000000000f0bf");
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
  frame[4] = std::byte{kProtocolVersion + 1};
  EXPECT_THAT(refusal(frame),
              HasSubstr(fmt::format("protocol version {}, and this program speaks {}",
                                    kProtocolVersion + 1, kProtocolVersion)));
  for (const Message& message :
       {Message(Hello{.protocol = kProtocolVersion + 1}), Message(Refused{kHeader, "why"})}) {
    frame = encode(message);
    frame[4] = std::byte{kProtocolVersion + 1};
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
