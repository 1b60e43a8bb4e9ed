#pragma once
// All processes of an island are there before they work: their backend can be made only then.
#include "atoll/base/clock.h"
#include "atoll/group/answer_timer.h"
#include "atoll/group/meeting.h"
#include "atoll/run/process_place.h"

namespace atl::group {

/// Announces this process and waits for the others. Throws InputError with those who have not come
/// within `patience`, or with one that was started as one of another number of processes. Each look
/// at the store is an answer to `timer`.
void wait_for_all(c10d::Store& store, const run::ProcessPlace& place, Duration patience,
                  const Clock& clock, AnswerTimer& timer);

}  // namespace atl::group
