// Lessons through servers are those of the layers here, to the bit, whatever becomes of servers;
// and what servers make of nonsense.
#include "atoll/serve/remote_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/serve/block_trainer.h"
#include "atoll/serve/lesson_values.h"
#include "atoll/testing_torch/chain_swarm.h"

namespace atl::serve {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

at::Tensor drawn(std::vector<int64_t> shape, uint64_t stream) {
  const at::Tensor values = at::empty(shape, at::kFloat);
  auto* const data = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    data[i] = static_cast<float>(random_normal(5, stream, static_cast<uint64_t>(i)));
  }
  return values;
}

model::Adapter small_adapter(std::vector<std::string> targets = {"q_proj", "v_proj", "down_proj"}) {
  model::Adapter adapter(small_model().config(),
                         {.rank = 2, .alpha = 3, .targets = std::move(targets)}, {0, 3}, at::kCPU,
                         model::Purpose::kTraining);
  adapter.initialise(1);
  const at::NoGradGuard no_grad;
  adapter.parameters().values_P().add_(drawn({adapter.parameters().values_P().numel()}, 3), 0.1);
  return adapter;
}

std::vector<at::Tensor> batches(size_t count) {
  std::vector<at::Tensor> inputs_BTC;
  for (size_t i = 0; i < count; ++i) inputs_BTC.push_back(drawn({2, 7, 24}, 20 + i));
  return inputs_BTC;
}

at::Tensor turned(size_t batch, const at::Tensor& y_BTC) {
  return y_BTC * 0.1 + drawn({2, 7, 24}, 40 + batch);
}

class RemoteLayersTest : public ChainSwarm {
 protected:
  /// `seen`: of what it says.
  std::unique_ptr<RemoteLayers> remote(
      RemoteLayersOptions options = {}, Change seen = [](chain::Message&) {}) {
    options.post = {
        .coordinator = "coordinator:7", .authority = {}, .tell = {}, .watches = kDigest};
    options.digest = kDigest;
    options.avoidance = std::chrono::milliseconds(200);
    options.log = [this](const std::string& line) { log_ += line + '\n'; };
    return std::make_unique<RemoteLayers>(
        small_model().config(), std::move(options),
        [this, seen](net::Transport::Sink sink) {
          return std::make_unique<ChangingTransport>(network_.make_transport(std::move(sink)),
                                                     seen);
        },
        clock_);
  }
  /// Why it ends.
  static std::string failure_of(RemoteLayers& layers) {
    try {
      gradients(layers);
    } catch (const InputError& error) {
      return error.what();
    }
    return "it does not fail";
  }
  /// Gradients of inputs, and behind them those of the adapter.
  static std::vector<at::Tensor> gradients(train::FrozenLayers& layers,
                                           const train::FrozenLayers::Turn& turn = turned,
                                           int num_steps = 1,
                                           const model::Adapter& adapter = small_adapter()) {
    std::vector<at::Tensor> found;
    for (int step = 0; step < num_steps; ++step) {
      found = layers.learn(batches(5), adapter, turn);
      const at::NoGradGuard no_grad;
      const at::Tensor& gradients_P = adapter.parameters().gradients_P();
      adapter.parameters().values_P().sub_(gradients_P / gradients_P.abs().max(), 0.01);
    }
    found.push_back(adapter.parameters().gradients_P());
    return found;
  }
  static void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << i;
  }

  train::LocalLayers local_{small_model()};
  std::string log_;
};

TEST_F(RemoteLayersTest, LearnsAsTheLayersHereToTheBit) {
  serve("a", {0, 1});
  serve("b", {1, 2});
  serve("c", {2, 3});
  const auto layers = remote();
  expect_equal(gradients(*layers, turned, 3), gradients(local_, turned, 3));
  const model::Adapter adapter = small_adapter();
  EXPECT_TRUE(layers->read(batches(1)[0], adapter).equal(local_.read(batches(1)[0], adapter)));
  EXPECT_EQ(layers->num_lost(), 0);
}

TEST_F(RemoteLayersTest, AServerThatDiesBetweenForwardsAndBackwardsIsReplaced) {
  serve("a", {0, 1});
  serve("b", {1, 3});
  const auto layers = remote();
  const auto turn = [this](size_t batch, const at::Tensor& y_BTC) {
    if (batch == 1) {
      server("b").kill();
      serve("c", {1, 2});  // Whose place two take, which its spans have to be cut for.
      serve("d", {2, 3});
    }
    return turned(batch, y_BTC);
  };
  expect_equal(gradients(*layers, turn), gradients(local_));
  EXPECT_GE(layers->num_lost(), 1);
  EXPECT_THAT(log_, HasSubstr("is gone"));
}

