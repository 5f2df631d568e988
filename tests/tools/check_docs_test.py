# SPDX-License-Identifier: Apache-2.0
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
INDEX = "# Index\n[architecture](architecture.md) [tour](tour.md)\n"
TOUR = "# Tour\n\n## One gradient\n\n1. `hone/core/a.cc` begins.\n\n## One token\n"
ARCHITECTURE = "# Layers\n\n## Allowed includes\n\n| from | core | LibTorch |\n|---|:-:|:-:|\n" \
               "| core | · | |\n"


class CheckDocsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.write("README.md", "# hone\n[docs](docs/README.md)\n")
        self.write("docs/README.md", INDEX)
        self.write("docs/tour.md", TOUR)
        self.write("docs/architecture.md", ARCHITECTURE)
        self.write("hone/core/a.cc", "int f() { return 1; }\n")

    def tearDown(self):
        self.folder.cleanup()

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def findings(self):
        done = subprocess.run([sys.executable, str(TOOLS / "check_docs.py"), "--root", self.root],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, int(bool(done.stdout)), done.stderr)
        return done.stdout

    def expect_finding(self, part):
        self.assertIn(part, self.findings())

    def expect_clean(self):
        self.assertEqual(self.findings(), "")

    def test_a_tree_that_names_only_what_it_holds_is_clean(self):
        self.expect_clean()

    def test_paths_in_pages_and_comments_must_exist(self):
        self.write("docs/tour.md", TOUR + "Read `hone/core/b.cc`.\n")
        self.expect_finding("docs/tour.md:8: hone/core/b.cc does not exist")
        self.write("docs/tour.md", TOUR)
        self.write("hone/core/a.cc", "int f();\n// As docs/gone.md says.\n")
        self.expect_finding("hone/core/a.cc:2: docs/gone.md does not exist")

    def test_names_without_a_folder_must_end_the_path_of_some_file(self):
        self.write("hone/core/a.cc", "// See core/a.cc, a.cc and <torch/torch.h>.\n")
        self.expect_clean()
        self.write("hone/core/a.cc", "// product.md, section 2; text/a.cc\n")
        self.expect_finding("product.md does not exist")
        self.expect_finding("text/a.cc does not exist")

    def test_globs_and_braces_stand_for_every_name_that_they_give(self):
        self.write("hone/core/a.h", "")
        self.write("hone/core/b.cc", "// hone/core/a.{h,cc}, a.{h,cc} and hone/core/*.h\n")
        self.expect_clean()
        self.write("hone/core/b.cc", "// hone/core/b.{h,cc}\n// hone/text/*.h\n")
        self.expect_finding("hone/core/b.cc:1: hone/core/b.h does not exist")
        self.expect_finding("hone/core/b.cc:2: hone/text/*.h does not exist")

    def test_strings_and_code_are_not_comments(self):
        self.write("hone/core/a.cc", 'auto a = "hone/core/gone.cc // docs/gone.md";\n'
                   "int b = 1'000;  // a comment\n" 'auto c = R"(/* docs/gone.md */)";\n')
        self.expect_clean()
        self.write("hone/core/a.cc", "int b = 1'000;  // it's docs/gone.md\n")
        self.expect_finding("docs/gone.md does not exist")

    def test_comments_and_docstrings_of_scripts_are_read(self):
        self.write("tools/a.py", '"""Writes docs/gone.md."""\nNAME = "docs/other.md"\n')
        self.write("cmake/a.cmake", "# As docs/missing.md has it.\n")
        self.expect_finding("tools/a.py:1: docs/gone.md does not exist")
        self.expect_finding("cmake/a.cmake:1: docs/missing.md does not exist")
        self.assertNotIn("other.md", self.findings())

    def test_links_lead_to_files_and_headings(self):
        self.write("docs/tour.md", TOUR + "[a](#one-token) [b](architecture.md#allowed-includes)\n")
        self.expect_clean()
        self.write("docs/tour.md", TOUR + "[no](#two-tokens) [none](notes/gone.txt)\n")
        self.expect_finding("docs/tour.md has no heading #two-tokens")
        self.expect_finding("the link notes/gone.txt leads nowhere")

    def test_numbered_oracles_are_refused_in_comments_pages_and_test_names(self):
        self.write("tests/core/a_test.cc", "// oracle 6: a power of two\n"
                   "TEST(Sum, Oracle12_is_exact) {}\nTEST(Sum, oracles_agree) {}\n")
        self.expect_finding("a_test.cc:1: oracle 6 is a number")
        self.expect_finding("a_test.cc:2: test Sum, Oracle12_is_exact")
        self.assertNotIn("oracles_agree", self.findings())

    def test_lines_of_pages_are_at_most_120_wide_but_tables(self):
        self.write("docs/tour.md", TOUR + "x" * 120 + "\n| " + "x" * 200 + " |\n")
        self.expect_clean()
        self.write("docs/tour.md", TOUR + "x" * 121 + "\n")
        self.expect_finding("docs/tour.md:8: 121 characters, limit 120")

    def test_the_index_links_every_page(self):
        self.write("docs/notes/gemm.md", "# Notes\n")
        self.expect_finding("docs/README.md: no link to docs/notes/gemm.md")
        self.write("docs/README.md", INDEX + "[notes](notes/gemm.md)\n")
        self.expect_clean()

    def test_the_way_of_a_gradient_has_at_most_ten_files(self):
        names = [f"hone/core/f{i}.cc" for i in range(11)]
        for name in names:
            self.write(name, "")
        self.write("docs/tour.md", "## One gradient\n" + "\n".join(names[:10]) +
                   "\n## One token\n" + names[10] + "\n")
        self.expect_clean()
        self.write("docs/tour.md", "## One gradient\n" + "\n".join(names) + "\n")
        self.expect_finding("11 files on the way of one gradient, limit 10")

    def test_the_table_of_includes_is_that_of_check_layers(self):
        self.write("hone/text/a.cc", "")
        self.expect_finding("text has no row or no column")
        table = ARCHITECTURE.replace("core | Lib", "core | text | Lib").replace(
            "| · | |", "| · | {} | |") + "| text | {} | · | |\n"
        table = table.replace("|---|", "|---|:-:|")
        self.write("docs/architecture.md", table.format("", "✓"))
        self.expect_clean()
        self.write("docs/architecture.md", table.format("✓", ""))
        self.expect_finding("core to text is allowed there, but not in")
        self.expect_finding("text to core is forbidden there, but not in")


if __name__ == "__main__":
    unittest.main()
