#include "atoll/sweep/sweep_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/testing/temporary_folder.h"

namespace atl::sweep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kSizes = "[sizes.a]\nhidden_size = 8\n[sizes.b]\nhidden_size = 16\n";
constexpr const char* kGrid =
    "[[grid]]\nname = 'g'\nreplicas = [0, 2]\nlr = [2e-3, 1e-3]\nouter_lr = 0.6\nsync_every = 30\n"
    "batch_tokens = 512\n";

std::string shown(const TomlTable& document) { return TomlValue{.value = document}.shown(); }

std::string refusal(const std::string& text) {
  return message_of<UsageError>([&] { parse_sweep(text, "s.toml"); });
}
/// The same of a document whose grid is the usual one, `from` replaced.
std::string grid_refusal(const std::string& from, const std::string& to) {
  std::string grid = kGrid;
  const size_t place = grid.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return refusal(kSizes + grid.replace(place, from.size(), to));
}

TEST(SweepSpec, ReadsWhatItIsGiven) {
  const SweepSpec spec = parse_sweep(
      std::string(
          "[sweep]\ntokens_per_param = 10\ncount = 'papers'\nextensions = 2\nseeds = [1, 2]\n"
          "[settings.train]\nwarmup_steps = 5\n") +
          kSizes + kGrid +
          "[[grid]]\nname = 'h'\nsizes = 'a'\nreplicas = 2\nmethod = ['diloco', 'data_parallel']\n"
          "sync_every = [1, 10]\nlr = 'best'\nouter_lr = 'best'\nbatch_tokens = [512, 256]\n"
          "tokens_factor = [1, 4]\nseeds = 7\nsearch = 'descent'\n",
      "s.toml");
  EXPECT_EQ(spec.tokens_per_param, 10);
  EXPECT_TRUE(spec.papers_count);
  EXPECT_EQ(shown(spec.settings), "{ train = { warmup_steps = 5 } }");
  ASSERT_EQ(spec.sizes.size(), 2U);
  EXPECT_EQ(shown(spec.sizes[1].settings), "{ model = { hidden_size = 16 } }");
  ASSERT_EQ(spec.grids.size(), 2U);
  EXPECT_THAT(spec.grids[0].sizes, ElementsAre("a", "b"));
  EXPECT_THAT(spec.grids[0].axes[kLr].values, ElementsAre(1e-3, 2e-3));
  EXPECT_THAT(spec.grids[0].seeds, ElementsAre(1, 2));
  EXPECT_EQ(spec.grids[0].search, Search::kGrid);
  EXPECT_EQ(spec.slurm, std::nullopt);
  EXPECT_THAT(spec.grids[1].sizes, ElementsAre("a"));
  EXPECT_TRUE(spec.grids[1].axes[kLr].is_best);
  EXPECT_THAT(spec.grids[1].axes[kBatchTokens].values, ElementsAre(256, 512));
  EXPECT_THAT(spec.grids[1].seeds, ElementsAre(7));
  EXPECT_EQ(spec.grids[1].search, Search::kDescent);
}

TEST(SweepSpec, HandsOnSlurmsTable) {
  const std::string rest = std::string(kSizes) + kGrid;
  EXPECT_EQ(shown(*parse_sweep(rest + "[slurm]\nextra = ['--qos=x']\n", "s.toml").slurm),
            "{ slurm = { extra = [ '--qos=x' ] } }");
  // The defaults of the cluster are asked for by an empty one.
  EXPECT_TRUE(parse_sweep(rest + "[slurm]\n", "s.toml").slurm);
  EXPECT_THAT(refusal("slurm = 3\n" + rest), HasSubstr("slurm must be a table"));
}

TEST(SweepSpec, NamesUnknownKeysAndTheNearest) {
  EXPECT_THAT(refusal("[swep]\n"), HasSubstr("unknown key 'swep'; did you mean 'sweep'?"));
  EXPECT_THAT(refusal("[sweep]\ntoken_per_param = 1\n"),
              AllOf(HasSubstr("[sweep]"), HasSubstr("did you mean 'tokens_per_param'?")));
  EXPECT_THAT(grid_refusal("sync_every", "sync_evry"),
              AllOf(HasSubstr("grid 'g'"), HasSubstr("did you mean 'sync_every'?")));
}

