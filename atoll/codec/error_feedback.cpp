#include "atoll/codec/error_feedback.h"

#include "atoll/base/check.h"

namespace atl::codec {

ErrorFeedback::ErrorFeedback(const Codec& codec, size_t count, float decay)
    : codec_(codec), decay_(decay), residual_(count), staged_(count), sent_(count) {
  ATOLL_CHECK(decay >= 0 && decay <= 1, "what was lost must not grow by itself");
}

void ErrorFeedback::encode(std::span<const float> values, Bytes& out, uint32_t sequence) {
  ATOLL_CHECK(values.size() == residual_.size(), "as many values each turn");
  is_staged_ = false;
  for (size_t i = 0; i < values.size(); ++i) staged_[i] = values[i] + decay_ * residual_[i];
  const size_t begin = out.size();
  codec_.encode(staged_, out, sequence);
  codec_.decode(std::span(out).subspan(begin), sent_, sequence);
  for (size_t i = 0; i < values.size(); ++i) staged_[i] -= sent_[i];
  is_staged_ = true;
}

void ErrorFeedback::commit() {
  ATOLL_CHECK(is_staged_, "nothing was encoded since the last commit or discard");
  residual_.swap(staged_);
  is_staged_ = false;
}

}  // namespace atl::codec
