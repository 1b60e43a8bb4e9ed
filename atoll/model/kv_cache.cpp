#include "atoll/model/kv_cache.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/model/product_kernel.h"

namespace atl::model {
namespace {

constexpr int64_t kPositions = KvPool::kPagePositions;
constexpr int64_t kBehind = kMaxLanes;  // Elements that products read behind the last ones.

int64_t pages_for(int64_t num_positions) { return (num_positions + kPositions - 1) / kPositions; }

}  // namespace

KvPool::KvPool(const weights::ModelConfig& config, at::Device device, at::ScalarType type,
               LayerRange layers, int64_t max_pages)
    : heads_HPN_{config.num_kv_heads, kPagePositions, config.head_size()},
      layers_(layers),
      options_(at::TensorOptions().dtype(type).device(device)),
      max_pages_(max_pages),
      shelf_(std::make_shared<Shelf>()) {}

KvPage KvPool::take() {
  if (num_left() <= 0) return nullptr;
  at::Tensor page;
  if (shelf_->spare.empty()) {
    page = loose_page();
  } else {
    page = std::move(shelf_->spare.back());
    shelf_->spare.pop_back();
  }
  shelf_->num_taken += 1;
  return {new at::Tensor(std::move(page)),
          [shelf = std::weak_ptr(shelf_)](const at::Tensor* released) {
            const std::unique_ptr<const at::Tensor> owned(released);
            const auto still = shelf.lock();
            if (still == nullptr) return;
            still->num_taken -= 1;
            still->spare.push_back(*owned);
          }};
}

at::Tensor KvPool::loose_page() const {
  const int64_t size = layers_.size() * 2 * heads_HPN_[0] * heads_HPN_[1] * heads_HPN_[2];
  return at::empty({size + kBehind}, options_).narrow(0, 0, size).view({layers_.size(), 2, -1});
}

int64_t KvPool::page_bytes() const {
  return std::accumulate(heads_HPN_.begin(), heads_HPN_.end(),
                         layers_.size() * 2 * static_cast<int64_t>(options_.dtype().itemsize()),
                         std::multiplies<>());
}

int64_t KvPool::num_left() const {
  if (max_pages_ == 0) return std::numeric_limits<int64_t>::max();
  return max_pages_ - shelf_->num_taken;
}

KvCache::KvCache(std::shared_ptr<KvPool> pool, std::vector<KvPage> full_pages)
    : pool_(std::move(pool)),
      pages_(std::move(full_pages)),
      length_(std::ssize(pages_) * kPositions) {}

bool KvCache::shares_last_page() const {
  return length_ % kPositions != 0 && pages_[length_ / kPositions].use_count() > 1;
}

int64_t KvCache::num_lacking(int64_t num_positions) const {
  const int64_t missing = pages_for(length_ + num_positions) - std::ssize(pages_);
  return std::max<int64_t>(missing, 0) + (num_positions > 0 && shares_last_page() ? 1 : 0);
}

void KvCache::truncate(int64_t length) {
  ATOLL_CHECK(length >= 0 && length <= length_);
  length_ = length;
  pages_.resize(static_cast<size_t>(pages_for(length)));
}

KvCache KvCache::fork() const {
  KvCache copy(pool_);
  copy.pages_.assign(pages_.begin(), pages_.begin() + pages_for(length_));
  copy.length_ = length_;
  return copy;
}

bool KvCache::prepare(int64_t num_positions) {
  if (num_lacking(num_positions) > pool_->num_left()) return false;
  if (num_positions > 0 && shares_last_page()) {
    KvPage& shared = pages_[length_ / kPositions];
    KvPage own = pool_->take();
    own->copy_(*shared);
    shared = std::move(own);
  }
  while (std::ssize(pages_) < pages_for(length_ + num_positions)) pages_.push_back(pool_->take());
  return true;
}

std::vector<at::Tensor> KvCache::copied_pages(int64_t begin, int64_t end) const {
  ATOLL_CHECK(begin % kPositions == 0 && end % kPositions == 0 && end <= length_);
  std::vector<at::Tensor> pages;
  for (int64_t at = begin; at < end; at += kPositions) {
    pages.push_back(pages_[static_cast<size_t>(at / kPositions)]->clone());
  }
  return pages;
}

bool KvCache::append(std::span<const at::Tensor> pages) {
  ATOLL_CHECK(length_ % kPositions == 0);
  const int64_t count = std::ssize(pages) * kPositions;
  if (!prepare(count)) return false;
  for (size_t i = 0; i < pages.size(); ++i) {
    pages_[static_cast<size_t>(length_ / kPositions) + i]->copy_(pages[i]);
  }
  length_ += count;
  return true;
}

at::Tensor KvCache::heads_HPN(int64_t page, int64_t layer, int64_t part) const {
  const at::Tensor flat =
      (*pages_.at(static_cast<size_t>(page)))[layer - pool_->first_layer()][part];
  const std::vector<int64_t>& shape = pool_->heads_shape();
  if (part == 1) return flat.view(shape);
  return flat.view({shape[0], shape[2], shape[1]}).transpose(1, 2);
}

void KvCache::write(int64_t layer, const at::Tensor& k_THN, const at::Tensor& v_THN) {
  const int64_t count = k_THN.size(0);
  for (int64_t done = 0; done < count;) {
    const int64_t at = length_ + done;
    const int64_t size = std::min(count - done, kPositions - at % kPositions);
    const auto put = [&](int64_t part, const at::Tensor& from_THN) {
      heads_HPN(at / kPositions, layer, part)
          .narrow(1, at % kPositions, size)
          .copy_(from_THN.narrow(0, done, size).transpose(0, 1));
    };
    put(0, k_THN);
    put(1, v_THN);
    done += size;
  }
}

at::Tensor KvCache::gathered(int64_t layer, int64_t part, int64_t length) const {
  std::vector<at::Tensor> parts;
  for (int64_t at = 0; at < length; at += kPositions) {
    const int64_t size = std::min(kPositions, length - at);
    parts.push_back(heads_HPN(at / kPositions, layer, part).narrow(1, 0, size));
  }
  return at::cat(parts, 1);
}

}  // namespace atl::model