TEST(SweepSpec, RefusesWrongTypesAndRanges) {
  EXPECT_THAT(refusal("[sweep]\nthreads = 1.5\n"), HasSubstr("threads must be a whole number"));
  EXPECT_THAT(refusal("[sweep]\ntokens_per_param = 0\n"),
              HasSubstr("tokens_per_param must be from"));
  EXPECT_THAT(refusal("[sweep]\ncount = 'mine'\n"), HasSubstr("count must be one of all, papers"));
  EXPECT_THAT(refusal("sweep = 1\n"), HasSubstr("sweep must be a table"));
  EXPECT_THAT(grid_refusal("[2e-3, 1e-3]", "[]"), HasSubstr("lr has no value"));
  EXPECT_THAT(grid_refusal("[2e-3, 1e-3]", "[1e-3, 1e-3]"), HasSubstr("lr has the value"));
  EXPECT_THAT(grid_refusal("[2e-3, 1e-3]", "[nan]"), HasSubstr("lr must be from"));
  EXPECT_THAT(grid_refusal("[2e-3, 1e-3]", "'middle'"), HasSubstr("numbers or \"best\""));
  EXPECT_THAT(grid_refusal("[0, 2]", "[-1]"), HasSubstr("replicas must be from 0"));
  EXPECT_THAT(grid_refusal("512", "512.5"), HasSubstr("batch_tokens must be whole numbers"));
  EXPECT_THAT(grid_refusal("'g'", "'a b'"), HasSubstr("a name has"));
  EXPECT_THAT(refusal("a = [\n"), HasSubstr("s.toml: line"));
}

TEST(SweepSpec, RefusesWhatIsMissing) {
  EXPECT_THAT(refusal(""), HasSubstr("no [sizes.NAME]"));
  EXPECT_THAT(refusal(kSizes), HasSubstr("no [[grid]]"));
  for (const char* key : {"replicas = [0, 2]", "lr = [2e-3, 1e-3]", "outer_lr = 0.6",
                          "sync_every = 30", "batch_tokens = 512", "name = 'g'"}) {
    const std::string name(key, std::string_view(key).find(' '));
    EXPECT_THAT(grid_refusal(std::string(key) + "\n", ""), HasSubstr("needs")) << name;
  }
}

TEST(SweepSpec, RefusesKeysThatContradictEachOther) {
  EXPECT_THAT(grid_refusal("[0, 2]", "0"), HasSubstr("sync_every has no effect"));
  EXPECT_THAT(grid_refusal("[0, 2]", "[0]\nmethod = 'diloco'"),
              HasSubstr("method has no effect with replicas = 0"));
  EXPECT_THAT(grid_refusal("[0, 2]", "[2]\nmethod = 'single'"), HasSubstr("must be one of"));
  EXPECT_THAT(grid_refusal("[2e-3, 1e-3]", "'best'"), HasSubstr("this is the first"));
  EXPECT_THAT(grid_refusal("[0, 2]", "[0, 2]\nstart = 'size_before'"),
              HasSubstr("start has no effect"));
  EXPECT_THAT(grid_refusal("[2e-3, 1e-3]", "1e-3\nsearch = 'descent'\nstart = 'size_before'"),
              HasSubstr("start has no effect: lr"));
  EXPECT_THAT(grid_refusal("[0, 2]", "[0, 2]\nsearch = 'descent'\nstart = 'size_before'"),
              HasSubstr("needs the order of the sizes"));
  EXPECT_THAT(grid_refusal("[0, 2]", "[0, 2]\nsearch = 'descent'\nstart = 'before'"),
              HasSubstr("start must be one of middle, size_before"));
  EXPECT_THAT(refusal(std::string("[sweep]\nhalving_rate = 3\n") + kSizes + kGrid),
              HasSubstr("halving_rate has no effect"));
  EXPECT_THAT(refusal(std::string(kSizes) + kGrid + kGrid),
              HasSubstr("a second grid of that name"));
}

TEST(SweepSpec, BoundsWhatItReads) {
  EXPECT_THAT(refusal(std::string(kMaxSweepBytes + 1, ' ')), HasSubstr("larger than 1 MiB"));
  std::string many = "[1";
  for (int i = 2; i <= 1001; ++i) many += ", " + std::to_string(i);
  EXPECT_THAT(grid_refusal("512", many + "]"), HasSubstr("over 1000 values"));
  std::string some = "[1";
  for (int i = 2; i <= 900; ++i) some += ", " + std::to_string(i);
  EXPECT_THAT(grid_refusal("lr = [2e-3, 1e-3]\nouter_lr = 0.6\nsync_every = 30\nbatch_tokens = 512",
                           "lr = " + some + "]\nouter_lr = " + some +
                               "]\nsync_every = 30\nbatch_tokens = 512"),
              HasSubstr("its lists make 3240000 points"));
}

}  // namespace
}  // namespace atl::sweep
