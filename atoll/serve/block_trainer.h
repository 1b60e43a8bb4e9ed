#pragma once
// Lessons at one server of some of a model's layers: forwards and backwards through layers that
// stay as they are, beside adapters that others train. A piece of work is one layer, so that texts
// that are answered wait for no more. For the way back all is read anew, from what is sent: who
// asks may go on with another server at any time. Owned by one thread.
//
// Shapes: B = texts, T = tokens of each, C = hidden size, P = an adapter's values.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "atoll/chain/messages.h"
#include "atoll/model/frozen_layers.h"
#include "atoll/model/model.h"
#include "atoll/serve/adapter_shelf.h"

namespace atl::serve {

struct BlockTrainerOptions {
  int64_t waiting_bytes = int64_t{512} << 20;  // Of rows that have come, until they are answered.
  int64_t graph_bytes = int64_t{1} << 30;      // Of a lesson: with more its layers are read twice.
};

class BlockTrainer {
 public:
  /// The model and the adapters outlive it; its layers are those that it was loaded with.
  BlockTrainer(const model::Model& model, AdapterShelf& adapters,
               const BlockTrainerOptions& options);

  /// Of messages.h: Adapt, LessonRows or Lesson.
  void hear(chain::Message message);
  /// Nobody wants its lessons any more.
  void forget_gateway(uint64_t gateway);
  /// Who waits is told to go elsewhere.
  void leave(const std::string& reason);

  /// Lessons of gateways that are `full`, whose lines do not take what was answered before, wait.
  bool has_work(const std::set<uint64_t>& full) const { return next_of(full) != lessons_.size(); }
  /// One layer, of the oldest lesson that does not wait.
  void step(const std::set<uint64_t>& full);
  /// What is to be sent, to the gateway of its adapter or lesson.
  std::vector<chain::Message> take_sent() { return std::exchange(sent_, {}); }

 private:
  struct Come {
    std::vector<float> x, dy;

    int64_t bytes() const { return static_cast<int64_t>((x.size() + dy.size()) * sizeof(float)); }
  };
  struct Running {
    chain::Lesson lesson;
    std::shared_ptr<const model::Adapter> adapter;
    at::Tensor x_BTC, dy_BTC;
    int32_t next = 0;  // The layer that is read next.
    std::vector<model::KeptLayer> kept;
    at::Tensor gradients_P;
    int64_t bytes = 0;  // Of its rows.

    bool is_begun() const { return next > lesson.layers.begin; }
  };

  void adapt(const chain::Adapt& message);
  void take(const chain::LessonRows& message);
  void begin(const chain::Lesson& lesson);
  size_t next_of(const std::set<uint64_t>& full) const;
  bool go_on(Running& running);
  bool keeps_graphs(const chain::Lesson& lesson) const;
  void send_rows(const Running& running, const at::Tensor& x_BTC);
  void complain(const chain::SessionId& about, chain::Fault fault, std::string reason);
  at::Tensor tensor_BTC(const chain::Lesson& lesson, const std::vector<float>& values) const;

  const model::Model& model_;
  AdapterShelf& adapters_;
  const BlockTrainerOptions options_;
  const std::shared_ptr<const model::Adapter> none_;
  std::map<chain::SessionId, Come> come_;
  int64_t waiting_bytes_ = 0;  // Of what has come, and of lessons.
  std::deque<Running> lessons_;
  std::vector<chain::Message> sent_;
};

}  // namespace atl::serve
