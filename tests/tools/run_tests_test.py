# SPDX-License-Identifier: Apache-2.0
import collections
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import run_tests

REPORT = """<testsuites><testsuite>
<testcase name="a" status="run" result="completed"/>
<testcase name="b" status="run" result="completed"><failure message="x"/></testcase>
<testcase name="c" status="run" result="skipped"><skipped message="f.cc:3&#x0A;no data"/></testcase>
<testcase name="d" status="notrun" result="suppressed"/>
</testsuite></testsuites>"""


class RunTestsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.reports = pathlib.Path(self.folder.name)
        self.reasons = collections.Counter()

    def tearDown(self):
        self.folder.cleanup()

    def count(self, status, report=None, output="", reason="SKIP_RETURN_CODE=77"):
        if report:
            (self.reports / "t.xml").write_text(report)
        case = ElementTree.fromstring(
            f'<testcase name="t" status="{status}"><skipped message="{reason}"/>'
            f'<system-out>{output}</system-out></testcase>')
        return tuple(run_tests.count_test(case, self.reports, self.reasons))

    def test_cases_of_a_report_are_counted(self):
        self.assertEqual(self.count("fail", REPORT), (1, 1, 1))
        self.assertEqual(self.reasons, {"no data": 1})

    def test_crash_without_a_failed_case_is_a_failure(self):
        self.assertEqual(self.count("fail", REPORT.replace("<failure", "<other")), (2, 1, 1))

    def test_crash_without_a_report_is_a_failure(self):
        self.assertEqual(self.count("fail"), (0, 1, 0))

    def test_test_without_a_report_counts_once(self):
        self.assertEqual(self.count("run"), (1, 0, 0))

    def test_skipped_binary_keeps_its_reason(self):
        self.assertEqual(self.count("notrun", output="skipped: no avx512"), (0, 0, 1))
        self.assertEqual(self.reasons, {"skipped: no avx512": 1})

    def test_missing_program_is_a_failure(self):
        self.assertEqual(self.count("notrun", reason="Unable to find executable"), (0, 1, 0))

    def test_a_label_selects_one_part_of_one_pace(self):
        tests = {"a": ("unit", False), "b": ("torch", False), "c": ("torch", True)}
        self.assertEqual(run_tests.select(tests, "fast", None),
                         ({"unit": ["a"], "torch": ["b"]}, 1))
        self.assertEqual(run_tests.select(tests, "fast", "torch"), ({"torch": ["b"]}, 1))
        self.assertEqual(run_tests.select(tests, "slow", "torch"), ({"torch": ["c"]}, 1))


if __name__ == "__main__":
    unittest.main()
