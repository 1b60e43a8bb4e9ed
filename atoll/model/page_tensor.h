#pragma once
// Zeros on the CPU whose memory is taken from the system where it is touched, and can be given back
// in between: who shares parameters among processes has an address for each, and memory for what it
// reads now. Gradients need none from an update to the next way back, when activations need most.
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace atl::model {

/// (size,). Throws InputError where there is no room.
at::Tensor page_zeros(int64_t size, at::ScalarType type);

/// A contiguous slice of what page_zeros() made is zero now, and its whole pages take no memory.
void forget(const at::Tensor& values);

/// All of these are written anew after they are forgotten, and their memory is worth the time: what
/// page_zeros() made, of which they may be a slice, is not so small that moving pages shows, nor so
/// large that the process would have too many mappings. False of other tensors, and where the
/// system moves no pages.
bool is_worth_forgetting(const at::Tensor& values);
inline constexpr size_t kLeastWorth = size_t{256} << 20;  // Bytes.
inline constexpr size_t kMostWorth = size_t{2} << 30;

/// zero_() that forgets where it is worth it.
void clear(const at::Tensor& values);

/// Values of page_zeros() are written next, all of them. If they are forgotten, pages that lie free
/// in the pool of large tensors (pooled_tensors.h) are used for them, and are zero: some ten times
/// as fast as new ones. Nothing of other tensors, nor where some of them were read or written.
void make_room_for(const at::Tensor& values);

}  // namespace atl::model
