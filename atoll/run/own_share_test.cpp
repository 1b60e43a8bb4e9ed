#include "atoll/run/own_share.h"

#include <gtest/gtest.h>

#include <thread>

namespace atl::run {
namespace {

method::TrainOptions taken(int64_t threads, const std::string& device, const ProcessPlace& place) {
  method::TrainOptions train;
  train.threads = threads;
  train.device = device;
  take_own_share(train, place);
  return train;
}

TEST(OwnShareTest, ThreadsAreThoseThatWereGivenOrAPartOfTheMachines) {
  EXPECT_EQ(taken(0, "cpu", {.num_cpus = 3, .local_size = 2}).threads, 3);
  EXPECT_EQ(taken(5, "cpu", {.num_cpus = 3, .local_size = 2}).threads, 5);
  EXPECT_EQ(taken(0, "cpu", {.local_size = 1}).threads, std::thread::hardware_concurrency());
  EXPECT_EQ(taken(0, "cpu", {.local_size = 1'000'000}).threads, 1);
}

TEST(OwnShareTest, EachHasItsOwnDeviceUnlessOneIsNamed) {
  EXPECT_EQ(taken(1, "cuda", {.local_rank = 2, .local_size = 4}).device, "cuda:2");
  EXPECT_EQ(taken(1, "cuda:0", {.local_rank = 2, .local_size = 4}).device, "cuda:0");
  EXPECT_EQ(taken(1, "cpu", {.local_rank = 2, .local_size = 4}).device, "cpu");
}

}  // namespace
}  // namespace atl::run
