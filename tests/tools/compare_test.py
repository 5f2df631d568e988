# SPDX-License-Identifier: Apache-2.0
import pathlib
import subprocess
import sys
import tempfile
import unittest

COMPARE = pathlib.Path(__file__).resolve().parents[2] / "tools/compare"
# Prints {"rate": [VALUE]}, and logs its name and whether the folder it is given is new and empty.
PROGRAM = """#!{python}
import os, sys
with open({log!r}, "a") as log:
    log.write({name!r} + str(len(os.listdir(sys.argv[1]))) + " ")
open(os.path.join(sys.argv[1], "file"), "w").close()
print('{{"rate": [{value}]}}')
sys.exit({status})
"""


class CompareTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.log = self.root / "log"

    def tearDown(self):
        self.folder.cleanup()

    def program(self, name, value, status=0):
        path = self.root / name
        path.write_text(PROGRAM.format(python=sys.executable, log=str(self.log), name=name,
                                       value=value, status=status))
        path.chmod(0o755)
        return str(path)

    def compare(self, *arguments):
        return subprocess.run([sys.executable, str(COMPARE), *arguments, "--", "{}"],
                              capture_output=True, text=True)

    def test_a_field_of_which_more_is_better_gives_the_ratio_of_new_to_old(self):
        done = self.compare(self.program("a", 10), self.program("b", 25), "--field", "rate.0",
                            "--rate", "--rounds", "3")
        self.assertIn("ratio  2.5000  [2.5000, 2.5000]  new is better", done.stdout)

    def test_a_field_of_which_less_is_better_gives_the_ratio_of_old_to_new(self):
        done = self.compare(self.program("a", 10), self.program("b", 20), "--field", "rate.0")
        self.assertIn("ratio  0.5000  [0.5000, 0.5000]  new is worse", done.stdout)

    def test_rounds_alternate_and_each_run_has_a_folder_of_its_own(self):
        self.compare(self.program("a", 1), self.program("b", 1), "--rounds", "2", "--warm-up", "1")
        self.assertEqual(self.log.read_text(), "b0 a0 a0 b0 b0 a0 ")

    def test_without_a_field_seconds_are_compared(self):
        done = self.compare(self.program("a", 1), self.program("b", 1), "--rounds", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"old  [\d.e-]+ s  \[")

    def test_a_program_that_fails_or_has_no_such_field_ends_with_a_sentence(self):
        done = self.compare(self.program("a", 1), self.program("b", 1, status=3))
        self.assertEqual(done.returncode, 1)
        self.assertIn("ended with 3", done.stderr)
        done = self.compare(self.program("a", 1), self.program("c", 1), "--field", "speed")
        self.assertIn("no JSON document with a number at speed", done.stderr)


if __name__ == "__main__":
    unittest.main()
