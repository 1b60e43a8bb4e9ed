#include "atoll/model/kv_cache.h"

#include <ATen/ops/zeros.h>

#include "atoll/base/check.h"

namespace atl::model {

KvCache::KvCache(const weights::ModelConfig& config, int64_t num_sequences, int64_t capacity,
                 at::Device device)
    : capacity_(capacity) {
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (auto* list : {&keys_BHSN_, &values_BHSN_}) {
      list->push_back(
          at::zeros({num_sequences, config.num_kv_heads, capacity, config.head_size()}, options));
    }
  }
}

void KvCache::reserve(int64_t capacity) {
  if (capacity <= capacity_) return;
  for (auto* list : {&keys_BHSN_, &values_BHSN_}) {
    for (at::Tensor& held_BHSN : *list) {
      const at::Tensor larger_BHSN = at::zeros(
          {held_BHSN.size(0), held_BHSN.size(1), capacity, held_BHSN.size(3)}, held_BHSN.options());
      larger_BHSN.narrow(2, 0, length_).copy_(held_BHSN.narrow(2, 0, length_));
      held_BHSN = larger_BHSN;
    }
  }
  capacity_ = capacity;
}

void KvCache::truncate(int64_t length) {
  ATOLL_CHECK(length >= 0 && length <= length_);
  length_ = length;
}

void KvCache::write(int64_t layer, const at::Tensor& k_BTHN, const at::Tensor& v_BTHN) {
  const int64_t count = k_BTHN.size(1);
  ATOLL_CHECK(length_ + count <= capacity_);
  keys_BHSN_.at(layer).narrow(2, length_, count).copy_(k_BTHN.transpose(1, 2));
  values_BHSN_.at(layer).narrow(2, length_, count).copy_(v_BTHN.transpose(1, 2));
}

at::Tensor KvCache::keys_BHSN(int64_t layer, int64_t length) const {
  return keys_BHSN_.at(layer).narrow(2, 0, length);
}

at::Tensor KvCache::values_BHSN(int64_t layer, int64_t length) const {
  return values_BHSN_.at(layer).narrow(2, 0, length);
}

}  // namespace atl::model