TEST_F(RemoteLayersTest, TextsAreAnsweredWhileOthersLearn) {
  serve("a", {0, 2});
  serve("b", {2, 3});
  const auto generator = gateway(0.0);
  const auto asked = requests(20);
  const auto layers = remote();
  const auto before = gradients(local_, turned, 3);
  auto heard = ask(*generator, asked);
  expect_equal(gradients(*layers, turned, 3), before);
  expect_same(heard, asked);
}

TEST_F(RemoteLayersTest, AdaptersThatServersForgetAreSentAgain) {
  // As from a server that has room for one adapter, and others use it.
  int count = 0;
  serve("a", {0, 3}, {}, 1, [&count](chain::Message& message) {
    if (auto* learnt = std::get_if<chain::Learnt>(&message); learnt != nullptr && ++count == 2) {
      message = chain::Trouble{.session = learnt->lesson,
                               .epoch = 0,
                               .fault = chain::Fault::kNotKept,
                               .reason = "not here"};
    }
  });
  int num_sent = 0;
  const auto layers = remote({}, [&num_sent](chain::Message& message) {
    num_sent += std::holds_alternative<chain::Adapt>(message) ? 1 : 0;
  });
  expect_equal(gradients(*layers, turned, 2), gradients(local_, turned, 2));
  EXPECT_GE(num_sent, 3);  // Once for each step, and again.
  EXPECT_EQ(layers->num_lost(), 0);
}

TEST_F(RemoteLayersTest, NanInAGradientEndsTraining) {
  serve("a", {0, 3}, {}, std::nanf(""));
  const auto layers = remote();
  EXPECT_THAT(failure_of(*layers), HasSubstr("could not read a micro-batch"));
}

TEST_F(RemoteLayersTest, AServerWhoseAnswersAreNotFiniteEndsTrainingWithItsName) {
  serve("a", {0, 3}, {}, 1, [](chain::Message& message) {
    auto* const rows = std::get_if<chain::LessonRows>(&message);
    if (rows != nullptr) std::ranges::fill(rows->rows.rows_TC, std::byte{0xff});
  });
  const auto layers = remote();
  EXPECT_THAT(failure_of(*layers), HasSubstr("what the server at a:"));
}

TEST_F(RemoteLayersTest, ServersThatFailAgainAndAgainEndTraining) {
  serve("a", {0, 3}, {}, 1, [](chain::Message& message) {
    const auto* const learnt = std::get_if<chain::Learnt>(&message);
    if (learnt == nullptr) return;
    message = chain::Trouble{.session = learnt->lesson,
                             .epoch = 0,
                             .fault = chain::Fault::kNoMemory,
                             .reason = "no room"};
  });
  const auto layers = remote({.patience = std::chrono::milliseconds(500)});
  EXPECT_THAT(failure_of(*layers), AllOf(HasSubstr("again and again"), HasSubstr("no room"),
                                         HasSubstr("train.micro_batch_rows")));
  EXPECT_GE(layers->num_lost(), 2);
}

TEST_F(RemoteLayersTest, AServerThatIsThereAndAnswersNothingDoesNotHoldTraining) {
  serve("a", {0, 3}, {}, 1, [](chain::Message& message) {
    if (std::holds_alternative<chain::LessonRows>(message) ||
        std::holds_alternative<chain::Learnt>(message)) {
      message = chain::Pong{};
    }
  });
  const auto layers = remote({.patience = std::chrono::milliseconds(500)});
  EXPECT_THAT(failure_of(*layers), HasSubstr("answers nothing"));
}

TEST_F(RemoteLayersTest, WhatTheTurnTakesIsNoSilenceOfServers) {
  serve("a", {0, 3});
  const auto layers = remote({.silence = std::chrono::seconds(1)});
  const auto slow = [](size_t batch, const at::Tensor& y_BTC) {
    if (batch == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1300));
    return turned(batch, y_BTC);
  };
  expect_equal(gradients(*layers, slow), gradients(local_));
  EXPECT_EQ(layers->num_lost(), 0);
}

TEST_F(RemoteLayersTest, TroubleAboutWhatWasNotAskedIsNone) {
  serve("a", {0, 3}, {}, 1, [](chain::Message& message) {
    if (!std::holds_alternative<chain::Greeted>(message)) return;
    message = chain::Trouble{.session = {.gateway = 7, .number = 999},
                             .epoch = 0,
                             .fault = chain::Fault::kBroken,
                             .reason = "of another"};
  });
  const auto layers = remote();
  expect_equal(gradients(*layers), gradients(local_));
}

