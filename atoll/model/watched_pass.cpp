#include "atoll/model/watched_pass.h"

#include <torch/csrc/autograd/custom_function.h>

namespace atl::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// Hands on what it gets, both ways. On the way back it says so first.
struct Passed : Function<Passed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, PassWatcher* watcher,
                            int64_t stage, bool enters) {
    context->saved_data["watcher"] = reinterpret_cast<int64_t>(watcher);
    context->saved_data["stage"] = stage;
    context->saved_data["enters"] = enters;
    return x;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto& watcher = *reinterpret_cast<PassWatcher*>(context->saved_data["watcher"].toInt());
    const int64_t stage = context->saved_data["stage"].toInt();
    if (context->saved_data["enters"].toBool()) {
      watcher.back(stage);
    } else {
      watcher.before(stage);
    }
    return {gradients[0], {}, {}, {}};
  }
};

}  // namespace

at::Tensor enter_stage(PassWatcher* watcher, int64_t stage, const at::Tensor& x) {
  if (watcher == nullptr) return x;
  watcher->before(stage);
  return Passed::apply(x, watcher, stage, /*enters=*/true);
}

at::Tensor leave_stage(PassWatcher* watcher, int64_t stage, const at::Tensor& y) {
  if (watcher == nullptr) return y;
  watcher->behind(stage);
  return Passed::apply(y, watcher, stage, /*enters=*/false);
}

}  // namespace atl::model
