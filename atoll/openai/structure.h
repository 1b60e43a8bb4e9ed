#pragma once
// The seam for answers of a form that the request asks for: JSON by a schema, calls of tools. Who
// builds them reads these fields here, and gives what they ask for on with the request; until then
// it is refused.
#include "atoll/openai/fields.h"

namespace atl::openai {

/// Of completions and chats. Throws ApiError: 400, "not supported yet", naming the field.
void read_structure(Fields& fields);
/// Of responses, where the form is text.format.
void read_text_format(Fields& text);

}  // namespace atl::openai
