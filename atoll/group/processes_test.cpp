#include "atoll/group/processes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "atoll/base/error.h"
#include "atoll/group/gradient_sums.h"
#include "atoll/model/spilled_tensor.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/testing_torch/met_processes.h"

namespace atl::group {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Differs by process and by value.
at::Tensor values_of(const Processes& processes, int64_t size) {
  return at::arange(size, at::kFloat) + 1000.0 * static_cast<double>(processes.rank());
}

/// Does the others' part of what is told, to the end.
void obey(Processes& processes, const std::function<void(const std::string&)>& act) {
  while (const auto text = processes.hear()) act(*text);
}

TEST(ProcessesTest, SumsAreEverybodys) {
  // The last is several buckets.
  for (const int64_t size : {1, 100, 7'000'001}) {
    EXPECT_THAT(together(3,
                         [&](Processes& processes) {
                           const at::Tensor values = values_of(processes, size).remainder_(4096);
                           at::Tensor expected = at::zeros({size});
                           for (int64_t rank = 0; rank < 3; ++rank) {
                             expected +=
                                 (at::arange(size, at::kFloat) + 1000.0 * rank)
                                     .remainder_(4096);  // Whole numbers: their sums are exact.
                           }
                           processes.sum(values);
                           EXPECT_TRUE(at::equal(values, expected));
                         }),
                Each(IsEmpty()));
  }
}

TEST(ProcessesTest, OwnersGetTheirSumsAndShareThem) {
  for (const int64_t size : {5, 100, 7'000'001}) {
    EXPECT_THAT(
        together(
            3,
            [&](Processes& processes) {
              const at::Tensor own = at::full({size}, 1.0 + processes.rank());
              const Parts parts = equal_parts(size, 3);
              std::vector<Transfer> transfers;
              GradientSums(processes, own, parts, SumsFor::kOwners).begin({0, size}, transfers);
              for (Transfer& transfer : transfers) transfer.wait();
              const auto [begin, end] = parts.of(processes.rank());
              EXPECT_TRUE(at::equal(own.slice(0, begin, end), at::full({end - begin}, 6.0)));
              const at::Tensor shared = at::full({size}, -1.0);
              shared.slice(0, begin, end).fill_(processes.rank());
              processes.share_parts(shared, parts);
              for (int64_t rank = 0; rank < 3; ++rank) {
                const auto [first, last] = parts.of(rank);
                EXPECT_TRUE(at::equal(shared.slice(0, first, last),
                                      at::full({last - first}, static_cast<double>(rank))));
              }
            }),
        Each(IsEmpty()));
  }
}

TEST(ProcessesTest, ProcessZeroGivesAndTakes) {
  const TestFolder folder;
  for (const int64_t size : {5, 100, 20'000'001}) {  // Of the last a part is several pieces.
    for (const Parts& parts : {equal_parts(size, 3), Parts(size, 3, 0)}) {
      const auto act = [&](Processes& processes) {
        const at::Tensor all = values_of(processes, size);
        processes.broadcast(all);
        EXPECT_TRUE(at::equal(all, at::arange(size, at::kFloat)));
        const auto [begin, end] = parts.of(processes.rank());
        const at::Tensor part = all.slice(0, begin, end).clone();
        const at::Tensor gathered = at::zeros({size});
        processes.gather_parts(part, gathered, parts);
        if (processes.rank() == 0) {
          EXPECT_TRUE(at::equal(gathered, all));
          gathered.mul_(2);
        }
        processes.scatter_parts(gathered, part, parts);
        EXPECT_TRUE(at::equal(part, all.slice(0, begin, end) * 2));
        // The same on the disk.
        const at::Tensor spilled = model::spilled_tensor(folder, size);
        processes.gather_parts(part, spilled, parts);
        if (processes.rank() == 0) {
          EXPECT_TRUE(at::equal(spilled, all * 2));
          spilled.mul_(2);
        }
        processes.scatter_parts(spilled, part, parts);
        EXPECT_TRUE(at::equal(part, all.slice(0, begin, end) * 4));
      };
      EXPECT_THAT(together(3, act), Each(IsEmpty()));
    }
  }
}

TEST(ProcessesTest, WhatIsToldIsHeardInOrderUntilTheWorkIsDone) {
  EXPECT_THAT(together(3,
                       [](Processes& processes) {
                         if (processes.rank() == 0) {
                           for (const char* text : {"one", "", "three"}) processes.tell(text);
                           processes.wait_until_ready();
                           const at::Tensor value = at::full({1}, 1.0);
                           processes.tell("sum");
                           processes.sum(value);
                           return;
                         }
                         std::vector<std::string> heard;
                         obey(processes, [&](const std::string& text) {
                           heard.push_back(text);
                           if (text == "three") processes.ready();
                           if (text == "sum") processes.sum(at::full({1}, 1.0));
                         });
                         EXPECT_THAT(heard, ElementsAre("one", "", "three", "sum"));
                       }),
              Each(IsEmpty()));
}

TEST(ProcessesTest, WhoEndsSaysWhy) {
  const auto messages = together(3, [](Processes& processes) {
    if (processes.rank() == 2) {
      processes.fail("no room for it");
      throw InputError("no room for it");
    }
    processes.sum(at::full({1}, 1.0));
  });
  EXPECT_EQ(messages[2], "no room for it");
  for (const size_t rank : {0, 1}) {
    EXPECT_THAT(messages[rank],
                AllOf(HasSubstr("process 2 of this island"), HasSubstr("ended: no room for it")));
  }
}

TEST(ProcessesTest, TheLeadersReasonIsHeard) {
  const auto messages = together(2, [](Processes& processes) {
    if (processes.rank() == 0) {
      processes.fail("the loss is nan");
      throw InputError("the loss is nan");
    }
    obey(processes, [](const std::string&) {});
  });
  EXPECT_THAT(messages[1], AllOf(HasSubstr("process 0 of this island"), HasSubstr(", which leads,"),
                                 HasSubstr("ended: the loss is nan")));
}

TEST(ProcessesTest, ALeaderThatEndsEarlyIsNotDone) {
  const auto places = places_of(2);
  auto leader = std::async(std::launch::async, [&] { meet(places[0]); });
  const auto follower = meet(places[1]);
  try {
    obey(*follower, [](const std::string&) {});
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("process 0 of this island"),
                                    HasSubstr("before the work was done")));
  }
}

TEST(ProcessesTest, WhoDoesNotComeIsNamed) {
  const auto places = places_of(4);
  std::vector<std::future<std::string>> ends;
  for (const size_t rank : {0, 2}) {
    ends.push_back(std::async(std::launch::async, [&, rank]() -> std::string {
      try {
        meet(places[rank], std::chrono::seconds(1));
      } catch (const InputError& error) {
        return error.what();
      }
      return "none";
    }));
  }
  EXPECT_THAT(ends[0].get(), AllOf(HasSubstr("of the 4 processes of this island 1, 3 have not "
                                             "come"),
                                   HasSubstr("train.process_timeout")));
  EXPECT_NE(ends[1].get(), "none");
}

TEST(ProcessesTest, WithoutProcessZeroNobodyMeets) {
  auto places = places_of(2);
  ::close(places[0].listener);
  try {
    meet(places[1], std::chrono::seconds(1));
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("process 1 of 2 found nobody"), HasSubstr("MASTER_ADDR")));
  }
}

}  // namespace
}  // namespace atl::group
