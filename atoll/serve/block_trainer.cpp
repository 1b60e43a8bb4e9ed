#include "atoll/serve/block_trainer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <span>

#include "atoll/base/error.h"
#include "atoll/chain/rows.h"
#include "atoll/serve/lesson_values.h"

namespace atl::serve {
namespace {

using chain::Fault;

/// One that changes nothing.
std::shared_ptr<const model::Adapter> no_adapter(const model::Model& model) {
  return std::make_shared<const model::Adapter>(
      model.config(), weights::AdapterConfig{.rank = 0, .prompt_tokens = 1},
      model.decoder().layers(), model.device(), model::Purpose::kInference);
}

}  // namespace

BlockTrainer::BlockTrainer(const model::Model& model, AdapterShelf& adapters,
                           const BlockTrainerOptions& options)
    : model_(model), adapters_(adapters), options_(options), none_(no_adapter(model)) {}

void BlockTrainer::complain(const chain::SessionId& about, Fault fault, std::string reason) {
  sent_.emplace_back(
      chain::Trouble{.session = about, .epoch = 0, .fault = fault, .reason = std::move(reason)});
}

void BlockTrainer::hear(chain::Message message) {
  chain::SessionId about;
  try {
    if (const auto* part = std::get_if<chain::Adapt>(&message)) {
      about = part->adapter;
      adapt(*part);
    } else if (const auto* rows = std::get_if<chain::LessonRows>(&message)) {
      about = rows->lesson;
      take(*rows);
    } else if (const auto* lesson = std::get_if<chain::Lesson>(&message)) {
      about = lesson->lesson;
      begin(*lesson);
    }
  } catch (const std::exception& error) {
    complain(about, Fault::kDamaged, error.what());
  }
}

void BlockTrainer::adapt(const chain::Adapt& message) {
  const auto& own = model_.decoder().layers();
  if (message.layers.begin < own.begin || message.layers.end > own.end) {
    return complain(message.adapter, Fault::kNotKept, "an adapter of layers that are not here");
  }
  // Whose texts wait for it has it sent anew. A lesson says itself that it lacks its adapter.
  const bool is_of_texts = message.adapter.number >= chain::kFirstAdapter;
  if (adapters_.put(message) == AdapterShelf::Put::kGone && is_of_texts) {
    sent_.emplace_back(chain::Unadapted{.adapter = message.adapter, .layers = message.layers});
  }
}

void BlockTrainer::take(const chain::LessonRows& message) {
  const auto width = static_cast<size_t>(model_.config().hidden_size);
  Come& come = come_[message.lesson];
  std::vector<float>& values = message.is_gradient ? come.dy : come.x;
  const size_t before = values.size();
  const auto forget = [&] {
    waiting_bytes_ -= come.bytes();
    come_.erase(message.lesson);
  };
  if (message.rows.begin != static_cast<int64_t>(before / width)) {
    forget();
    throw InputError("rows of a lesson that do not follow each other");
  }
  const size_t size = message.rows.num_tokens * width;
  if (waiting_bytes_ + static_cast<int64_t>(size * sizeof(float)) > options_.waiting_bytes) {
    forget();
    return complain(message.lesson, Fault::kNoMemory, "too many rows wait for their lessons");
  }
  values.resize(before + size);
  waiting_bytes_ += static_cast<int64_t>(size * sizeof(float));
  try {
    chain::decode_rows(message.rows, std::span(values).subspan(before));
  } catch (const InputError&) {
    forget();
    throw;
  }
}

at::Tensor BlockTrainer::tensor_BTC(const chain::Lesson& lesson,
                                    const std::vector<float>& values) const {
  const int64_t width = model_.config().hidden_size;
  if (values.size() != size_t{lesson.num_texts} * lesson.num_tokens * static_cast<size_t>(width)) {
    throw InputError("a lesson of other rows than have come");
  }
  const at::Tensor x_BTC = at::empty({lesson.num_texts, lesson.num_tokens, width}, at::kFloat);
  std::ranges::copy(values, x_BTC.mutable_data_ptr<float>());
  return x_BTC;
}

void BlockTrainer::begin(const chain::Lesson& lesson) {
  const auto node = come_.extract(lesson.lesson);
  if (node.empty()) throw InputError("a lesson without rows");
  waiting_bytes_ -= node.mapped().bytes();
  if (!model_.device().is_cpu()) {
    return complain(lesson.lesson, Fault::kLeaving, "lessons are given on CPUs, and this is none");
  }
  const auto& own = model_.decoder().layers();
  const chain::Span layers = lesson.layers;
  if (layers.begin < own.begin || layers.end > own.end) {
    return complain(lesson.lesson, Fault::kNotKept, "layers that are not here");
  }
  if (lesson.num_tokens > model_.config().context()) {
    throw InputError(
        fmt::format("texts of {} tokens, over the model's context", lesson.num_tokens));
  }
  Running running{.lesson = lesson, .adapter = none_, .next = layers.begin};
  if (lesson.adapter.number != 0) {
    if (lesson.adapter.gateway != lesson.lesson.gateway) {
      throw InputError("a lesson with the adapter of another gateway");
    }
    running.adapter = adapters_.find(lesson.adapter, layers, lesson.version);
    if (running.adapter == nullptr) {
      return complain(lesson.lesson, Fault::kNotKept, "the adapter is not here, or another one is");
    }
  }
  running.x_BTC = tensor_BTC(lesson, node.mapped().x);
  if (lesson.goes_back) {
    running.dy_BTC = tensor_BTC(lesson, node.mapped().dy);
    running.gradients_P = at::empty({running.adapter->parameters().values_P().numel()}, at::kFloat);
  }
  running.bytes = node.mapped().bytes();
  waiting_bytes_ += running.bytes;
  lessons_.push_back(std::move(running));
}

void BlockTrainer::forget_gateway(uint64_t gateway) {
  adapters_.forget_gateway(gateway);
  std::erase_if(lessons_, [&](const Running& each) {
    if (each.lesson.lesson.gateway != gateway) return false;
    waiting_bytes_ -= each.bytes;
    return true;
  });
  std::erase_if(come_, [&](const auto& entry) {
    if (entry.first.gateway != gateway) return false;
    waiting_bytes_ -= entry.second.bytes();
    return true;
  });
}

void BlockTrainer::leave(const std::string& reason) {
  for (const Running& each : lessons_) complain(each.lesson.lesson, Fault::kLeaving, reason);
  for (const Running& each : lessons_) waiting_bytes_ -= each.bytes;
  lessons_.clear();
}

bool BlockTrainer::keeps_graphs(const chain::Lesson& lesson) const {
  const int64_t tokens = int64_t{lesson.num_texts} * lesson.num_tokens;
  return lesson.layers.size() * model::bytes_of_graph(model_.config(), tokens) <=
         options_.graph_bytes;
}

/// Its place among the lessons; their number: there is none. One that has begun is not left for
/// another: only one has its graphs here.
size_t BlockTrainer::next_of(const std::set<uint64_t>& full) const {
  auto found = std::ranges::find_if(lessons_, &Running::is_begun);
  if (found == lessons_.end()) {
    found = std::ranges::find_if(
        lessons_, [&](const Running& each) { return !full.contains(each.lesson.lesson.gateway); });
  }
  return static_cast<size_t>(found - lessons_.begin());
}

void BlockTrainer::step(const std::set<uint64_t>& full) {
  const size_t next = next_of(full);
  if (next == lessons_.size()) return;
  Running& running = lessons_[next];
  bool is_over = true;
  try {
    is_over = go_on(running);
  } catch (const std::exception& error) {
    complain(running.lesson.lesson, Fault::kBroken, error.what());
  }
  if (!is_over) return;
  waiting_bytes_ -= running.bytes;
  lessons_.erase(lessons_.begin() + static_cast<std::ptrdiff_t>(next));
}

/// Whether it is answered.
bool BlockTrainer::go_on(Running& running) {
  const chain::Lesson& lesson = running.lesson;
  if (running.next < lesson.layers.end) {
    auto layer = model::keep_layer(model_.decoder(), running.next, running.x_BTC, *running.adapter);
    running.x_BTC = layer.y_BTC.detach();
    ++running.next;
    if (lesson.goes_back) {
      if (!keeps_graphs(lesson)) layer.y_BTC.reset();
      running.kept.push_back(std::move(layer));
    }
  } else if (!running.kept.empty()) {
    running.dy_BTC = model::go_back(model_.decoder(), std::move(running.kept.back()),
                                    running.dy_BTC, *running.adapter, running.gradients_P);
    running.kept.pop_back();
  }
  if (running.next < lesson.layers.end || !running.kept.empty()) return false;
  send_rows(running, lesson.goes_back ? running.dy_BTC : running.x_BTC);
  return true;
}

/// All of an answer, or nothing of it.
void BlockTrainer::send_rows(const Running& running, const at::Tensor& x_BTC) {
  const chain::Lesson& lesson = running.lesson;
  std::vector<chain::Message> answer;
  if (lesson.goes_back && lesson.adapter.number != 0) {
    const auto values = running.adapter->values_of({lesson.layers.begin, lesson.layers.end});
    const at::Tensor own_P = running.gradients_P.narrow(0, values.first, values.second);
    for (ValuesPart& part : parts_of(own_P)) {
      answer.emplace_back(chain::LessonValues{
          .lesson = lesson.lesson, .begin = part.begin, .values = std::move(part.bytes)});
    }
  }
  for (chain::Rows& rows : rows_of(x_BTC, lesson.precision)) {
    answer.emplace_back(chain::LessonRows{
        .lesson = lesson.lesson, .is_gradient = lesson.goes_back, .rows = std::move(rows)});
  }
  answer.emplace_back(chain::Learnt{lesson.lesson});
  std::ranges::move(answer, std::back_inserter(sent_));
}

}  // namespace atl::serve
