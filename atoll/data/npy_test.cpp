#include "atoll/data/npy.h"

#include <gmock/gmock.h>

#include "atoll/testing/temporary_folder.h"

namespace atl::data {
namespace {

using ::testing::HasSubstr;

NpyHeader header_of(NumberType type, int64_t num_rows) {
  return {.type = type, .num_rows = num_rows};
}

/// What numpy 2.4.6 writes: the dictionary, filled with spaces to 128 bytes in all.
std::string numpys(const std::string& dictionary) {
  return std::string("\x93NUMPY\x01\x00v\x00", 10) + dictionary +
         std::string(117 - dictionary.size(), ' ') + "\n";
}

std::string failure(const std::string& file) {
  return message_of([&] { parse_npy_header(as_byte_span(file), "map.npy"); });
}

std::string failure_of(const std::string& dictionary, size_t data_bytes) {
  return failure(numpys(dictionary) + std::string(data_bytes, 'x'));
}

TEST(NpyTest, HeadersEqualNumpys) {
  EXPECT_EQ(format_npy_header(header_of(NumberType::kU32, 10)),
            numpys("{'descr': '<u4', 'fortran_order': False, 'shape': (10,), }"));
  EXPECT_EQ(format_npy_header(header_of(NumberType::kI64, 0)),
            numpys("{'descr': '<i8', 'fortran_order': False, 'shape': (0,), }"));
  EXPECT_EQ(format_npy_header(header_of(NumberType::kU8, 3)),
            numpys("{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }"));
  EXPECT_EQ(
      format_npy_header(
          {.type = NumberType::kI32, .num_rows = 123456789, .num_columns = 2, .is_matrix = true}),
      numpys("{'descr': '<i4', 'fortran_order': False, 'shape': (123456789, 2), }"));
}

TEST(NpyTest, ReadsWhatItWrites) {
  for (const NumberType type :
       {NumberType::kU8, NumberType::kU16, NumberType::kU32, NumberType::kI32, NumberType::kI64}) {
    const NpyHeader written = {.type = type, .num_rows = 3, .num_columns = 2, .is_matrix = true};
    const std::string file = format_npy_header(written) + std::string(written.data_bytes(), 'x');
    const NpyHeader read = parse_npy_header(as_byte_span(file), "f");
    EXPECT_EQ(read.type, type);
    EXPECT_EQ(read.shape(), "(3, 2)");
    EXPECT_EQ(read.data_offset, 128U);
  }
}

TEST(NpyTest, ReadsVersionTwoAndOtherSpellings) {
  const std::string two("\x93NUMPY\x02\x00\x3c\x00\x00\x00", 12);
  const std::string odd = R"({"shape":(2,1,),"fortran_order":False,"descr":"<u2"})";
  const std::string file = two + odd + std::string(60 - odd.size(), ' ') + "abcd";
  const NpyHeader header = parse_npy_header(as_byte_span(file), "f");
  EXPECT_EQ(header.shape(), "(2, 1)");
  EXPECT_EQ(header.type, NumberType::kU16);
  EXPECT_EQ(header.data_offset, 72U);
  // With one dimension, Fortran's order is C's.
  EXPECT_EQ(failure_of("{'descr': '|u1', 'fortran_order': True, 'shape': (4,), }", 4), "");
}

TEST(NpyTest, NamesWhatIsWrong) {
  const std::string good = "{'descr': '<u2', 'fortran_order': False, 'shape': (4,), }";
  EXPECT_EQ(failure_of(good, 8), "");
  EXPECT_THAT(failure_of(good, 7), HasSubstr("'map.npy' has 7 bytes of data, but its header "
                                             "promises 8 ((4,) numbers of uint16): it was "
                                             "truncated"));
  EXPECT_THAT(failure_of(good, 9), HasSubstr("it was written to"));
  EXPECT_THAT(failure("PK"), HasSubstr("does not begin with numpy's magic"));
  EXPECT_THAT(failure(std::string("\x93NUMPY\x03\x00\x10\x00\x00\x00", 12)),
              HasSubstr("version 3.0; read are 1.0 and 2.0"));
  EXPECT_THAT(failure("\x93NUMPY\x01"), HasSubstr("its header is cut off"));
  EXPECT_THAT(failure(numpys(good).substr(0, 100)), HasSubstr("its header is cut off"));
  EXPECT_THAT(
      failure(std::string("\x93NUMPY\x02\x00\x00\x00\x02\x00", 12) + std::string(0x20000, ' ')),
      HasSubstr("more than 64 KiB"));
}

TEST(NpyTest, RefusesArraysThatItDoesNotReadByName) {
  const auto dictionary = [](const std::string& type, const std::string& order,
                             const std::string& shape) {
    return failure_of(
        "{'descr': " + type + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }", 8);
  };
  EXPECT_THAT(dictionary("'<f8'", "False", "(1,)"), HasSubstr("type '<f8'; read are |u1"));
  EXPECT_THAT(dictionary("'>u2'", "False", "(4,)"), HasSubstr("type '>u2'"));
  EXPECT_THAT(dictionary("[('a', '<u2')]", "False", "(4,)"), HasSubstr("no plain array"));
  EXPECT_THAT(dictionary("'<u2'", "True", "(2, 2)"), HasSubstr("Fortran order"));
  EXPECT_THAT(dictionary("'<u2'", "Maybe", "(4,)"), HasSubstr("neither True nor False"));
  EXPECT_THAT(dictionary("'<u2'", "False", "(1, 2, 2)"), HasSubstr("more than two dimensions"));
  EXPECT_THAT(dictionary("'<u2'", "False", "()"), HasSubstr("shape out of range"));
  EXPECT_THAT(dictionary("'<u2'", "False", "(-4,)"), HasSubstr("shape out of range"));
  EXPECT_THAT(dictionary("'<u2'", "False", "(4)"), HasSubstr("no ',' where one must be"));
  EXPECT_THAT(dictionary("'<u2'", "False", "(281474976710656, 281474976710656)"),
              HasSubstr("shape out of range"));
  EXPECT_THAT(failure_of("{'descr': '<u2', 'shape': (4,), }", 8), HasSubstr("lacks descr"));
  EXPECT_THAT(failure_of("{'descr': '<u2', 'descr': '<u2', }", 8), HasSubstr("repeated key"));
  EXPECT_THAT(failure_of("{'descr': '<u2', 'fortran_order': False, 'shape': (4,), } x", 8),
              HasSubstr("behind its dictionary"));
  EXPECT_THAT(failure_of("{'descr': '<u2", 8), HasSubstr("never closed"));
}

}  // namespace
}  // namespace atl::data
