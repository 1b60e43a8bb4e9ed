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
                            int64_t part, bool enters) {
    context->saved_data["watcher"] = reinterpret_cast<int64_t>(watcher);
    context->saved_data["part"] = part;
    context->saved_data["enters"] = enters;
    return x;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto& watcher = *reinterpret_cast<PassWatcher*>(context->saved_data["watcher"].toInt());
    const int64_t part = context->saved_data["part"].toInt();
    if (context->saved_data["enters"].toBool()) {
      watcher.back(part);
    } else {
      watcher.before(part);
    }
    return {gradients[0], {}, {}, {}};
  }
};

}  // namespace

at::Tensor enter_part(PassWatcher* watcher, int64_t part, const at::Tensor& x) {
  if (watcher == nullptr) return x;
  watcher->before(part);
  return Passed::apply(x, watcher, part, /*enters=*/true);
}

at::Tensor leave_part(PassWatcher* watcher, int64_t part, const at::Tensor& y) {
  if (watcher == nullptr) return y;
  watcher->behind(part);
  return Passed::apply(y, watcher, part, /*enters=*/false);
}

}  // namespace atl::model