TEST_F(RemoteLayersTest, LayersWithoutAnyPartOfTheAdapterLearnToo) {
  serve("a", {0, 1});
  serve("b", {1, 3});
  const model::Adapter first = small_adapter({"layers.0.self_attn.q_proj"});
  const model::Adapter same = small_adapter({"layers.0.self_attn.q_proj"});
  const auto layers = remote({.patience = std::chrono::seconds(20)});
  expect_equal(gradients(*layers, turned, 1, first), gradients(local_, turned, 1, same));
}

TEST_F(RemoteLayersTest, AMicroBatchThatNoServerHoldsIsRefused) {
  serve("a", {0, 3});
  const auto layers = remote();
  const at::Tensor x_BTC = at::empty({1, 1, 24}).fill_(1).expand({1, 6'000'000, 24});
  try {
    layers->read(x_BTC, small_adapter());
    FAIL() << "it has 576 MB";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("train.micro_batch_rows"));
  }
}

TEST_F(RemoteLayersTest, WhoIsToEndAwaitsNobodyAndFinishesWhatHasServers) {
  serve("a", {0, 1});
  serve("b", {1, 3});
  bool ends = false;
  const auto layers = remote({.stops = [&ends] { return ends; }});
  const auto turn = [&ends](size_t batch, const at::Tensor& y_BTC) {
    ends = true;
    return turned(batch, y_BTC);
  };
  expect_equal(gradients(*layers, turn), gradients(local_));
  server("b").kill();
  const model::Adapter adapter = small_adapter();
  EXPECT_THROW(layers->learn(batches(5), adapter, turned), Interrupted);
  EXPECT_EQ(adapter.parameters().gradients_P().count_nonzero().item<int64_t>(), 0);
}

TEST_F(RemoteLayersTest, WithoutServersItSaysWhichLayersLack) {
  serve("a", {0, 1});
  const auto layers = remote({.patience = std::chrono::milliseconds(300)});
  try {
    gradients(*layers);
    FAIL() << "layers 1 and 2 are nowhere";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("with no server"));
  }
}

// --- one server, and strangers' messages ---

class BlockTrainerTest : public ::testing::Test {
 protected:
  static constexpr chain::SessionId kLesson{.gateway = 1, .number = 5};
  static constexpr chain::SessionId kAdapter{.gateway = 1, .number = 1};

  static chain::Adapt adapt() {
    const model::Adapter adapter = small_adapter();
    return {.adapter = kAdapter,
            .version = 1,
            .layers = {0, 3},
            .rank = 2,
            .alpha = 3,
            .targets = adapter.config().targets,
            .values = parts_of(adapter.parameters().values_P())[0].bytes};
  }
  void send_rows(bool is_gradient, float value = 1) {
    const at::Tensor x_BTC = drawn({2, 7, 24}, 1).mul_(value);
    chain::Rows rows = rows_of(drawn({2, 7, 24}, 1), chain::Precision::kFp32).at(0);
    const size_t before = rows.rows_TC.size() / 14 - 24 * sizeof(float);  // Of each row.
    for (size_t i = 0; i < 14; ++i) {
      std::memcpy(rows.rows_TC.data() + i * (before + 24 * sizeof(float)) + before,
                  x_BTC.const_data_ptr<float>() + i * 24, 24 * sizeof(float));
    }
    trainer_.hear(chain::LessonRows{.lesson = kLesson, .is_gradient = is_gradient, .rows = rows});
  }
  static chain::Lesson lesson() {
    return {.lesson = kLesson,
            .adapter = kAdapter,
            .version = 1,
            .layers = {0, 3},
            .goes_back = true,
            .num_texts = 2,
            .num_tokens = 7};
  }
  std::vector<chain::Message> said() {
    while (trainer_.has_work({})) trainer_.step({});
    return trainer_.take_sent();
  }
  void expect_fault(chain::Fault fault, const std::string& reason) {
    const auto sent = said();
    std::string all;
    for (const chain::Message& each : sent) {
      const auto* const trouble = std::get_if<chain::Trouble>(&each);
      all += trouble != nullptr ? trouble->reason + "; " : "an answer; ";
    }
    ASSERT_EQ(sent.size(), 1U) << all;
    ASSERT_TRUE(std::holds_alternative<chain::Trouble>(sent[0]));
    EXPECT_EQ(std::get<chain::Trouble>(sent[0]).fault, fault);
    EXPECT_THAT(std::get<chain::Trouble>(sent[0]).reason, HasSubstr(reason));
  }

