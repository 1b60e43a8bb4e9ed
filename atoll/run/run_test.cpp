#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "atoll/base/bytes.h"
#include "atoll/base/file.h"
#include "atoll/identity/invite.h"
#include "atoll/run/config.h"
#include "atoll/run/metrics.h"
#include "atoll/run/progress.h"
#include "atoll/run/run_folder.h"
#include "atoll/run/tensorboard_file.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::run {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RunTest : public testing::Test {
 protected:
  Metrics metrics_from(int64_t step) {
    return {folder_, step, [this](const Event& event) { told_.push_back(event.sentence); }};
  }

  TestFolder folder_;
  std::vector<std::string> told_;
};

TEST_F(RunTest, ResumedMetricsGoOnAfterTheCheckpoint) {
  {
    Metrics metrics = metrics_from(0);
    for (int64_t step = 1; step <= 5; ++step) metrics.add({.step = step, .loss = 1.0});
  }
  std::ofstream(folder_ / "metrics.jsonl", std::ios::app) << R"({"step": 6, "lo)";  // Torn.
  metrics_from(3).add({.step = 4, .loss = 2.0});
  std::ifstream in(folder_ / "metrics.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_THAT(lines[2], HasSubstr(R"("step":3)"));
  EXPECT_THAT(lines[3], HasSubstr(R"("step":4)"));
  EXPECT_THAT(lines[3], HasSubstr(R"("loss":2.0)"));
  EXPECT_TRUE(told_.empty());
}

TEST_F(RunTest, RecordsThatADiskDoesNotTakeAreReportedOnce) {
  Metrics metrics = metrics_from(0);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit full{.rlim_cur = 1, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &full);
  metrics.add_round("{}");
  metrics.add_round("{}");
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(told_,
              testing::ElementsAre("warning: rounds.jsonl can no longer be written (disk full?)"));
}

/// The framing of TFRecord, read with a table-driven CRC-32C of the test's own.
TEST_F(RunTest, TensorboardFilesAreTfRecords) {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? 0x82f63b78U ^ (c >> 1) : c >> 1;
    table.at(i) = c;
  }
  const auto masked = [&](std::string_view bytes) {
    uint32_t c = 0xffffffffU;
    for (const char byte : bytes) c = table.at((c ^ static_cast<uint8_t>(byte)) & 0xffU) ^ (c >> 8);
    c ^= 0xffffffffU;
    return ((c >> 15) | (c << 17)) + 0xa282ead8U;
  };
  {
    TensorboardFile(folder_).add(3, {{"train/loss", 1.5}});
  }
  const std::string bytes = read_file(fs::directory_iterator(folder_)->path());
  ByteReader reader(as_byte_span(bytes));
  std::vector<std::string> records;
  while (reader.remaining() > 0) {
    const auto size = reader.get<uint64_t>();
    const std::string size_bytes(reinterpret_cast<const char*>(&size), sizeof(size));
    EXPECT_EQ(reader.get<uint32_t>(), masked(size_bytes));
    const auto record = reader.get_bytes(size);
    records.emplace_back(reinterpret_cast<const char*>(record.data()), record.size());
    EXPECT_EQ(reader.get<uint32_t>(), masked(records.back()));
  }
  ASSERT_EQ(records.size(), 2U);
  EXPECT_THAT(records[0], HasSubstr("brain.Event:2"));
  EXPECT_THAT(records[1], HasSubstr("train/loss"));
}

TEST_F(RunTest, SettingsBindOnceThereIsACheckpoint) {
  const fs::path run = folder_ / "run";
  const auto steps = [&](const std::vector<std::string>& overrides) {
    return configure(run, {}, overrides).train.steps;
  };
  {
    const RunFolder folder(run);
    EXPECT_THROW(RunFolder(folder_ / "run"), InputError) << "two owners";
    RunConfig config = configure(run, {}, {"train.steps=7"});
    folder.save(config);
  }
  EXPECT_FALSE(was_started(run));
  EXPECT_EQ(steps({"train.steps=8"}), 8);
  fs::create_directories(run / "checkpoints" / "step-00000000");
  EXPECT_TRUE(was_started(run));
  EXPECT_EQ(steps({}), 7);
  EXPECT_EQ(configure(run, {}, {"train.threads=3"}).train.threads, 3) << "local ones may change";
  EXPECT_THROW(steps({"train.steps=8"}), UsageError);
  fs::create_directories(run / "island-1");
  fs::rename(run / "checkpoints", run / "island-1" / "checkpoints");
  EXPECT_TRUE(was_started(run)) << "an island's checkpoint counts";
}

TEST_F(RunTest, AFolderOfSomethingElseIsNoRunDirectory) {
  std::ofstream(folder_ / "notes.txt") << "mine";
  EXPECT_THROW(RunFolder{folder_}, UsageError);
  EXPECT_FALSE(fs::exists(folder_ / "lock"));
}

