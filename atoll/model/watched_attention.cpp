#include "atoll/model/watched_attention.h"

#include <utility>

#include "atoll/base/check.h"

namespace atl::model {
namespace {

thread_local const WatchedAttention::Visit* visitor = nullptr;

}  // namespace

WatchedAttention::WatchedAttention(Visit visit) : visit_(std::move(visit)) {
  ATOLL_CHECK(visitor == nullptr);
  visitor = &visit_;
}

WatchedAttention::~WatchedAttention() { visitor = nullptr; }

at::Tensor WatchedAttention::pass(int64_t layer, const at::Tensor& qkv_BTF) {
  return visitor == nullptr ? qkv_BTF : (*visitor)(layer, qkv_BTF);
}

}  // namespace atl::model