  AdapterShelf adapters_{small_model()};
  BlockTrainer trainer_{small_model(), adapters_, {}};
};

TEST_F(BlockTrainerTest, AnswersALesson) {
  trainer_.hear(adapt());
  send_rows(false);
  send_rows(true);
  trainer_.hear(lesson());
  const auto sent = said();
  if (const auto* trouble = std::get_if<chain::Trouble>(&sent.at(0))) FAIL() << trouble->reason;
  ASSERT_EQ(sent.size(), 3U);
  EXPECT_TRUE(std::holds_alternative<chain::LessonValues>(sent[0]));
  EXPECT_TRUE(std::holds_alternative<chain::LessonRows>(sent[1]));
  EXPECT_TRUE(std::holds_alternative<chain::Learnt>(sent[2]));
}

TEST_F(BlockTrainerTest, LessonsOfWhoTakesNoAnswersWait) {
  trainer_.hear(adapt());
  const auto ask = [&](uint64_t gateway, uint64_t number) {
    chain::Lesson asked = lesson();
    asked.lesson = {.gateway = gateway, .number = number};
    asked.adapter.number = 0;
    asked.goes_back = false;
    trainer_.hear(
        chain::LessonRows{.lesson = asked.lesson, .rows = rows_of(drawn({2, 7, 24}, 1), {}).at(0)});
    trainer_.hear(asked);
  };
  ask(1, 5);
  ask(2, 6);
  EXPECT_FALSE(trainer_.has_work({1, 2}));
  trainer_.step({1});
  EXPECT_TRUE(trainer_.has_work({1, 2}));  // What has begun is brought to its end.
  while (trainer_.has_work({1})) trainer_.step({1});
  const auto sent = trainer_.take_sent();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(std::get<chain::Learnt>(sent[1]).lesson.gateway, 2U);
  EXPECT_EQ(said().size(), 2U);
}

TEST_F(BlockTrainerTest, AnAdapterOfAnotherShapeOrRankIsRefused) {
  chain::Adapt more = adapt();
  more.values.resize(more.values.size() + 4);
  trainer_.hear(more);
  expect_fault(chain::Fault::kDamaged, "where there are");
  chain::Adapt large = adapt();
  large.rank = 4096;
  large.targets = {"q_proj"};
  trainer_.hear(adapt());
  large.begin = 4;
  trainer_.hear(large);
  expect_fault(chain::Fault::kDamaged, "do not follow");
  large.rank = 8192;
  large.begin = 0;
  trainer_.hear(large);
  expect_fault(chain::Fault::kDamaged, "of rank 8192");
  large.rank = -1;
  trainer_.hear(large);
  expect_fault(chain::Fault::kDamaged, "of rank -1");
  chain::Adapt other = adapt();
  other.targets = {"query"};
  trainer_.hear(other);
  expect_fault(chain::Fault::kDamaged, "no projection 'query'");
  chain::Adapt elsewhere = adapt();
  elsewhere.layers = {2, 4};
  trainer_.hear(elsewhere);
  expect_fault(chain::Fault::kNotKept, "not here");
  // Half of one is none.
  chain::Adapt half = adapt();
  half.values.resize(half.values.size() / 8 * 4);
  trainer_.hear(half);
  send_rows(false);
  send_rows(true);
  trainer_.hear(lesson());
  expect_fault(chain::Fault::kNotKept, "the adapter is not here");
}

TEST_F(BlockTrainerTest, WhatIsNotFiniteIsRefused) {
  chain::Adapt not_finite = adapt();
  const float nan = std::nanf("");
  std::memcpy(not_finite.values.data(), &nan, sizeof nan);
  trainer_.hear(not_finite);
  expect_fault(chain::Fault::kDamaged, "not finite");
  trainer_.hear(adapt());
  send_rows(false);
  send_rows(true, nan);
  expect_fault(chain::Fault::kDamaged, "is nan");
  send_rows(false);
  send_rows(true, 1e37F);  // Whose gradients overflow.
  trainer_.hear(lesson());
  const auto sent = said();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<chain::Trouble>(sent[0]));
}

