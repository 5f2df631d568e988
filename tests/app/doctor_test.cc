// SPDX-License-Identifier: Apache-2.0
#include "hone/app/doctor.h"

#include <gtest/gtest.h>

#include "hone/core/version.h"
#include "hone/measure/measure.h"

namespace hone::app {
namespace {

class DoctorTest : public testing::Test {
 protected:
  std::unique_ptr<Measurer> measurer_ = measure::make_measurer();
  Json diagnosis_ = diagnose(serial_executor(), *measurer_, false);
};

TEST_F(DoctorTest, has_every_field_and_measures_nothing_unasked) {
  for (const char* field : {"cpu", "isa", "cores", "quota", "torch", "cuda"}) {
    EXPECT_TRUE(diagnosis_.contains(field)) << field;
  }
  EXPECT_TRUE(diagnosis_["memory_gb_per_s"].is_null());
  EXPECT_TRUE(diagnosis_["peak_gflops"].is_null());
}

TEST_F(DoctorTest, says_whether_this_build_has_libtorch) {
  EXPECT_EQ(diagnosis_["torch"].is_null(), torch_version().empty());
}

TEST_F(DoctorTest, gives_a_reason_where_there_is_no_cuda_device) {
  const Json& cuda = diagnosis_["cuda"];
  EXPECT_EQ(cuda["devices"].empty(), cuda["reason"].is_string());
  EXPECT_EQ(cuda["built"].get<bool>(), version_text().find("no cuda") == std::string::npos);
}

TEST_F(DoctorTest, tells_people_the_same) {
  const std::string text = describe_diagnosis(diagnosis_);
  EXPECT_NE(text.find(diagnosis_["cpu"].get<std::string>()), std::string::npos);
  EXPECT_NE(text.find("not measured"), std::string::npos);

  Json measured = diagnosis_;
  measured["memory_gb_per_s"] = 12.34;
  measured["quota"] = 1.5;
  measured["torch"] = {{"version", "2.13.0"}, {"program", nullptr}};
  measured["cuda"]["devices"] = {{{"name", "A device"},
                                  {"memory_bytes", std::int64_t{80} << 30},
                                  {"multiprocessors", 108},
                                  {"compute_capability", 8.0},
                                  {"copy_gb_per_s", 1500.0}}};
  const std::string more = describe_diagnosis(measured);
  for (const char* part :
       {"12.3 GB/s", "quota 1.50 CPUs", "hone-torch is not next to hone",
        "A device, 80 GiB, 108 multiprocessors, compute 8.0, copy 1500.0 GB/s"}) {
    EXPECT_NE(more.find(part), std::string::npos) << part << " is missing in\n" << more;
  }
}

}  // namespace
}  // namespace hone::app
