# SPDX-License-Identifier: Apache-2.0
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import cxx_scan

LICENSE = "// SPDX-License-Identifier: Apache-2.0\n"


def scan(text):
    return [(f.name, f.line, f.length, f.parameters) for f in cxx_scan.scan_functions(text)]


class ScanTest(unittest.TestCase):
    def test_definition_and_declaration(self):
        self.assertEqual(scan("int f(int a, int b);\n\nint g() {\n  return 1;\n}\n"),
                         [("f", 1, 0, 2), ("g", 3, 3, 0)])

    def test_template_arguments_are_not_parameters(self):
        self.assertEqual(scan("template <class A, class B>\nvoid f(std::map<A, B> m, int n) {}\n"),
                         [("f", 1, 2, 2)])

    def test_members_of_classes_and_namespaces(self):
        text = "namespace a {\nclass B : public C<int> {\n public:\n  explicit B(int x)\n" \
               "      : x_(x), y_{x} {\n    run();\n  }\n private:\n  int x_ = f(3);\n};\n}\n"
        self.assertEqual(scan(text), [("B", 4, 4, 1)])

    def test_braces_in_literals_comments_and_directives_do_not_count(self):
        text = 'void f() {\n  // {\n  g("{", \'{\', R"({{)");  /* { */\n}\n#define X {\nint h();\n'
        self.assertEqual(scan(text), [("f", 1, 4, 0), ("h", 6, 0, 0)])

    def test_tables_and_lambdas_inside_functions_are_part_of_them(self):
        text = "constexpr std::array<Row, 2> kRows{{{1, f(2)}, {3, 4}}};\n" \
               "int f() {\n  const auto g = [](int a) { return a; };\n  return g(1);\n}\n"
        self.assertEqual(scan(text), [("f", 2, 4, 0)])

    def test_operators_and_test_macros(self):
        text = "bool operator==(A a, B b) { return true; }\nTEST(Suite, reads_well) {\n}\n"
        self.assertEqual(scan(text),
                         [("operator==", 1, 1, 2), ("TEST(Suite, reads_well)", 2, 2, 0)])

    def test_digit_separators_are_no_characters(self):
        self.assertEqual(scan("int f() { return 1'000'000; }\nint g() { return 2; }\n"),
                         [("f", 1, 1, 0), ("g", 2, 1, 0)])


class CheckStyleTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.write("docs/environment.md", "")

    def tearDown(self):
        self.folder.cleanup()

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def run_tool(self):
        done = subprocess.run([sys.executable, str(TOOLS / "check_style.py"), "--root", self.root],
                              capture_output=True, text=True)
        return done.returncode, done.stdout

    def expect_finding(self, part):
        status, output = self.run_tool()
        self.assertEqual(status, 1, output)
        self.assertIn(part, output)

    def expect_clean(self):
        status, output = self.run_tool()
        self.assertEqual(status, 0, output)

    def write_code(self, path, text):
        """With as many lines of tests, so that only `text` can be wrong."""
        self.write(path, text)
        self.write("tests/" + path.removeprefix("hone/"), LICENSE + "\n" * (text.count("\n") + 1))

    def test_clean_tree(self):
        self.write_code("hone/core/a.cc", LICENSE + "int f() { return 1; }\n")
        self.expect_clean()

    def test_missing_license(self):
        self.write_code("hone/core/a.cc", "int f();\n")
        self.expect_finding("[license]")

    def test_wide_line(self):
        self.write_code("hone/core/a.cc", LICENSE + "// " + "x" * 98 + "\n")
        self.expect_finding("101 wide")

    def test_long_file_and_long_function(self):
        self.write_code("hone/core/a.cc", LICENSE + "void f() {\n" + "  g();\n" * 79 + "}\n")
        self.expect_finding("f has 81 lines, limit 80")
        self.write_code("hone/core/a.cc", LICENSE + "int a;\n" * 800)
        self.expect_finding("801 lines, limit 800")

    def test_kernels_may_have_longer_functions(self):
        self.write_code("hone/kernels/a.cc", LICENSE + "void f() {\n" + "  g();\n" * 100 + "}\n")
        self.expect_clean()

    def test_long_class(self):
        self.write_code("hone/core/a.cc", LICENSE + "class A {\n" + "  int f();\n" * 201 + "};\n")
        self.expect_finding("A has 202 lines, limit 200")
        self.write_code("hone/core/a.cc", LICENSE + "class A {\n" + "  int f();\n" * 199 + "};\n")
        self.expect_clean()

    def test_too_many_parameters(self):
        parameters = ", ".join(f"int p{i}" for i in range(9))
        self.write_code("hone/core/a.h", LICENSE + f"void f({parameters});\n")
        self.expect_finding("f takes 9 parameters, limit 8")

    def test_too_many_files_in_a_folder(self):
        for i in range(41):
            self.write_code(f"hone/core/a{i}.cc", LICENSE)
        self.expect_finding("hone/core: 41 files, limit 40")

    def test_conditionals_outside_kernels(self):
        self.write_code("hone/core/a.cc", LICENSE + "#if A\n#endif\n" * 4)
        self.expect_clean()
        self.write_code("hone/core/a.cc", LICENSE + "#if A\n#endif\n" * 5)
        self.expect_finding("5 #if")

    def test_banned_calls(self):
        self.write_code("hone/core/a.cc", LICENSE + "void f() { std::abort(); }\n")
        self.expect_finding("[no_abort]")
        self.write_code("hone/core/a.cc", LICENSE + "// abort()\nvoid f() { app.exit(1); }\n")
        self.expect_clean()

    def test_comments_that_begin_with_a_fragment(self):
        for comment in ("// Of a row.", "  // That of a row.", "/* Those of a row. */",
                        "int a;  // of rows\n// Of a row."):
            self.write_code("hone/core/a.h", LICENSE + f"\n{comment}\nint f();\n")
            self.expect_finding("a fragment: give it a subject [fragment]")
        self.write_code("hone/core/a.h", LICENSE + "\n// The size\n//\n// Of a row.\nint f();\n\n"
                        "// Offers rows.\nint g();  // the size\n"
                        "          // Of a row.\n")
        self.expect_clean()

    def test_fragment_names_the_place_and_the_words(self):
        self.write_code("hone/core/a.h", LICENSE + "// A row.\nint f();\n// That of a row.\n")
        self.expect_finding("hone/core/a.h: line 4: comment begins with 'That of', a fragment")

    def test_too_few_tests(self):
        self.write("hone/core/a.cc", LICENSE + "int a;\n" * 9)
        self.write("tests/core/a_test.cc", LICENSE + "int a;\n" * 4)
        self.expect_finding("core: 5 test lines for 10 code lines")

    def test_environment_variables_are_documented_both_ways(self):
        self.write_code("hone/core/a.cc", LICENSE + 'auto f() { return getenv("HONE_NEW"); }\n')
        self.expect_finding("HONE_NEW is not in docs/environment.md")
        self.write("docs/environment.md", "`HONE_NEW` and `HONE_OLD`\n")
        self.expect_finding("no code reads HONE_OLD")

    def test_exceptions_have_a_reason_and_match_something(self):
        self.write_code("hone/core/a.cc", "int f();\n")
        self.write("tools/style_allow.txt", "license hone/core/a.cc: generated elsewhere\n")
        self.expect_clean()
        self.write_code("hone/core/a.cc", LICENSE)
        self.expect_finding("matches nothing")
        self.write("tools/style_allow.txt", "license hone/core/a.cc\n")
        self.assertNotEqual(self.run_tool()[0], 0)


if __name__ == "__main__":
    unittest.main()