TEST_F(BlockTrainerTest, LessonsOfOtherRowsThanHaveComeAreRefused) {
  trainer_.hear(lesson());
  expect_fault(chain::Fault::kDamaged, "without rows");
  trainer_.hear(adapt());
  send_rows(false);
  trainer_.hear(lesson());
  expect_fault(chain::Fault::kDamaged, "other rows than have come");
  send_rows(false);
  send_rows(true);
  chain::Lesson longer = lesson();
  longer.num_texts = 1;
  longer.num_tokens = 1000;
  trainer_.hear(longer);
  expect_fault(chain::Fault::kDamaged, "over the model's context");
}

TEST_F(BlockTrainerTest, AdaptersUsedLongestAgoGoFirst) {
  const auto bytes = static_cast<int64_t>(adapt().values.size());
  AdapterShelf adapters(small_model(), {.num_bytes = 2 * bytes});
  BlockTrainer trainer(small_model(), adapters, {});
  const auto add = [&](uint64_t number) {
    chain::Adapt message = adapt();
    message.adapter.number = number;
    trainer.hear(message);
  };
  for (const uint64_t number : {1, 2, 3}) add(number);
  const auto is_here = [&](uint64_t number) {
    const at::Tensor x_BTC = drawn({2, 7, 24}, 1);
    for (chain::Rows& rows : rows_of(x_BTC, chain::Precision::kFp32)) {
      trainer.hear(chain::LessonRows{.lesson = kLesson, .rows = rows});
    }
    chain::Lesson asked = lesson();
    asked.goes_back = false;
    asked.adapter.number = number;
    trainer.hear(asked);
    while (trainer.has_work({})) trainer.step({});
    return !std::holds_alternative<chain::Trouble>(trainer.take_sent().at(0));
  };
  EXPECT_FALSE(is_here(1));
  EXPECT_TRUE(is_here(2));
  EXPECT_TRUE(is_here(3));
}

TEST_F(BlockTrainerTest, AdaptersThatAreStillComingStayLonger) {
  const auto bytes = static_cast<int64_t>(adapt().values.size());
  AdapterShelf adapters(small_model(), {.num_bytes = 2 * bytes});
  const auto put = [&](uint64_t number, int64_t begin, int64_t end) {
    chain::Adapt part = adapt();
    part.adapter.number = number;
    part.begin = begin;
    const auto place = [](int64_t value) { return static_cast<std::ptrdiff_t>(4 * value); };
    part.values = {part.values.begin() + place(begin), part.values.begin() + place(end)};
    return adapters.put(part);
  };
  using Put = AdapterShelf::Put;
  const int64_t all = bytes / 4;
  put(1, 0, 8);
  put(2, 0, all);
  put(3, 0, all);
  EXPECT_FALSE(adapters.has({.gateway = 1, .number = 2}, {0, 3}, 1));
  EXPECT_TRUE(adapters.has({.gateway = 1, .number = 3}, {0, 3}, 1));
  EXPECT_EQ(put(1, 8, all), Put::kKept);
  EXPECT_TRUE(adapters.has({.gateway = 1, .number = 1}, {0, 3}, 1));
  // Where all are, the one that came longest ago is needed anew, which is said once.
  for (const uint64_t number : {4, 5, 6}) put(number, 0, 8);
  EXPECT_EQ(put(4, 8, 16), Put::kGone);
  EXPECT_EQ(put(4, 16, all), Put::kStray);
  EXPECT_EQ(put(5, 8, all), Put::kKept);
}

TEST_F(BlockTrainerTest, WhoseTextsLoseAnAdapterThatIsComingIsAskedAgain) {
  AdapterShelf adapters(small_model(), {.num_adapters = 1});
  BlockTrainer trainer(small_model(), adapters, {});
  const auto hear = [&](uint64_t number, int64_t begin) {
    chain::Adapt part = adapt();
    part.adapter.number = number;
    part.begin = begin;
    part.values.resize(32);
    trainer.hear(part);
  };
  for (const uint64_t number : {chain::kFirstAdapter, chain::kFirstAdapter + 1}) hear(number, 0);
  for (const int64_t begin : {8, 16}) hear(chain::kFirstAdapter, begin);
  const auto sent = trainer.take_sent();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(std::get<chain::Unadapted>(sent[0]).adapter.number, chain::kFirstAdapter);
}

TEST_F(BlockTrainerTest, ALessonNamesNoOthersAdapter) {
  chain::Adapt others = adapt();
  others.adapter.gateway = 2;
  trainer_.hear(others);
  send_rows(false);
  send_rows(true);
  chain::Lesson asked = lesson();
  asked.adapter = others.adapter;
  trainer_.hear(asked);
  expect_fault(chain::Fault::kDamaged, "another gateway");
}

}  // namespace
}  // namespace atl::serve
