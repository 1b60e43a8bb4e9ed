// Settings and keys of a sweep's points, without a process.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/sweep/sweep_settings.h"
#include "atoll/testing/sweep_harness.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::sweep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const std::string& text) {
  return message_of<UsageError>([&] { settings_of(text); });
}

TEST(SweepSettings, MakesARunOfAPoint) {
  const SweepSettings settings = usual();
  const run::RunConfig config = settings.config(point_of(2));
  EXPECT_EQ(config.model.vocab_size, 500);
  EXPECT_EQ(config.swarm.num_replicas(), 2);
  EXPECT_EQ(config.train.batch_rows, 16);
  EXPECT_EQ(config.train.lr, 1e-3);
  EXPECT_EQ(config.sync.outer_lr, 0.6);
  EXPECT_EQ(config.sync.method, "diloco");
  EXPECT_EQ(config.train.threads, 1);
  const auto params = static_cast<double>(weights::num_parameters(config.model));
  EXPECT_NEAR(static_cast<double>(config.train.steps) * 512, 20 * params, 256);
  EXPECT_EQ(settings.config(point_of(0)).sync.method, "single");
  SweepPoint longer = point_of(2);
  longer.cell.tokens_factor = 4;
  EXPECT_NEAR(settings.tokens(longer), 80 * params, 256);
}

TEST(SweepSettings, CountsAsThePapersDo) {
  const SweepSettings settings =
      settings_of(std::string("[sweep]\ncount = 'papers'\n") + kTrain + kModels + kGrid);
  EXPECT_EQ(settings.model("a").params, 500 * 8 + 1 * (4 * 8 * 8 + 2 * 8 * 16));
}

TEST(SweepSettings, RefusesWhatTrainWouldRefuse) {
  const std::string models = kModels;
  EXPECT_THAT(
      refusal("[settings.train]\nwarmup_step = 3\n" + models + kGrid),
      AllOf(HasSubstr("s.toml: [settings]"), HasSubstr("did you mean 'train.warmup_steps'?")));
  EXPECT_THAT(refusal(kTrain + models + "[sizes.c]\nhiden_size = 3\n" + kGrid),
              AllOf(HasSubstr("[sizes.c]"), HasSubstr("did you mean 'model.hidden_size'?")));
  EXPECT_THAT(refusal(kTrain + models + "[sizes.c]\nhidden_size = 9\n" + kGrid),
              HasSubstr("[sizes.c]"));
  EXPECT_THAT(refusal("[settings.train]\nsequence_length = 64\n" + models + kGrid),
              HasSubstr("train.sequence_length = 64 is over model.max_positions = 32"));
  EXPECT_THAT(
      refusal("[settings.train]\nsequence_length = 32\nwarmup_steps = 1000000\n" + models + kGrid),
      AllOf(HasSubstr("grid 'g', a, data-parallel"), HasSubstr("train.warmup_steps")));
  EXPECT_THAT(refusal("[sweep]\ntokens_per_param = 0.01\n" + std::string(kTrain) + models + kGrid),
              HasSubstr("less than one batch"));
}