TEST_F(RunTest, ANewFolderThatStaysEmptyGoesAgain) {
  {
    const RunFolder folder(folder_ / "a");
  }
  EXPECT_FALSE(fs::exists(folder_ / "a"));
  {
    const RunFolder folder(folder_ / "a");
    std::ofstream(folder_ / "a" / "events.jsonl") << "it was refused";
  }
  EXPECT_FALSE(fs::exists(folder_ / "a")) << "there is no run whose events they are";
  {
    const RunFolder folder(folder_ / "b");
    std::ofstream(folder_ / "b" / "log") << "something";
  }
  EXPECT_TRUE(fs::exists(folder_ / "b" / "log"));
  fs::create_directory(folder_ / "c");
  {
    const RunFolder folder(folder_ / "c");
  }
  EXPECT_TRUE(fs::exists(folder_ / "c")) << "not ours to remove";
}

TEST_F(RunTest, RunsThatBeginTogetherGetFoldersOfTheirOwn) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  {
    const RunFolder first("");
    const RunFolder second("");
    const RunFolder third("");
    EXPECT_EQ(std::distance(fs::directory_iterator("runs"), {}), 3);
  }
  fs::current_path(before);
}

TEST(RunFolderTest, AFolderThatCannotBeMadeIsSaid) {
  EXPECT_THAT(message_of([] { const RunFolder folder("/proc/version/run"); }),
              HasSubstr("Not a directory"));
}

TEST(RunFolderTest, ResumeCommandsAreQuotedForAShell) {
  EXPECT_EQ(resume_command("runs/a-1", 1), "atoll train --run runs/a-1");
  EXPECT_EQ(resume_command("runs/a b", 2), "atoll train --islands 2 --run 'runs/a b'");
  EXPECT_EQ(resume_command("a", 2, "20mbit"), "atoll train --islands 2 --run a --link-rate 20mbit");
  EXPECT_EQ(resume_command("it's", 1), "atoll train --run 'it'\\''s'");
}

/// A file changes only what it names, and what --dump-config prints suits any number of islands.
TEST_F(RunTest, TheMethodFollowsTheNumberOfIslands) {
  const fs::path file = folder_ / "c.toml";
  const auto method = [&](const std::vector<std::string>& overrides) {
    return configure("", file, overrides).sync.method;
  };
  for (const std::string& text : {std::string(), RunConfig().settings().dump(true)}) {
    write_file_atomically(file, text);
    EXPECT_EQ(method({}), "single");
    EXPECT_EQ(method({"swarm.min_replicas=2"}), "diloco");
    EXPECT_EQ(method({"sync.method=data_parallel"}), "data_parallel");
  }
  write_file_atomically(file, "[sync]\nmethod = 'diloco'\n");
  EXPECT_EQ(method({}), "diloco");
}

TEST(ConfigTest, ChecksWhatInvolvesSeveralFields) {
  const auto message = [](const std::vector<std::string>& overrides) -> std::string {
    try {
      check(load_config({}, overrides));
    } catch (const UsageError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(message({}), "");
  EXPECT_THAT(message({"train.batch_rows=9", "swarm.min_replicas=2"}),
              HasSubstr("train.batch_rows"));
  EXPECT_THAT(message({"train.batch_rows=8", "train.micro_batch_rows=3"}),
              HasSubstr("train.micro_batch_rows"));
  EXPECT_THAT(message({"train.sequence_length=4096"}), HasSubstr("model.max_positions"));
  EXPECT_THAT(message({"train.steps=5", "train.warmup_steps=6"}), HasSubstr("train.warmup_steps"));
  EXPECT_EQ(message({"swarm.outlier_factor=0"}), "");
  EXPECT_EQ(message({"swarm.outlier_factor=2"}), "");
  EXPECT_THAT(message({"swarm.outlier_factor=1.5"}), HasSubstr("swarm.outlier_factor = 1.5"));
  const auto streaming = [&](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), "sync.method=streaming_diloco");
    return message(overrides);
  };
  EXPECT_EQ(streaming({}), "");
  EXPECT_THAT(streaming({"sync.fragment_sync_delay=20"}), HasSubstr("sync.fragment_sync_delay"));
  EXPECT_THAT(streaming({"sync.num_fragments=6"}), HasSubstr("4 layers"));
  EXPECT_THAT(streaming({"sync.num_fragments=21", "sync.fragment_pattern=balanced"}),
              HasSubstr("sync.sync_every"));
  EXPECT_THROW(load_config({}, {"sync.fragment_update_alpha=1.5"}), UsageError);
  EXPECT_THAT(message({"sync.method=single", "swarm.min_replicas=2"}), HasSubstr("sync.method"));
}

