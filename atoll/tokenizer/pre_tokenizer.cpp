#include "atoll/tokenizer/pre_tokenizer.h"

#include <utility>

#include "atoll/text/python_text.h"

namespace atl::tokenizer {
namespace {

/// A part of a piece.
struct Segment {
  size_t begin, end;
  bool is_match;
};

/// The whole of `text`, matches and what stands between them.
std::vector<Segment> segments_of(const Matcher& what, std::string_view text, bool invert) {
  std::vector<Segment> segments;
  size_t done = 0;
  what(text, [&](size_t begin, size_t end) {
    if (done < begin) segments.push_back({done, begin, invert});
    segments.push_back({begin, end, !invert});
    done = end;
  });
  if (done < text.size()) segments.push_back({done, text.size(), invert});
  return segments;
}

/// A match joins the neighbour that stands before it in this order, unless that is one, too.
template <typename Segments, typename Join>
std::vector<Segment> joined(const Segments& segments, const Join& join) {
  std::vector<Segment> out;
  bool was_match = false;
  for (const Segment& segment : segments) {
    if (segment.is_match && !was_match && !out.empty()) {
      join(out.back(), segment);
    } else {
      out.push_back(segment);
    }
    was_match = segment.is_match;
  }
  return out;
}

std::vector<Segment> treated(std::vector<Segment> segments, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return segments;
    case SplitBehavior::kRemoved:
      std::erase_if(segments, [](const Segment& segment) { return segment.is_match; });
      return segments;
    case SplitBehavior::kMergedWithPrevious:
      return joined(segments, [](Segment& kept, const Segment& match) { kept.end = match.end; });
    case SplitBehavior::kMergedWithNext: {
      auto out = joined(std::vector(segments.rbegin(), segments.rend()),
                        [](Segment& kept, const Segment& match) { kept.begin = match.begin; });
      return {out.rbegin(), out.rend()};
    }
    case SplitBehavior::kContiguous:
      break;
  }
  std::vector<Segment> out;
  for (const Segment& segment : segments) {
    if (!out.empty() && out.back().is_match == segment.is_match) {
      out.back().end = segment.end;
    } else {
      out.push_back(segment);
    }
  }
  return out;
}

}  // namespace

CutStep split_by(Matcher what, SplitBehavior behavior, bool invert) {
  return [what = std::move(what), behavior, invert](const Piece& piece, Pieces& out) {
    for (const Segment& part : treated(segments_of(what, piece.text, invert), behavior)) {
      if (part.begin == part.end) continue;
      out.all.push_back({.text = piece.text.substr(part.begin, part.end - part.begin),
                         .is_first = piece.is_first && part.begin == 0});
    }
  };
}

CutStep with_prefix_space() {
  return [](const Piece& piece, Pieces& out) {
    if (piece.text.starts_with(' ')) {
      out.all.push_back(piece);
    } else {
      out.all.push_back({.text = out.owned.emplace_back(" " + std::string(piece.text)),
                         .is_first = piece.is_first});
    }
  };
}

CutStep mark_spaces(std::string mark, PrefixScheme prefix, bool splits) {
  const auto split = split_by(match_string(mark), SplitBehavior::kMergedWithNext);
  return [=](const Piece& piece, Pieces& out) {
    std::string text = text::replace_text(piece.text, " ", mark, -1);
    const bool is_due =
        prefix == PrefixScheme::kAlways || (prefix == PrefixScheme::kFirst && piece.is_first);
    if (is_due && !text.starts_with(mark)) text = mark + text;
    const Piece marked = {.text = out.owned.emplace_back(std::move(text)),
                          .is_first = piece.is_first};
    if (splits) {
      split(marked, out);
    } else {
      out.all.push_back(marked);
    }
  };
}

void PreTokenizer::cut(std::string_view text, bool is_first, Pieces& pieces,
                       std::vector<Piece>& spare) const {
  pieces.owned.clear();
  pieces.all.assign(1, {.text = text, .is_first = is_first});
  for (const CutStep& step : steps_) {
    std::swap(pieces.all, spare);
    pieces.all.clear();
    for (const Piece& piece : spare) step(piece, pieces);
  }
}

}  // namespace atl::tokenizer