TEST(SweepSettings, RefusesAPeriodLongerThanTheRun) {
  const auto text = [](int64_t sync_every, const char* search) {
    return fmt::format(
        "{}{}[[grid]]\nname = 'g'\nreplicas = [0, 2]\nlr = 1e-3\nouter_lr = 0.6\n"
        "sync_every = {}\nbatch_tokens = 512\nsearch = '{}'\n",
        kTrain, kModels, sync_every, search);
  };
  const int64_t steps = settings_of(text(1, "grid")).config(point_of(2)).train.steps;
  ASSERT_GT(steps, 30);
  settings_of(text(steps, "grid"));
  EXPECT_THAT(refusal(text(2 * steps, "grid")),
              AllOf(HasSubstr("grid 'g', a, 2 replicas"), HasSubstr("over the"),
                    HasSubstr("steps of its run")));
  settings_of(text(steps, "halving"));  // Whose first rungs are shorter.
  // A store of a larger vocabulary than the default's makes larger models, and so longer runs.
  const SweepStore wide = {"/x", "d1", 12'000};
  const int64_t more = settings_of(text(1, "grid"), wide).config(point_of(2)).train.steps;
  ASSERT_GT(more,
            2 * settings_of(text(1, "grid"), {"/x", "d1", 4096}).config(point_of(2)).train.steps);
  settings_of(text(more, "grid"), wide);
}

TEST(SweepSettings, RefusesHalvingWhoseFirstRungHasNoBatch) {
  const auto text = [](int rungs) {
    return fmt::format(
        "[sweep]\nhalving_rate = 100\nhalving_rungs = {}\n{}{}{}search = 'halving'\n", rungs,
        kTrain, kModels, kGrid);
  };
  settings_of(text(2));
  EXPECT_THAT(refusal(text(6)),
              AllOf(HasSubstr("less than one batch"), HasSubstr("halving_rungs")));
}

TEST(SweepSettings, ABatchIsNeverMoreThanAPointsTokens) {
  const SweepSettings settings = settings_of(std::string(kTrain) + kModels + kGrid);
  SweepPoint point = point_of(2);
  EXPECT_EQ(settings.rules().obstacle(point), "");
  point.at[kBatchTokens] = 1 << 30;  // As of an extension, or of "best".
  EXPECT_THAT(settings.rules().obstacle(point), HasSubstr("less than one batch of 1073741824"));
}

TEST(SweepSettings, WhatStandsForBestIsABatchThatIsAllowed) {
  constexpr const char* kLast =
      "[[grid]]\nname = 'last'\nreplicas = [0, 2]\nlr = 'best'\nouter_lr = 'best'\n"
      "sync_every = 30\nbatch_tokens = 'best'\n";
  settings_of("[settings.train]\nsequence_length = 32\nmicro_batch_rows = 4\n" +
              std::string(kModels) + kGrid + kLast);
}

TEST(SweepSettings, SizesThatStartFromTheOneBeforeRise) {
  const auto grid = [](const char* sizes) {
    return fmt::format(
        "{}{}[[grid]]\nname = 'g'\nsizes = {}\nreplicas = 0\nlr = [1e-3, 2e-3]\n"
        "batch_tokens = 512\nsearch = 'descent'\nstart = 'size_before'\n",
        kTrain, kModels, sizes);
  };
  settings_of(grid("['a', 'b']"));
  EXPECT_THAT(refusal(grid("['b', 'a']")), HasSubstr("give sizes = [\"a\", \"b\"]"));
}

TEST(SweepSettings, RefusesContradictions) {
  EXPECT_THAT(
      refusal("[settings.train]\nsequence_length = 32\nlr = 1e-3\n" + std::string(kModels) + kGrid),
      HasSubstr("train.lr is set by the sweep for each point: give a grid's lr"));
  EXPECT_THAT(
      refusal("[settings.sync]\nnum_fragments = 2\n" + std::string(kTrain) + kModels + kGrid),
      HasSubstr("num_fragments"));
  EXPECT_THAT(
      refusal(kTrain + std::string(kModels) +
              "[sizes.c]\nhidden_size = 8\nintermediate_size = 16\nnum_layers = 1\n" + kGrid),
      AllOf(HasSubstr("'a' and 'c' both have"), HasSubstr("sizes that differ")));
  EXPECT_THAT(
      message_of<UsageError>([] {
        settings_of(std::string(kTrain) + kModels + "[sizes.c]\nvocab_size = 300\n" + kGrid);
      }),
      HasSubstr("vocab_size = 300 is below the 500 of the store"));
}

TEST(SweepSettings, AKeyIsThatOfTheResultAlone) {
  const auto key = [](const SweepSettings& settings, const SweepPoint& point) {
    return key_of(settings.identity(point));
  };
  const std::string usual_key = key(usual(), point_of(2));
  // What changes nothing: where the data lies, how often is logged, values that defaults stand for.
  EXPECT_EQ(key(settings_of(std::string(kTrain) + kModels + kGrid, {"/elsewhere", "d1", 500}),
                point_of(2)),
            usual_key);
  for (const char* same : {"log_every = 3\n", "checkpoint_every = 60\n", "device = 'cpu'\n",
                           "optimizer = 'adamw'\n"}) {
    EXPECT_EQ(key(settings_of(std::string(kTrain) + same + kModels + kGrid), point_of(2)),
              usual_key)
        << same;
  }
  EXPECT_EQ(
      key(settings_of(std::string("[settings.sync]\ncodec = 'fp32'\n") + kTrain + kModels + kGrid),
          point_of(2)),
      usual_key);
  // What does.
  EXPECT_NE(key(settings_of(std::string(kTrain) + kModels + kGrid, {"/x", "d2", 500}), point_of(2)),
            usual_key);
  EXPECT_NE(key(settings_of(std::string(kTrain) + "beta2 = 0.99\n" + kModels + kGrid), point_of(2)),
            usual_key);
  EXPECT_NE(key(usual(), point_of(4)), usual_key);
  EXPECT_NE(key(usual(), point_of(0)), usual_key);
  EXPECT_NE(key(usual(), point_of(2, 3e-3)), usual_key);
  SweepPoint other = point_of(2);
  other.seed = 2;
  EXPECT_NE(key(usual(), other), usual_key);
  other = point_of(2);
  other.cell.sync_every = 10;
  EXPECT_NE(key(usual(), other), usual_key);
  // A setting of the others does not touch data-parallel's.
  const auto momentum = settings_of(std::string("[settings.sync]\nouter_momentum = 0.5\n") +
                                    kTrain + kModels + kGrid);
  EXPECT_EQ(key(momentum, point_of(0)), key(usual(), point_of(0)));
  EXPECT_NE(key(momentum, point_of(2)), usual_key);
}

}  // namespace
}  // namespace atl::sweep