TEST(ConfigTest, ElasticPaceNeedsAMethodForIt) {
  const auto message = [](std::vector<std::string> overrides) -> std::string {
    overrides.insert(overrides.end(), {"swarm.pace=elastic", "swarm.replicas=2"});
    try {
      RunConfig config = load_config({}, overrides);
      choose_method(config, /*alone=*/false);
      check(config);
      check_used(config, overrides);
    } catch (const UsageError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(message({"sync.method=streaming_diloco", "sync.fragment_update_alpha=0.5"}), "");
  EXPECT_EQ(message({"sync.method=streaming_diloco", "sync.num_fragments=1", "sync.sync_every=1"}),
            "");
  EXPECT_EQ(message({"sync.method=sparse_loco"}), "");
  EXPECT_THAT(message({"sync.method=cocktail_sgd"}), HasSubstr("one of diloco, streaming_diloco"));
  EXPECT_THAT(message({"sync.outer_dropout=0.5"}), HasSubstr("sync.outer_dropout"));
  EXPECT_THAT(message({"sync.method=streaming_diloco", "sync.codec=auto"}), HasSubstr("codec"));
  EXPECT_THAT(message({"sync.method=streaming_diloco", "sync.fragment_sync_delay=2"}),
              HasSubstr("sync.fragment_sync_delay has no effect with swarm.pace = 'elastic'"));
  EXPECT_THAT(message({"sync.method=streaming_diloco", "train.steps=3", "train.warmup_steps=0"}),
              HasSubstr("4 fragments"));
}

TEST(ConfigTest, RefusesAnOverrideThatTheMethodHasNoUseFor) {
  const auto message = [](const std::vector<std::string>& overrides) -> std::string {
    try {
      check_used(load_config({}, overrides), overrides);
    } catch (const UsageError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(message({"sync.method=diloco", "sync.sync_every=3", "train.lr=1"}), "");
  EXPECT_EQ(message({"sync.method=cocktail_sgd", "sync.fragment_sync_delay=0"}), "");
  EXPECT_THAT(message({"sync.method=data_parallel", "sync.outer_lr=1"}),
              HasSubstr("sync.outer_lr has no effect with sync.method = 'data_parallel'"));
  EXPECT_THAT(message({"sync.method=diloco", "sync.num_fragments=2"}),
              HasSubstr("streaming_diloco"));
  EXPECT_THAT(message({"sync.method=diloco", "sync.outer_eps=1"}), HasSubstr("adam"));
  EXPECT_THAT(message({"sync.method=data_parallel", "sync.outer_eps=1"}), HasSubstr("diloco"));
  EXPECT_THAT(message({"sync.method=diloco", "sync.outer_optimizer=sgd", "sync.outer_momentum=0"}),
              HasSubstr("nesterov"));
  EXPECT_THAT(
      message({"sync.method=cocktail_sgd", "sync.codec=auto", "sync.fragment_sync_delay=0"}),
      HasSubstr("auto chooses"));
  EXPECT_THAT(message({"sync.method=single", "sync.codec=bf16"}), HasSubstr("--islands 2"));
  const std::string share = "sync.exchange_share=0.5";
  for (const char* method : {"diloco", "data_parallel", "sparse_loco", "demo"}) {
    EXPECT_THAT(message({fmt::format("sync.method={}", method), share}),
                HasSubstr("sync.exchange_share has no effect with sync.method"));
  }
  for (const char* method : {"streaming_diloco", "eager_diloco", "cocktail_sgd"}) {
    EXPECT_EQ(message({fmt::format("sync.method={}", method), share}), "");
  }
  EXPECT_THAT(message({"sync.method=cocktail_sgd", "sync.fragment_sync_delay=0", share}),
              HasSubstr("sync.exchange_share has no effect with sync.fragment_sync_delay = '0'"));
  EXPECT_THAT(message({"train.muon_momentum=0.9"}), HasSubstr("train.optimizer = 'adamw'"));
  EXPECT_THAT(message({"train.optimizer=sgd", "train.beta2=0.9"}), HasSubstr("adamw, muon"));
  EXPECT_THAT(message({"train.schedule=constant", "train.min_lr_ratio=0"}), HasSubstr("cosine"));
  EXPECT_EQ(message({"train.optimizer=muon", "train.muon_lr_ratio=2", "train.beta2=0.9"}), "");
  EXPECT_EQ(message({"model.router_aux_loss=0.1"}), "");
  EXPECT_THAT(message({"adapter.kind=lora", "adapter.base=m", "model.router_aux_loss=0.1"}),
              HasSubstr("model.router_aux_loss has no effect"));
}

TEST_F(RunTest, AnInvitesSecretIsNotAmongTheSettingsThatAreKept) {
  RunConfig config;
  config.adapter.servers = identity::word_of({.addresses = {"10.0.0.1:7070"},
                                              .fingerprint = std::string(64, 'a'),
                                              .secret = identity::new_secret(),
                                              .run_name = "ours",
                                              .role = identity::Role::kGateway,
                                              .expiry = identity::wall_time_of(1'800'000'000)});
  const RunFolder folder(folder_ / "run");
  folder.save(config);
  const std::string kept = read_file(folder_ / "run" / "config.toml");
  EXPECT_THAT(kept, HasSubstr("servers = '10.0.0.1:7070'"));
  EXPECT_THAT(kept, testing::Not(HasSubstr(config.adapter.servers)));
}

}  // namespace
}  // namespace atl::run
