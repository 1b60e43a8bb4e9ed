#include "atoll/collective/part_frame.h"

#include <gtest/gtest.h>

#include "atoll/swarm/wire.h"

namespace atl::collective {
namespace {

swarm::Part example() {
  return {.header = {.run = "r1", .term = 3, .round = 7, .attempt = 1},
          .kind = swarm::PartKind::kMean,
          .sender = 2,
          .segment = 5,
          .offset = 100,
          .total = 400};
}

TEST(PartFrameTest, IsTheFrameThatWireMakes) {
  const auto blob = std::make_shared<const Bytes>(400, std::byte{9});
  swarm::Part whole = example();
  whole.data.assign(250, std::byte{9});
  EXPECT_EQ(part_frame(example(), blob, 100, 250).joined(), swarm::encode(whole));
}

TEST(PartFrameTest, IsSeenWithoutACopyOfItsData) {
  swarm::Part part = example();
  part.data.assign(250, std::byte{9});
  const Bytes frame = swarm::encode(part);
  const auto view = view_part(frame, part_head_bytes(part.header));
  ASSERT_TRUE(view);
  EXPECT_EQ(view->data.data(), frame.data() + frame.size() - 250);
  EXPECT_EQ(view->data.size(), 250U);
  EXPECT_EQ(view->part.header, part.header);
  EXPECT_EQ(view->part.offset, 100U);
  EXPECT_TRUE(view->part.data.empty());
}

TEST(PartFrameTest, OtherFramesAreLeftToDecode) {
  swarm::Part part = example();
  part.data.assign(250, std::byte{9});
  const Bytes frame = swarm::encode(part);
  const size_t head = part_head_bytes(part.header);
  EXPECT_FALSE(view_part(std::span(frame).first(head - 1), head));
  EXPECT_FALSE(view_part(std::span(frame).first(frame.size() - 1), head));
  swarm::Part longer = part;
  longer.header.run = "another";
  EXPECT_FALSE(view_part(swarm::encode(longer), head));
  EXPECT_FALSE(view_part(swarm::encode(swarm::Leave{}), head));
  Bytes wrong = frame;
  wrong[6] = std::byte{255};  // Its kind.
  EXPECT_FALSE(view_part(wrong, head));
}

}  // namespace
}  // namespace atl::collective
